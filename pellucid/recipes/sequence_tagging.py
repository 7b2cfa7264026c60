"""Recipes for published tagging data sets: SNIPS (slots and intents) and protein secondary structure."""

import gzip
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pellucid.data.examples import Example
from pellucid.errors import DataError, abbreviate_reason
from pellucid.evaluation.metrics import ScoredExample, ValidationMetric, bootstrap_ratio, wilson_interval
from pellucid.files import read_bytes
from pellucid.recipes.experiments import DataSplits, Experiment, ExperimentSuite
from pellucid.recipes.label_experiments import LabelPredictions, LabelScore, LabelSuite, run_label_suite
from pellucid.recipes.recipe import RecipeRequest

SNIPS_SPLITS = ("train", "valid", "test")
SNIPS_PUBLISHED = {
    "slot F1": {"Attention BiRNN": 87.8, "slot-gated": 88.8},
    "intent accuracy": {"Attention BiRNN": 96.7, "slot-gated": 97.0},
    "sentence accuracy": {"Attention BiRNN": 74.1, "slot-gated": 75.5},
}
SNIPS_CURVES = (ValidationMetric("span_f1", "slot F1"), ValidationMetric("exact_match", "sentence accuracy"))
SNIPS_INTRODUCTION = """\
Requests to a voice assistant in the split of Goo et al. (2018): 13,084 for training, 700 for validation, 700 for
testing. Every word has a slot tag (BIO), every request one of seven intents. One network predicts both: the intent from
one attention step over the encoder states, each slot tag from the state at its word (task tag-and-classify).

Every word is read by its vector and by its characters. Words that occur once in the training set share the vector of
unknown words, so the network learns from them how to read unknown words by their characters.

Slot F1 counts chunks as conlleval does. A sentence is correct if its intent and all its tags are; one of 700 is 0.14
points. Published: Goo et al. (2018), "Slot-Gated Modeling for Joint Slot Filling and Intent Prediction", the
attention BiRNN of Liu and Lane (2016) and their own model with full attention. Later systems are better: 92.2 and
94.2 slot F1 are published for two of 2019."""


def run_snips(request: RecipeRequest) -> Iterator[str]:
    """Train and score one network for slots and intents per seed.

    Args:
        request: The recipe's request.

    Returns:
        An iterator over the lines to print; the trainings run while it is read (`run_label_suite`).
    """
    return run_label_suite(snips_suite(), request)


def snips_suite() -> LabelSuite:
    """Return the suite of the recipe snips: its one experiment, scores and published numbers."""
    experiments = ExperimentSuite(
        name="snips",
        title="Slot filling and intent detection",
        introduction=SNIPS_INTRODUCTION,
        origin="the split of Goo et al. 2018 (github.com/MiuLab/SlotGated-SLU, data/snips)",
        metric="exact_match",
        experiments=[Experiment("snips", read_snips)],
        folder="slu-snips",
    )
    return LabelSuite(experiments, snips_scores, SNIPS_PUBLISHED, validation_metrics=SNIPS_CURVES)


def read_snips(folder: Path) -> DataSplits:
    """Read the three splits.

    Args:
        folder: Data folder with a folder per split (`SNIPS_SPLITS`).

    Returns:
        The three splits.

    Raises:
        DataError: As in `read_snips_split`.
    """
    return DataSplits(*(read_snips_split(folder / name) for name in SNIPS_SPLITS))


def read_snips_split(folder: Path) -> list[Example]:
    """Read requests as words, and their intents and slot tags.

    Args:
        folder: Folder of a split, with seq.in, seq.out and label.

    Returns:
        Requests, each with its intent and then a tag for each word, all separated by spaces.

    Raises:
        DataError: A file cannot be read or is not UTF-8, the files have different numbers of lines, or a line lacks a
            tag for each word or exactly one intent.
    """
    files = [folder / name for name in ("seq.in", "seq.out", "label")]
    try:
        columns = [[line.split() for line in str(read_bytes(file, DataError), "utf-8").splitlines()] for file in files]
    except UnicodeDecodeError as error:
        raise DataError(f"{folder}: seq.in, seq.out and label must be UTF-8: {abbreviate_reason(error)}") from error
    if len({len(column) for column in columns}) != 1:
        raise DataError(
            f"{folder}: seq.in, seq.out and label have {', '.join(str(len(column)) for column in columns)} lines"
        )
    examples = list[Example]()
    for number, (words, tags, label) in enumerate(zip(*columns, strict=True), start=1):
        if len(words) != len(tags) or len(label) != 1:
            raise DataError(
                f"{folder}, line {number}: expected a tag for each word and one label, got {len(words)} words, "
                f"{len(tags)} tags and {len(label)} labels"
            )
        examples.append(Example(" ".join(words), " ".join([*label, *tags])))
    return examples


def snips_scores(predictions: LabelPredictions) -> Mapping[str, LabelScore]:
    """Return slot F1, intent accuracy and sentence accuracy (all tags and the intent correct), in percent, each with
    its 95 % interval.

    Args:
        predictions: Predictions with their references.
    """
    spans = predictions.label_metrics.spans
    assert spans is not None
    correct_intents = sum(example.output[0] == example.reference[0] for example in predictions.scored)
    correct_sentences = sum(example.exact for example in predictions.scored)
    return {
        "slot F1": LabelScore(spans.f1, spans.f1_ci95),
        "intent accuracy": _proportion(correct_intents, predictions.scored),
        "sentence accuracy": _proportion(correct_sentences, predictions.scored),
    }


