"""The report of a run: one HTML file that holds all it shows, loads nothing, and needs no script."""

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from rapidfuzz.distance import Levenshtein

from pellucid.evaluation.metrics import FOLLOWED, Accuracy, Followed
from pellucid.files import write_text
from pellucid.look.attention_html import attention_svg, headline_html, notes_on
from pellucid.look.charts import Chart, accuracy_chart, chart_svg, learning_charts
from pellucid.look.page import document, header, paragraphs, section, text
from pellucid.look.tagged import tagged_table
from pellucid.look.terminal import NO_ATTENTION, caption_of
from pellucid.look.visible import clusters, probability, visible_pieces
from pellucid.search.trace import Trace


@dataclass(frozen=True, eq=False)
class Shown:
    """A decoding chosen to be shown."""

    trace: Trace
    references: tuple[str, ...]
    """The outputs that count as right; none where nothing is known."""
    edits: int | None = None
    """Symbols to change to reach the nearest reference; where not given, characters are counted."""

    @property
    def right(self) -> bool:
        """Whether the output needs no edits, or, where these are not given, is one of the references."""
        return self.edits == 0 or (self.edits is None and self.trace.output in self.references)


class Picture(NamedTuple):
    """A further figure."""

    title: str
    caption: str
    svg: str
    """The drawing as an SVG document, as `pellucid.look.figures.svg` writes it."""


class Table(NamedTuple):
    """A table; its first column names the rows."""

    title: str
    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


class Passage(NamedTuple):
    """Paragraphs of plain text under a title, with an empty line between."""

    title: str
    text: str


class Fragment(NamedTuple):
    """HTML made in this folder, from texts it has escaped."""

    title: str
    html: str


Part = Picture | Table | Passage | Fragment


@dataclass(frozen=True, eq=False)
class Report:
    """All a report shows. What is left empty is left out."""

    title: str
    introduction: str = ""
    """Paragraphs of plain text, with an empty line between."""
    summary: Sequence[tuple[str, str]] = ()
    """(label, value); what stands in brackets after a value is set smaller below it."""
    log: Sequence[Mapping[str, Any]] = ()
    """The records of the training log."""
    followed: Sequence[Followed] = FOLLOWED["transduce"]
    """The scores of the log that are drawn."""
    positions: Sequence[Accuracy] = ()
    """The accuracy at each target position."""
    lengths: Sequence[Accuracy] = ()
    """The accuracy for each source length or range of lengths."""
    examples: Sequence[Shown] = ()
    """Decodings whose attention is drawn."""
    mistakes: Sequence[Shown] = ()
    """Decodings for the table of mistakes, in its order."""
    config_toml: str = ""
    parts: Sequence[Part] = ()
    """What else there is to show and to say, in its order; parts of one title that follow each other share it."""
    script: str = ""
    """A script that the page works without."""


def write_report(path: Path, report: Report) -> None:
    """Write a report as one stand-alone HTML file; `RunError` where the system refuses."""
    write_text(path, report_html(report))


def report_html(report: Report) -> str:
    """The report as a complete HTML document."""
    sections = [
        section("How it learnt", charts_html(learning_charts(report.log, report.followed))),
        section("Where it is right", accuracies_html(report.positions, report.lengths)),
        section("Where it looked", examples_html(report.examples)),
        section("Where it went wrong", _mistakes(report.mistakes)),
        *(section(title, map(_part, parts)) for title, parts in groupby(report.parts, attrgetter("title"))),
        section("Settings", _settings(report.config_toml)),
    ]
    body = f"{header(report.title, report.introduction, report.summary)}{''.join(sections)}"
    return document(report.title, body, report.script)


def charts_html(charts: Sequence[Chart], tables: Sequence[str] = ()) -> Iterator[str]:
    """Charts side by side, each under its title, with the table of its numbers where there is one."""
    if charts:
        yield '<div class="charts">\n'
        for place, chart in enumerate(charts):
            table = tables[place] if tables else ""
            unit = f' <span class="unit">{escape(chart.y_title)}</span>' if chart.y_title == "%" else ""
            yield f'<figure class="chart"><h3>{escape(chart.title)}{unit}</h3>{chart_svg(chart)}{table}</figure>\n'
        yield "</div>\n"


def accuracies_html(positions: Sequence[Accuracy], lengths: Sequence[Accuracy]) -> Iterator[str]:
    """Accuracy by target position and by source length."""
    drawn = [
        ("By target position", "position in the target", positions),
        ("By source length", "symbols in the source", lengths),
    ]
    known = [(title, axis, groups) for title, axis, groups in drawn if groups]
    charts = [accuracy_chart(title, axis, groups) for title, axis, groups in known]
    yield from charts_html(charts, [_numbers(axis, groups) for _, axis, groups in known])
    if known:
        yield '<p class="note">Share right in per cent; the band is the 95 % interval.</p>\n'


def _numbers(axis: str, groups: Sequence[Accuracy]) -> str:
    """The numbers behind a chart of accuracies, folded away."""
    rows = "".join(
        f'<tr><th scope="row">{text(group.label)}</th><td>{group.right}</td><td>{group.total}</td>'
        f"<td>{_percent(group.percent)}</td><td>{_percent(group.low)} – {_percent(group.high)}</td></tr>\n"
        for group in groups
    )
    heads = "".join(f'<th scope="col">{head}</th>' for head in (axis, "right", "of", "% right", "95 % interval"))
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table>"
    return f"<details><summary>Numbers</summary>{table}</details>"


def _percent(value: float) -> str:
    """A percentage to one decimal, or a dash where there is none."""
    return f"{value:.1f}" if math.isfinite(value) else "–"


