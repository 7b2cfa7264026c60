"""Links, recipes and test files that the documents name exist."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from pellucid.recipes.catalog import RECIPES

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_files_lead_to_existing_files(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text("utf-8"))
    files = [target for target in targets if "://" not in target]
    assert [target for target in files if not (document.parent / target).exists()] == []


def heading_anchors(document: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    text = re.sub(r"^(```|~~~).*?^\1", "", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_headings_lead_to_existing_headings(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", document.read_text("utf-8"))
    dead = []
    for target, anchor in links:
        page = document.parent / target if target else document
        if "://" not in target and page.suffix == ".md" and anchor not in heading_anchors(page):
            dead.append(f"{target}#{anchor}")
    assert dead == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_recipes_exist(document: Path) -> None:
    named = set(re.findall(r"pellucid recipe ([a-z0-9-]+)", document.read_text("utf-8")))
    assert named - {*RECIPES, "list"} == set()


def test_documents_use_plain_words_for_graphones() -> None:
    """The word is common in papers on pronunciations alone: documents say pairs of symbols, and the glossary has it."""
    using = [path.name for path in DOCUMENTS if "graphone" in path.read_text("utf-8").lower()]
    assert using == ["glossary.md"]


def test_every_test_file_in_a_workflow_exists() -> None:
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    named = {name for path in workflows for name in re.findall(r"tests/\w+\.py", path.read_text("utf-8"))}
    assert named and [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_reference_pages_list_only_functions_that_check_their_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression test: they listed functions for other modules, which fail inside for arguments of a wrong type."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    build_site = import_module("build_site")
    monkeypatch.setattr(build_site, "PAGES", tmp_path)
    build_site.api_pages()
    for package, internal, shown in (
        ("decoding", ("score_targets", "suppressed_symbols"), ("load_lexicon", "combine_transducers")),
        ("inspection", ("build_replays", "gates_of", "mean_components"), ("attribute", "pca", "trace_states")),
    ):
        page = (tmp_path / "reference" / "api" / f"{package}.md").read_text("utf-8")
        left_out = {name for names in re.findall(r'"!\^\(([\w|]+)\)\$"', page) for name in names.split("|")}
        assert left_out >= {*internal} and left_out.isdisjoint(shown)
