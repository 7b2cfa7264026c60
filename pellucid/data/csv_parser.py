"""CSV parser of the standard library with a maximum field size of its own.

The maximum of the module `csv` is one for the whole process: another thread, or the program that uses Pellucid, may
change it while a record is read. So the C module below it is loaded a second time, with a state of its own.
"""

from collections.abc import Iterable
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from _csv import Reader

MAX_CSV_FIELD = 2**31 - 1
"""Maximum field size that the module accepts on every system."""


def _load_parser() -> Any:  # noqa: ANN401 (a module)
    """Return a second instance of the C module of `csv`, with the maximum field size `MAX_CSV_FIELD`."""
    spec = find_spec("_csv")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)  # not in sys.modules, where the first instance stays
    spec.loader.exec_module(module)
    module.field_size_limit(MAX_CSV_FIELD)
    return module


_PARSER = _load_parser()
CsvError: type[Exception] = _PARSER.Error
"""Error of `csv_reader`, which is not `csv.Error`."""


def csv_reader(lines: Iterable[str], delimiter: str) -> "Reader":
    """Return a strict reader of CSV records, as `csv.reader` does.

    Args:
        lines: The lines.
        delimiter: Character between two fields.
    """
    return cast("Reader", _PARSER.reader(lines, delimiter=delimiter, strict=True))
