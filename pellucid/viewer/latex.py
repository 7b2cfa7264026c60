"""A trace for LaTeX: its attention, or its tags, as a TikZ picture, which needs the package tikz and no other."""

import math
from collections.abc import Iterator

import numpy as np

from pellucid.decoding.trace import Trace
from pellucid.reporting.visible import visible_text

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
"""A quotation mark that is straight in every font, and -- no dash: TeX would join them to other letters."""
MIN_WEIGHT = 0.005
"""A weight below this would be white."""
LOW_MAXIMUM, MAX_UNSCALED_POSITIONS = 0.35, 200
"""A greatest weight below which, and positions beyond which, each row has its own shades."""
MAX_UNSHIFTED_POSITIONS = 60
"""Positions beyond which an even share is white then."""


UNKNOWN_NOTE = r"\underline{underlined}: never seen in training"
MAX_WIDTH_MM = 160
"""Millimetres of a line of tags, and the most of a picture."""
MAX_CELL_MM, MIN_LABELED_CELL_MM = 4.0, 2.5
"""Millimetres of a square, and of the smallest that has room for a symbol: beside smaller ones stand numbers."""


def tikz_picture(trace: Trace) -> str:
    r"""The weights as shaded squares, sources above, written symbols beside: for \input, with \usepackage{tikz}.

    Of tags, which have no weights, the symbols in lines, each with its tag and a bar as long as its probability below.
    """
    tags = trace.per_position
    wide, high = (MAX_CELL_MM, MAX_CELL_MM) if tags else (_cell_size(len(trace.source)), _cell_size(len(trace.target)))
    drawn = _draw_tags(trace) if tags else [*_draw_labels(trace), *_draw_cells(trace), *_draw_frame(trace)]
    told = (
        [rf"\node[anchor=north west] at (current bounding box.south west) {{{UNKNOWN_NOTE}}};"] if trace.unknown else []
    )
    return "\n".join(
        [
            r"% \usepackage{tikz} in the preamble; xelatex or lualatex where symbols are beyond Latin.",
            rf"\begin{{tikzpicture}}[x={wide:.4g}mm,y=-{high:.4g}mm,"
            r"every node/.style={font=\footnotesize,inner sep=1pt}]",
            *drawn,
            *told,
            r"\end{tikzpicture}",
            "",
        ]
    )


def _draw_tags(trace: Trace) -> Iterator[str]:
    """Each symbol above its tag, as many in a line as it has room for."""
    symbols = trace.source[trace.features :]
    wide = 1 + 0.5 * max([2, *(len(visible_text(symbol)) for symbol in (*symbols, *trace.target))])
    names = _source_labels(trace)[trace.features :]
    line = max(1, int(MAX_WIDTH_MM / 4 / wide))
    for at, (name, tag, ln) in enumerate(zip(names, trace.target, trace.log_probabilities.tolist(), strict=False)):
        x, y = at % line * wide, at // line * 4
        yield rf"\node[anchor=base west] at ({x:g},{y}) {{{name}}};"
        yield rf"\node[anchor=base west] at ({x:g},{y + 1}) {{{escape_latex(tag)}}};"
        bar = (wide - 0.5) * math.exp(min(ln, 0.0))
        yield rf"\fill[black!50] ({x:g},{y + 1.6:g}) rectangle +({bar:.2f},0.3);"


def _cell_size(count: int) -> float:
    """Millimetres of a square, so that all of them fit."""
    return min(MAX_CELL_MM, MAX_WIDTH_MM / max(1, count))


def _draw_labels(trace: Trace) -> Iterator[str]:
    """The symbols of both sides, or numbers of places where these have no room."""
    across, down = _label_interval(len(trace.source), 8), _label_interval(len(trace.target), 4)
    for at, name in enumerate(_source_labels(trace)):
        if across == 1:
            yield rf"\node[rotate=90,anchor=west] at ({at + 0.5:g},-0.1) {{{name}}};"
        elif (at + 1) % across == 0:
            yield rf"\node[anchor=south] at ({at + 0.5:g},0) {{{at + 1}}};"
    for at, symbol in enumerate(trace.target):
        if (at + 1) % down == 0:
            yield rf"\node[anchor=east] at (-0.1,{at + 0.5:g}) {{{escape_latex(symbol) if down == 1 else at + 1}}};"


def _label_interval(count: int, label: int) -> int:
    """Every so many squares carry a label of so many millimetres."""
    cell = _cell_size(count)
    steps = (step * 10**power for power in range(1, 9) for step in (0.5, 1, 2))
    return 1 if cell >= MIN_LABELED_CELL_MM else next(round(step) for step in steps if cell * step >= label)


def _source_labels(trace: Trace) -> list[str]:
    """The source's symbols, those that training never held underlined."""
    unseen = set(trace.unknown)
    return [
        rf"\underline{{{escape_latex(symbol)}}}" if at in unseen else escape_latex(symbol)
        for at, symbol in enumerate(trace.source)
    ]


def _is_scaled_by_row(trace: Trace) -> bool:
    """Whether all weights are so small, or narrow, that each row is drawn against its greatest, to be seen."""
    return trace.attention.size > 0 and (
        len(trace.source) > MAX_UNSCALED_POSITIONS or float(trace.attention.max()) < LOW_MAXIMUM
    )


def _draw_cells(trace: Trace) -> Iterator[str]:
    """A square for each weight that can be seen."""
    drawn = trace.attention
    if _is_scaled_by_row(trace):
        above = drawn.mean(axis=1, keepdims=True) if drawn.shape[1] > MAX_UNSHIFTED_POSITIONS else 0
        drawn = np.maximum(0, drawn - above) / np.maximum(drawn.max(axis=1, keepdims=True) - above, 1e-30)
    for row, weights in enumerate(drawn.tolist()):
        for column, weight in enumerate(weights):
            if weight >= MIN_WEIGHT:
                yield rf"\fill[black!{100 * weight:.0f}] ({column},{row}) rectangle +(1,1);"


def _draw_frame(trace: Trace) -> Iterator[str]:
    """The edge of the picture, what its sides are, and what its darkest shade is."""
    if trace.source and trace.target:
        yield rf"\draw[black!50] (0,0) rectangle ({len(trace.source)},{len(trace.target)});"
    yield r"\node[anchor=south west] at (0,0 |- current bounding box.north) {source $\rightarrow$};"
    beside = "(current bounding box.west |- 0,0)"
    yield rf"\node[rotate=90,anchor=south east] at {beside} {{$\leftarrow$ output}};"
    darkest = "the row's maximum" if _is_scaled_by_row(trace) else "1"
    yield rf"\node[anchor=north west] at (0,0 |- current bounding box.south) {{darkest: {escape_latex(darkest)}}};"


def escape_latex(symbol: str) -> str:
    """A symbol as LaTeX shows it."""
    return "".join(LATEX_ESCAPES.get(character, character) for character in visible_text(symbol))
