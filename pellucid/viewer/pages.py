"""The built page, as the service sends it and as a file that holds all it shows."""

import base64
import hashlib
import re
import zlib
from html import escape
from importlib import resources

from pellucid.search.trace_schema import encode_json
from pellucid.viewer.contents import Struct

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
