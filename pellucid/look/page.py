"""What every page is made of: one HTML file that holds all it shows, and lets nothing in."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from pellucid.look.visible import visible_text

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What the browser may load: nothing but what the file itself holds."""


def document(title: str, body: str, script: str = "") -> str:
    """A complete HTML document. Only a script that is the very text given here may run: its hash is in the policy."""
    style = resources.files("pellucid.look").joinpath("report.css").read_text(encoding="utf-8")
    policy, running = _POLICY, ""
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
        policy, running = f"{_POLICY}; script-src 'sha256-{digest}'", f"<script>{script}</script>\n"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{text(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"{body}</main>\n{running}</body>\n</html>\n"
    )


def header(title: str, introduction: str, summary: Sequence[tuple[str, str]]) -> str:
    """Title, introduction and the numbers that matter most."""
    words = "".join(f'<p class="introduction">{text(words)}</p>\n' for words in paragraphs(introduction))
    numbers = "".join(f"<div><dt>{text(label)}</dt><dd>{_value(value)}</dd></div>\n" for label, value in summary)
    listed = f'<dl class="summary">\n{numbers}</dl>\n' if numbers else ""
    return f'<header>\n<h1 dir="auto">{text(title)}</h1>\n{words}{listed}</header>\n'


def section(title: str, content: Iterable[str]) -> str:
    """A titled section, or nothing where there is nothing to show."""
    body = "".join(content)
    return f"<section>\n<h2>{text(title)}</h2>\n{body}</section>\n" if body else ""


def paragraphs(words: str) -> list[str]:
    """The paragraphs of a text, each on one line."""
    return [" ".join(part.split()) for part in words.split("\n\n") if part.strip()]


def text(words: str) -> str:
    """A text, visible and escaped."""
    return escape(visible_text(words))


def _value(value: str) -> str:
    """A value, and what stands in brackets behind it smaller below."""
    number, bracket, rest = value.partition(" (")
    if not bracket or not rest.endswith(")"):
        return text(value)
    return f"{text(number)}<small>{text(rest[:-1])}</small>"
