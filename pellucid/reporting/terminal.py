"""Traces as text: source symbols as columns, target symbols as rows, attention weights as shaded cells.

T counts target symbols, S source positions. A source that is too wide for the terminal is split into panels, so sources
are always horizontal.
"""

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from rich.cells import cell_len

from pellucid.argument_checks import check_arguments
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_alignment import align_trace
from pellucid.reporting.display_text import (
    ascii_symbol,
    format_probability,
    grapheme_clusters,
    truncate_columns,
    visible_symbol,
    visible_text,
    wrap_columns,
)
from pellucid.shapes import Float
from pellucid.tasks.registry import get_task

NO_ATTENTION = "This model has no attention: there are no weights to show."

_DARK, _BRIGHT = (24, 30, 42), (125, 190, 255)
NO_SYMBOL = "_"
"""Side of a chunk without symbols."""
_LONGEST_LABEL = 14


class _CharacterSet(NamedTuple):
    """Characters of the picture, Unicode or ASCII."""

    shades: str
    thresholds: tuple[float, ...]
    """Lower bound of the weight for each shade except the first, which is blank."""
    arrow: str
    down: str
    bar: str
    ellipsis: str
    symbol: Callable[[str], str]
    text: Callable[[str], str]


def _ascii_text(text: str) -> str:
    """Return a text in ASCII, with its spaces."""
    return " ".join(ascii_symbol(word) if word else "" for word in text.split(" "))


_UNICODE = _CharacterSet(" ·░▒▓█", (0.02, 0.1, 0.25, 0.5, 0.75), "→", "↓", "│", "…", visible_symbol, visible_text)
_ASCII = _CharacterSet(
    " .:-=+*#%@", (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9), "->", "v", "|", "~", ascii_symbol, _ascii_text
)


class _SourceColumn(NamedTuple):
    """Displayed source position."""

    label: str
    mark: str
    """"?" below an unknown symbol, else a space."""
    width: int
    breaks: bool
    """Whether a panel preferably ends after this column: it is a space or the last feature."""
    weights: Float[np.ndarray, " T"] | None
    """Weights of the position; None for the bar after the features."""


class _TargetRow(NamedTuple):
    """Displayed target symbol: padded label and probability."""

    label: str
    probability: str


@check_arguments
def attention_caption(trace: Trace) -> str:
    """Return the sentence that explains the attention weights of a trace's task, or says that there are none.

    Args:
        trace: The trace.
    """
    if trace.attention.size and not trace.attention.any() and not trace.per_position:
        return NO_ATTENTION
    return get_task(trace.task).labels.attention_caption


@check_arguments
def render_trace(
    trace: Trace,
    width: int = 100,
    color: bool = False,
    ascii_only: bool = False,
    expected: str | None = None,
    alignment: bool = False,
) -> str:
    """Return a trace as text for the terminal, without a final newline.

    The text has source, output and probability, the expected output if it is another, notes (such as unknown symbols),
    the attention matrix, in panels if it is too wide, and the monotone alignment if requested; for tags, a line of
    symbol, tag and probability each. Control characters and escape sequences in the trace are replaced by visible
    signs.

    Args:
        trace: The trace.
        width: Maximum width in terminal columns; less than 40 counts as 40.
        color: Whether to draw weights as 24-bit background colors instead of characters.
        ascii_only: Whether to use ASCII only.
        expected: Expected output of a wrong one; None if the output is correct, or if there is no reference.
        alignment: Whether to add the monotone alignment (`align_trace`), if the output has one.
    """
    characters = _ASCII if ascii_only else _UNICODE
    width = max(width, 40)
    lines = list(_headline(trace, characters, width))
    if expected is not None:
        lines += wrap_columns(f"wrong, expected: {characters.text(expected)}", width)
    for note in _trace_notes(trace, characters):
        lines += wrap_columns(note, width)
    if trace.target:
        lines += [
            "",
            *(_tag_lines(trace, characters) if trace.per_position else _matrix_lines(trace, characters, width, color)),
        ]
    if alignment:
        lines += _alignment_lines(trace, characters, width)
    return "\n".join(line.rstrip() for line in lines)


