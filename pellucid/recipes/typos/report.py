"""Report of the typo recipes: tables, figures and lines.

N typos.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pellucid.data.synthetic import VOWELS, Typo, WordList
from pellucid.recipes.digits.report import line_colors
from pellucid.recipes.typos.training import POST_WORDS, SYMBOLS, TypoPredictions, TypoValidation
from pellucid.reporting.figures import INK, MUTED, RULE, empty_figure, freeze_layout, style_axes, to_svg
from pellucid.shapes import Float, Int
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable

MIN_LONG_WORD = 8
"""Minimum number of letters of a long word."""
MAX_SHORT_WORD = 5
"""Maximum number of letters of a short word."""


class TypoCase(NamedTuple):
    """A typo with its ambiguity in the word list and the predicted rank of its position."""

    typo: Typo
    num_words: int
    """Number of words of the list that differ from the misspelled form in one letter."""
    num_positions: int
    """Number of different positions at which these words differ from the form."""
    best_accuracy: float
    """Accuracy of an optimal guess of the position: the fraction of these words at the most frequent position."""
    rank: int
    """Rank of the position of the wrong letter in the prediction, from 1."""


class AccuracyRow(NamedTuple):
    """Accuracy over some typos, as fractions; a row of a table."""

    label: str
    """Description of the typos."""
    total: int
    """Number of typos."""
    top_1: float
    """Fraction of the typos whose wrong position is predicted first."""
    top_3: float
    """Fraction of the typos whose wrong position is among the first three."""
    several_words: float
    """Fraction of forms with several words at a distance of one letter."""
    several_positions: float
    """Fraction of forms with several possible positions of the wrong letter."""
    best_accuracy: float
    """Mean accuracy of an optimal guess with knowledge of the list."""


def build_typo_cases(words: WordList, typos: Sequence[Typo], ranks: Int[np.ndarray, " N"]) -> list[TypoCase]:
    """Return each typo with its ambiguity in the word list and its rank.

    Args:
        words: Word list, which holds the right word of each typo.
        typos: The typos.
        ranks: Rank of the position of the wrong letter of each typo in the prediction, from 1.
    """
    cases = []
    for typo, rank in zip(typos, ranks.tolist(), strict=True):
        positions = Counter(fit.position for fit in words.corrections(typo.wrong))
        best_accuracy = max(positions.values()) / positions.total()
        cases.append(TypoCase(typo, positions.total(), len(positions), best_accuracy, rank))
    return cases


def accuracy_row(label: str, cases: Sequence[TypoCase]) -> AccuracyRow:
    """Return the accuracy over some typos; zeros for none.

    Args:
        label: Description of the typos.
        cases: The cases.
    """
    total = max(len(cases), 1)
    return AccuracyRow(
        label=label,
        total=len(cases),
        top_1=sum(case.rank == 1 for case in cases) / total,
        top_3=sum(case.rank <= 3 for case in cases) / total,
        several_words=sum(case.num_words > 1 for case in cases) / total,
        several_positions=sum(case.num_positions > 1 for case in cases) / total,
        best_accuracy=sum(case.best_accuracy for case in cases) / total,
    )


def rows_by_length(cases: Sequence[TypoCase]) -> list[AccuracyRow]:
    """Return the accuracy for all words, short words, long words, and each length of the right word.

    Args:
        cases: Typos with the predicted rank of their position.
    """
    lengths = sorted({len(case.typo.right) for case in cases})
    return [
        *_filter_rows(
            cases,
            [
                ("all", lambda case: True),
                (f"up to {MAX_SHORT_WORD} letters", lambda case: len(case.typo.right) <= MAX_SHORT_WORD),
                (f"{MIN_LONG_WORD} letters or more", lambda case: len(case.typo.right) >= MIN_LONG_WORD),
            ],
        ),
        *(accuracy_row(str(length), [case for case in cases if len(case.typo.right) == length]) for length in lengths),
    ]


def rows_by_letter(cases: Sequence[TypoCase]) -> list[AccuracyRow]:
    """Return the accuracy by the class (vowel, consonant) of the right letter, of the wrong letter, and of both.

    Args:
        cases: Typos with the predicted rank of their position.
    """
    conditions: list[tuple[str, Callable[[TypoCase], bool]]] = [
        ("right letter a vowel", lambda case: _right_letter(case) in VOWELS),
        ("right letter a consonant", lambda case: _right_letter(case) not in VOWELS),
        ("wrong letter a vowel", lambda case: _wrong_letter(case) in VOWELS),
        ("wrong letter a consonant", lambda case: _wrong_letter(case) not in VOWELS),
    ]
    combinations = [
        (f"{right_label}, {wrong_label}", lambda case, right=right, wrong=wrong: right(case) and wrong(case))
        for right_label, right in conditions[:2]
        for wrong_label, wrong in conditions[2:]
    ]
    return _filter_rows(cases, [*conditions, *combinations])


def rows_by_ambiguity(cases: Sequence[TypoCase]) -> list[AccuracyRow]:
    """Return the accuracy by ambiguity of the misspelled form, for all words and for short ones.

    Args:
        cases: Typos with the predicted rank of their position.
    """
    conditions: list[tuple[str, Callable[[TypoCase], bool]]] = [
        ("one word fits", lambda case: case.num_words == 1),
        ("several words, one position", lambda case: case.num_words > 1 and case.num_positions == 1),
        ("several positions", lambda case: case.num_positions > 1),
    ]
    short = [case for case in cases if len(case.typo.right) <= MAX_SHORT_WORD]
    return [
        *_filter_rows(cases, conditions),
        *(row._replace(label=f"short: {row.label}") for row in _filter_rows(short, conditions)),
    ]


def typo_accuracy_table(title: str, caption: str, label_head: str, rows: Sequence[AccuracyRow]) -> ReportTable:
    """Return rows of accuracies as a table of the page, in percent.

    Args:
        title: Title of the table.
        caption: Caption of the table.
        label_head: Head of the first column.
        rows: Accuracy of each group of cases.
    """
    heads = (label_head, "typos", "top 1", "top 3", "several words fit", "several positions fit", "best possible")
    return ReportTable(
        title,
        caption,
        heads,
        [(row.label, f"{row.total:,}", *(f"{100 * fraction:.1f} %" for fraction in row[2:])) for row in rows],
    )


def _filter_rows(
    cases: Sequence[TypoCase], conditions: Iterable[tuple[str, Callable[[TypoCase], bool]]]
) -> list[AccuracyRow]:
    """Return a row for each condition."""
    return [accuracy_row(label, [case for case in cases if condition(case)]) for label, condition in conditions]


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

The values were read from the pixels. In boolcase one of the two letters o has 77, too; its position was not recorded.
"""
RED, YELLOW = "#c81e1e", "#ffe100"
ANIMATION_SIZE, ANIMATION_MARGIN, FRAME_SECONDS = 560, 40, 0.08


