"""Build the documentation site in build/site, from docs/, docstrings, settings and the help of the command line.

Run with: make docs. Every warning is an error, and so is a dead link or a request to another server: the site works
offline, its search included.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from html import escape
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from textwrap import wrap
from typing import get_args
from unittest.mock import patch
from urllib.parse import unquote

import msgspec

import pellucid
from pellucid.cli import main
from pellucid.cli.subcommands import SUBCOMMANDS
from pellucid.config.settings import Size
from pellucid.config.toml import size_preset, to_toml
from pellucid.export.web_page import MODEL_FORMAT, ModelPage, render_model_page

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "build" / "docs"
"""Folder of all pages, copied and generated; zensical.toml names it."""
SITE = ROOT / "build" / "site"
"""Folder of the built site."""
COPIED_SUFFIXES = {".md", ".svg", ".png", ".ipynb"}
ROOT_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "LICENSE": "licenses.md",
    "pellucid/__init__.py": "reference/api/pellucid.md",
    "pellucid/cli/subcommands.py": "reference/commands.md",
    "pellucid/config/settings.py": "reference/settings.md",
}
"""Files outside docs/, and the pages of the site that stand for them."""
LINK = re.compile(r"(?<=\]\()[^()#\s]+")
"""Target of a link in Markdown, without its anchor."""
SECTIONS = {
    "": ("General", "Keys before the first table of a TOML file."),
    "data": ("data", "Reading and tokenization. The flags have no prefix."),
    "encoder": ("encoder", "The encoder."),
    "attention": ("attention", "The attention."),
    "decoder": ("decoder", "The decoder."),
    "training": ("training", "Training."),
    "search": ("search", "Decoding."),
}
UNSEARCHED_PAGES = ("changelog.html", "log.html", "seeds.html")
"""Pages on past changes, which mention every word of the guides."""
HELP_WIDTH = 100
"""Characters per line of the help of the command line."""
API_PACKAGES = (
    *("config", "data", "kernels", "alignment", "model", "decoding", "evaluation", "tasks", "inspection"),
    *("training", "reporting", "viewer", "tuning"),
)
"""Packages with a page of their own. bench, recipes and cli are documented by their subcommands."""
CHECKED_PACKAGES = ("decoding", "inspection")
"""Packages whose pages list only functions that check their arguments: only other modules call the others."""


def copy_pages() -> None:
    """Copy the pages of docs/ with their pictures and notebooks, and the pages of the root."""
    shutil.rmtree(PAGES, ignore_errors=True)
    sources: set[Path] = set()
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.is_file() and path.suffix in COPIED_SUFFIXES:
            copy = PAGES / path.relative_to(ROOT / "docs")
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".md":
                copy.write_text(adapt_links(path, copy, sources), "utf-8")
            else:
                shutil.copyfile(path, copy)
    for source, page in ROOT_PAGES.items():
        if source.endswith(".md"):
            (PAGES / page).write_text(adapt_links(ROOT / source, PAGES / page, sources), "utf-8")
    for path in sorted(sources):
        language = "python" if path.suffix == ".py" else "yaml"
        write_page(source_page(path), [f"# {path.name}\n", f"~~~~{language}", path.read_text("utf-8").rstrip(), "~~~~"])


SITE_MODEL = ROOT / "docs" / "model.json"
"""Model of the first page of the site; docs/site_model.py writes it."""
MODEL_PAGE = "model.html"
"""Page of that model."""


def write_model_page() -> None:
    """Write the page of the site's model, in the present form of pages with models.

    Raises:
        ValueError: The model is of another format.
    """
    model = msgspec.json.decode(SITE_MODEL.read_bytes(), type=ModelPage)
    if model.format != MODEL_FORMAT:
        raise ValueError(f"{SITE_MODEL} has the format {model.format}, not {MODEL_FORMAT}: run docs/site_model.py")
    (PAGES / MODEL_PAGE).write_text(render_model_page(model), "utf-8")


def adapt_links(path: Path, copy: Path, sources: set[Path]) -> str:
    """Return the text of a page in which links to files of the repository lead to pages of the site.

    Args:
        path: The page in the repository.
        copy: The page in the folder of pages.
        sources: Receives the source files to which the page links and which need a page.
    """

    def adapt(match: re.Match[str]) -> str:
        target = (path.parent / match[0]).resolve()
        if "://" in match[0] or not target.exists():
            return match[0]  # the check of the built site reports a dead link
        page, _, anchor = page_of(target).partition("#")
        if page == source_page(target):
            sources.add(target)
        relative = Path(os.path.relpath(PAGES / page, copy.parent)).as_posix()
        return f"{relative}#{anchor}" if anchor else relative

    return render_formulas(LINK.sub(adapt, path.read_text("utf-8")))


CODE_OR_FORMULA = re.compile(
    r"(?P<code>^(```|~~~)[\s\S]*?^\2|`[^`\n]+`)|\$(?P<formula>[^$\s`](?:[^$\n`]*[^$\s`])?)\$", re.MULTILINE
)
"""Code, which is left as it is, or a formula between dollar signs on one line."""
FORMULA_TOKEN = re.compile(r"\\[a-z]+|[a-zA-Z]|\d+(?:\.\d+)?|\S")
FORMULA_COMMANDS = {
    **{f"\\{name}": f"<mi>{letter}</mi>" for name, letter in (("alpha", "α"), ("sigma", "σ"), ("top", "⊤"))},
    **{f"\\{name}": f"<mi>{name}</mi>" for name in ("tanh", "cos", "log", "min", "exp")},
    "\\sum": "<mo>∑</mo>",
    "\\odot": "<mo>⊙</mo>",
}
"""MathML of the commands of LaTeX that formulas may have, besides `\\mathrm`."""


def render_formulas(text: str) -> str:
    """Return a page with its formulas as MathML, which browsers show without a script or a font of the site.

    Formulas are LaTeX between dollar signs, as GitHub and notebooks show them: letters, numbers, operators,
    subscripts, superscripts, and the commands of `FORMULA_COMMANDS`.

    Args:
        text: Markdown of the page.

    Raises:
        ValueError: A formula has another command, or an unmatched brace.
    """

    def render(match: re.Match[str]) -> str:
        if match["code"] is not None:
            return match[0]
        tokens = FORMULA_TOKEN.findall(match["formula"])[::-1]
        parts = list(_formula_parts(tokens))
        if tokens:
            raise ValueError(f"formula {match[0]}: unmatched brace")
        return f'<span class="formula"><math>{"".join(parts)}</math></span>'

    return CODE_OR_FORMULA.sub(render, text)


def _formula_parts(tokens: list[str]) -> Iterator[str]:
    """Yield the MathML of each part of a formula up to a closing brace; `tokens` are removed from the end."""
    while tokens and tokens[-1] != "}":
        part = _formula_part(tokens)
        while tokens and tokens[-1] in ("_", "^", "'"):
            sign = tokens.pop()
            tag = {"_": "msub", "^": "msup", "'": "mrow"}[sign]
            script = "<mo>′</mo>" if sign == "'" else _formula_part(tokens)  # the prime is raised by itself
            part = f"<{tag}>{part}{script}</{tag}>"
        yield part


def _formula_part(tokens: list[str]) -> str:
    """Return the MathML of one letter, number, operator, command or group of a formula, without scripts."""
    if not tokens:
        raise ValueError("formula: a subscript or superscript is missing")
    token = tokens.pop()
    if token == "\\mathrm":
        return f"<mi>{re.sub('<[^>]*>', '', _formula_part(tokens))}</mi>"
    if token == "{":
        parts = "".join(_formula_parts(tokens))
        if not tokens:
            raise ValueError("formula: unmatched brace")
        tokens.pop()
        return f"<mrow>{parts}</mrow>"
    if token.startswith("\\"):
        if token not in FORMULA_COMMANDS:
            raise ValueError(f"formula: no command {token} ({', '.join(FORMULA_COMMANDS)})")
        return FORMULA_COMMANDS[token]
    if token in "()[]":
        return f'<mo stretchy="false">{token}</mo>'
    tag = "mi" if token.isalpha() else "mn" if token[0].isdigit() else "mo"
    return f"<{tag}>{'−' if token == '-' else escape(token)}</{tag}>"


def page_of(path: Path) -> str:
    """Return the page of the site for a file or package of the repository, with an anchor where it has one.

    Args:
        path: Existing file or folder of the repository.
    """
    name = path.relative_to(ROOT).as_posix()
    if name in ROOT_PAGES:
        return ROOT_PAGES[name]
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] == "pellucid" and parts[1] in API_PACKAGES:
        anchor = "#" + ".".join(parts) if len(parts) > 2 else ""
        return f"reference/api/{parts[1]}.md{anchor}"
    return source_page(path)


def source_page(path: Path) -> str:
    """Return the name of the page that shows a source file.

    Args:
        path: File of the repository.
    """
    return f"source/{path.relative_to(ROOT).as_posix()}.md"


def write_page(name: str, lines: Sequence[str]) -> None:
    """Write a generated page.

    Args:
        name: Path of the page below the folder of pages.
        lines: Lines of Markdown.
    """
    path = PAGES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", "utf-8")


def read_settings(size: Size) -> dict[str, tuple[str, str]]:
    """Return the value and the description of each setting of a preset, by its full key.

    Args:
        size: Name of the preset.
    """
    settings: dict[str, tuple[str, str]] = {}
    section, description = "", ""
    for line in to_toml(size_preset(size)).splitlines():
        if line.startswith("["):
            section = line.strip("[]") + "."
        elif line.startswith("# "):
            description = line.removeprefix("# ")
        elif line:
            name, _, value = line.partition(" = ")
            settings[section + name] = value, description
    return settings


def settings_page() -> Iterator[str]:
    """Yield the lines of the reference of all settings, with their defaults in each size preset."""
    presets = {size: read_settings(size) for size in get_args(Size)}
    yield "# Settings\n"
    yield (
        "Every setting of a TOML file (`--config`), of a run's `config.toml` and of `pellucid.train(config=...)`. "
        "The flag of `encoder.hidden_size` is `--encoder.hidden-size`; settings of `data` and the general ones have "
        "flags without a prefix. Most others have one, too: `--epochs` is `--training.epochs`, and `--hidden-size` "
        "sets that of encoder and decoder. "
        "A task may have other defaults.\n"
    )
    for section, (title, summary) in SECTIONS.items():
        yield f"## {title}\n\n{summary}\n"
        yield "| setting | default | meaning |\n|---|---|---|"
        for key, (value, description) in presets["base"].items():
            if key.rpartition(".")[0] == section:
                yield f"| `{key}` | {_defaults(key, value, presets)} | {_cell(description)} |"
        yield ""


def _defaults(key: str, value: str, presets: dict[Size, dict[str, tuple[str, str]]]) -> str:
    """Return the default of a setting: one value, or one per size preset."""
    values = [settings[key][0] for settings in presets.values()]
    if key == "size":
        return "`base`"
    if len(set(values)) == 1:
        return f"`{value}`"
    return ", ".join(f"{size} `{one}`" for size, one in zip(presets, values, strict=True))


def _cell(text: str) -> str:
    """Return a text for a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def commands_page() -> Iterator[str]:
    """Yield the lines of the reference of the command line: the help of every subcommand."""
    yield "# Command line\n\nThe help of every subcommand, as `pellucid SUBCOMMAND --help` and `--help-all` print it.\n"
    yield f"```text\n{_help(['--help'])}\n```\n"
    for name, summary in SUBCOMMANDS.items():
        yield f"## pellucid {name}\n\n{summary[0].upper()}{summary[1:]}.\n\n```text\n{_help([name, '--help'])}\n```\n"
        yield f"### All options of {name}\n\n```text\n{_help([name, '--help-all'])}\n```\n"


