"""Which symbols are taken for which, as HTML: a list, most frequent first, and a matrix."""

from collections.abc import Iterator
from html import escape

from pellucid.evaluation.confusion import Confusion, Confusions, Matrix
from pellucid.look.page import text
from pellucid.look.visible import visible

LISTED = 20
_STRONG = 0.55
"""Cells darker than this have light letters."""


def confusions_html(confusions: Confusions) -> Iterator[str]:
    """The most frequent errors beside the matrix; nothing where there is no error."""
    errors = confusions.errors
    if not errors:
        return
    kinds = ", ".join(f"{count:,} {kind}{'' if count == 1 else 's'}" for kind, count in confusions.kinds.items())
    yield (
        f'<p class="note">{kinds}, counted on an alignment with the fewest edits of each output with its nearest '
        "reference. A dash is no symbol: wanted –, the symbol was inserted; written –, it was left out.</p>\n"
        f'<div class="pair">{_listed(errors)}{matrix_html(confusions.matrix())}</div>\n'
    )


def pair_name(wanted: str | None, written: str | None) -> str:
    """An error in one word: "i→ɪ"; by it the list of errors is searched."""
    return f"{_shown(wanted)}→{_shown(written)}"


def matrix_html(matrix: Matrix) -> str:
    """Wanted symbols down, written ones across; a cell is as dark as its share of the row's errors."""
    heads = "".join(f'<th scope="col">{escape(_shown(symbol))}</th>' for symbol in matrix.symbols)
    rows = "".join(
        f'<tr><th scope="row">{escape(_shown(wanted))}</th>{"".join(_cells(matrix, at))}</tr>\n'
        for at, wanted in enumerate(matrix.symbols)
    )
    return (
        '<div class="matrix"><table><caption>wanted ↓ written →</caption>'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>\n{rows}</tbody></table></div>"
    )


def _listed(errors: list[Confusion]) -> str:
    """The table of the most frequent ones."""
    rows = "".join(
        f'<tr><th scope="row"><button type="button" data-find="{escape(pair_name(each.wanted, each.written))}">'
        f"{escape(_shown(each.wanted))} → {escape(_shown(each.written))}</button></th><td>{each.times:,}</td>"
        f"<td>{f'{each.of:,}' if each.of else ''}</td><td>{f'{100 * each.times / each.of:.1f} %' if each.of else ''}"
        "</td></tr>\n"
        for each in errors[:LISTED]
    )
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("wanted → written", "times", "of", "share"))
    more = f'<p class="note">{text(f"{len(errors) - LISTED:,} rarer ones are left out.")}</p>'
    table = f'<table class="numbers confusions"><thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table>'
    return f"<div>{table}{more if len(errors) > LISTED else ''}</div>"


def _cells(matrix: Matrix, at: int) -> Iterator[str]:
    """One row."""
    counts, wanted = matrix.counts[at], matrix.symbols[at]
    most = max([count for column, count in enumerate(counts) if column != at], default=0)
    for column, count in enumerate(counts):
        hint = f"wanted {_shown(wanted)}, written {_shown(matrix.symbols[column])}: {count:,}"
        if column == at:
            shown = "" if wanted is None else _short(count)
            yield f'<td class="right" title="{escape(hint)}">{shown}</td>'
        elif not count:
            yield "<td></td>"
        else:
            weight = 0.15 + 0.85 * count / most * min(1.0, count / max(1, _greatest(matrix)) * 4)
            strong = ' class="strong"' if weight > _STRONG else ""
            yield f'<td{strong} style="--w:{weight:.2f}" title="{escape(hint)}">{_short(count)}</td>'


def _greatest(matrix: Matrix) -> int:
    """The greatest count off the diagonal."""
    return max(
        (count for row, counts in enumerate(matrix.counts) for column, count in enumerate(counts) if row != column),
        default=0,
    )


def _short(count: int) -> str:
    """A count in at most four characters."""
    return f"{count}" if count < 1000 else f"{count / 1000:.0f}k" if count >= 10_000 else f"{count / 1000:.1f}k"


def _shown(symbol: str | None) -> str:
    """A symbol; a dash for none."""
    return "–" if symbol is None else visible(symbol)
