"""The hidden frame in which the documentation site searches if it is opened from a file."""

from pathlib import Path

from chromium import OpenPage

SCRIPT = Path(__file__).resolve().parents[2] / "docs/theme/javascripts/iframe-worker.js"


def test_each_side_of_a_worker_receives_a_copy(open_page: OpenPage, tmp_path: Path) -> None:
    """The search changes the messages that it receives; the field of the search shows the text that was typed."""
    (tmp_path / "worker.js").write_text(
        "addEventListener('message', ({ data }) => { data.input = ''; postMessage(data) })", "utf-8"
    )
    (tmp_path / "page.html").write_text(f"<body><script>{SCRIPT.read_text('utf-8')}</script></body>", "utf-8")
    page = open_page((tmp_path / "page.html").as_uri())
    answer = page.evaluate(
        """() => new Promise((resolve) => {
            const worker = new Worker("worker.js")
            const query = { input: "beam" }
            worker.onmessage = ({ data }) => resolve([query.input, data.input])
            worker.postMessage(query)
        })"""
    )
    assert answer == ["beam", ""]
