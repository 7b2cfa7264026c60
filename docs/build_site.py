"""Build the documentation site in build/site, from docs/, docstrings, settings and the help of the command line.

Run with: make docs. Every warning, such as a broken link, is an error. The site works offline, its search included.
"""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import get_args
from unittest.mock import patch

import pellucid
from pellucid.cli import main
from pellucid.cli.subcommands import SUBCOMMANDS
from pellucid.config.settings import Size
from pellucid.config.toml import size_preset, to_toml

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "build" / "docs"
"""Folder of all pages, copied and generated; zensical.toml names it."""
COPIED_SUFFIXES = {".md", ".svg", ".png"}
ROOT_PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
"""Files of the root that are pages of the site, and their names there."""
SITE_LINKS = {"](docs/": "](", "](LICENSE)": "](licenses.md)", **{f"]({a})": f"]({b})" for a, b in ROOT_PAGES.items()}}
SECTIONS = {
    "": ("General", "Keys before the first table of a TOML file."),
    "data": ("data", "Reading and tokenization. The flags have no prefix."),
    "encoder": ("encoder", "The encoder."),
    "attention": ("attention", "The attention."),
    "decoder": ("decoder", "The decoder."),
    "training": ("training", "Training."),
    "search": ("search", "Decoding."),
}
API_PACKAGES = (
    *("config", "data", "kernels", "model", "decoding", "evaluation", "tasks", "inspection", "training"),
    *("reporting", "viewer", "tuning"),
)
"""Packages with a page of their own. bench, recipes and cli are documented by their subcommands."""
CHECKED_PACKAGES = ("decoding", "inspection")
"""Packages whose pages list only functions that check their arguments: only other modules call the others."""


def copy_pages() -> None:
    """Copy the pages of docs/ with their pictures, and the pages of the root."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for path in (ROOT / "docs").rglob("*"):
        if path.is_file() and path.suffix in COPIED_SUFFIXES:
            copy = PAGES / path.relative_to(ROOT / "docs")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    for source, page in ROOT_PAGES.items():
        text = (ROOT / source).read_text("utf-8")
        for old, new in SITE_LINKS.items():
            text = text.replace(old, new)
        (PAGES / page).write_text(text, "utf-8")


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
    plain = patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"})
    with plain, redirect_stdout(output), suppress(SystemExit):
        main(arguments)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())


def api_pages() -> None:
    """Write a page for each package, with the documentation of its modules, and one for the public names."""
    lines = ["# pellucid\n", "Public names, available as attributes of `pellucid`.\n"]
    modules = pellucid._HOMES
    for name in sorted(modules, key=str.lower):
        lines.append(
            f"::: {modules[name]}.{name}\n    options:\n      heading_level: 2\n      show_root_full_path: false\n"
        )
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


def build() -> int:
    """Write all pages and build the site.

    Returns:
        Exit code: that of the site generator, or 1 if a docstring does not fit its signature.
    """
    copy_pages()
    write_page("reference/settings.md", list(settings_page()))
    write_page("reference/commands.md", list(commands_page()))
    api_pages()
    command = [Path(sys.executable).with_name("zensical"), "build", "--clean", "--strict"]
    process = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(process.stdout, end="")
    # The site generator prints faults of docstrings without counting them as warnings.
    return process.returncode or int("griffe:" in process.stdout)


if __name__ == "__main__":
    sys.exit(build())