def _help(arguments: list[str]) -> str:
    """Return the help that the command line prints, without colors."""
    output = StringIO()
    plain = patch.dict(os.environ, {"COLUMNS": str(HELP_WIDTH), "NO_COLOR": "1"})
    with plain, redirect_stdout(output), suppress(SystemExit):
        main(arguments)
    lines = (line.rstrip() for line in output.getvalue().splitlines())
    return "\n".join("\n".join(wrap(line, HELP_WIDTH)) if len(line) > HELP_WIDTH else line for line in lines)


def api_pages() -> None:
    """Write a page for each package, with the documentation of its modules, and one for the public names."""
    lines = ["# pellucid\n", "Public names, available as attributes of `pellucid`.\n"]
    modules = pellucid._HOMES
    for name in sorted(modules, key=str.lower):
        lines.append(
            f"::: {modules[name]}.{name}\n    options:\n      heading_level: 2\n      show_root_full_path: false\n"
        )
    lines.append("::: pellucid.sklearn\n    options:\n      heading_level: 2\n      inherited_members: true\n")
    write_page("reference/api/pellucid.md", lines)
    for package in API_PACKAGES:
        folder = ROOT / "pellucid" / package
        summary = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
        lines = [f"# pellucid.{package}\n", summary.partition("\n\n")[0] + "\n"]
        for path in sorted(folder.glob("*.py")):
            if path.stem != "__init__":
                lines.append(f"::: pellucid.{package}.{path.stem}\n    options:\n      heading_level: 2\n")
                if package in CHECKED_PACKAGES and (internal := internal_functions(path)):
                    lines[-1] += f'      filters: ["!^_", "!^({"|".join(internal)})$"]\n'
        write_page(f"reference/api/{package}.md", lines)


