"""The page at "/": examples of requests by curl."""

from collections.abc import Sequence
from html import escape

from pellucid.serving.schema import OPERATIONS

STYLE = "body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}pre{overflow-x:auto}"
PAIR_OPERATIONS = ("score", "align")


def index_page(models: Sequence[str]) -> str:
    """Return the page as HTML. It has no script, and loads nothing.

    Args:
        models: Names of the models, the default one first.
    """
    examples = "\n".join(
        f"<dt>{escape(operation.summary)}</dt><dd><pre>{escape(_curl(name))}</pre></dd>"
        for name, operation in OPERATIONS.items()
    )
    names = ", ".join(f"<code>{escape(name)}</code>" for name in models)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Pellucid service</title><style>{STYLE}</style></head>
<body><h1>Pellucid service</h1>
<p>Models: {names}. A request without <code>model</code> uses the first. With a token, add
<code>-H "Authorization: Bearer TOKEN"</code>.</p>
<dl>{examples}</dl>
<p><a href="/openapi.json">OpenAPI document</a> · <a href="/v1/models">models</a> · <a href="/metrics">metrics</a> ·
<a href="/health">health</a> · <a href="/ready">readiness</a></p></body></html>
"""


def _curl(operation: str) -> str:
    """Return an example of a request."""
    row = '{"source": "SOURCE", "target": "TARGET"}' if operation in PAIR_OPERATIONS else '{"source": "SOURCE"}'
    return (
        f"curl http://127.0.0.1:8000/v1/{operation} -H 'Content-Type: application/json' \\\n"
        f"  -d '{{\"rows\": [{row}]}}'"
    )
