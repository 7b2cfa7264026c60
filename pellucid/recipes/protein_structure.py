"""The secondary structure of proteins, residue by residue: helix, strand or neither, from the residues alone."""

import gzip
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pellucid.data.examples import Example
from pellucid.errors import DataError, abbreviate_reason
from pellucid.evaluation.metrics import Followed, Scored, bootstrap_ratio
from pellucid.files import read_bytes
from pellucid.recipes.experiments import Experiment, Pairs, Reference
from pellucid.recipes.labelling import Answers, Labelling, Score, run_labelling
from pellucid.recipes.recipe import Request

UNSCORED = "-"
"""Stands for the structure of a residue that was not resolved; the settings' file says so too."""
KINDS = {"H": "helix", "E": "strand", "C": "coil"}
INTRODUCTION = """The training set of NetSurfP-2.0 (Klausen et al. 2019) as FLIP (Dallago et al. 2021) has it: 9,712
proteins to train on (2.48 million residues), 1,080 to develop on, and 364 proteins to test on, none of whose residues
but the 75,402 resolved ones count. Every residue is helix (H), strand (E) or neither (C).

The network reads the residues of the one protein alone: no profile of its relatives, no language model. Q3 is the
share of residues that are told right; its interval is by bootstrap over proteins. Residues that were not resolved are
read, but neither trained nor scored.

For scale, from other test sets: networks that read single sequences are published at 72.6 (SPIDER3-Single,
ProteinUnet) and 74.3 (SPOT-1D-Single) on TEST2018, and at 71 (an LSTM without pretraining) in TAPE on CB513; with
profiles NetSurfP-2.0 reaches 85. Always telling the commonest kind of the test set gives 38.6."""


def run(request: Request) -> Iterator[str]:
    """Train and judge."""
    return run_labelling(labelling(), request)


def labelling() -> Labelling:
    """The recipe."""
    reference = Reference(
        name="protein-structure",
        title="Secondary structure",
        introduction=INTRODUCTION,
        origin="FLIP's secondary structure (github.com/J-SNACKKB/FLIP, splits/secondary_structure) as tables of id, "
        "residues, structure, mask",
        measure="exact_match",
        experiments=[Experiment("structure", pairs)],
        folder="protein-ss3-flip",
    )
    return Labelling(reference, scores, {}, readable=False, followed=(Followed("symbol_accuracy", "Q3"),))


def pairs(folder: Path) -> Pairs:
    """The three parts."""
    return Pairs(*(list(read_part(folder / "derived-tsv" / f"{part}.tsv.gz")) for part in ("train", "dev", "test")))


def read_part(path: Path) -> Iterator[Example]:
    """Residues and their structure, `UNSCORED` where it was not resolved. A protein resolved nowhere is left out."""
    try:
        text = gzip.decompress(read_bytes(path, DataError)).decode("ascii")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is no table packed with gzip: {abbreviate_reason(error)}") from error
    for number, line in enumerate(text.splitlines(), start=1):
        columns = line.split("\t")
        if len(columns) != 4 or len({len(column) for column in columns[1:]}) != 1:
            raise DataError(f"{path}, line {number}: expected id, residues, structure and mask, the last three as long")
        _, residues, structure, mask = columns
        known = "".join(kind if seen == "1" else UNSCORED for kind, seen in zip(structure, mask, strict=True))
        if known.strip(UNSCORED):
            yield Example(residues, known)


def scores(answers: Answers) -> Mapping[str, Score]:
    """Q3, and of each kind the share of its residues that were told right."""
    labelled = answers.labelled
    recalls = {f"{name} found": _recall(answers.scored, kind) for kind, name in KINDS.items()}
    return {"Q3": Score(labelled.accuracy, labelled.accuracy_ci95), **recalls}


def _recall(scored: Sequence[Scored], kind: str) -> Score:
    """The share of the residues of a kind that were told right."""
    right = [sum(a == b == kind for a, b in zip(each.output, each.reference, strict=True)) for each in scored]
    wanted = [each.reference.count(kind) for each in scored]
    return Score(100 * sum(right) / max(sum(wanted), 1), bootstrap_ratio(right, wanted).percent)
