"""Report on the trainings: tables, figures and lines."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pellucid.data.synthetic import VOWELS, Typo, WordList
from pellucid.recipes.digits.report import line_colors
from pellucid.recipes.typos.training import POST_WORDS, SYMBOLS, TypoPredictions, TypoValidation
from pellucid.reporting.figures import INK, MUTED, RULE, empty_figure, freeze_layout, style_axes, to_svg
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable

MIN_LONG_WORD = 8
"""Minimum letters of a long word."""
MAX_SHORT_WORD = 5
"""Maximum letters of a short word."""


class TypoCase(NamedTuple):
    """A typo with its ambiguity in the word list and the predicted rank of its position."""

    typo: Typo
    words: int
    """Words of the list that differ from the form in one letter."""
    positions: int
    """Positions at which they differ."""
    best: float
    """Accuracy of the optimal guess: the share of these words at the most frequent position."""
    rank: int


class AccuracyRow(NamedTuple):
    """Accuracy over some cases, as fractions."""

    label: str
    total: int
    top_1: float
    top_3: float
    ambiguous: float
    """Share of forms with several words at a distance of one letter."""
    doubtful: float
    """Share of forms with several possible positions of the wrong letter."""
    best: float


def describe_typos(words: WordList, typos: Sequence[Typo], ranks: Int[np.ndarray, " N"]) -> list[TypoCase]:
    """Return a case for each typo.

    Args:
        words: Word list.
        typos: The typos.
        ranks: Rank of the right position of each typo, from 1.
    """
    found = []
    for typo, rank in zip(typos, ranks.tolist(), strict=True):
        places = Counter(fit.position for fit in words.corrections(typo.wrong))
        found.append(TypoCase(typo, places.total(), len(places), max(places.values()) / places.total(), rank))
    return found


def accuracy_row(label: str, chosen: Sequence[TypoCase]) -> AccuracyRow:
    """Return the row of some cases; zeros for none."""
    total = max(len(chosen), 1)
    return AccuracyRow(
        label,
        len(chosen),
        sum(case.rank == 1 for case in chosen) / total,
        sum(case.rank <= 3 for case in chosen) / total,
        sum(case.words > 1 for case in chosen) / total,
        sum(case.positions > 1 for case in chosen) / total,
        sum(case.best for case in chosen) / total,
    )


def rows_by_length(found: Sequence[TypoCase]) -> list[AccuracyRow]:
    """Return rows for all words, short words, long words, and each length."""
    lengths = sorted({len(case.typo.right) for case in found})
    return [
        *_filter_rows(
            found,
            [
                ("all", lambda case: True),
                (f"up to {MAX_SHORT_WORD} letters", lambda case: len(case.typo.right) <= MAX_SHORT_WORD),
                (f"{MIN_LONG_WORD} letters or more", lambda case: len(case.typo.right) >= MIN_LONG_WORD),
            ],
        ),
        *(accuracy_row(str(length), [case for case in found if len(case.typo.right) == length]) for length in lengths),
    ]


def rows_by_letter(found: Sequence[TypoCase]) -> list[AccuracyRow]:
    """Return rows by the class (vowel, consonant) of the right and of the wrong letter."""
    kinds: list[tuple[str, Callable[[TypoCase], bool]]] = [
        ("vowel meant", lambda case: _right_letter(case) in VOWELS),
        ("consonant meant", lambda case: _right_letter(case) not in VOWELS),
        ("vowel typed", lambda case: _wrong_letter(case) in VOWELS),
        ("consonant typed", lambda case: _wrong_letter(case) not in VOWELS),
    ]
    both = [
        (f"{first}, {second}", lambda case, one=meant, two=typed: one(case) and two(case))
        for first, meant in kinds[:2]
        for second, typed in kinds[2:]
    ]
    return _filter_rows(found, [*kinds, *both])


def rows_by_ambiguity(found: Sequence[TypoCase]) -> list[AccuracyRow]:
    """Return rows by ambiguity of the form, for all words and for short ones."""
    kinds: list[tuple[str, Callable[[TypoCase], bool]]] = [
        ("one word fits", lambda case: case.words == 1),
        ("several words, one position", lambda case: case.words > 1 and case.positions == 1),
        ("several positions", lambda case: case.positions > 1),
    ]
    short = [case for case in found if len(case.typo.right) <= MAX_SHORT_WORD]
    return [
        *_filter_rows(found, kinds),
        *(each._replace(label=f"short: {each.label}") for each in _filter_rows(short, kinds)),
    ]


def accuracy_table(title: str, caption: str, first: str, rows: Sequence[AccuracyRow]) -> ReportTable:
    """Return rows as a table of the page."""
    heads = (first, "typos", "top 1", "top 3", "several words fit", "several positions fit", "best possible")
    return ReportTable(
        title,
        caption,
        heads,
        [(row.label, f"{row.total:,}", *(f"{100 * share:.1f} %" for share in row[2:])) for row in rows],
    )


def _filter_rows(
    found: Sequence[TypoCase], kinds: Iterable[tuple[str, Callable[[TypoCase], bool]]]
) -> list[AccuracyRow]:
    """Return a row for each condition."""
    return [accuracy_row(label, [case for case in found if holds(case)]) for label, holds in kinds]


def _right_letter(case: TypoCase) -> str:
    """Return the right letter."""
    return case.typo.right[case.typo.position - 1]


def _wrong_letter(case: TypoCase) -> str:
    """Return the wrong letter."""
    return case.typo.wrong[case.typo.position - 1]


POST_BLUES: dict[str, dict[int, int]] = {
    "bapk": {1: 60, 3: 28, 4: 8},
    "downwtairs": {5: 14},
    "tably": {1: 14, 3: 80, 5: 240},
    "wtnts": {2: 14},
    "wresch": {6: 17},
    "boolcase": {1: 32, 4: 14},
    "pareztal": {3: 29, 4: 14, 5: 41},
}
"""Blue channel of some letters in the post's figure, by position from 1: 0 is the strongest yellow, 255 is white.