class HighlightedWord(NamedTuple):
    """A misspelled word with a value from 0 to 1 for each letter, which is drawn as its color."""

    word: str
    strengths: Sequence[float | None]
    """Value of each letter, such as its probability to be wrong; None if it is unknown."""
    candidates: frozenset[int]
    """Positions, from 1, that may be wrong: with another letter there the form is a word of the list."""


def post_highlights(candidates: Sequence[frozenset[int]]) -> list[HighlightedWord]:
    """Return the words of the blog post's figure with the values that are known from its colors.

    Args:
        candidates: Positions of each word that may be wrong, from 1, in the order of `POST_WORDS`.
    """
    highlights = []
    for (word, blues), positions in zip(POST_BLUES.items(), candidates, strict=True):
        strengths = [1 - blues[position] / 255 if position in blues else None for position in range(1, len(word) + 1)]
        highlights.append(HighlightedWord(word, strengths, positions))
    return highlights


def highlight_figure(columns: Sequence[tuple[str, Sequence[HighlightedWord]]]) -> Figure:
    """Draw words letter by letter, the more yellow the greater the value; a red line marks positions that may be wrong.

    Args:
        columns: Title and words of each column.

    Returns:
        The figure.
    """
    max_length = max(len(highlighted.word) for _, words in columns for highlighted in words)
    num_rows = max(len(words) for _, words in columns)
    figure = empty_figure(0.4 + len(columns) * (max_length + 1) * 0.21, 0.5 + 0.34 * num_rows)
    axes = figure.add_subplot()
    for column, (title, words) in enumerate(columns):
        left = column * (max_length + 1)
        axes.text(left, -0.35, title, size=9, color=MUTED, va="bottom")
        for row, highlighted in enumerate(words):
            for x, (letter, strength) in enumerate(zip(highlighted.word, highlighted.strengths, strict=True), left):
                is_known = strength is not None
                shade = (1.0, 1.0 - 0.12 * (strength or 0), 1.0 - (strength or 0)) if is_known else "white"
                axes.add_patch(Rectangle((x, row), 1, 0.86, facecolor=shade, edgecolor=RULE, linewidth=0.6))
                color = INK if is_known else "#9aa3ad"
                axes.text(x + 0.5, row + 0.43, letter, ha="center", va="center", color=color)
                if x - left + 1 in highlighted.candidates:
                    axes.plot([x + 0.15, x + 0.85], [row + 0.8] * 2, color=RED, linewidth=1.6)
    axes.set_xlim(-0.1, len(columns) * (max_length + 1) - 0.9)
    axes.set_ylim(num_rows, -0.9)
    axes.set_axis_off()
    return freeze_layout(figure)


