"""Tables, figures and lines about all trainings."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pellucid.data.synthetic import VOWELS, Typo, WordList
from pellucid.recipes.digits.report import colors
from pellucid.recipes.typos.networks import SYMBOLS
from pellucid.recipes.typos.study import EXAMPLES, Answers, Point
from pellucid.reporting.figures import INK, MUTED, RULE, empty_figure, freeze_layout, style_axes, to_svg
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable

LONG = 8
"""Letters from which on a word is called long."""
SHORT = 5
"""Letters up to which it is called short."""


class Case(NamedTuple):
    """A typo, what the list says of it, and the rank that its position was given."""

    typo: Typo
    words: int
    """Words of the list that the form may have been meant as."""
    positions: int
    """Positions at which they have their other letter."""
    best: float
    """The chance of one who knows the whole list: the share of these words at the position where most are."""
    rank: int


class Row(NamedTuple):
    """Some cases together, in shares of 1."""

    label: str
    total: int
    top_1: float
    top_3: float
    ambiguous: float
    """Forms with several words one letter away."""
    doubtful: float
    """Forms whose wrong letter could stand at several positions."""
    best: float


def cases(words: WordList, typos: Sequence[Typo], ranks: Int[np.ndarray, " N"]) -> list[Case]:
    """Each typo with what the list says of it."""
    found = []
    for typo, rank in zip(typos, ranks.tolist(), strict=True):
        places = Counter(fit.position for fit in words.corrections(typo.wrong))
        found.append(Case(typo, places.total(), len(places), max(places.values()) / places.total(), rank))
    return found


def row_of(label: str, chosen: Sequence[Case]) -> Row:
    """Some cases in one line; of none all shares are zero."""
    total = max(len(chosen), 1)
    return Row(
        label,
        len(chosen),
        sum(case.rank == 1 for case in chosen) / total,
        sum(case.rank <= 3 for case in chosen) / total,
        sum(case.words > 1 for case in chosen) / total,
        sum(case.positions > 1 for case in chosen) / total,
        sum(case.best for case in chosen) / total,
    )


def by_length(found: Sequence[Case]) -> list[Row]:
    """All, the short, the long, and each length."""
    lengths = sorted({len(case.typo.right) for case in found})
    return [
        *_rows(
            found,
            [
                ("all", lambda case: True),
                (f"up to {SHORT} letters", lambda case: len(case.typo.right) <= SHORT),
                (f"{LONG} letters or more", lambda case: len(case.typo.right) >= LONG),
            ],
        ),
        *(row_of(str(length), [case for case in found if len(case.typo.right) == length]) for length in lengths),
    ]


def by_letters(found: Sequence[Case]) -> list[Row]:
    """By the class of the letter that was meant and of the one that was typed."""
    kinds: list[tuple[str, Callable[[Case], bool]]] = [
        ("vowel meant", lambda case: _meant(case) in VOWELS),
        ("consonant meant", lambda case: _meant(case) not in VOWELS),
        ("vowel typed", lambda case: _typed(case) in VOWELS),
        ("consonant typed", lambda case: _typed(case) not in VOWELS),
    ]
    both = [
        (f"{first}, {second}", lambda case, one=meant, two=typed: one(case) and two(case))
        for first, meant in kinds[:2]
        for second, typed in kinds[2:]
    ]
    return _rows(found, [*kinds, *both])


def by_doubt(found: Sequence[Case]) -> list[Row]:
    """By what else the form could have been meant as, for short words and for all."""
    kinds: list[tuple[str, Callable[[Case], bool]]] = [
        ("one word fits", lambda case: case.words == 1),
        ("several words, one position", lambda case: case.words > 1 and case.positions == 1),
        ("several positions", lambda case: case.positions > 1),
    ]
    short = [case for case in found if len(case.typo.right) <= SHORT]
    return [*_rows(found, kinds), *(each._replace(label=f"short: {each.label}") for each in _rows(short, kinds))]


def table_of(title: str, caption: str, first: str, rows: Sequence[Row]) -> ReportTable:
    """Rows as a table of a report."""
    heads = (first, "typos", "top 1", "top 3", "several words fit", "several positions fit", "best possible")
    return ReportTable(
        title,
        caption,
        heads,
        [(row.label, f"{row.total:,}", *(f"{100 * share:.1f} %" for share in row[2:])) for row in rows],
    )


def _rows(found: Sequence[Case], kinds: Iterable[tuple[str, Callable[[Case], bool]]]) -> list[Row]:
    """A row for each kind."""
    return [row_of(label, [case for case in found if holds(case)]) for label, holds in kinds]


def _meant(case: Case) -> str:
    """The right letter."""
    return case.typo.right[case.typo.position - 1]


def _typed(case: Case) -> str:
    """The wrong letter."""
    return case.typo.wrong[case.typo.position - 1]


POST: dict[str, dict[int, int]] = {
    "bapk": {1: 60, 3: 28, 4: 8},
    "downwtairs": {5: 14},
    "tably": {1: 14, 3: 80, 5: 240},
    "wtnts": {2: 14},
    "wresch": {6: 17},
    "boolcase": {1: 32, 4: 14},
    "pareztal": {3: 29, 4: 14, 5: 41},
}
"""The blue of some letters in the post's figure, by position from 1: 0 is the strongest yellow, 255 is white.