@check_arguments
def shade_legend(color: bool = False, ascii_only: bool = False) -> str:
    """Return the legend of the shades of `render_trace`: the lowest weight of each, or the colors from 0 to 1.

    Args:
        color: Whether weights are drawn as colors.
        ascii_only: Whether to use ASCII only.
    """
    characters = _ASCII if ascii_only else _UNICODE
    if color:
        return f"weight 0 {''.join(_weight_cell(step / 20, 1, characters, color) for step in range(21))} 1"
    steps = zip(characters.shades[1:], characters.thresholds, strict=True)
    return f"weight {'  '.join(f'{shade} {minimum:.2f}' for shade, minimum in steps)} and more"


def _headline(trace: Trace, characters: _CharacterSet, width: int) -> Iterator[str]:
    """Yield source, output and probability, on one line if they fit."""
    source, output = characters.text(trace.text), f"{characters.arrow} {characters.text(trace.output)}"
    probability = f"p = {format_probability(trace.score)}"
    line = f"{source} {output}   {probability}"
    if cell_len(line) <= width:
        yield line
        return
    yield from wrap_columns(source, width)
    *lines, last = wrap_columns(output, width)
    yield from lines
    last_line = f"{last}   {probability}"
    yield from [last_line] if cell_len(last_line) <= width else [last, probability]


def _trace_notes(trace: Trace, characters: _CharacterSet) -> Iterator[str]:
    """Yield remarks on a trace: truncated or empty output, no attention, unknown symbols."""
    if not trace.finished:
        yield "The output was truncated at the maximum length."
    if not trace.target:
        yield "The output is empty."
    if not trace.source:
        yield "The source is empty."
    elif trace.target and not trace.attention.any():
        yield NO_ATTENTION
    if trace.unknown:
        unknown = dict.fromkeys(characters.symbol(trace.source[position]) for position in trace.unknown)
        yield f"? not in the vocabulary: {' '.join(unknown)}"


def _matrix_lines(trace: Trace, characters: _CharacterSet, width: int, color: bool) -> Iterator[str]:
    """Yield the lines of the matrix by panels; without attention weights, target symbols and probabilities only."""
    labels = [
        truncate_columns(characters.symbol(symbol), _LONGEST_LABEL, characters.ellipsis) for symbol in trace.target
    ]
    heading = f"output {characters.down}"
    margin = max(cell_len(label) for label in [heading, *labels])
    probabilities = [format_probability(float(value)) for value in trace.log_probabilities]
    probability_width = max(len(probability) for probability in probabilities)
    rows = [
        _TargetRow(_pad_label(label, margin, right=True), f"{probability:>{probability_width}}")
        for label, probability in zip(labels, probabilities, strict=True)
    ]
    heading = _pad_label(heading, margin)
    if not trace.source or not trace.attention.any():
        yield f"{heading}  {'p':>{probability_width}}"
        yield from (f"{row.label}  {row.probability}" for row in rows)
        return
    max_width = width - margin - probability_width - 4
    yield f"{' ' * margin}  source {characters.arrow}"
    for number, panel in enumerate(_split_panels(_source_columns(trace, characters, max_width), max_width)):
        if number:
            yield ""
        yield from _panel_lines(panel, rows, heading if not number else " " * margin, characters, color)


def _alignment_lines(trace: Trace, characters: _CharacterSet, width: int) -> list[str]:
    """Return the lines of the monotone alignment, "alignment: 1→M 9→CM"; none without attention or output symbols."""
    if not trace.autoregressive or not trace.attention.any():
        return []
    alignment = align_trace(trace)
    chunks = list[str]()
    for sides in [] if alignment is None else alignment.symbols:
        source, target = ("".join(map(characters.symbol, symbols)) or NO_SYMBOL for symbols in sides)
        chunks.append(f"{source}{characters.arrow}{target}")
    return list(wrap_columns(f"alignment: {' '.join(chunks)}", width)) if chunks else []


