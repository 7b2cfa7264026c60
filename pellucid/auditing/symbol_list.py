"""The symbols of sources and of targets with their counts, the rarest first."""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from pellucid.auditing.characters import code_point
from pellucid.auditing.text_checks import SymbolCount, check_column, count_symbols
from pellucid.auditing.types import AuditEntry, Column
from pellucid.config.settings import DataConfig, Delimiter
from pellucid.data.delimiters import format_csv
from pellucid.data.tokenizers import build_tokenizers

COLUMNS = ("column", "symbol", "code_points", "names", "rows", "lines", "look_alike_of")
"""Columns of a list of symbols."""


class ColumnSymbol(NamedTuple):
    """A symbol of sources or of targets."""

    column: Column
    counted: SymbolCount
    proper: str
    """Character for which it may be a mistake; empty if there is none."""


def list_symbols(entries: Sequence[AuditEntry], data: DataConfig) -> list[ColumnSymbol]:
    """Return the symbols of sources, then those of targets, the rarest of each column first.

    Args:
        entries: Entries of a file.
        data: Data settings, which say how texts are split.
    """
    tokenizers, found = build_tokenizers(data), list[ColumnSymbol]()
    sides: tuple[tuple[Column, list[str]], ...] = (
        ("source", [entry.example.source for entry in entries]),
        ("target", [entry.example.target for entry in entries]),
    )
    for (column, texts), tokenizer in zip(sides, (tokenizers.source, tokenizers.target), strict=True):
        look_alikes = check_column(texts, tokenizer).look_alikes
        counts = count_symbols(zip((entry.line for entry in entries), texts, strict=True), tokenizer)
        found += [ColumnSymbol(column, count, look_alikes.get(count.symbol, "")) for count in counts]
    return found


def symbols_csv(symbols: Sequence[ColumnSymbol], delimiter: Delimiter = ",", line_end: str = "\n") -> str:
    """Return a list of symbols as CSV.

    Args:
        symbols: Symbols in their order.
        delimiter: Delimiter; the comma by default.
        line_end: Line end; that of Unix by default.
    """
    rows = [
        (
            *(column, count.symbol, " ".join(map(code_point, count.symbol)), _names(count.symbol)),
            *(str(count.num_rows), " ".join(map(str, count.lines)), proper),
        )
        for column, count, proper in symbols
    ]
    return format_csv([COLUMNS, *rows], delimiter, line_end)


def _names(symbol: str) -> str:
    """Return the Unicode names of the characters of a symbol; none for more than three."""
    if len(symbol) > 3:
        return ""
    return " + ".join(unicodedata.name(character, "control character").lower() for character in symbol)
