"""Registration of the viewer as the display of traces. Drawing modules are imported when a trace is displayed."""

from pathlib import Path

from pellucid.decoding.trace import Trace, TraceDisplay, register_trace_display
from pellucid.dependencies import missing_packages_as_errors

OPERATION = "a page or a picture of a trace"


def register_viewer() -> None:
    """Make traces use the viewer: notebooks then show them as `trace_frame`, and `Trace.save` calls `save_trace`."""
    register_trace_display(TraceDisplay(_trace_html, _save_trace))


def _trace_html(trace: Trace) -> str:
    """Return the page of a trace in a frame."""
    with missing_packages_as_errors(OPERATION):
        from pellucid.viewer.pages import trace_frame

        return trace_frame(trace)


def _save_trace(trace: Trace, path: Path) -> None:
    """Write a trace to a file."""
    with missing_packages_as_errors(OPERATION):
        from pellucid.viewer.pages import save_trace

        save_trace(trace, path)
