"""The built page, as the service sends it and as a file that holds all it shows."""

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
from pellucid.errors import InputError, quote
from pellucid.files import write_atomic, write_text
from pellucid.reporting.display_text import visible_text
from pellucid.reporting.figures import attention_figure, tags_figure, to_png, to_svg
from pellucid.tasks.registry import get_task
from pellucid.version import __version__
from pellucid.viewer.examples import alone_told
from pellucid.viewer.latex import picture
from pellucid.viewer.schema import Contents, Item, Struct

DATA = r"type=\"(?:application/json|text/plain)\""
SCRIPT = re.compile(rf"<script(?![^>]*\s(?:src=|{DATA}))[^>]*>(.*?)</script>", re.DOTALL)
"""Those that run, not those that hold data."""
PACKED = re.compile(r"<script type=\"text/plain\" id=\"packed\">(.*?)</script>", re.DOTALL)
"""What one of them unpacks, and runs: web/finish.ts."""
PLACE = '<script type="application/json" id="contents"></script>'
"""Where the built page has room for its contents."""


def built() -> str:
    """The page as it was built from web/."""
    return resources.files("pellucid.viewer").joinpath("page/index.html").read_text(encoding="utf-8")


def policy(page: str, connect: str) -> str:
    """What a browser may load: what the page itself holds, and what it may `connect` to; only its own scripts run."""
    own = [*SCRIPT.findall(page), *map(unpacked, PACKED.findall(page))]
    digests = [hashlib.sha256(script.encode("utf-8")).digest() for script in own]
    scripts = " ".join(f"'sha256-{base64.b64encode(digest).decode('ascii')}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {scripts or chr(39) + 'none' + chr(39)}; style-src 'unsafe-inline'; "
        f"img-src data: blob:; font-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def unpacked(packed: str) -> str:
    """A script as it runs: words that stand before it, each after a letter, are put back for their letters."""
    *words, script = zlib.decompress(base64.b64decode(packed), -zlib.MAX_WBITS).decode("utf-8").split("\0")
    for word in reversed(words):
        script = script.replace(word[0], word[1:])
    return script


def exported(contents: Struct) -> str:
    """Return the page with its contents, or with a report, in it: it makes no request."""
    page = built()
    meta = f'<meta http-equiv="Content-Security-Policy" content="{escape(policy(page, chr(39) + "none" + chr(39)))}">'
    head, _, rest = page.partition("<head>")
    before, _, after = rest.rpartition(PLACE)
    data = encode_json(contents).decode("utf-8").replace("<", "\\u003c")
    return f'{head}<head>\n{meta}{before}<script type="application/json" id="contents">{data}</script>{after}'


ENDINGS = (".html", ".svg", ".png", ".json", ".tex")
HEIGHT = 640
"""Pixels of the page in a notebook."""
LINE = 80
"""Letters of a text in a heading."""
DRAWN_SYMBOLS = 1024
"""Symbols that a picture shows: each is a text to lay out, and more than these take minutes."""
DRAWN_SQUARES = 2**20
"""Weights that a picture for LaTeX shows, a line of its file each."""


def save(trace: Trace, path: Path) -> None:
    """Write a trace as what the file's name ends with; `InputError` for another ending than those of `ENDINGS`.

    A picture shows the attention; of tags, the symbols with their tags. `InputError` for a trace that is
    too long for one.
    """
    check_drawable(trace, path.suffix)
    drawn = tags_figure if trace.per_position else attention_figure
    match path.suffix:
        case ".html":
            write_text(path, page(trace))
        case ".svg":
            write_text(path, to_svg(drawn(trace)))
        case ".png":
            write_atomic(path, to_png(drawn(trace)))
        case ".json":
            write_text(path, msgspec.json.format(trace.to_json(), indent=1) + "\n")
        case ".tex":
            write_text(path, picture(trace))
        case other:
            endings = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
            raise InputError(f"path: expected a file that ends with {endings}, got {quote(other or 'no ending')}")


def check_drawable(trace: Trace, ending: str) -> None:
    """Raise an `InputError` where a trace is too long for a picture in the format of this ending."""
    steps, positions, told = len(trace.target), len(trace.source), ""
    if ending in (".svg", ".png"):
        symbols = steps if trace.per_position else steps + positions
        told = f"{DRAWN_SYMBOLS:,} symbols, but the trace has {symbols:,}" if symbols > DRAWN_SYMBOLS else ""
    elif ending == ".tex" and not trace.per_position and steps * positions > DRAWN_SQUARES:
        told = f"{DRAWN_SQUARES:,} weights, but the trace has {steps * positions:,}"
    if told:
        raise InputError(f"path: a picture ({ending}) has room for {told}: save it as .html or .json")


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
        tasks={trace.task: get_task(trace.task).view},
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
