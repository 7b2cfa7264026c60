"""The documentation site: links, titles, and formulas that Markdown does not change."""

import ast
import html
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
import markdown
import pytest

from docs import build_site
from docs.build_site import API_PACKAGES, COPIED_SUFFIXES, ROOT, ROOT_PAGES, copy_pages, page_of, site_faults

CONFIG: dict[str, Any] = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
EXTENSIONS = [name for name in CONFIG["markdown_extensions"] if name != "toc"]
"""Markdown extensions of the site; `toc` is left out, as it adds a sign to each heading."""
PAGES = [path for path in sorted((ROOT / "docs").rglob("*")) if path.suffix == ".md"]


def renders_unchanged(text: str) -> bool:
    """Return whether the text on the site has all characters of its source except backticks and list markers."""
    rendered = markdown.markdown(text, extensions=["tables", *EXTENSIONS])
    shown = html.unescape(re.sub(r"</?[a-z][^>]*>", "", rendered))
    source = re.sub(r"^ *(?:[*+-]|\d+\.) ", "", text, flags=re.MULTILINE)
    return re.sub(r"[\s`]", "", shown) == re.sub(r"[\s`]", "", source.replace("**", ""))


def shown_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all nodes in it, except private functions and classes."""
    yield node
    for child in ast.iter_child_nodes(node):
        name = getattr(child, "name", None) or ""
        if not name.startswith("_") or name.startswith("__"):
            yield from shown_nodes(child)


def docstring_texts(path: Path) -> Iterator[str]:
    """Yield the texts of the docstrings of a module that the site shows, section by section."""
    for node in shown_nodes(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for section in griffe.Docstring(node.value.value, parser="google").parse(warnings=False):
                if isinstance(section.value, str):
                    yield section.value
                elif isinstance(section.value, list):
                    yield from (item.description for item in section.value)
                else:
                    yield section.value.description


@pytest.mark.slow
@pytest.mark.parametrize("package", ["", *API_PACKAGES])
def test_markdown_changes_no_formula_of_a_docstring(package: str) -> None:
    modules = sorted((ROOT / "pellucid" / package).glob("*.py"))
    texts = [(path.name, text) for path in modules for text in docstring_texts(path)]
    assert len(texts) > 10
    assert [text for text in texts if not renders_unchanged(text[1])] == []


def test_a_formula_that_markdown_changes_is_found() -> None:
    assert renders_unchanged("e_s = vᵀ tanh(W q + U h_s), Σ_s α_s = 1, (c)")
    assert not renders_unchanged("Σ_{k ≤ s} α'_k / Π_{l < k} (1 − p_l)")
    assert not renders_unchanged("Σ_{t<s} log p(x_t) + Σ_{t>s}")
    assert renders_unchanged("`Σ_{k ≤ s} α'_k / Π_{l < k} (1 − p_l)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_markdown_makes_no_emphasis_of_a_formula_on_a_page(page: Path) -> None:
    rendered = markdown.markdown(page.read_text("utf-8"), extensions=["tables", *EXTENSIONS])
    # Emphasis is written with asterisks, so it has no subscript at its ends.
    emphasized = re.findall(r"(.?)<em>([^<]*)</em>(.?)", rendered)
    source = page.read_text("utf-8")
    assert [text for _, text, _ in emphasized if f"*{html.unescape(text)}*" not in source] == []


def test_formulas_of_pages_are_mathml() -> None:
    """A page shows them without a script; code with dollar signs is left as it is."""
    shown = build_site.render_formulas(r"weights $\alpha_{ts} = \mathrm{softmax}(e_t)$, `a$b$c`, v' costs 5 $ or 6 $")
    assert shown == (
        'weights <span class="formula"><math><msub><mi>α</mi><mrow><mi>t</mi><mi>s</mi></mrow></msub><mo>=</mo>'
        '<mi>softmax</mi><mo stretchy="false">(</mo><msub><mi>e</mi><mi>t</mi></msub><mo stretchy="false">)</mo></math>'
        "</span>, `a$b$c`, "
        "v' costs 5 $ or 6 $"
    )
    code = "```sh\necho $HOME$USER\n```\n"
    assert build_site.render_formulas(code) == code
    for formula in (r"$\frac{1}{2}$", "$a_{t$", "$a}$", "$a_$"):
        with pytest.raises(ValueError, match="formula"):
            build_site.render_formulas(formula)


def test_flags_intervals_and_percentages_are_not_broken() -> None:
    page = (
        "<p>Set <code>--batch-size 8</code> or <code>training.lr_schedule_of_all</code>, 5 % in <code>a-b</code>.</p>"
        "<pre><code>pellucid train --batch-size 8</code></pre>"
        "<td>0.52 (\u22121.04 to +1.33)</td>"
    )
    assert build_site.control_line_breaks(page) == (
        '<p>Set <code><span class="unbroken">--batch-size</span> 8</code> or '
        "<code>training.<wbr>lr_<wbr>schedule_<wbr>of_<wbr>all</code>, "
        '5\u00a0% in <code><span class="name">a-b</span></code>.</p>'
        "<pre><code>pellucid train --batch-size 8</code></pre>"
        "<td>0.52 (\u22121.04\u00a0to\u00a0+1.33)</td>"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_what_belongs_to_a_list_item_is_in_it(page: Path) -> None:
    """Markdown of the site needs four spaces before code, tables and further paragraphs of a list item."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"(?<=\n\n) {1,3}(?=[^ *\d-]).*", text) == []
    assert re.findall(r"(?<=[^\n]\n) {2,3}\d+\. .*", text) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_formulas_of_every_page_are_rendered(page: Path) -> None:
    shown = re.sub(
        r"^(```|~~~).*?^\1|`[^`]*`",
        "",
        build_site.render_formulas(page.read_text("utf-8")),
        flags=re.DOTALL | re.MULTILINE,
    )
    assert not re.search(r"\\[a-z]{2,}", shown), "LaTeX outside a formula"


