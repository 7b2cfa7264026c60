"""What came out of several trainings on typos, as lines, report.json and the parts of a page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pellucid.data.typos import Typo, WordList
from pellucid.look.figures import svg
from pellucid.recipes.digits.figures import colors
from pellucid.recipes.typos.figures import POST, Highlighted, curve_figure, highlight_figure, post_highlights
from pellucid.recipes.typos.study import EXAMPLES, Answers, Point
from pellucid.recipes.typos.tables import LONG, Case, Row, by_doubt, by_length, by_letters, cases, row_of, table_of
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable

AMBIGUITY = (
    "Several words fit: other words of the list are one letter away from the form too. Several positions fit: not all "
    "of them at the same position. Best possible: what one who knows the whole list can reach on average. Top 3: the "
    "wrong position is among the three likeliest."
)


class Run(NamedTuple):
    """One training."""

    seed: int
    parameters: int
    seconds: float
    curve: Sequence[Point]
    """In typos seen and shares of 1."""
    test: Sequence[Typo]
    answers: Answers
    examples: Sequence[Sequence[float]]
    """For each of the post's words the probability of each of its letters."""


class Told(NamedTuple):
    """All trainings, and what the list says of every typo that they were tested on."""

    runs: Sequence[Run]
    found: Sequence[Sequence[Case]]
    rights: Sequence[frozenset[int]]
    """The positions at which each of the post's words may be wrong."""

    @property
    def pooled(self) -> list[Case]:
        """The cases of all runs."""
        return [case for each in self.found for case in each]


def told(runs: Sequence[Run], words: WordList) -> Told:
    """Runs with what the list says."""
    found = [cases(words, run.test, run.answers.ranks) for run in runs]
    return Told(runs, found, [frozenset(fit.position for fit in words.fits(word)) for word in EXAMPLES])


def lines_of(name: str, every: Told) -> Iterator[str]:
    """One line a run."""
    for run, found in zip(every.runs, every.found, strict=True):
        whole, far = row_of("", found), row_of("", [case for case in found if len(case.typo.right) >= LONG])
        yield (
            f"{name}, seed {run.seed}: {100 * whole.top_1:.1f} % of the positions, {100 * whole.top_3:.1f} % among the "
            f"first three; words of {LONG} letters or more {100 * far.top_1:.1f} % and {100 * far.top_3:.1f} %; "
            f"{run.parameters:,} parameters, {run.curve[-1].samples:,} typos in {run.seconds:,.0f} s"
        )


def summary_of(every: Told) -> list[tuple[str, str]]:
    """The numbers that matter most."""
    rows, runs = by_length(every.pooled), every.runs
    which = f"mean of {len(runs)} seeds" if len(runs) > 1 else f"seed {runs[0].seed}"
    return [
        ("positions right", f"{100 * rows[0].top_1:.1f} % ({which}; best possible {100 * rows[0].best:.1f} %)"),
        ("among the first three", f"{100 * rows[0].top_3:.1f} %"),
        (f"{LONG} letters or more", f"{100 * rows[2].top_1:.1f} % (first three {100 * rows[2].top_3:.1f} %)"),
        (
            "the post's words",
            f"{explained(every)} of {len(EXAMPLES) * len(runs)} (the post's own figure: {_theirs(every)} of 7)",
        ),
        ("parameters", f"{runs[0].parameters:,}"),
        ("training", f"{runs[0].seconds:,.0f} s ({runs[0].curve[-1].samples:,} typos, one thread, a seed)"),
    ]


def parts_of(every: Told) -> list[ReportPart]:
    """Curves, tables and the post's words."""
    pooled = every.pooled
    series = [(f"seed {run.seed}", [(point.samples, point.right) for point in run.curve]) for run in every.runs]
    which = "All seeds together. " if len(every.runs) > 1 else ""
    return [
        ReportFigure(
            "How it learnt",
            "Positions right of the development words, of which none is trained on.",
            svg(curve_figure(series, colors(len(series)))),
        ),
        table_of("By length", f"{which}{AMBIGUITY}", "word", by_length(pooled)),
        table_of("By letter", f"{which}Vowels: a, e, i, o, u.", "letter", by_letters(pooled)),
        table_of("Is there one answer?", f"{which}Short: up to 5 letters.", "form", by_doubt(pooled)),
        *_post(every),
    ]


