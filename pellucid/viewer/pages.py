"""The built page, as served and as a self-contained file."""

import base64
import hashlib
import re
import zlib
from html import escape
from importlib import resources
from pathlib import Path

import msgspec

from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import encode_json
from pellucid.error_messages import describe_suffix
from pellucid.errors import InputError
from pellucid.files import follow_links, write_atomic, write_text
from pellucid.reporting.display_text import visible_text
from pellucid.reporting.figures import attention_figure, tags_figure, to_png, to_svg
from pellucid.tasks.registry import get_task
from pellucid.version import __version__
from pellucid.viewer.examples import page_trace_without_model
from pellucid.viewer.latex import tikz_picture
from pellucid.viewer.schema import PageContents, PageExample, PageStruct

DATA_TYPE = r"type=\"(?:application/json|text/plain)\""
SCRIPT = re.compile(rf"<script(?![^>]*\s(?:src=|{DATA_TYPE}))[^>]*>(.*?)</script>", re.DOTALL)
"""Executed scripts, not data."""
COMPRESSED_SCRIPT = re.compile(r"<script type=\"text/plain\" id=\"packed\">(.*?)</script>", re.DOTALL)
"""Compressed script, which web/packPage.ts writes and the page executes."""
CONTENTS_ELEMENT = '<script type="application/json" id="contents"></script>'
"""Element of the built page for its contents."""

MAX_DRAWN_SYMBOLS = 1024
"""Maximum number of symbols of a trace in a picture."""
MAX_DRAWN_WEIGHTS = 2**20
"""Maximum number of weights in a TikZ picture."""


def built_page() -> str:
    """Return the page that is built from web/ and installed with the package, as HTML without contents."""
    return resources.files("pellucid.viewer").joinpath("page/index.html").read_text(encoding="utf-8")


def security_policy(page: str, connect_source: str) -> str:
    """Return the Content-Security-Policy of a page, which allows only the scripts in the page itself, by their hashes.

    Args:
        page: HTML of the page.
        connect_source: Value of connect-src: "'self'" for a served page, "'none'" for a saved one.
    """
    executed = [*SCRIPT.findall(page), *map(decompress_script, COMPRESSED_SCRIPT.findall(page))]
    digests = [hashlib.sha256(script.encode("utf-8")).digest() for script in executed]
    script_sources = " ".join(f"'sha256-{base64.b64encode(digest).decode('ascii')}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {script_sources or chr(39) + 'none' + chr(39)}; style-src 'unsafe-inline'; "
        f"img-src data: blob:; font-src data:; connect-src {connect_source}; base-uri 'none'; form-action 'none'"
    )


def decompress_script(packed: str) -> str:
    """Return the JavaScript that web/packPage.ts has compressed; the hash in the security policy is of this text.

    Args:
        packed: Script with abbreviations, compressed with raw deflate, in base64.
    """
    *abbreviations, script = zlib.decompress(base64.b64decode(packed), -zlib.MAX_WBITS).decode("utf-8").split("\0")
    for abbreviation in reversed(abbreviations):
        script = script.replace(abbreviation[0], abbreviation[1:])
    return script


def export_page(contents: PageStruct) -> str:
    """Return the page as one self-contained HTML text, with contents or a report embedded.

    Its security policy allows no network requests.

    Args:
        contents: `PageContents` or `ReportDocument`.
    """
    page = built_page()
    policy = escape(security_policy(page, "'none'"))
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    return embed_json(page.replace("<head>", f"<head>\n{meta}", 1), CONTENTS_ELEMENT, contents)


def embed_json(page: str, element: str, value: PageStruct) -> str:
    """Return a built page with data as JSON in its last element for data.

    `<` is escaped, so that no text can close the element.

    Args:
        page: HTML of the page.
        element: Empty element of the page for the data.
        value: Data.
    """
    before, _, after = page.rpartition(element)
    data = encode_json(value).decode("utf-8").replace("<", "\\u003c")
    start, end = element.split("><", 1)
    return f"{before}{start}>{data}<{end}{after}"


