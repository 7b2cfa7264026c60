"""Subcommand look: pellucid look RUN... [FILE|-] [--export FILE] [--terminal]"""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.messages import say
from pellucid.cli.sources import check_order, standard_input
from pellucid.config.settings import DataConfig, Device, Header, Limit
from pellucid.data.examples import STANDARD_INPUT, BadLine, Example, InputFormat, parse_sources, read_sources
from pellucid.data.headers import config_for_file
from pellucid.errors import DataError, InputError, quote
from pellucid.files import check_writable, write_text

if TYPE_CHECKING:
    from pellucid.decoding.trace import Trace
    from pellucid.viewer.inputs import ExampleFile, ViewedRun
    from pellucid.viewer.page_contents import PageData

STDIN_PATH = Path("-")
"""FILE argument for standard input."""
EXPORT_SUFFIXES = (".html", ".png", ".svg", ".json", ".tex")


@dataclass(frozen=True)
class LookArguments:
    """Show the outputs and attention weights of a model: in the browser, in a file, or in the terminal."""

    paths: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN... [FILE|-]")]
    """Run folders, then a file of pairs or sources. The first run is shown and compared with the others. - is standard
    input, shown in the terminal. Default of FILE: the validation file of the run."""
    export: Path | None = None
    """Write a file instead of starting a server: the page as .html (works offline), or the first example as .png, .svg,
    .json or .tex."""
    terminal: bool = False
    """Show the outputs in the terminal."""
    target: Path | None = None
    """File of targets, one per line, if FILE holds sources only."""
    header: Header = "auto"
    """Whether the first line of FILE holds the column names (--header, --no-header); auto: as in the training file."""
    max_examples: int = 200
    """Maximum number of examples on the page. Scores and statistics are computed on all examples of FILE."""
    port: int = 0
    """Port of the local server (127.0.0.1); 0: any free port."""
    open: bool = True
    """Open the page in a browser if there is a display."""
    beam_size: int | None = None
    """Beam size; 1 is greedy search. Default: search.beam_size of the run."""
    device: Device = "cpu"
    """Device for decoding: cpu, cuda (one GPU), or auto (a GPU if there is one)."""
    limit: int = 10
    """Maximum number of examples in the terminal."""
    width: Limit = 0
    """Width of the terminal output in columns; 0: width of the terminal."""
    ascii: bool = False
    """Use ASCII characters only in the terminal."""

    @property
    def file(self) -> Path | None:
        """FILE, the last path, if it is no folder."""
        return self.paths[-1] if len(self.paths) > 1 and not self.paths[-1].is_dir() else None

    @property
    def runs(self) -> tuple[Path, ...]:
        """Run folders."""
        return self.paths[: len(self.paths) - (self.file is not None)]


def main(arguments: list[str]) -> int:
    """Serve the page, write a file, or print to the terminal.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code.
    """
    given = parse_arguments(LookArguments, "look", arguments)
    _check_arguments(given)
    if given.export is not None:
        _export(given, given.export)
        print(given.export)
    elif given.terminal or given.file == STDIN_PATH:
        _print_traces(given)
    else:
        _serve(given)
    return 0


def _check_arguments(given: LookArguments) -> None:
    """Raise `InputError` for invalid arguments, before any slow work."""
    if not given.paths:
        raise InputError("the folder of a run is required: pellucid look RUN [FILE]")
    check_order(given.paths, "look")
    if given.export is not None and given.terminal:
        raise InputError("--terminal and --export exclude each other")
    for name, value in (("limit", given.limit), ("max-examples", given.max_examples)):
        if value < 1:
            raise InputError(f"--{name}: expected 1 or more, got {value}")
    if given.export is not None and given.export.suffix not in EXPORT_SUFFIXES:
        endings = f"{', '.join(EXPORT_SUFFIXES[:-1])} or {EXPORT_SUFFIXES[-1]}"
        ending = given.export.suffix or "no ending"
        raise InputError(f"--export takes a file that ends with {endings}, got {quote(ending)}")
    if given.export is not None:
        check_writable(given.export)


def _serve(given: LookArguments) -> None:
    """Serve the page until Ctrl-C."""
    from pellucid.viewer.server import (
        create_app,
        exit_without_waiting,
        open_socket,
        serve_until_interrupted,
        server_url,
    )

    opened = open_socket(given.port)
    app = create_app(_assemble_page(given, served=True), again=lambda: _assemble_page(given, served=True))
    where = server_url(opened)
    print(where, flush=True)
    say("press Ctrl-C to stop the server")
    if given.open and _has_display():
        import webbrowser

        webbrowser.open(where)
    serve_until_interrupted(app, opened)
    say("server stopped")
    exit_without_waiting()


def _has_display() -> bool:
    """Return whether a graphical browser can open; text browsers are not wanted."""
    screen = sys.platform in ("darwin", "win32") or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    return screen and sys.stdout.isatty()


def _export(given: LookArguments, path: Path) -> None:
    """Write the page, or the first example, to a file."""
    if path.suffix == ".html":
        from pellucid.viewer.pages import export_page

        write_text(path, export_page(_assemble_page(given, served=False).contents))
    else:
        (trace,), _ = _decode_first(given, 1)
        trace.save(path)