def embedding_figure(vectors: Sequence[tuple[str, Float[np.ndarray, "V 2"]]]) -> Figure:
    """Draw the two-dimensional embedding of the symbols, a panel per training, vowels in red.

    Args:
        vectors: Title and embedding of the symbols of each panel.

    Returns:
        The figure.
    """
    figure = empty_figure(3.5 * len(vectors), 3.6)
    for axes, (title, points) in zip(np.atleast_1d(np.array(figure.subplots(1, len(vectors)))), vectors, strict=True):
        for symbol, (x, y) in zip(_symbol_labels(), points.tolist(), strict=True):
            is_vowel = symbol in VOWELS
            style = {"color": RED if is_vowel else INK, "weight": "bold" if is_vowel else "normal"}
            axes.text(x, y, symbol, ha="center", va="center", size=11 if len(symbol) == 1 else 7, **style)
        low, high = points.min(axis=0), points.max(axis=0)
        margin = 0.08 * (high - low) + 1e-6
        axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
        axes.set_ylim(low[1] - margin[1], high[1] + margin[1])
        style_axes(axes)
        axes.set_title(title, size=9, color=MUTED, loc="left")
    return freeze_layout(figure)


def validation_figure(runs: Sequence[tuple[str, Sequence[tuple[int, float]]]], colors: Sequence[str]) -> Figure:
    """Draw validation accuracy over the number of training typos, one line per training.

    Args:
        runs: Name of each training, with the typos seen and the accuracy (a fraction) of each validation.
        colors: Color of each line.

    Returns:
        The figure.
    """
    figure = empty_figure(6.4, 3.2)
    axes = figure.add_subplot()
    for (name, points), color in zip(runs, colors, strict=True):
        axes.plot([x for x, _ in points], [100 * y for _, y in points], "o-", color=color, markersize=3, label=name)
    style_axes(axes)
    axes.set_ylim(0, 100)
    axes.set_ylabel("position accuracy, %", color=MUTED)
    axes.set_xlabel("training typos", color=MUTED)
    axes.legend(frameon=False, labelcolor="linecolor", fontsize=9)
    return freeze_layout(figure)