def internal_functions(path: Path) -> list[str]:
    """Return the functions of a module that do not check their arguments and are no public names.

    Args:
        path: The module's file.
    """
    functions = [node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)]
    return [
        function.name
        for function in functions
        if not function.name.startswith("_")
        and function.name not in pellucid._HOMES
        and "check_arguments" not in map(ast.unparse, function.decorator_list)
    ]


def trim_search_index(site: Path) -> None:
    """Shorten the search index, so that the guides are found first and the search starts quickly.

    Entries of source files, of attributes and of the pages in UNSEARCHED_PAGES are removed. Other entries of the API
    are found by their names only.

    Args:
        site: Folder of the built site.
    """
    index = json.loads((site / "search.json").read_text("utf-8"))
    items = []
    for item in index["items"]:
        if item["location"].startswith("reference/api/"):
            if "-attribute</code>" in item["title"]:
                continue
            item["title"] = item["title"].partition("  <small>")[0]
            item["text"] = ""
        if not item["location"].startswith(("source/", *UNSEARCHED_PAGES)):
            items.append(item)
    text = json.dumps({**index, "items": items}, ensure_ascii=False, separators=(",", ":"))
    (site / "search.json").write_text(text, "utf-8")
    (site / "search.js").write_text(f"var __index = {text}", "utf-8")


