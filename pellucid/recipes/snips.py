"""Slots and intents of spoken requests by one tagging: the tag of a word put in front of each is the intent."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pellucid.data.examples import Example
from pellucid.errors import DataError
from pellucid.evaluation.metrics import ValidationMetric, wilson_interval
from pellucid.files import read_bytes
from pellucid.recipes.experiments import Experiment, Pairs, Reference
from pellucid.recipes.labelling import Answers, Labelling, Score, run_labelling
from pellucid.recipes.recipe import Request

FRONT = "<intent>"
"""The word in front, at which the intent is read."""
PARTS = ("train", "valid", "test")
RARE = 1
"""Words met so often in training, or never, are told by their signature."""
PUBLISHED = {
    "slot F1": {"Attention BiRNN": 87.8, "slot-gated": 88.8},
    "intent accuracy": {"Attention BiRNN": 96.7, "slot-gated": 97.0},
    "sentence accuracy": {"Attention BiRNN": 74.1, "slot-gated": 75.5},
}
FOLLOWED = (ValidationMetric("span_f1", "slot F1"), ValidationMetric("exact_match", "sentence accuracy"))
INTRODUCTION = """Requests to a voice assistant, in the split of Goo et al. (2018): 13,084 to train on, 700 to develop
on, 700 to test on. Every word has a tag (BIO) that says which slot it belongs to, every request one of seven intents.
One network tells both: a word that is the same in every request is put in front, and its tag is the intent, read from
a state that the backward cells bring there from the end of the request.

Words that the training set has once, and words that it has not, are read as a signature: a number, or the word's last
two letters. So the network learns from the words met once what to make of the ones never met.

Slot F1 counts chunks as conlleval does. A sentence is right if its intent and all its tags are; one of 700 is 0.14
points. Published: Goo et al. (2018), "Slot-Gated Modeling for Joint Slot Filling and Intent Prediction", the attention
BiRNN of Liu and Lane (2016) and their own model with full attention. Later systems are beyond both: 92.2 and 94.2 slot
F1 are published for two of 2019."""


def run(request: Request) -> Iterator[str]:
    """Train and judge."""
    return run_labelling(labelling(), request)


def labelling() -> Labelling:
    """The recipe."""
    reference = Reference(
        name="snips",
        title="Slots and intents",
        introduction=INTRODUCTION,
        origin="the split of Goo et al. 2018 (github.com/MiuLab/SlotGated-SLU, data/snips)",
        measure="exact_match",
        experiments=[Experiment("snips", pairs)],
        folder="slu-snips",
    )
    return Labelling(reference, scores, PUBLISHED, validation_metrics=FOLLOWED)


def pairs(folder: Path) -> Pairs:
    """The three parts, rare words as their signatures."""
    parts = [read_part(folder / part) for part in PARTS]
    counts = Counter(word for example in parts[0] for word in example.source.split())
    return Pairs(*([signed(example, counts) for example in part] for part in parts))


def read_part(folder: Path) -> list[Example]:
    """Requests with the word in front, and their tags with the intent in front; `DataError` for what does not match."""
    files = [folder / name for name in ("seq.in", "seq.out", "label")]
    columns = [[line.split() for line in read_bytes(file, DataError).decode("utf-8").splitlines()] for file in files]
    if len({len(column) for column in columns}) != 1:
        raise DataError(
            f"{folder}: seq.in, seq.out and label have {', '.join(str(len(each)) for each in columns)} lines"
        )
    examples = list[Example]()
    for number, (words, tags, label) in enumerate(zip(*columns, strict=True), start=1):
        if len(words) != len(tags) or len(label) != 1:
            raise DataError(
                f"{folder}, line {number}: expected a tag for each word and one label, got {len(words)} words, "
                f"{len(tags)} tags and {len(label)} labels"
            )
        examples.append(Example(" ".join([FRONT, *words]), " ".join([*label, *tags])))
    return examples


def signed(example: Example, counts: Mapping[str, int]) -> Example:
    """The same with rare words as their signatures."""
    words = example.source.split()
    return example._replace(source=" ".join(word if counts[word] > RARE else signature(word) for word in words))


def signature(word: str) -> str:
    """What is told of a rare word: that it is a number, or how it ends."""
    return "<number>" if any(letter.isdigit() for letter in word) else f"<{word[-2:]}>"


def scores(answers: Answers) -> Mapping[str, Score]:
    """Slot F1, intent accuracy, and the share of requests all of whose tags are right, the intent's with them."""
    spans = answers.labelled.spans
    assert spans is not None
    intents = sum(each.output[0] == each.reference[0] for each in answers.scored)
    return {
        "slot F1": Score(spans.f1, spans.f1_ci95),
        "intent accuracy": _share(intents, answers.scored),
        "sentence accuracy": _share(sum(each.exact for each in answers.scored), answers.scored),
    }


def _share(right: int, among: Sequence[object]) -> Score:
    """A share of examples with its interval."""
    return Score(100 * right / len(among), wilson_interval(right, len(among)).percent)
