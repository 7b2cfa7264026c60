"""Registration of the viewer as the display of traces. Drawing modules are imported when a trace is displayed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pellucid.decoding.trace import Trace, TraceDisplay, register_trace_display
from pellucid.dependencies import missing_dependency


def register_viewer() -> None:
    """Make traces use the viewer: notebooks then show them as `trace_frame`, and `Trace.save` calls `save_trace`."""
    register_trace_display(TraceDisplay(_trace_html, _save_trace))


def _trace_html(trace: Trace) -> str:
    """Return the page of a trace in a frame."""
    with _missing_packages_as_errors():
        from pellucid.viewer.pages import trace_frame

        return trace_frame(trace)


def _save_trace(trace: Trace, path: Path) -> None:
    """Write a trace to a file."""
    with _missing_packages_as_errors():
        from pellucid.viewer.pages import save_trace

        save_trace(trace, path)


@contextmanager
def _missing_packages_as_errors() -> Iterator[None]:
    """Raise `MissingDependencyError` where an installation for prediction lacks a package that drawing needs."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = missing_dependency(error.name, "a page or a picture of a trace")
        if missing is None:
            raise
        raise missing from None
