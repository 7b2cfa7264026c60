"""Letters of every script in matplotlib's figures: fonts that have them, and code points where none has."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, fontManager, get_font
from matplotlib.ticker import FixedFormatter

_FONT = "DejaVu Sans"
"""It comes with matplotlib, so figures look the same everywhere."""
_REGULAR = (400, "normal", "regular", "book")


def name_ticks(axis: Axis, labels: Sequence[str], size: float, color: str) -> None:
    """A tick at each whole number, named; never read as mathematics, in fonts that have the letters."""
    found = _fonts("".join(sorted(set("".join(labels)))))
    family = [_FONT, *sorted(set(found.values()) - {_FONT}), "sans-serif"]
    axis.set_ticks(range(len(labels)), labels, parse_math=False, fontfamily=family, fontsize=size, color=color)
    axis.set_major_formatter(FixedFormatter(labels))


@contextmanager
def drawable_names(figure: Figure) -> Iterator[None]:
    """Within the block, named ticks hold code points in place of what no font can draw."""
    named: list[tuple[Axis, FixedFormatter]] = []
    every: list[Axis] = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    for axis in every:
        formatter = axis.get_major_formatter()
        if isinstance(formatter, FixedFormatter):
            named.append((axis, formatter))
            axis.set_major_formatter(FixedFormatter([_with_glyphs(label) for label in formatter.seq]))
    try:
        yield
    finally:
        for axis, formatter in named:
            axis.set_major_formatter(formatter)


@contextmanager
def missing_glyphs_allowed() -> Iterator[None]:
    """Within the block, no warnings about letters that no font here can draw: the reader's browser may."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s)Glyph .* missing from")
        yield


@lru_cache(maxsize=64)
def _fonts(characters: str) -> dict[str, str]:
    """For each character an installed family that can draw it, matplotlib's own where it can; others are missing."""
    missing = set(characters)
    own = get_font(findfont(_FONT))
    found = {character: _FONT for character in missing if own.get_char_index(ord(character))}
    for entry in sorted(fontManager.ttflist, key=lambda entry: ("Sans" not in entry.name, entry.name)):
        missing -= found.keys()
        usable = entry.style == "normal" and entry.weight in _REGULAR and not entry.name.startswith("Last Resort")
        if missing and usable:
            font = get_font(entry.fname)
            if font.scalable:
                found |= {character: entry.name for character in missing if font.get_char_index(ord(character))}
    return found


def _with_glyphs(label: str) -> str:
    """A label whose letters can all be drawn here: a single missing letter is its code point in two lines."""
    found = _fonts("".join(sorted(set(label))))
    missing = [character for character in label if character not in found]
    if missing and label.lstrip("◌") == missing[0]:
        code = _code(missing[0])
        return f"{code[:-2]}\n{code[-2:]}"
    return "".join(character if character in found else f"U+{_code(character)}" for character in label)


def _code(character: str) -> str:
    """A character's code point; that of the control itself for the sign of a control."""
    point = ord(character)
    return f"{point - 0x2400 if 0x2400 <= point < 0x2420 else point:04X}"