Read off its pixels. In boolcase one of the two o has 77 as well; which one was not recorded.
"""
RED, YELLOW = "#c81e1e", "#ffe100"
FILM_SIZE, FILM_MARGIN, FRAME_SECONDS = 560, 40, 0.08


class HighlightedWord(NamedTuple):
    """A word with a value from 0 to 1 for each letter; None for unknown values."""

    word: str
    strengths: Sequence[float | None]
    right: frozenset[int]
    """Positions, from 1, that may be wrong: with another letter there the form is a word of the list."""


def post_highlights(rights: Sequence[frozenset[int]]) -> list[HighlightedWord]:
    """Return the words of the post's figure with the known values."""
    return [
        HighlightedWord(word, [1 - blues[at] / 255 if at in blues else None for at in range(1, len(word) + 1)], right)
        for (word, blues), right in zip(POST_BLUES.items(), rights, strict=True)
    ]


def highlight_figure(columns: Sequence[tuple[str, Sequence[HighlightedWord]]]) -> Figure:
    """Draw words letter by letter, yellow by value; a line marks the positions that may be wrong."""
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
    """Draw the two-dimensional embedding of the symbols, a panel per training, vowels in red."""
    figure = empty_figure(3.5 * len(vectors), 3.6)
    for axes, (title, points) in zip(np.atleast_1d(np.array(figure.subplots(1, len(vectors)))), vectors, strict=True):
        for symbol, (x, y) in zip(_symbol_labels(), points.tolist(), strict=True):
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


def validation_figure(runs: Sequence[tuple[str, Sequence[tuple[int, float]]]], colors: Sequence[str]) -> Figure:
    """Draw validation accuracy over typos seen, one line per training."""
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
    """Return an SVG animation of the embedding over training, without scripts.

    All frames have the same scale. The last frame is shown for an eighth of the time.

    Args:
        film: Embeddings, frame by frame.
        title: Title of the picture.
    """
    count, size = len(film), FILM_SIZE
    seconds = count * FRAME_SECONDS * 8 / 7
    times = ";".join(f"{7 / 8 * at / max(count - 1, 1):.4f}" for at in range(count)) + ";1"
    reach = max(float(np.abs(film).max()), 1e-6)
    middle = size / 2
    drawn = middle + film * np.array([1, -1]) * ((middle - FILM_MARGIN) / reach)
    clock = f'dur="{seconds:.2f}s" repeatCount="indefinite" keyTimes="{times}"'
    letters = [_animated_symbol(symbol, drawn[:, at], clock) for at, symbol in enumerate(_symbol_labels())]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" width="{size}" height="{size}" '
        f'font-family="sans-serif" text-anchor="middle">\n<title>{escape(title)}</title>\n'
        f'<rect width="{size}" height="{size}" fill="white"/>\n'
        f'<path d="M0 {middle}H{size}M{middle} 0V{size}" stroke="{RULE}"/>\n'
        f'<text x="8" y="20" text-anchor="start" font-size="13" fill="{MUTED}">{escape(title)}</text>\n'
        f'<rect y="{size - 4}" height="4" fill="{MUTED}" width="{size}"><animate attributeName="width" '
        f'values="0;{size};{size}" keyTimes="0;0.875;1" dur="{seconds:.2f}s" repeatCount="indefinite"/></rect>\n'
        f"{''.join(letters)}</svg>\n"
    )


