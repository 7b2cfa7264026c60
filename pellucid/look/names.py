"""Names that stand side by side in tables: short enough, and still told apart."""

import re
from collections.abc import Sequence
from itertools import takewhile

WIDTH = 20
"""Characters that a name may have in a table."""
ENDS = re.compile(r"[-_./ ]")


def short_names(names: Sequence[str], width: int = WIDTH) -> list[str]:
    """The names themselves where all are short; else without the beginning they share, and with their middles left out.

    What is left out is "…". The first and last characters stay, more of them where names would be the same.
    """
    if max(map(len, names), default=0) <= width:
        return list(names)
    shared = _shared(names)
    own = [f"…{name[shared:]}" if shared else name for name in names]
    for wide in range(width, max(width, *map(len, own)) + 1):
        cut = [_cut(name, wide) for name in own]
        if len(set(cut)) == len(set(names)):
            return cut
    return list(names)


def _shared(names: Sequence[str]) -> int:
    """How many characters all names begin with alike, up to the end of a word."""
    alike = takewhile(lambda column: len(set(column)) == 1, zip(*names, strict=False))
    common = "".join(column[0] for column in alike) if len(set(names)) > 1 else ""
    ends = [match.end() for match in ENDS.finditer(common)]
    return ends[-1] if ends else 0


def _cut(name: str, width: int) -> str:
    """A name with its middle left out; more is kept of its end, where names differ most."""
    if len(name) <= width:
        return name
    end = (width - 1) * 2 // 3
    return f"{name[: width - 1 - end]}…{name[len(name) - end :]}"