def examples_html(examples: Sequence[Shown]) -> Iterator[str]:
    """The attention of chosen decodings, under one caption."""
    if not examples:
        return
    looking = [shown.trace for shown in examples if shown.trace.attention.any()]
    caption = caption_of(looking[0]) if looking else NO_ATTENTION
    yield (
        f'<p class="note">{caption} Each row is a written symbol: the stronger its blue, the more weight on the source '
        "symbol above. Beside it stands its probability, and the runner-up where that came near.</p>\n"
        '<div class="examples">\n'
    )
    for shown in examples:
        notes = "".join(f'<p class="note">{escape(note)}</p>' for note in notes_on(shown.trace))
        picture = f'<div class="wide">{attention_svg(shown.trace)}</div>' if shown.trace.target else ""
        yield f"<article><h3>{headline_html(shown.trace)}</h3>{_verdict(shown)}{notes}{picture}</article>\n"
    yield "</div>\n"


def _verdict(shown: Shown) -> str:
    """Right, or what was expected instead."""
    if not shown.references:
        return ""
    if shown.right:
        return '<p class="verdict">✓ right</p>'
    expected = " or ".join(f'<bdi dir="auto">{text(reference)}</bdi>' for reference in shown.references)
    return f'<p class="verdict wrong">✗ expected {expected}</p>'


def _mistakes(mistakes: Sequence[Shown]) -> Iterator[str]:
    """A table of mistakes, what differs marked."""
    if mistakes and mistakes[0].trace.task == "tag":
        yield from tagged_table([(shown.trace, shown.references[0]) for shown in mistakes])
    elif mistakes:
        yield from _written(mistakes)


def _written(mistakes: Sequence[Shown]) -> Iterator[str]:
    """The table of outputs that were written symbol by symbol, of classes and of positions."""
    heads = ("source", "output", "expected", "edits", "p")
    yield '<p class="note">Edits count the symbols to change to reach what was expected; p is the probability the '
    yield "model gave its own output. What differs is underlined.</p>\n"
    yield '<div class="wide"><table class="mistakes">\n<thead><tr>'
    yield "".join(f'<th scope="col">{head}</th>' for head in heads) + "</tr></thead>\n<tbody>\n"
    for shown in mistakes:
        output, expected, edits = compared(shown)
        yield (
            f'<tr><th scope="row"><bdi dir="auto">{text(shown.trace.text)}</bdi></th><td>{output}</td>'
            f"<td>{expected}</td><td>{edits}</td><td>{probability(shown.trace.score)}</td></tr>\n"
        )
    yield "</tbody></table></div>\n"


def compared(shown: Shown) -> tuple[str, str, str]:
    """Output and nearest reference with their differences marked, and how many there are: words where the model writes
    words or parts of them, characters where it writes characters.
    """
    between = " " if _writes_words(shown) else ""
    output, *references = (_pieces(each, between) for each in (shown.trace.output, *shown.references))
    if not references:
        return _marked(output, [], between), "–", "–"
    nearest = min(references, key=lambda reference: Levenshtein.distance(output, reference))
    steps = [step for step in Levenshtein.opcodes(output, nearest) if step.tag != "equal"]
    edits = Levenshtein.distance(output, nearest) if shown.edits is None else shown.edits
    wrote = _marked(output, [(step.src_start, step.src_end) for step in steps], between)
    return wrote, _marked(nearest, [(step.dest_start, step.dest_end) for step in steps], between), str(edits)


def _writes_words(shown: Shown) -> bool:
    """Whether symbols stand apart in the output, or are parts of words longer than a character."""
    symbols, output = shown.trace.symbols, shown.trace.output
    if not any(" " in each for each in (output, *shown.references)):
        return False
    return output == " ".join(symbols) or any(len(clusters(symbol)) > 1 for symbol in symbols)


def _pieces(written: str, between: str) -> list[str]:
    """Words, or the characters of a text."""
    return written.split(between) if between and written else list(clusters(written))


def _marked(pieces: Sequence[str], spans: Sequence[tuple[int, int]], between: str) -> str:
    """A text with some spans of its pieces marked."""
    shown = [escape(piece) for piece in visible_pieces(pieces)] or [text("")]
    for start, stop in spans:
        if start < stop:
            shown[start] = f"<mark>{shown[start]}"
            shown[stop - 1] += "</mark>"
    return f'<bdi dir="auto">{between.join(shown)}</bdi>'


def _part(part: Part) -> str:
    """A further figure, table or text."""
    match part:
        case Picture():
            return _picture(part)
        case Table():
            return table_html(part)
        case Fragment():
            return part.html
        case Passage():
            return "".join(f'<p class="introduction">{text(words)}</p>\n' for words in paragraphs(part.text))


def table_html(table: Table) -> str:
    """A table, wide ones to be moved sideways."""
    heads = "".join(f'<th scope="col">{text(head)}</th>' for head in table.heads)
    rows = "".join(
        f'<tr><th scope="row">{text(first)}</th>{"".join(f"<td>{text(cell)}</td>" for cell in rest)}</tr>\n'
        for first, *rest in table.rows
    )
    caption = f'<p class="note">{text(table.caption)}</p>\n' if table.caption else ""
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table></div>\n{caption}'


def _picture(picture: Picture) -> str:
    """A further figure as an image of its own, which can neither run a script nor restyle the page."""
    data = base64.b64encode(picture.svg.encode("utf-8")).decode("ascii")
    return (
        f'<figure class="picture"><img alt="{text(picture.title)}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{text(picture.caption)}</figcaption></figure>\n"
    )


def _settings(config_toml: str) -> Iterator[str]:
    """The configuration, folded away."""
    if config_toml.strip():
        yield "<details><summary>The complete configuration</summary>"
        yield f"<pre>{escape(config_toml.strip())}</pre></details>\n"