def _assemble_page(given: LookArguments, served: bool) -> "PageData":
    """Return the contents of the page."""
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.model.device import use_threads
    from pellucid.viewer.inputs import check_same_task, open_run, run_names
    from pellucid.viewer.page_contents import assemble_page

    names = run_names(given.runs)
    models = [open_run(*each, given.device, given.beam_size) for each in zip(given.runs, names, strict=True)]
    check_same_task(models)
    if models[0].predictor is not None:
        use_threads(models[0].predictor.config.threads)
    sources = _read_examples(given, models[0])
    if not sources and not served:
        raise InputError(
            f"{_missing_file_text(given.runs[0])}; an exported page requires a file of pairs or sources: "
            "pellucid look RUN FILE --export page.html"
        )
    for each in sources:
        say(f"decoding {len(each.examples):,} examples of {each.name}")
        if each.note:
            say(f"{each.name}: {each.note}")
    return assemble_page(
        models, sources, given.max_examples, served, pending_file=given.file.name if given.file else ""
    )


def _read_examples(given: LookArguments, model: "ViewedRun") -> "list[ExampleFile]":
    """Read FILE, or the validation file of the run; empty if there is neither, or no model yet."""
    from pellucid.training.run_folder import load_run_config
    from pellucid.viewer.inputs import find_validation_file, read_example_file, sources_without_targets

    if model.predictor is None:
        if given.file and given.file != STDIN_PATH:
            # Errors in the file are reported at once, not when the first model is ready.
            read_example_file(given.file, _data_config(given, load_run_config(model.folder).data), given.target)
        return []
    data = _data_config(given, model.predictor.config.data)
    if given.file == STDIN_PATH:
        return [sources_without_targets(STANDARD_INPUT, _standard_input(given, data), data)]
    found = (given.file, given.target) if given.file else find_validation_file(model.folder)
    return [read_example_file(found[0], data, found[1])] if found else []


def _data_config(given: LookArguments, trained: DataConfig) -> DataConfig:
    """Return the data configuration of FILE; without FILE, that of training."""
    return trained if given.file is None else config_for_file(trained, given.header)


def _print_traces(given: LookArguments) -> None:
    """Print outputs and attention weights to the terminal."""
    from pellucid.reporting.terminal import attention_caption, render_trace, shade_legend

    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ and not given.ascii
    width = given.width or shutil.get_terminal_size((120, 24)).columns
    traces, left = _decode_first(given, given.limit)
    for trace in traces:
        print(render_trace(trace, width=width, color=color, ascii_only=given.ascii), end="\n\n")
    if not traces[0].per_position:  # tags have no attention weights
        print(shade_legend(color=color, ascii_only=given.ascii))
    print(attention_caption(traces[0]))
    if left:
        say(f"{len(traces):,} of {len(traces) + left:,} sources are shown; raise --limit to show more")
    elif given.file == STDIN_PATH and len(traces) == given.limit:
        say(f"{len(traces):,} sources are shown, and no more are read; raise --limit to show more")


def _decode_first(given: LookArguments, most: int) -> "tuple[list[Trace], int]":
    """Decode the first examples; return their traces and the number of remaining examples."""
    from pellucid.model.device import use_threads
    from pellucid.training.run_folder import load

    if len(given.runs) > 1:
        raise InputError("the terminal and picture files show one run: give one RUN (pellucid look RUN [FILE])")
    predictor = load(given.runs[0], given.device)
    predictor = predictor if given.beam_size is None else predictor.with_beam(given.beam_size)
    use_threads(predictor.config.threads)
    data = _data_config(given, predictor.config.data)
    examples, left = (
        _validation_examples(given, data, most) if given.file is None else _first_sources(given, data, most)
    )
    return predictor.trace(examples), left


def _missing_file_text(run: Path) -> str:
    """Return the reason that no FILE was found for a run."""
    return f"{run}: the validation file named in its log was not found"


def _validation_examples(given: LookArguments, data: DataConfig, most: int) -> tuple[list[Example], int]:
    """Return the first examples of the validation file of the run, and the number of remaining ones."""
    from pellucid.viewer.inputs import find_validation_file, read_example_file

    found = find_validation_file(given.runs[0])
    if found is None:
        raise InputError(f"{_missing_file_text(given.runs[0])}: give a FILE")
    examples = read_example_file(found[0], data, found[1]).examples
    return examples[:most], max(0, len(examples) - most)


def _first_sources(given: LookArguments, data: DataConfig, most: int) -> tuple[list[Example], int]:
    """Return the first readable sources of FILE, and the number of remaining ones, which standard input lacks."""
    from pellucid.viewer.inputs import bad_line_note

    assert given.file is not None
    lines = _standard_input(given, data) if given.file == STDIN_PATH else read_sources(given.file, data)
    bad = list[BadLine]()
    examples = list(islice(_readable_examples(lines, data, bad), most))
    told = bad_line_note(bad)
    if not examples:
        raise DataError(f"{given.file} holds no source" + (f": {told}" if told else ""))
    if told:
        say(told)
    return examples, 0 if given.file == STDIN_PATH else sum(isinstance(each, Example) for each in lines)


def _readable_examples(lines: Iterable[Example | BadLine], data: DataConfig, bad: list[BadLine]) -> Iterator[Example]:
    """Yield readable sources; bad lines are appended to `bad` if they are skipped, else raise `DataError`."""
    for line in lines:
        if isinstance(line, Example):
            yield line
        elif data.on_bad_line == "stop":
            raise DataError(str(line))
        else:
            bad.append(line)


def _standard_input(given: LookArguments, data: DataConfig) -> Iterator[Example | BadLine]:
    """Yield the sources of standard input."""
    return parse_sources(standard_input(), STANDARD_INPUT, data, InputFormat(header=given.header))
