"""A trace for LaTeX: its attention as a TikZ picture, which needs the package tikz and no other."""

from collections.abc import Iterator

from pellucid.look.visible import visible_text
from pellucid.search.trace import Trace

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
    '"': r"\textquotedbl{}",
    "⟨": r"$\langle$",
    "⟩": r"$\rangle$",
    "␣": r"\textvisiblespace{}",
    "→": r"$\rightarrow$",
    "·": r"$\cdot$",
}
SMALLEST = 0.005
"""A weight below this would be white."""


def picture(trace: Trace) -> str:
    r"""The weights as shaded squares, sources above, written symbols beside: for \input, with \usepackage{tikz}."""
    return "\n".join(
        [
            r"% \usepackage{tikz} in the preamble; xelatex or lualatex where symbols are beyond Latin.",
            r"\begin{tikzpicture}[x=4mm,y=-4mm,every node/.style={font=\footnotesize,inner sep=1pt}]",
            *_labels(trace),
            *_squares(trace),
            *_frame(trace),
            r"\end{tikzpicture}",
            "",
        ]
    )


def _labels(trace: Trace) -> Iterator[str]:
    """The symbols of both sides."""
    for at, symbol in enumerate(trace.source):
        yield rf"\node[rotate=90,anchor=west] at ({at + 0.5:g},-0.1) {{{escaped(symbol)}}};"
    for at, symbol in enumerate(trace.target):
        yield rf"\node[anchor=east] at (-0.1,{at + 0.5:g}) {{{escaped(symbol)}}};"


def _squares(trace: Trace) -> Iterator[str]:
    """A square for each weight that can be seen."""
    for row, weights in enumerate(trace.attention.tolist()):
        for column, weight in enumerate(weights):
            if weight >= SMALLEST:
                yield rf"\fill[black!{100 * weight:.0f}] ({column},{row}) rectangle +(1,1);"


def _frame(trace: Trace) -> Iterator[str]:
    """The edge of the picture."""
    if trace.source and trace.target:
        yield rf"\draw[black!50] (0,0) rectangle ({len(trace.source)},{len(trace.target)});"


def escaped(symbol: str) -> str:
    """A symbol as LaTeX shows it."""
    return "".join(SPECIAL.get(character, character) for character in visible_text(symbol))
