"""Attention weights or tags of a trace as a TikZ picture, which requires only the package tikz."""

import math
from collections.abc import Iterator

import numpy as np

from pellucid.decoding.trace import Trace
from pellucid.reporting.display_text import visible_text

LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\texttt{\char34}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "-": "-{}",
    ",": ",{}",
    "⟨": r"$\langle$",
    "⟩": r"$\rangle$",
    "␣": r"\textvisiblespace{}",
    "→": r"$\rightarrow$",
    "·": r"$\cdot$",
}
"""Straight quotation marks in every font; separate hyphens, which TeX would join to a dash."""
MIN_WEIGHT = 0.005
"""Smaller weights would be white."""
LOW_MAXIMUM, MAX_UNSCALED_POSITIONS = 0.35, 200
"""A smaller maximum weight, or more positions, scale each row by its maximum."""
MAX_UNSHIFTED_POSITIONS = 60
"""With more positions, rows scaled by their maximum show only weight above the uniform weight."""


UNKNOWN_NOTE = r"\underline{underlined}: not in the vocabulary"
MAX_WIDTH_MM = 160
"""Maximum width of a line of tags and of a picture."""
MAX_CELL_MM, MIN_LABELED_CELL_MM = 4.0, 2.5
"""Maximum size of a cell, and minimum size of a cell that is labeled by its symbol instead of a number."""


def tikz_picture(trace: Trace) -> str:
    r"""Return the attention weights of a trace as a TikZ picture: shaded cells, source above, output at the left.

    Weight 1 is black; if all weights are small, or positions are many, the maximum of each row is. Tags, which have no
    weights, are drawn as lines of symbols, each with its tag and a bar for its probability. Use with \input; requires
    \usepackage{tikz}.

    Args:
        trace: Trace.

    Returns:
        LaTeX source of a tikzpicture environment.
    """
    tags = trace.per_position
    cell_width, cell_height = (
        (MAX_CELL_MM, MAX_CELL_MM) if tags else (_cell_size(len(trace.source)), _cell_size(len(trace.target)))
    )
    commands = _draw_tags(trace) if tags else [*_draw_labels(trace), *_draw_cells(trace), *_draw_frame(trace)]
    notes = (
        [rf"\node[anchor=north west] at (current bounding box.south west) {{{UNKNOWN_NOTE}}};"] if trace.unknown else []
    )
    return "\n".join(
        [
            r"% \usepackage{tikz} in the preamble; xelatex or lualatex where symbols are beyond Latin.",
            rf"\begin{{tikzpicture}}[x={cell_width:.4g}mm,y=-{cell_height:.4g}mm,"
            r"every node/.style={font=\footnotesize,inner sep=1pt}]",
            *commands,
            *notes,
            r"\end{tikzpicture}",
            "",
        ]
    )


def _draw_tags(trace: Trace) -> Iterator[str]:
    """Yield each symbol above its tag, in lines of the maximum width."""
    symbols = trace.source[trace.num_features :]
    cell_width = 1 + 0.5 * max([2, *(len(visible_text(symbol)) for symbol in (*symbols, *trace.target))])
    names = _source_labels(trace)[trace.num_features :]
    line = max(1, int(MAX_WIDTH_MM / 4 / cell_width))
    for index, (name, tag, log_probability) in enumerate(
        zip(names, trace.target, trace.log_probabilities.tolist(), strict=False)
    ):
        x, y = index % line * cell_width, index // line * 4
        yield rf"\node[anchor=base west] at ({x:g},{y}) {{{name}}};"
        yield rf"\node[anchor=base west] at ({x:g},{y + 1}) {{{escape_latex(tag)}}};"
        bar = (cell_width - 0.5) * math.exp(min(log_probability, 0.0))
        yield rf"\fill[black!50] ({x:g},{y + 1.6:g}) rectangle +({bar:.2f},0.3);"