def embedding_animation_svg(embeddings: Float[np.ndarray, "frames V 2"], title: str) -> str:
    """Return the text of an SVG animation of the symbol embeddings during training, without scripts; it repeats.

    All frames have the same scale. The last frame is shown for an eighth of the time.

    Args:
        embeddings: Embeddings of the symbols in each frame.
        title: Title of the picture.
    """
    count, size = len(embeddings), ANIMATION_SIZE
    seconds = count * FRAME_SECONDS * 8 / 7
    times = ";".join(f"{7 / 8 * frame / max(count - 1, 1):.4f}" for frame in range(count)) + ";1"
    max_coordinate = max(float(np.abs(embeddings).max()), 1e-6)
    middle = size / 2
    points = middle + embeddings * np.array([1, -1]) * ((middle - ANIMATION_MARGIN) / max_coordinate)
    timing = f'dur="{seconds:.2f}s" repeatCount="indefinite" keyTimes="{times}"'
    letters = [_animated_symbol(symbol, points[:, index], timing) for index, symbol in enumerate(_symbol_labels())]
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


def _animated_symbol(symbol: str, points: Float[np.ndarray, "frames 2"], timing: str) -> str:
    """Return the animation of one symbol; without animation the symbol is drawn at its last position."""
    path = [f"{x:.1f} {y:.1f}" for x, y in points.tolist()]
    is_vowel = symbol in VOWELS
    size, color, weight = 18 if len(symbol) == 1 else 11, RED if is_vowel else INK, 700 if is_vowel else 400
    style = f'fill="{color}" font-size="{size}" font-weight="{weight}"'
    return (
        f'<g transform="translate({path[-1]})"><text y="6" {style}>{escape(symbol)}</text><animateTransform '
        f'attributeName="transform" type="translate" values="{";".join([*path, path[-1]])}" {timing}/></g>\n'
    )


def _symbol_labels() -> list[str]:
    """Return the labels of the symbols; "pad" for padding."""
    return [symbol if symbol != " " else "pad" for symbol in SYMBOLS]


AMBIGUITY_CAPTION = (
    "Several words fit: several words of the list differ from the form in one letter. Several positions fit: these "
    "words differ at several positions. Best possible: mean accuracy of an optimal guess with knowledge of the list. "
    "Top 3: the wrong position is among the three most probable."
)


class TypoRun(NamedTuple):
    """One training with its predictions, in the form that all typo recipes share."""

    seed: int
    parameters: int
    """Number of trained parameters."""
    seconds: float
    """Training time; in typo-attention with validations."""
    curve: Sequence[TypoValidation]
    """All validations."""
    test: Sequence[Typo]
    """Test typos."""
    predictions: TypoPredictions
    """Predictions for the test typos."""
    post_probabilities: Sequence[Sequence[float]]
    """Probability that each letter of the blog post's words (`POST_WORDS`) is wrong."""


class TypoRuns(NamedTuple):
    """All trainings with the cases of their test typos."""

    runs: Sequence[TypoRun]
    cases: Sequence[Sequence[TypoCase]]
    """Cases of the test typos of each run."""
    candidates: Sequence[frozenset[int]]
    """Positions, from 1, that may be wrong in each of the post's words."""

    @property
    def pooled(self) -> list[TypoCase]:
        """Return the cases of all runs in one list."""
        return [case for cases in self.cases for case in cases]


def collect_runs(runs: Sequence[TypoRun], words: WordList) -> TypoRuns:
    """Return runs with the cases of their test typos.

    Args:
        runs: The trainings.
        words: Word list.
    """
    cases = [build_typo_cases(words, run.test, run.predictions.ranks) for run in runs]
    candidates = [frozenset(fit.position for fit in words.corrections(word)) for word in POST_WORDS]
    return TypoRuns(runs, cases, candidates)


