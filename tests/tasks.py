"""What the tests of the four tasks share: configurations, tiny data whose answers are rules, runs made once."""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from trained_runs import SMALL, Trained, shared_folder, train_to_end, write_pairs

from pellucid.config.settings import Config, Task
from pellucid.config.toml import build_config
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.classification import ClassificationPredictor
from pellucid.tasks.registry import build_network, configured_task
from pellucid.training.training_data import TrainingFiles

TASKS: Sequence[Task] = ("tag", "classify", "point")
UNSCORED = "-"


def tagged(random_: random.Random) -> Example:
    """Each a after no b is V, all else C; now and then a tag is not scored."""
    source = "".join(random_.choices("abcd", k=random_.randint(2, 8)))
    tags = ["V" if symbol == "a" and not source[:at].endswith("b") else "C" for at, symbol in enumerate(source)]
    if random_.random() < 0.3:
        tags[random_.randrange(len(tags))] = UNSCORED
    return Example(source, "".join(tags))


def classified(random_: random.Random) -> Example:
    """Whether there is an a, in words."""
    source = "".join(random_.choices("abcd", k=random_.randint(2, 8)))
    return Example(source, "an a" if "a" in source else "no a")


def pointed(random_: random.Random) -> Example:
    """Where the one x stands."""
    symbols = random_.choices("abcd", k=random_.randint(2, 8))
    place = random_.randrange(len(symbols))
    symbols[place] = "x"
    return Example("".join(symbols), str(place + 1))


RULES: Mapping[str, Callable[[random.Random], Example]] = {"tag": tagged, "classify": classified, "point": pointed}


def examples(task: Task, count: int, seed: int) -> list[Example]:
    """Pairs of a task, none without a tag that is scored."""
    generator = random.Random(seed)
    drawn = [RULES[task](generator) for _ in range(2 * count)]
    return [each for each in drawn if set(each.target) != {UNSCORED}][:count]


def config_of(task: Task, **settings: Mapping[str, Any]) -> Config:
    """A configuration of the smallest sizes for a task; tags have one that is not scored."""
    parts: dict[str, dict[str, Any]] = {name: dict(part) for name, part in SMALL.items()}
    parts["data"] = {"ignored_tag": UNSCORED} if task == "tag" else {}
    for name, own in settings.items():
        parts[name] = {**parts.get(name, {}), **own}
    return build_config({"size": "tiny", "task": task, **parts}, origin="a test")


def vocabularies_for(config: Config, known: Sequence[Example]) -> Vocabularies:
    """What examples teach."""
    return configured_task(config).learn_vocabularies(known, build_tokenizers(config.data), config)


def answerer_of(config: Config, known: Sequence[Example]) -> ClassificationPredictor:
    """A model that was never trained."""
    vocabularies = vocabularies_for(config, known)
    made = configured_task(config).build_predictor(config, vocabularies, build_network(config, vocabularies).eval(), "")
    assert isinstance(made, ClassificationPredictor)
    return made


@cache
def task_run(task: Task) -> Trained:
    """A small finished run that has nearly learned its rule. Read it; copy it to change it."""
    folder = shared_folder() / f"task-{task}"
    folder.mkdir(parents=True, exist_ok=True)
    files = TrainingFiles(
        write_pairs(folder / "train.tsv", examples(task, 300, 1)),
        write_pairs(folder / "dev.tsv", examples(task, 40, 2)),
    )
    training = {"epochs": 6, "batch_size": 20, "learning_rate": 0.02, "eval_interval": 2}
    config = config_of(task, training=training, decoder={"num_hops": 2} if task == "classify" else {})
    train_to_end(files, folder / "run", config)
    return Trained(files, folder / "run", config)