def _animated_symbol(symbol: str, points: Float[np.ndarray, "frames 2"], clock: str) -> str:
    """Return the animation of one symbol; without animation it is drawn at its end."""
    path = [f"{x:.1f} {y:.1f}" for x, y in points.tolist()]
    vowel = symbol in VOWELS
    size, color, weight = 18 if len(symbol) == 1 else 11, RED if vowel else INK, 700 if vowel else 400
    look = f'fill="{color}" font-size="{size}" font-weight="{weight}"'
    return (
        f'<g transform="translate({path[-1]})"><text y="6" {look}>{escape(symbol)}</text><animateTransform '
        f'attributeName="transform" type="translate" values="{";".join([*path, path[-1]])}" {clock}/></g>\n'
    )


def _symbol_labels() -> list[str]:
    """Return the labels of the symbols; "pad" for padding."""
    return [symbol if symbol != " " else "pad" for symbol in SYMBOLS]


AMBIGUITY_CAPTION = (
    "Several words fit: several words of the list differ from the form in one letter. Several positions fit: they do "
    "not all differ at the same position. Best possible: mean accuracy of an optimal guess with knowledge of the list. "
    "Top 3: the wrong position is among the three most probable."
)


class TypoRun(NamedTuple):
    """One training with its predictions."""

    seed: int
    parameters: int
    seconds: float
    curve: Sequence[TypoValidation]
    """Typos seen and accuracy as a fraction."""
    test: Sequence[Typo]
    answers: TypoPredictions
    examples: Sequence[Sequence[float]]
    """Probability of each letter of the post's words."""


class TypoRuns(NamedTuple):
    """All trainings with the cases of their test typos."""

    runs: Sequence[TypoRun]
    found: Sequence[Sequence[TypoCase]]
    rights: Sequence[frozenset[int]]
    """Possible wrong positions of each of the post's words."""

    @property
    def pooled(self) -> list[TypoCase]:
        """Return the cases of all runs."""
        return [case for each in self.found for case in each]


def collect_runs(runs: Sequence[TypoRun], words: WordList) -> TypoRuns:
    """Return runs with the cases of their test typos."""
    found = [describe_typos(words, run.test, run.answers.ranks) for run in runs]
    return TypoRuns(runs, found, [frozenset(fit.position for fit in words.corrections(word)) for word in POST_WORDS])


def run_lines(name: str, every: TypoRuns) -> Iterator[str]:
    """Yield one line per run."""
    for run, found in zip(every.runs, every.found, strict=True):
        whole, far = (
            accuracy_row("", found),
            accuracy_row("", [case for case in found if len(case.typo.right) >= MIN_LONG_WORD]),
        )
        yield (
            f"{name}, seed {run.seed}: {100 * whole.top_1:.1f} % of the positions, {100 * whole.top_3:.1f} % among the "
            f"first three; words of {MIN_LONG_WORD} letters or more {100 * far.top_1:.1f} % and {100 * far.top_3:.1f} "
            f"%; {run.parameters:,} parameters, {run.curve[-1].samples:,} typos in {run.seconds:,.0f} s"
        )


def summary_entries(every: TypoRuns) -> list[tuple[str, str]]:
    """Return the headline numbers."""
    rows, runs = rows_by_length(every.pooled), every.runs
    explained, total = count_explained(every), len(POST_WORDS) * len(runs)
    which = f"mean of {len(runs)} seeds" if len(runs) > 1 else f"seed {runs[0].seed}"
    return [
        ("positions right", f"{100 * rows[0].top_1:.1f} % ({which}; best possible {100 * rows[0].best:.1f} %)"),
        ("among the first three", f"{100 * rows[0].top_3:.1f} %"),
        (f"{MIN_LONG_WORD} letters or more", f"{100 * rows[2].top_1:.1f} % (first three {100 * rows[2].top_3:.1f} %)"),
        (
            "the post's words",
            f"{explained} of {total} (the post's own figure: {_count_post_explained(every)} of 7)",
        ),
        ("parameters", f"{runs[0].parameters:,}"),
        ("training", f"{runs[0].seconds:,.0f} s ({runs[0].curve[-1].samples:,} typos, one thread, a seed)"),
    ]