def run_lines(name: str, typo_runs: TypoRuns) -> Iterator[str]:
    """Yield one line per run: accuracies over all and over long words, parameters, typos seen and seconds.

    Args:
        name: Name of the network, which begins each line.
        typo_runs: The runs.
    """
    for run, cases in zip(typo_runs.runs, typo_runs.cases, strict=True):
        all_words = accuracy_row("", cases)
        long_words = accuracy_row("", [case for case in cases if len(case.typo.right) >= MIN_LONG_WORD])
        yield (
            f"{name}, seed {run.seed}: position accuracy {100 * all_words.top_1:.1f} %, top 3 "
            f"{100 * all_words.top_3:.1f} %; words of {MIN_LONG_WORD} letters or more {100 * long_words.top_1:.1f} %, "
            f"top 3 {100 * long_words.top_3:.1f} %; {run.parameters:,} parameters, {run.curve[-1].samples:,} typos in "
            f"{run.seconds:,.0f} s"
        )


def summary_entries(typo_runs: TypoRuns) -> list[tuple[str, str]]:
    """Return the headline numbers of the page, as pairs of a label and a text; accuracies are over all runs together.

    Args:
        typo_runs: The runs.
    """
    rows, runs = rows_by_length(typo_runs.pooled), typo_runs.runs
    all_words, long_words = rows[0], rows[2]
    seeds = f"mean of {len(runs)} seeds" if len(runs) > 1 else f"seed {runs[0].seed}"
    best = f"best possible {100 * all_words.best_accuracy:.1f} %"
    return [
        ("position accuracy", f"{100 * all_words.top_1:.1f} % ({seeds}; {best})"),
        ("top 3", f"{100 * all_words.top_3:.1f} %"),
        (f"{MIN_LONG_WORD} letters or more", f"{100 * long_words.top_1:.1f} % (top 3 {100 * long_words.top_3:.1f} %)"),
        (
            "the post's words",
            f"{count_plausible(typo_runs)} of {len(POST_WORDS) * len(runs)} (the post's figure: "
            f"{_count_post_plausible(typo_runs)} of {len(POST_WORDS)})",
        ),
        ("parameters", f"{runs[0].parameters:,}"),
        ("training", f"{runs[0].seconds:,.0f} s ({runs[0].curve[-1].samples:,} typos, one thread, one seed)"),
    ]


def report_parts(typo_runs: TypoRuns) -> list[ReportPart]:
    """Return the parts of the page: validation curves, tables of accuracies over all runs, and the words of the post.

    Args:
        typo_runs: The runs.
    """
    pooled, runs = typo_runs.pooled, typo_runs.runs
    curves = [(f"seed {run.seed}", [(point.samples, point.accuracy) for point in run.curve]) for run in runs]
    prefix = "All seeds together. " if len(runs) > 1 else ""
    return [
        ReportFigure(
            "Validation during training",
            "Position accuracy on the validation words, which are not in the training set.",
            to_svg(validation_figure(curves, line_colors(len(curves)))),
        ),
        typo_accuracy_table("By length", f"{prefix}{AMBIGUITY_CAPTION}", "length", rows_by_length(pooled)),
        typo_accuracy_table("By letter", f"{prefix}Vowels: a, e, i, o, u.", "letter", rows_by_letter(pooled)),
        typo_accuracy_table(
            "Ambiguity", f"{prefix}Short: up to {MAX_SHORT_WORD} letters.", "form", rows_by_ambiguity(pooled)
        ),
        *_post_parts(typo_runs),
    ]