TRACE_SUFFIXES = (".html", ".svg", ".png", ".json", ".tex")
FRAME_HEIGHT = 640
"""Height of the page in a notebook, in pixels."""
MAX_TITLE_LENGTH = 80
"""Maximum number of characters of a text in a heading."""


def check_drawable(trace: Trace, suffix: str) -> None:
    """Check that a trace is not too long for a picture; .html and .json have no limit.

    Args:
        trace: Trace to draw.
        suffix: Ending of the file name, with its dot.

    Raises:
        InputError: For .svg and .png, the trace has more than `MAX_DRAWN_SYMBOLS` symbols (source and output; of tags
            the output only); for .tex, more than `MAX_DRAWN_WEIGHTS` weights.
    """
    steps, positions, limit = len(trace.target), len(trace.source), ""
    if suffix in (".svg", ".png"):
        symbols = steps if trace.per_position else steps + positions
        limit = f"{MAX_DRAWN_SYMBOLS:,} symbols, but the trace has {symbols:,}" if symbols > MAX_DRAWN_SYMBOLS else ""
    elif suffix == ".tex" and not trace.per_position and steps * positions > MAX_DRAWN_WEIGHTS:
        limit = f"{MAX_DRAWN_WEIGHTS:,} weights, but the trace has {steps * positions:,}"
    if limit:
        raise InputError(f"path: a picture ({suffix}) has room for {limit}: save it as .html or .json")


def save_trace(trace: Trace, path: Path) -> None:
    """Write a trace in the format of the file's suffix, one of `TRACE_SUFFIXES`.

    A picture shows the attention weights; for tags, which have none, the symbols with their tags.

    Args:
        trace: Trace.
        path: Output file; of a symbolic link, the file to which it leads.

    Raises:
        InputError: The suffix is unknown, or the trace is too long for a picture (`check_drawable`).
        RunError: The file cannot be written.
    """
    check_drawable(trace, path.suffix)
    suffix, path = path.suffix, follow_links(path)
    figure = tags_figure if trace.per_position else attention_figure
    match suffix:
        case ".html":
            write_text(path, trace_page(trace))
        case ".svg":
            write_text(path, to_svg(figure(trace)))
        case ".png":
            write_atomic(path, to_png(figure(trace)))
        case ".json":
            write_text(path, msgspec.json.format(trace.to_json(), indent=1) + "\n")
        case ".tex":
            write_text(path, tikz_picture(trace))
        case _:
            endings = f"{', '.join(TRACE_SUFFIXES[:-1])} or {TRACE_SUFFIXES[-1]}"
            raise InputError(f"path: expected a file that ends with {endings}, got {describe_suffix(suffix)}")


def trace_page(trace: Trace) -> str:
    """Return a self-contained HTML page of one trace, without its model: entropies may be lower bounds.

    Args:
        trace: Trace.
    """
    example = PageExample(
        text=trace.text,
        features=list(trace.source[: trace.num_features]),
        traces=[page_trace_without_model(trace)],
        references=[],
    )
    contents = PageContents(
        version=__version__,
        title=_trace_title(trace),
        tasks={trace.task: get_task(trace.task).view},
        served=False,
        examples=[example],
        num_examples=1,
        selection_note="one trace",
    )
    return export_page(contents)


def trace_frame(trace: Trace) -> str:
    """Return the HTML of a sandboxed iframe with the page of a trace, for notebooks.

    Args:
        trace: Trace.
    """
    title = escape(f"Attention: {_trace_title(trace)}")
    return (
        f'<iframe title="{title}" sandbox="allow-scripts allow-downloads" '
        f'style="width:100%;height:{FRAME_HEIGHT}px;border:0" srcdoc="{escape(trace_page(trace))}"></iframe>'
    )


def _trace_title(trace: Trace) -> str:
    """Return source and output in one line, without control characters."""
    return " → ".join(_abbreviate(visible_text(text)) for text in (trace.text, trace.output))


def _abbreviate(text: str) -> str:
    """Return the beginning and the end of a long text."""
    return text if len(text) <= MAX_TITLE_LENGTH else f"{text[: MAX_TITLE_LENGTH - 20]} … {text[-17:]}"