def report_parts(every: TypoRuns) -> list[ReportPart]:
    """Return curves, tables and the words of the post."""
    pooled = every.pooled
    series = [(f"seed {run.seed}", [(point.samples, point.right) for point in run.curve]) for run in every.runs]
    which = "All seeds together. " if len(every.runs) > 1 else ""
    return [
        ReportFigure(
            "Validation while training",
            "Position accuracy on the validation words, which are not in the training set.",
            to_svg(validation_figure(series, line_colors(len(series)))),
        ),
        accuracy_table("By length", f"{which}{AMBIGUITY_CAPTION}", "word", rows_by_length(pooled)),
        accuracy_table("By letter", f"{which}Vowels: a, e, i, o, u.", "letter", rows_by_letter(pooled)),
        accuracy_table("Ambiguity", f"{which}Short: up to 5 letters.", "form", rows_by_ambiguity(pooled)),
        *_post_parts(every),
    ]


def report_json(every: TypoRuns) -> dict[str, Any]:
    """Return the numbers of report.json, as fractions."""
    pooled = every.pooled
    tables = {
        "by_length": rows_by_length(pooled),
        "by_letters": rows_by_letter(pooled),
        "by_doubt": rows_by_ambiguity(pooled),
    }
    return {
        **{name: [row._asdict() for row in rows] for name, rows in tables.items()},
        "runs": [
            {
                **_run_json(rows_by_length(found)),
                **{"seed": run.seed, "parameters": run.parameters, "seconds": run.seconds},
                "curve": [point._asdict() for point in run.curve],
                "examples": {
                    word: [round(value, 4) for value in values]
                    for word, values in zip(POST_WORDS, run.examples, strict=True)
                },
            }
            for run, found in zip(every.runs, every.found, strict=True)
        ],
        "examples_explained": count_explained(every),
    }


def count_explained(every: TypoRuns) -> int:
    """Count the post's words, over all runs, whose most probable position may be wrong."""
    return sum(
        _most_probable_position(values) in right
        for run in every.runs
        for values, right in zip(run.examples, every.rights, strict=True)
    )


def _run_json(rows: Sequence[AccuracyRow]) -> Mapping[str, float]:
    """Return the numbers of one run: over all words, and over long ones."""
    whole, far = rows[0], rows[2]
    return {"top_1": whole.top_1, "top_3": whole.top_3, "long_top_1": far.top_1, "long_top_3": far.top_3}


def _post_parts(every: TypoRuns) -> Iterator[ReportPart]:
    """Yield the post's words as a figure and as a table."""
    title = "The words of the post"
    highlighted = [("the post's figure", post_highlights(every.rights))]
    for run in every.runs[:3]:
        own = zip(POST_WORDS, run.examples, every.rights, strict=True)
        highlighted.append((f"here, seed {run.seed}", [HighlightedWord(*each) for each in own]))
    yield ReportFigure(
        title,
        "Yellow is the probability that a letter is wrong. Of the post's figure only the letters in black were read "
        "from the image. A red line marks positions where another letter makes a word of the list. No word at a "
        "distance of one letter from these is in the training set.",
        to_svg(highlight_figure(highlighted)),
    )
    heads = ("typed", "may be wrong at", "the post's figure", *(f"seed {run.seed}" for run in every.runs))
    rows = list[tuple[str, ...]]()
    for at, (word, right) in enumerate(zip(POST_WORDS, every.rights, strict=True)):
        places = ", ".join(f"{place} ({word[place - 1]})" for place in sorted(right)) or "none of this list"
        cells = [_position_cell(word, min(POST_BLUES[word], key=POST_BLUES[word].__getitem__), right)]
        cells += [
            _position_cell(word, _most_probable_position(run.examples[at]), right, max(run.examples[at]))
            for run in every.runs
        ]
        rows.append((word, places, *cells))
    yield ReportTable(
        title, "The most probable position with its probability; for the post, the strongest yellow.", heads, rows
    )


def _position_cell(word: str, place: int, right: frozenset[int], chance: float | None = None) -> str:
    """Return a position with its letter, its probability, and a mark if it may be wrong."""
    likely = "" if chance is None else f", {chance:.2f}"
    return f"{place} ({word[place - 1]}{likely}) {'✓' if place in right else '✗'}"


def _most_probable_position(values: Sequence[float]) -> int:
    """Return the most probable position, from 1."""
    return max(range(len(values)), key=values.__getitem__) + 1


def _count_post_explained(every: TypoRuns) -> int:
    """Count the post's words whose strongest yellow is on a position that may be wrong."""
    return sum(
        min(blues, key=blues.__getitem__) in right
        for blues, right in zip(POST_BLUES.values(), every.rights, strict=True)
    )
