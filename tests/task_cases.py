"""Configurations, small data sets and small runs of the tasks tag, classify, point and tag-and-classify."""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from trained_runs import SMALL_SIZES, DataFiles, TrainedRun, shared_folder, train_to_end, write_pairs

from pellucid.config.settings import Config, TaskName
from pellucid.config.toml import build_config
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.labeling_predictor import LabelingPredictor
from pellucid.tasks.registry import build_network, get_task

CLASSIFICATION_TASKS: Sequence[TaskName] = ("tag", "classify", "point", "tag-and-classify")
IGNORED_TAG = "-"


def make_tag_example(generator: random.Random) -> Example:
    """Return a pair that tags V each a that does not follow a b, and C all other symbols; some tags are ignored."""
    source = "".join(generator.choices("abcd", k=generator.randint(2, 8)))
    tags = [
        "V" if symbol == "a" and not source[:position].endswith("b") else "C" for position, symbol in enumerate(source)
    ]
    if generator.random() < 0.3:
        tags[generator.randrange(len(tags))] = IGNORED_TAG
    return Example(source, "".join(tags))


def make_classify_example(generator: random.Random) -> Example:
    """Return a pair whose class tells if the source contains an a."""
    source = "".join(generator.choices("abcd", k=generator.randint(2, 8)))
    return Example(source, "an a" if "a" in source else "no a")


def make_point_example(generator: random.Random) -> Example:
    """Return a pair whose target is the position of the only x."""
    symbols = generator.choices("abcd", k=generator.randint(2, 8))
    position = generator.randrange(len(symbols))
    symbols[position] = "x"
    return Example("".join(symbols), str(position + 1))


def make_tag_and_classify_example(generator: random.Random) -> Example:
    """Return a pair with the tags of `make_tag_example` after a class: V if the source contains a d, else N.

    V is both a class and a tag.
    """
    source, tags, _ = make_tag_example(generator)
    return Example(source, ("V" if "d" in source else "N") + tags)


EXAMPLE_MAKERS: Mapping[str, Callable[[random.Random], Example]] = {
    "tag": make_tag_example,
    "classify": make_classify_example,
    "point": make_point_example,
    "tag-and-classify": make_tag_and_classify_example,
}


def make_examples(task: TaskName, count: int, seed: int) -> list[Example]:
    """Return pairs of a task; each has at least one tag that is not ignored."""
    generator = random.Random(seed)
    candidates = [EXAMPLE_MAKERS[task](generator) for _ in range(2 * count)]
    return [pair for pair in candidates if set(pair.target) != {IGNORED_TAG}][:count]


def make_task_config(task: TaskName, **settings: Mapping[str, Any]) -> Config:
    """Return a configuration of the smallest sizes for a task; tasks with tags have an ignored tag."""
    tables: dict[str, dict[str, Any]] = {name: dict(table) for name, table in SMALL_SIZES.items()}
    tables["data"] = {"ignored_tag": IGNORED_TAG} if "tag" in task else {}
    for name, table in settings.items():
        tables[name] = {**tables.get(name, {}), **table}
    return build_config({"size": "tiny", "task": task, **tables}, origin="a test")


def learn_task_vocabularies(config: Config, examples: Sequence[Example]) -> Vocabularies:
    """Return the vocabularies that a task learns from examples."""
    return get_task(config.task).learn_vocabularies(examples, build_tokenizers(config.data), config)


def make_untrained_predictor(config: Config, examples: Sequence[Example]) -> LabelingPredictor:
    """Return a predictor with an untrained network."""
    vocabularies = learn_task_vocabularies(config, examples)
    predictor = get_task(config.task).build_predictor(
        config, vocabularies, build_network(config, vocabularies).eval(), ""
    )
    assert isinstance(predictor, LabelingPredictor)
    return predictor


@cache
def task_run(task: TaskName) -> TrainedRun:
    """Return a small finished run that has nearly learned its task. Tests copy it before they change it."""
    folder = shared_folder() / f"task-{task}"
    folder.mkdir(parents=True, exist_ok=True)
    files = DataFiles(
        write_pairs(folder / "train.tsv", make_examples(task, 300, 1)),
        write_pairs(folder / "dev.tsv", make_examples(task, 40, 2)),
    )
    training = {"epochs": 6, "batch_size": 20, "learning_rate": 0.02, "eval_interval": 2}
    config = make_task_config(task, training=training, decoder={"num_hops": 2} if task == "classify" else {})
    train_to_end(files, folder / "run", config)
    return TrainedRun(files, folder / "run", config)