def _tag_lines(trace: Trace, characters: _CharacterSet) -> Iterator[str]:
    """Yield one line for each tag: symbol, tag, probability."""
    symbols, tags = (
        [truncate_columns(characters.symbol(symbol), _LONGEST_LABEL, characters.ellipsis) for symbol in side]
        for side in (trace.source[trace.num_features :], trace.target)
    )
    source_head, tag_head = f"source {characters.down}", f"tag {characters.down}"
    source_width, tag_width = max(map(cell_len, [source_head, *symbols])), max(map(cell_len, [tag_head, *tags]))
    yield f"{_pad_label(source_head, source_width)}    {_pad_label(tag_head, tag_width)}  p"
    for index, (symbol, tag, value) in enumerate(zip(symbols, tags, trace.log_probabilities.tolist(), strict=True)):
        mark = "?" if index + trace.num_features in trace.unknown else " "
        yield f"{_pad_label(symbol, source_width)} {mark}  {_pad_label(tag, tag_width)}  {format_probability(value)}"


def _source_columns(trace: Trace, characters: _CharacterSet, max_width: int) -> list[_SourceColumn]:
    """Return the source positions as columns. Characters are drawn without gaps if they would not fit otherwise."""
    labels = [
        truncate_columns(characters.symbol(symbol), _LONGEST_LABEL, characters.ellipsis) for symbol in trace.source
    ]
    sizes = [max(1, cell_len(label)) for label in labels]
    dense = all(len(grapheme_clusters(label)) <= 1 for label in labels)
    gap = 0 if dense and sum(sizes) + len(sizes) + 1 > max_width else 1
    columns: list[_SourceColumn] = []
    for position, (label, size) in enumerate(zip(labels, sizes, strict=True)):
        last_feature = position == trace.num_features - 1
        columns.append(
            _SourceColumn(
                label=label,
                mark="?" if position in trace.unknown else " ",
                width=min(size + gap, max_width),
                breaks=last_feature or trace.source[position] == " ",
                weights=trace.attention[:, position],
            )
        )
        if last_feature and position + 1 < len(labels):
            columns.append(_SourceColumn(characters.bar, characters.bar, 1 + gap, True, None))
    return columns


def _split_panels(columns: Sequence[_SourceColumn], max_width: int) -> Iterator[Sequence[_SourceColumn]]:
    """Yield panels of columns no wider than `max_width`, preferably split after a space."""
    start = 0
    while start < len(columns):
        stop, width = start, 0
        while stop < len(columns) and width + columns[stop].width <= max_width:
            width += columns[stop].width
            stop += 1
        if stop < len(columns):
            candidates = range(stop, start + (stop - start) // 2, -1)
            stop = next((index for index in candidates if columns[index - 1].breaks), stop)
        yield columns[start:stop]
        start = stop


def _panel_lines(
    panel: Sequence[_SourceColumn], rows: Sequence[_TargetRow], heading: str, characters: _CharacterSet, color: bool
) -> Iterator[str]:
    """Yield the lines of a panel: source symbols, marks below unknown ones, and a line for each target symbol."""
    gap = " " * (len(rows[0].probability) - 1)
    yield f"{heading}  {''.join(_pad_label(column.label, column.width) for column in panel)}  {gap}p"
    if any(column.mark == "?" for column in panel):
        yield f"{' ' * cell_len(heading)}  {''.join(_pad_label(column.mark, column.width) for column in panel)}"
    for t, row in enumerate(rows):
        cells = "".join(_column_cell(column, t, characters, color) for column in panel)
        yield f"{row.label}  {cells}  {row.probability}"


def _column_cell(column: _SourceColumn, t: int, characters: _CharacterSet, color: bool) -> str:
    """Return the cell of a column in row t."""
    if column.weights is None:
        return _pad_label(characters.bar, column.width)
    return _weight_cell(float(np.nan_to_num(column.weights[t])), column.width, characters, color)


def _weight_cell(weight: float, width: int, characters: _CharacterSet, color: bool) -> str:
    """Return a weight as a shaded cell of the width of its column."""
    if not color:
        # As float32, 0.02 is slightly smaller than 0.02.
        return characters.shades[bisect.bisect_right(characters.thresholds, round(weight, 6))] * width
    share = min(max(weight, 0.0), 1.0)
    red, green, blue = (round(low + (high - low) * share) for low, high in zip(_DARK, _BRIGHT, strict=True))
    return f"\x1b[48;2;{red};{green};{blue}m{' ' * width}\x1b[0m"


def _pad_label(label: str, width: int, right: bool = False) -> str:
    """Return a label padded with spaces to a display width."""
    space = " " * (width - cell_len(label))
    return space + label if right else label + space
