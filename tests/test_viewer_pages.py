"""The built page with embedded contents."""

import base64
import hashlib
import json
import re
import zlib

from page_data import digits_page_data
from sample_traces import make_small_trace

from pellucid import __version__
from pellucid.decoding.trace_schema import encode_json
from pellucid.viewer.examples import entropy_lower_bound, page_trace
from pellucid.viewer.pages import CONTENTS_ELEMENT, built_page, export_page, security_policy
from pellucid.viewer.schema import PageContents, PageExample

DATA = re.compile(r'<script type="application/json" id="contents">(.*?)</script>', re.DOTALL)


def hostile() -> PageContents:
    texts = ["</script><b>bold</b>", "<!--<script>", "\u202e", "\t", "\ud800", "\u2028", "<s>"]
    trace = page_trace(make_small_trace(), entropy_lower_bound(make_small_trace()))
    items = [PageExample(text=text, features=[], traces=[trace], references=[text]) for text in texts]
    return PageContents(version=__version__, title="</title><script>alert(1)</script>", served=False, examples=items)


def test_exported_page_contains_its_contents() -> None:
    for contents in (hostile(), digits_page_data(served=False).contents):
        (data,) = DATA.findall(export_page(contents))
        assert "<" not in data
        assert json.loads(data) == json.loads(encode_json(contents))


def test_contents_cannot_close_their_element() -> None:
    page, plain = export_page(hostile()), export_page(PageContents(version="1", title="", served=False))
    contents = page.split('id="contents">', 1)[1].split("</script>", 1)[0]
    assert page.count("</script>") == plain.count("</script>") and "<" not in contents
    assert page.index('id="contents"') > page.rindex("<body")


def test_exported_page_allows_no_connections() -> None:
    page = export_page(hostile())
    assert page.index("Content-Security-Policy") < page.index("<script")
    assert "connect-src &#x27;none&#x27;" in page and "default-src &#x27;none&#x27;" in page


def test_only_own_scripts_are_allowed() -> None:
    page = '<head></head><script type="module">let a = 1;</script>'
    digest = base64.b64encode(hashlib.sha256(b"let a = 1;").digest()).decode()
    assert f"script-src 'sha256-{digest}';" in security_policy(page, "'self'")
    packed = base64.b64encode(zlib.compress(b"let a = 1;", wbits=-15)).decode()
    assert f"'sha256-{digest}'" in security_policy(f'<script type="text/plain" id="packed">{packed}</script>', "'self'")
    assert "script-src 'none'" in security_policy("<p>", "'self'") and "unsafe-eval" not in security_policy(
        built_page(), "'self'"
    )


def test_built_page_has_one_contents_element() -> None:
    assert built_page().count(CONTENTS_ELEMENT) == 1 and export_page(hostile()).count('id="contents"') == 1


def test_built_page_loads_nothing() -> None:
    assert not re.search(r"""<(script|link|img|iframe)[^>]*\s(src|href)=["']?(https?:)?//""", built_page())


def test_unpaired_surrogates_are_replaced() -> None:
    assert "\ufffd" in encode_json(hostile()).decode()
