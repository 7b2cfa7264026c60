"""The place in the cell where a protein works, from its residues: with attention and without, on two splits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from pellucid.evaluation.metrics import wilson_interval
from pellucid.recipes.experiments import Experiment, Pairs, Reference
from pellucid.recipes.labelling import Answers, Labelling, Run, Score, run_labelling
from pellucid.recipes.proteins.places import Protein, family_split, random_split, read_places
from pellucid.recipes.proteins.profiles import attention_profiles, profile_figure, profile_table
from pellucid.recipes.recipe import Request
from pellucid.reporting.figures import to_svg
from pellucid.viewer.report_schema import ReportFigure, ReportPart

Split = Callable[[Sequence[Protein]], Pairs]
SPLITS: Mapping[str, Split] = {"random": random_split, "families": family_split}
READERS: Mapping[str, Mapping[str, Any]] = {
    "attention": {},
    "final": {"attention": {"type": "none", "num_heads": 1}, "decoder": {"output": "state"}},
}
"""What reads the encoder's states: one look of four heads, whose contexts alone tell the place, or the last states."""
INTRODUCTION = """9,222 proteins of Swiss-Prot in four places: cytosol, mitochondrion, nucleus, secreted. Convolutions
of 3, 5 and 9 residues, an LSTM both ways, and then either one look of attention with four heads, from whose contexts
alone the place is told, or the LSTM's last states. Of a protein of more than 1,000 residues the first 500 and the last
500 are read.

The set has no split, and its proteins are not chosen to be unlike: near-copies of a protein, of other species or from
the same gene family, stand beside it. A random split puts some of them on both sides, and what is measured on it looks
too good. So there are two splits, each 80 : 10 : 10 with a fixed seed. "random" draws proteins. "families" draws
families: proteins that share at least 2 % of the shorter one's stretches of eight residues, and at least two of them,
or begin with the same thirty residues, are of one family, and so are near-copies of near-copies. Distant relatives,
which share no such stretches, are still on both sides.

The proteins come from github.com/dannyfriar/protein-localization-prediction. Nothing reviewed is published on them.
MCC is the correlation of Gorodkin (2004) for several classes."""


def run(request: Request) -> Iterator[str]:
    """Train and judge every reader on every split."""
    return run_labelling(labelling(), request)


def labelling() -> Labelling:
    """The recipe."""
    reference = Reference(
        name="protein-place",
        title="The place of a protein",
        introduction=INTRODUCTION,
        origin="four FASTA files (github.com/dannyfriar/protein-localization-prediction, data), packed with gzip",
        measure="exact_match",
        experiments=[
            Experiment(f"{split}-{reader}", partial(pairs, made), settings=settings)
            for split, made in SPLITS.items()
            for reader, settings in READERS.items()
        ],
        folder="protein-localisation-ucl",
    )
    return Labelling(reference, scores, {}, attention_profiles, parts, readable=False)


def pairs(split: Split, folder: Path) -> Pairs:
    """The three parts of a split."""
    return split(read_places(folder))


def scores(answers: Answers) -> Mapping[str, Score]:
    """Accuracy, and the correlation."""
    right, total = sum(each.exact for each in answers.scored), len(answers.scored)
    mcc = answers.labelled.mcc
    assert mcc is not None
    return {"accuracy": Score(100 * right / total, wilson_interval(right, total).percent), "MCC": Score(mcc)}


def parts(runs: Sequence[Run]) -> Iterator[ReportPart]:
    """Where attention lies along the proteins, for the first run of each split that has it."""
    told = set[str]()
    for run in runs:
        profiles = run.worths.test.further.get("attention")
        if profiles and run.experiment not in told:
            told.add(run.experiment)
            table = profile_table(profiles)
            title = f"{table.title}: {run.experiment}, {run.who}"
            caption = "The dashed line is what equal weights would give."
            yield ReportFigure(title, caption, to_svg(profile_figure(profiles)))
            yield msgspec.structs.replace(table, title=title)
