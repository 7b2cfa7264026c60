"""Recurrent cells by name.

The equations are in model/cells.py. Cells of other packages are classes declared as an entry point of the group
`pellucid.cells`, whose name is that of the cell, or registered with `pellucid.register_cell`.
"""

from collections.abc import Sequence
from typing import Protocol, get_args, runtime_checkable

from pellucid.config.extensions import ExtensionRegistry, is_class
from pellucid.config.settings import Cell, CellName

BUILT_IN_CELLS: tuple[Cell, ...] = get_args(Cell)
"""Cells that Pellucid has."""


@runtime_checkable  # for the checks of types in tests
class CellProperties(Protocol):
    """Properties of a class of cell of another package, which is derived from `CellSpec`: the class itself has them."""

    @property
    def gates(self) -> Sequence[str]:
        """Names of the gates."""

    @property
    def has_cell_state(self) -> bool:
        """True if the state has a second vector c besides h."""


def _has_cell_properties(value: object) -> bool:
    """Return whether a value is a class with the properties of a cell."""
    return is_class(value) and all(hasattr(value, each) for each in ("gates", "has_cell_state"))


CELL_TYPES = ExtensionRegistry[CellProperties](
    kind="cell",
    group="pellucid.cells",
    register_call="pellucid.register_cell(name, class)",
    built_in=BUILT_IN_CELLS,
    provided="a subclass of pellucid.CellSpec",
    is_extension=_has_cell_properties,
)
"""All values of the settings `encoder.cell` and `decoder.cell`."""


def is_custom_cell(cell: CellName) -> bool:
    """Return whether a cell is not built in.

    Args:
        cell: Name of the cell.
    """
    return cell not in BUILT_IN_CELLS


def has_cell_state(cell: CellName) -> bool:
    """Return whether the state of a cell has a second vector c besides h.

    Args:
        cell: Name of the cell.

    Raises:
        ConfigError: There is no such cell, or its entry point does not provide it.
    """
    return CELL_TYPES.get(cell).has_cell_state if is_custom_cell(cell) else cell == "lstm"


def cell_title(cell: CellName) -> str:
    """Return the name of a cell for a sentence: "GRU"; that of another package as it is.

    Args:
        cell: Name of the cell.
    """
    return cell if is_custom_cell(cell) else cell.upper()