def report_json(typo_runs: TypoRuns) -> dict[str, Any]:
    """Return the numbers of report.json: tables over all runs, and each run. Accuracies are fractions.

    Args:
        typo_runs: The runs.
    """
    pooled = typo_runs.pooled
    tables = {
        "by_length": rows_by_length(pooled),
        "by_letter": rows_by_letter(pooled),
        "by_ambiguity": rows_by_ambiguity(pooled),
    }
    return {
        **{name: [row._asdict() for row in rows] for name, rows in tables.items()},
        "runs": [
            {
                **_run_json(rows_by_length(cases)),
                **{"seed": run.seed, "parameters": run.parameters, "seconds": run.seconds},
                "curve": [point._asdict() for point in run.curve],
                "post_words": {
                    word: [round(probability, 4) for probability in probabilities]
                    for word, probabilities in zip(POST_WORDS, run.post_probabilities, strict=True)
                },
            }
            for run, cases in zip(typo_runs.runs, typo_runs.cases, strict=True)
        ],
        "post_words_plausible": count_plausible(typo_runs),
    }


def count_plausible(typo_runs: TypoRuns) -> int:
    """Count the post's words, over all runs, whose most probable position may be wrong.

    Args:
        typo_runs: The runs.

    Returns:
        The number of words.
    """
    return sum(
        _most_probable_position(probabilities) in candidates
        for run in typo_runs.runs
        for probabilities, candidates in zip(run.post_probabilities, typo_runs.candidates, strict=True)
    )


def _run_json(rows: Sequence[AccuracyRow]) -> Mapping[str, float]:
    """Return the numbers of one run: over all words, and over long ones."""
    all_words, long_words = rows[0], rows[2]
    return {
        **{"top_1": all_words.top_1, "top_3": all_words.top_3},
        **{"long_top_1": long_words.top_1, "long_top_3": long_words.top_3},
    }


def _post_parts(typo_runs: TypoRuns) -> Iterator[ReportPart]:
    """Yield the post's words as a figure and as a table."""
    title = "The words of the post"
    columns = [("the post's figure", post_highlights(typo_runs.candidates))]
    for run in typo_runs.runs[:3]:
        words = zip(POST_WORDS, run.post_probabilities, typo_runs.candidates, strict=True)
        highlighted = [HighlightedWord(word, probabilities, candidates) for word, probabilities, candidates in words]
        columns.append((f"seed {run.seed}", highlighted))
    yield ReportFigure(
        title,
        "Yellow is the probability that a letter is wrong. In the post's figure only the values of the black letters "
        "were read from the image. A red line marks positions where another letter makes a word of the list. No word "
        "at a distance of one letter from these is in the training set.",
        to_svg(highlight_figure(columns)),
    )
    heads = ("form", "possible positions", "the post's figure", *(f"seed {run.seed}" for run in typo_runs.runs))
    rows = list[tuple[str, ...]]()
    for index, (word, candidates) in enumerate(zip(POST_WORDS, typo_runs.candidates, strict=True)):
        positions = ", ".join(f"{position} ({word[position - 1]})" for position in sorted(candidates))
        cells = [_position_cell(word, min(POST_BLUES[word], key=POST_BLUES[word].__getitem__), candidates)]
        for run in typo_runs.runs:
            probabilities = run.post_probabilities[index]
            best = _most_probable_position(probabilities)
            cells.append(_position_cell(word, best, candidates, max(probabilities)))
        rows.append((word, positions or "none of this list", *cells))
    yield ReportTable(
        title, "The most probable position with its probability; for the post, the strongest yellow.", heads, rows
    )


def _position_cell(word: str, position: int, candidates: frozenset[int], probability: float | None = None) -> str:
    """Return a position with its letter, its probability, and a mark that shows if the position may be wrong."""
    value = "" if probability is None else f", {probability:.2f}"
    return f"{position} ({word[position - 1]}{value}) {'✓' if position in candidates else '✗'}"


def _most_probable_position(probabilities: Sequence[float]) -> int:
    """Return the most probable position, from 1."""
    return max(range(len(probabilities)), key=probabilities.__getitem__) + 1


def _count_post_plausible(typo_runs: TypoRuns) -> int:
    """Count the post's words whose strongest yellow is on a position that may be wrong."""
    return sum(
        min(blues, key=blues.__getitem__) in candidates
        for blues, candidates in zip(POST_BLUES.values(), typo_runs.candidates, strict=True)
    )
