"""A trace for LaTeX: its attention, or its tags, as a TikZ picture, which needs the package tikz and no other."""

import math
from collections.abc import Iterator

import numpy as np

from pellucid.decoding.trace import Trace
from pellucid.reporting.display_text import visible_text

SPECIAL = {
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
SMALLEST = 0.005
"""A weight below this would be white."""
FAINT, NARROW = 0.35, 200
"""A greatest weight below which, and positions beyond which, each row has its own shades."""
MANY = 60
"""Positions beyond which an even share is white then."""


UNSEEN = r"\underline{underlined}: never seen in training"
LINE = 160
"""Millimetres of a line of tags, and the most of a picture."""
CELL, LEAST = 4.0, 2.5
"""Millimetres of a square, and of the smallest that has room for a symbol: beside smaller ones stand numbers."""


def picture(trace: Trace) -> str:
    r"""The weights as shaded squares, sources above, written symbols beside: for \input, with \usepackage{tikz}.

    Of tags, which have no weights, the symbols in lines, each with its tag and a bar as long as its probability below.
    """
    tags = trace.per_position
    wide, high = (CELL, CELL) if tags else (_cell(len(trace.source)), _cell(len(trace.target)))
    drawn = _tags(trace) if tags else [*_labels(trace), *_squares(trace), *_frame(trace)]
    told = [rf"\node[anchor=north west] at (current bounding box.south west) {{{UNSEEN}}};"] if trace.unknown else []
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


def _tags(trace: Trace) -> Iterator[str]:
    """Each symbol above its tag, as many in a line as it has room for."""
    symbols = trace.source[trace.features :]
    wide = 1 + 0.5 * max([2, *(len(visible_text(symbol)) for symbol in (*symbols, *trace.target))])
    names = _named(trace)[trace.features :]
    line = max(1, int(LINE / 4 / wide))
    for at, (name, tag, ln) in enumerate(zip(names, trace.target, trace.log_probabilities.tolist(), strict=False)):
        x, y = at % line * wide, at // line * 4
        yield rf"\node[anchor=base west] at ({x:g},{y}) {{{name}}};"
        yield rf"\node[anchor=base west] at ({x:g},{y + 1}) {{{escaped(tag)}}};"
        bar = (wide - 0.5) * math.exp(min(ln, 0.0))
        yield rf"\fill[black!50] ({x:g},{y + 1.6:g}) rectangle +({bar:.2f},0.3);"


def _cell(count: int) -> float:
    """Millimetres of a square, so that all of them fit."""
    return min(CELL, LINE / max(1, count))


def _labels(trace: Trace) -> Iterator[str]:
    """The symbols of both sides, or numbers of places where these have no room."""
    across, down = _every(len(trace.source), 8), _every(len(trace.target), 4)
    for at, name in enumerate(_named(trace)):
        if across == 1:
            yield rf"\node[rotate=90,anchor=west] at ({at + 0.5:g},-0.1) {{{name}}};"
        elif (at + 1) % across == 0:
            yield rf"\node[anchor=south] at ({at + 0.5:g},0) {{{at + 1}}};"
    for at, symbol in enumerate(trace.target):
        if (at + 1) % down == 0:
            yield rf"\node[anchor=east] at (-0.1,{at + 0.5:g}) {{{escaped(symbol) if down == 1 else at + 1}}};"


def _every(count: int, label: int) -> int:
    """Every so many squares carry a label of so many millimetres."""
    cell = _cell(count)
    steps = (step * 10**power for power in range(1, 9) for step in (0.5, 1, 2))
    return 1 if cell >= LEAST else next(round(step) for step in steps if cell * step >= label)


def _named(trace: Trace) -> list[str]:
    """The source's symbols, those that training never held underlined."""
    unseen = set(trace.unknown)
    return [
        rf"\underline{{{escaped(symbol)}}}" if at in unseen else escaped(symbol)
        for at, symbol in enumerate(trace.source)
    ]


def _faint(trace: Trace) -> bool:
    """Whether all weights are so small, or narrow, that each row is drawn against its greatest, to be seen."""
    return trace.attention.size > 0 and (len(trace.source) > NARROW or float(trace.attention.max()) < FAINT)


def _squares(trace: Trace) -> Iterator[str]:
    """A square for each weight that can be seen."""
    drawn = trace.attention
    if _faint(trace):
        above = drawn.mean(axis=1, keepdims=True) if drawn.shape[1] > MANY else 0
        drawn = np.maximum(0, drawn - above) / np.maximum(drawn.max(axis=1, keepdims=True) - above, 1e-30)
    for row, weights in enumerate(drawn.tolist()):
        for column, weight in enumerate(weights):
            if weight >= SMALLEST:
                yield rf"\fill[black!{100 * weight:.0f}] ({column},{row}) rectangle +(1,1);"


def _frame(trace: Trace) -> Iterator[str]:
    """The edge of the picture, what its sides are, and what its darkest shade is."""
    if trace.source and trace.target:
        yield rf"\draw[black!50] (0,0) rectangle ({len(trace.source)},{len(trace.target)});"
    yield r"\node[anchor=south west] at (0,0 |- current bounding box.north) {source $\rightarrow$};"
    beside = "(current bounding box.west |- 0,0)"
    yield rf"\node[rotate=90,anchor=south east] at {beside} {{$\leftarrow$ output}};"
    darkest = "the row's maximum" if _faint(trace) else "1"
    yield rf"\node[anchor=north west] at (0,0 |- current bounding box.south) {{darkest: {escaped(darkest)}}};"


def escaped(symbol: str) -> str:
    """A symbol as LaTeX shows it."""
    return "".join(SPECIAL.get(character, character) for character in visible_text(symbol))