Read off its pixels. In boolcase an o has 77 as well; which of the two was not noted.
"""
RED, YELLOW = "#c81e1e", "#ffe100"
SIZE, MARGIN, FRAME_SECONDS = 560, 40, 0.08


class Highlighted(NamedTuple):
    """A word with the strength of each letter, from 0 to 1; None where it is not known."""

    word: str
    strengths: Sequence[float | None]
    right: frozenset[int]
    """Positions from 1 that a typo may have: where a word of the list has its other letter."""


def post_highlights(rights: Sequence[frozenset[int]]) -> list[Highlighted]:
    """The post's own figure, as far as it was read off."""
    return [
        Highlighted(word, [1 - blues[at] / 255 if at in blues else None for at in range(1, len(word) + 1)], right)
        for (word, blues), right in zip(POST.items(), rights, strict=True)
    ]


def highlight_figure(columns: Sequence[tuple[str, Sequence[Highlighted]]]) -> Figure:
    """Words letter by letter, the likelier a typo the more yellow; below a letter a line where a typo may be."""
    widest = max(len(each.word) for _, words in columns for each in words)
    rows = max(len(words) for _, words in columns)
    figure = empty_figure(0.4 + len(columns) * (widest + 1) * 0.21, 0.5 + 0.34 * rows)
    axes = figure.add_subplot()
    for column, (title, words) in enumerate(columns):
        left = column * (widest + 1)
        axes.text(left, -0.35, title, size=9, color=MUTED, va="bottom")
        for row, each in enumerate(words):
            for place, (letter, strength) in enumerate(zip(each.word, each.strengths, strict=True)):
                known = strength is not None
                shade = (1.0, 1.0 - 0.12 * (strength or 0), 1.0 - (strength or 0)) if known else "white"
                axes.add_patch(Rectangle((left + place, row), 1, 0.86, facecolor=shade, edgecolor=RULE, linewidth=0.6))
                axes.text(
                    left + place + 0.5, row + 0.43, letter, ha="center", va="center", color=INK if known else "#9aa3ad"
                )
                if place + 1 in each.right:
                    axes.plot([left + place + 0.15, left + place + 0.85], [row + 0.8] * 2, color=RED, linewidth=1.6)
    axes.set_xlim(-0.1, len(columns) * (widest + 1) - 0.9)
    axes.set_ylim(rows, -0.9)
    axes.set_axis_off()
    return freeze_layout(figure)


def embedding_figure(vectors: Sequence[tuple[str, Float[np.ndarray, "V 2"]]]) -> Figure:
    """Symbols at their two numbers, a panel for each training, vowels in red."""
    figure = empty_figure(3.5 * len(vectors), 3.6)
    for axes, (title, points) in zip(np.atleast_1d(np.array(figure.subplots(1, len(vectors)))), vectors, strict=True):
        for symbol, (x, y) in zip(_shown(), points.tolist(), strict=True):
            vowel = symbol in VOWELS
            style = {"color": RED if vowel else INK, "weight": "bold" if vowel else "normal"}
            axes.text(x, y, symbol, ha="center", va="center", size=11 if len(symbol) == 1 else 7, **style)
        low, high = points.min(axis=0), points.max(axis=0)
        room = 0.08 * (high - low) + 1e-6
        axes.set_xlim(low[0] - room[0], high[0] + room[0])
        axes.set_ylim(low[1] - room[1], high[1] + room[1])
        style_axes(axes)
        axes.set_title(title, size=9, color=MUTED, loc="left")
    return freeze_layout(figure)