BLOCK_CODE_OR_NUMBERS = re.compile(
    r"(<pre.*?</pre>)|(?<=<code>)([^<]+)(?=</code>)|(?<=\d) (?=%)|(?<=\d) to (?=[-+−]?\d)", re.DOTALL
)
"""A code block, the text of code within a line, the space before a percent sign, or "to" between two numbers."""
CODE_WORD = re.compile(r"\S+")
LONGEST_UNBROKEN = 32
"""Characters of code that fit in one line of a narrow page."""


def control_line_breaks(html: str) -> str:
    """Return an HTML page in which flags, intervals and percentages are not broken.

    The style sheet permits breaks within other names in tables, and on narrow pages after a dot, a slash or an
    underscore of a long name.

    Args:
        html: The page.
    """

    def mark(match: re.Match[str]) -> str:
        word = match[0]
        if len(word) > LONGEST_UNBROKEN // 2 and "&" not in word:
            word = re.sub(r"(?<=\w)([._/])(?=\w)", r"\1<wbr>", word)
        if "-" not in word or len(match[0]) > LONGEST_UNBROKEN:
            return word
        return f'<span class="{"unbroken" if word.startswith("-") else "name"}">{word}</span>'

    def replace(match: re.Match[str]) -> str:
        if match[1] or match[2]:
            return match[1] or CODE_WORD.sub(mark, match[2])
        return match[0].replace(" ", "\N{NO-BREAK SPACE}")

    return BLOCK_CODE_OR_NUMBERS.sub(replace, html)


class PageLinks(HTMLParser):
    """Anchors of an HTML page, the links and pictures on it, and the files that it loads."""

    def __init__(self, page: Path) -> None:
        """Read a page.

        Args:
            page: HTML file.
        """
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the anchors and addresses of a tag."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon") and "href" in values:
            self.loaded.append(values["href"])
        if "src" in values:
            self.loaded.append(values["src"])


def site_faults(site: Path) -> list[str]:
    """Return the dead links of a built site and its requests to other servers, one per entry.

    Args:
        site: Folder of the HTML pages.
    """
    pages = {path.resolve(): PageLinks(path) for path in sorted(site.rglob("*.html"))}
    faults = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its addresses start at the address of the site, which is not known here
        name = path.relative_to(site.resolve()).as_posix()
        faults += [f"{name}: loads {address}" for address in page.loaded if re.match(r"(\w+:)?//", address)]
        for link in dict.fromkeys([*page.links, *page.loaded]):
            if re.match(r"//|[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            file = (path.parent / unquote(target)).resolve() if target else path
            if not file.is_file():
                faults.append(f"{name}: no such file: {link}")
            elif anchor and file in pages and unquote(anchor) not in pages[file].anchors:
                faults.append(f"{name}: no such anchor: {link}")
    return faults


def build() -> int:
    """Write all pages and build the site.

    Returns:
        Exit code: that of the site generator, or 1 if a docstring does not fit its signature or a link is dead.
    """
    copy_pages()
    write_model_page()
    write_page("reference/settings.md", list(settings_page()))
    write_page("reference/commands.md", list(commands_page()))
    api_pages()
    command: list[str | Path] = [Path(sys.executable).with_name("zensical"), "build", "--clean", "--strict"]
    process = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(process.stdout, end="")
    if process.returncode == 0:
        trim_search_index(SITE)
        for page in SITE.rglob("*.html"):
            if page == SITE / MODEL_PAGE:
                continue  # its security policy has hashes of its scripts
            page.write_text(control_line_breaks(page.read_text("utf-8")), "utf-8")
    faults = site_faults(SITE)
    print(*faults, sep="\n", end="\n" if faults else "")
    # The site generator prints faults of docstrings without counting them as warnings.
    return process.returncode or int("griffe:" in process.stdout or bool(faults))


if __name__ == "__main__":
    sys.exit(build())