def test_links_of_all_copied_pages_lead_to_pages_of_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_site, "PAGES", tmp_path)
    copy_pages()
    generated = {"reference/settings.md", "reference/commands.md"}
    generated |= {f"reference/api/{name}.md" for name in ("pellucid", *API_PACKAGES)}
    links = 0
    for page in tmp_path.rglob("*.md"):
        if page.relative_to(tmp_path).parts[0] == "source":
            continue
        for link in build_site.LINK.findall(page.read_text("utf-8")):
            if "://" not in link:
                target = (page.parent / link).resolve()
                assert target.is_file() or target.relative_to(tmp_path).as_posix() in generated, (page.name, link)
                links += 1
    assert links > 200
    source = (tmp_path / "source/pellucid/recipes/digits/networks.py.md").read_text("utf-8")
    assert (ROOT / "pellucid/recipes/digits/networks.py").read_text("utf-8").rstrip() in source
    assert len(list(tmp_path.glob("lessons/*.ipynb"))) == 6


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("docs/lessons/1-data.ipynb", "lessons/1-data.ipynb"),
        ("LICENSE", "licenses.md"),
        ("pellucid/config/settings.py", "reference/settings.md"),
        ("pellucid/model", "reference/api/model.md"),
        ("pellucid/model/cells.py", "reference/api/model.md#pellucid.model.cells"),
        ("pellucid/recipes/transduction.py", "source/pellucid/recipes/transduction.py.md"),
    ],
)
def test_page_of_a_file(name: str, page: str) -> None:
    assert page_of(ROOT / name) == page


def test_dead_links_and_requests_of_a_built_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<h1 id="top">A</h1><a href="b/c.html#d">c</a><a href="#top">t</a>', "utf-8")
    (tmp_path / "b").mkdir()
    page = tmp_path / "b" / "c.html"
    page.write_text('<p id="d"><a href="https://example.org">e</a><a href="../a.html">a</a>', "utf-8")
    assert site_faults(tmp_path) == []
    page.write_text('<a href="../e.html"></a><a href="../a.html#x"></a><script src="//example.org/s.js">', "utf-8")
    assert site_faults(tmp_path) == [
        "a.html: no such anchor: b/c.html#d",
        "b/c.html: loads //example.org/s.js",
        "b/c.html: no such file: ../e.html",
        "b/c.html: no such anchor: ../a.html#x",
    ]


def navigation_pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for title, content in entry.items():
                assert isinstance(content, list) or title == "Home", "a page has the title of its heading"
                yield from navigation_pages(content if isinstance(content, list) else [content])


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("batch size", "training"),
        ("dropout", "training"),
        ("confidence", "decoding"),
        ("export", "viewing"),
        ("LSTM", "choosing-a-model"),
    ],
)
def test_a_heading_has_the_word_by_which_a_guide_is_searched(query: str, page: str) -> None:
    """The search of the site ranks a title that begins with the word above names of the API, and other titles below."""
    text = (ROOT / "docs" / "guides" / f"{page}.md").read_text("utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    begins = " " not in query
    assert [each for each in headings if (each.lower().startswith if begins else each.lower().count)(query.lower())]


def test_the_navigation_has_every_page_once() -> None:
    named = list(navigation_pages(CONFIG["nav"]))
    copied = {path.relative_to(ROOT / "docs").as_posix() for path in PAGES}
    generated = {f"reference/api/{name}.md" for name in ("pellucid", *API_PACKAGES)}
    assert len(set(named)) == len(named)
    assert set(named) == copied | generated | set(ROOT_PAGES.values())
    assert ".ipynb" in COPIED_SUFFIXES