def _cell_size(count: int) -> float:
    """Return the size of a cell in millimeters, so that all cells fit."""
    return min(MAX_CELL_MM, MAX_WIDTH_MM / max(1, count))


def _draw_labels(trace: Trace) -> Iterator[str]:
    """Yield the symbols of both axes, or position numbers if there is no room for symbols."""
    column_interval, row_interval = _label_interval(len(trace.source), 8), _label_interval(len(trace.target), 4)
    for index, name in enumerate(_source_labels(trace)):
        if column_interval == 1:
            yield rf"\node[rotate=90,anchor=west] at ({index + 0.5:g},-0.1) {{{name}}};"
        elif (index + 1) % column_interval == 0:
            yield rf"\node[anchor=south] at ({index + 0.5:g},0) {{{index + 1}}};"
    for index, symbol in enumerate(trace.target):
        if (index + 1) % row_interval == 0:
            label = escape_latex(symbol) if row_interval == 1 else f"{index + 1}"
            yield rf"\node[anchor=east] at (-0.1,{index + 0.5:g}) {{{label}}};"


def _label_interval(count: int, label_mm: int) -> int:
    """Return the interval between labels that are `label_mm` millimeters wide: 1, 5, 10, 20, 50, ..."""
    cell = _cell_size(count)
    steps = (step * 10**power for power in range(1, 9) for step in (0.5, 1, 2))
    return 1 if cell >= MIN_LABELED_CELL_MM else next(round(step) for step in steps if cell * step >= label_mm)


def _source_labels(trace: Trace) -> list[str]:
    """Return the source symbols; symbols outside the vocabulary are underlined."""
    unknown = set(trace.unknown)
    return [
        rf"\underline{{{escape_latex(symbol)}}}" if index in unknown else escape_latex(symbol)
        for index, symbol in enumerate(trace.source)
    ]


def _is_scaled_by_row(trace: Trace) -> bool:
    """Return whether weights are scaled by the maximum of their row, because all are small or the cells are narrow."""
    return trace.attention.size > 0 and (
        len(trace.source) > MAX_UNSCALED_POSITIONS or float(trace.attention.max()) < LOW_MAXIMUM
    )


def _draw_cells(trace: Trace) -> Iterator[str]:
    """Yield a cell for each visible weight."""
    shades = trace.attention
    if _is_scaled_by_row(trace):
        uniform_share = shades.mean(axis=1, keepdims=True) if shades.shape[1] > MAX_UNSHIFTED_POSITIONS else 0
        shades = np.maximum(0, shades - uniform_share) / np.maximum(
            shades.max(axis=1, keepdims=True) - uniform_share, 1e-30
        )
    for row, weights in enumerate(shades.tolist()):
        for column, weight in enumerate(weights):
            if weight >= MIN_WEIGHT:
                yield rf"\fill[black!{100 * weight:.0f}] ({column},{row}) rectangle +(1,1);"


def _draw_frame(trace: Trace) -> Iterator[str]:
    """Yield the frame of the picture, its axis titles and its color key."""
    if trace.source and trace.target:
        yield rf"\draw[black!50] (0,0) rectangle ({len(trace.source)},{len(trace.target)});"
    yield r"\node[anchor=south west] at (0,0 |- current bounding box.north) {source $\rightarrow$};"
    anchor = "(current bounding box.west |- 0,0)"
    yield rf"\node[rotate=90,anchor=south east] at {anchor} {{$\leftarrow$ output}};"
    darkest = "the row's maximum" if _is_scaled_by_row(trace) else "1"
    yield rf"\node[anchor=north west] at (0,0 |- current bounding box.south) {{darkest: {escape_latex(darkest)}}};"


def escape_latex(symbol: str) -> str:
    """Return LaTeX source that prints a symbol, with blanks and control characters made visible.

    Args:
        symbol: Symbol.
    """
    return "".join(LATEX_ESCAPES.get(character, character) for character in visible_text(symbol))