def _proportion(num_correct: int, examples: Sequence[object]) -> LabelScore:
    """Return the percentage of correct examples with its Wilson interval."""
    return LabelScore(100 * num_correct / len(examples), wilson_interval(num_correct, len(examples)).percent)


UNRESOLVED = "-"
"""Tag of residues whose structure is not resolved; also `ignored_tag` of the settings."""
STRUCTURE_NAMES = {"H": "helix", "E": "strand", "C": "coil"}
STRUCTURE_INTRODUCTION = """\
The training set of NetSurfP-2.0 (Klausen et al. 2019) in the version of FLIP (Dallago et al. 2021): 9,712 proteins
for training (2.48 million residues), 1,080 for validation, and 364 for testing, where the 75,402 resolved residues
count. Every residue is helix (H), strand (E) or neither (C).

The network reads the residues of one protein alone, without a profile of its relatives and without a language model.
Q3 is the accuracy over residues; its interval is by bootstrap over proteins. Unresolved residues are read, but
neither trained nor scored.

For comparison, on other test sets: networks for single sequences are published at 72.6 (SPIDER3-Single, ProteinUnet)
and 74.3 (SPOT-1D-Single) on TEST2018, and at 71 (an LSTM without pretraining) in TAPE on CB513; with profiles
NetSurfP-2.0 reaches 85. The most frequent class of the test set alone gives 38.6."""


def run_structure(request: RecipeRequest) -> Iterator[str]:
    """Train and score one tagging network per seed.

    Args:
        request: The recipe's request.

    Returns:
        An iterator over the lines to print; the trainings run while it is read (`run_label_suite`).
    """
    return run_label_suite(structure_suite(), request)


def structure_suite() -> LabelSuite:
    """Return the suite of the recipe protein-structure: its one experiment and its scores."""
    experiments = ExperimentSuite(
        name="protein-structure",
        title="Secondary structure of proteins",
        introduction=STRUCTURE_INTRODUCTION,
        origin="FLIP's secondary structure (github.com/J-SNACKKB/FLIP, splits/secondary_structure) as tables of id, "
        "residues, structure, mask",
        metric="exact_match",
        experiments=[Experiment("structure", read_structure)],
        folder="protein-ss3-flip",
    )
    return LabelSuite(
        experiments,
        structure_scores,
        {},
        has_text_sources=False,
        validation_metrics=(ValidationMetric("symbol_accuracy", "Q3"),),
    )


def read_structure(folder: Path) -> DataSplits:
    """Read the three splits.

    Args:
        folder: Data folder with derived-tsv/SPLIT.tsv.gz for train, dev and test.

    Returns:
        The three splits.

    Raises:
        DataError: As in `read_structure_split`.
    """
    return DataSplits(
        *(list(read_structure_split(folder / "derived-tsv" / f"{part}.tsv.gz")) for part in ("train", "dev", "test"))
    )


def read_structure_split(path: Path) -> Iterator[Example]:
    """Yield the residues and the structure of each protein of a split, but of none without a resolved residue.

    Args:
        path: Table with gzip compression: id, residues, structure and mask (1: resolved) of each protein.

    Yields:
        Residues with a tag each; unresolved residues have the tag `UNRESOLVED`.

    Raises:
        DataError: The file cannot be read, is not a gzip file, or a line has not four columns or residues, structure
            and mask of different lengths. It is raised when the first protein, or that of the line, is requested.
    """
    try:
        text = gzip.decompress(read_bytes(path, DataError)).decode("ascii")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a table with gzip compression: {abbreviate_reason(error)}") from error
    for number, line in enumerate(text.splitlines(), start=1):
        columns = line.split("\t")
        if len(columns) != 4 or len({len(column) for column in columns[1:]}) != 1:
            raise DataError(
                f"{path}, line {number}: expected id, residues, structure and mask, the last three of equal length"
            )
        _, residues, structure, mask = columns
        tags = "".join(tag if bit == "1" else UNRESOLVED for tag, bit in zip(structure, mask, strict=True))
        if tags.strip(UNRESOLVED):
            yield Example(residues, tags)


def structure_scores(predictions: LabelPredictions) -> Mapping[str, LabelScore]:
    """Return Q3 (accuracy over resolved residues) and the recall of helix, strand and coil, in percent, each with its
    95 % interval.

    Args:
        predictions: Predictions with their references.
    """
    metrics = predictions.label_metrics
    recalls = {f"{name} recall": _structure_recall(predictions.scored, tag) for tag, name in STRUCTURE_NAMES.items()}
    return {"Q3": LabelScore(metrics.accuracy, metrics.accuracy_ci95), **recalls}


def _structure_recall(scored: Sequence[ScoredExample], tag: str) -> LabelScore:
    """Return the recall of a structure, with a bootstrap interval over proteins."""
    num_correct = [
        sum(output == reference == tag for output, reference in zip(protein.output, protein.reference, strict=True))
        for protein in scored
    ]
    totals = [protein.reference.count(tag) for protein in scored]
    return LabelScore(100 * sum(num_correct) / max(sum(totals), 1), bootstrap_ratio(num_correct, totals).percent)