def curve_figure(runs: Sequence[tuple[str, Sequence[tuple[int, float]]]], colors: Sequence[str]) -> Figure:
    """Positions right of the development words over typos seen, a line for each training."""
    figure = empty_figure(6.4, 3.2)
    axes = figure.add_subplot()
    for (name, points), color in zip(runs, colors, strict=True):
        axes.plot([x for x, _ in points], [100 * y for _, y in points], "o-", color=color, markersize=3, label=name)
    style_axes(axes)
    axes.set_ylim(0, 100)
    axes.set_ylabel("% of positions right", color=MUTED)
    axes.set_xlabel("typos seen", color=MUTED)
    axes.legend(frameon=False, labelcolor="linecolor", fontsize=9)
    return freeze_layout(figure)


def film_svg(film: Float[np.ndarray, "frames V 2"], title: str) -> str:
    """The symbols moving from the first frame to the last, over and over: an SVG document that needs no script.

    The scale is the same in all frames. The last frame stays for an eighth of the time.
    """
    count = len(film)
    seconds = count * FRAME_SECONDS * 8 / 7
    times = ";".join(f"{7 / 8 * at / max(count - 1, 1):.4f}" for at in range(count)) + ";1"
    reach = max(float(np.abs(film).max()), 1e-6)
    middle = SIZE / 2
    drawn = middle + film * np.array([1, -1]) * ((middle - MARGIN) / reach)
    clock = f'dur="{seconds:.2f}s" repeatCount="indefinite" keyTimes="{times}"'
    letters = [_moving(symbol, drawn[:, at], clock) for at, symbol in enumerate(_shown())]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}" width="{SIZE}" height="{SIZE}" '
        f'font-family="sans-serif" text-anchor="middle">\n<title>{escape(title)}</title>\n'
        f'<rect width="{SIZE}" height="{SIZE}" fill="white"/>\n'
        f'<path d="M0 {middle}H{SIZE}M{middle} 0V{SIZE}" stroke="{RULE}"/>\n'
        f'<text x="8" y="20" text-anchor="start" font-size="13" fill="{MUTED}">{escape(title)}</text>\n'
        f'<rect y="{SIZE - 4}" height="4" fill="{MUTED}" width="{SIZE}"><animate attributeName="width" '
        f'values="0;{SIZE};{SIZE}" keyTimes="0;0.875;1" dur="{seconds:.2f}s" repeatCount="indefinite"/></rect>\n'
        f"{''.join(letters)}</svg>\n"
    )


def _moving(symbol: str, points: Float[np.ndarray, "frames 2"], clock: str) -> str:
    """One symbol on its way; where nothing moves it stands where it ends."""
    path = [f"{x:.1f} {y:.1f}" for x, y in points.tolist()]
    vowel = symbol in VOWELS
    size, color, weight = 18 if len(symbol) == 1 else 11, RED if vowel else INK, 700 if vowel else 400
    look = f'fill="{color}" font-size="{size}" font-weight="{weight}"'
    return (
        f'<g transform="translate({path[-1]})"><text y="6" {look}>{escape(symbol)}</text><animateTransform '
        f'attributeName="transform" type="translate" values="{";".join([*path, path[-1]])}" {clock}/></g>\n'
    )


def _shown() -> list[str]:
    """The symbols as they are drawn: the padding by name."""
    return [symbol if symbol != " " else "pad" for symbol in SYMBOLS]


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
    return Told(runs, found, [frozenset(fit.position for fit in words.corrections(word)) for word in EXAMPLES])


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
            "How it learned",
            "Positions right of the development words, of which none is trained on.",
            to_svg(curve_figure(series, colors(len(series)))),
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
        to_svg(highlight_figure(highlighted)),
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
