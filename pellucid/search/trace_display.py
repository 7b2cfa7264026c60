"""How a trace is displayed in a notebook and saved to a file: registered by the viewer, called by the trace."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class TraceDisplay(NamedTuple):
    """Functions that display a trace. The argument is a `Trace`, which this module does not import."""

    html: Callable[[Any], str]
    """Return the HTML that a notebook shows."""
    save: Callable[[Any, Path], None]
    """Write the trace to a file, in the format that the file's ending names."""


_registered: list[TraceDisplay] = []


def register_trace_display(display: TraceDisplay) -> None:
    """Display traces with these functions from now on."""
    _registered[:] = [display]


def registered_trace_display() -> TraceDisplay:
    """Return the functions that display traces.

    Raises:
        RuntimeError: No display is registered. Importing `pellucid` registers the viewer's.
    """
    if not _registered:
        raise RuntimeError("no display of traces is registered; register one with register_trace_display")
    return _registered[0]
