"""A trace alone: as a page, in a notebook, and as a file."""

from html import escape
from pathlib import Path

import msgspec

from pellucid.errors import InputError, quote
from pellucid.files import write_atomic, write_text
from pellucid.look.figures import attention_figure, png, svg
from pellucid.look.tag_strip import tags_figure
from pellucid.look.visible import visible_text
from pellucid.search.trace import Trace
from pellucid.tasks.registry import task_named
from pellucid.version import __version__
from pellucid.viewer.contents import Contents, Item
from pellucid.viewer.latex import picture
from pellucid.viewer.pages import exported
from pellucid.viewer.traces import alone_told

ENDINGS = (".html", ".svg", ".png", ".json", ".tex")
HEIGHT = 640
"""Pixels of the page in a notebook."""
LINE = 80
"""Letters of a text in a heading."""


def save(trace: Trace, path: Path) -> None:
    """Write a trace as what the file's name ends with; `InputError` for another ending than those of `ENDINGS`.

    A picture shows the attention; of tags, which have none, the symbols with their tags.
    """
    drawn = tags_figure if trace.per_position else attention_figure
    match path.suffix:
        case ".html":
            write_text(path, page(trace))
        case ".svg":
            write_text(path, svg(drawn(trace)))
        case ".png":
            write_atomic(path, png(drawn(trace)))
        case ".json":
            write_text(path, msgspec.json.format(trace.to_json(), indent=1) + "\n")
        case ".tex":
            write_text(path, picture(trace))
        case other:
            endings = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
            raise InputError(f"path: expected a file that ends with {endings}, got {quote(other or 'no ending')}")


def page(trace: Trace) -> str:
    """A page of this trace alone."""
    item = Item(
        text=trace.text,
        features=list(trace.source[: trace.features]),
        traces=[alone_told(trace)],
        references=[],
    )
    contents = Contents(
        version=__version__,
        title=_title(trace),
        tasks={trace.task: task_named(trace.task).view},
        served=False,
        items=[item],
        total=1,
        choice="one trace",
    )
    return exported(contents)


def framed(trace: Trace) -> str:
    """The page in a frame of its own, for a notebook: nothing in it reaches, or is reached by, what stands around."""
    title = escape(f"Attention: {_title(trace)}")
    return (
        f'<iframe title="{title}" sandbox="allow-scripts allow-downloads" '
        f'style="width:100%;height:{HEIGHT}px;border:0" srcdoc="{escape(page(trace))}"></iframe>'
    )


def _title(trace: Trace) -> str:
    """What was read and what was written, as far as a line has room, with nothing that could turn it round."""
    return " → ".join(_short(visible_text(text)) for text in (trace.text, trace.output))


def _short(text: str) -> str:
    """The beginning and the end of a long text."""
    return text if len(text) <= LINE else f"{text[: LINE - 20]} … {text[-17:]}"