def numbers_of(every: Told) -> dict[str, Any]:
    """For report.json, in shares of 1."""
    pooled = every.pooled
    tables = {"by_length": by_length(pooled), "by_letters": by_letters(pooled), "by_doubt": by_doubt(pooled)}
    return {
        **{name: [row._asdict() for row in rows] for name, rows in tables.items()},
        "runs": [
            {
                **_row(by_length(found)),
                **{"seed": run.seed, "parameters": run.parameters, "seconds": run.seconds},
                "curve": [point._asdict() for point in run.curve],
                "examples": {
                    word: [round(value, 4) for value in values]
                    for word, values in zip(EXAMPLES, run.examples, strict=True)
                },
            }
            for run, found in zip(every.runs, every.found, strict=True)
        ],
        "examples_explained": explained(every),
    }


def explained(every: Told) -> int:
    """How often, over the post's words and all runs, the likeliest position is one at which the word may be wrong."""
    return sum(
        _strongest(values) in right
        for run in every.runs
        for values, right in zip(run.examples, every.rights, strict=True)
    )


def _row(rows: Sequence[Row]) -> Mapping[str, float]:
    """The numbers of one run: of all words, and of the long ones."""
    whole, far = rows[0], rows[2]
    return {"top_1": whole.top_1, "top_3": whole.top_3, "long_top_1": far.top_1, "long_top_3": far.top_3}


def _post(every: Told) -> Iterator[ReportPart]:
    """The post's words, highlighted as in its figure, and the same in words."""
    title = "The words of the post"
    highlighted = [("the post's figure", post_highlights(every.rights))]
    for run in every.runs[:3]:
        own = zip(EXAMPLES, run.examples, every.rights, strict=True)
        highlighted.append((f"here, seed {run.seed}", [Highlighted(*each) for each in own]))
    yield ReportFigure(
        title,
        "The more yellow a letter, the likelier it is the wrong one. Of the post's figure only the letters in black "
        "were read off. A red line: with another letter there, it is a word of the list. No word that is one letter "
        "away from one of these was trained on.",
        svg(highlight_figure(highlighted)),
    )
    heads = ("typed", "may be wrong at", "the post's figure", *(f"seed {run.seed}" for run in every.runs))
    rows = list[tuple[str, ...]]()
    for at, (word, right) in enumerate(zip(EXAMPLES, every.rights, strict=True)):
        places = ", ".join(f"{place} ({word[place - 1]})" for place in sorted(right)) or "none of this list"
        cells = [_cell(word, min(POST[word], key=POST[word].__getitem__), right)]
        cells += [_cell(word, _strongest(run.examples[at]), right, max(run.examples[at])) for run in every.runs]
        rows.append((word, places, *cells))
    yield ReportTable(
        title, "The likeliest position and its probability; the post's: the strongest yellow.", heads, rows
    )


def _cell(word: str, place: int, right: frozenset[int], chance: float | None = None) -> str:
    """A position with its letter and whether it may be the wrong one."""
    likely = "" if chance is None else f", {chance:.2f}"
    return f"{place} ({word[place - 1]}{likely}) {'✓' if place in right else '✗'}"


def _strongest(values: Sequence[float]) -> int:
    """The likeliest position of a word, from 1."""
    return max(range(len(values)), key=values.__getitem__) + 1


def _theirs(every: Told) -> int:
    """The post's words whose strongest yellow may be wrong."""
    return sum(
        min(blues, key=blues.__getitem__) in right for blues, right in zip(POST.values(), every.rights, strict=True)
    )
