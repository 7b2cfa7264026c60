"""pellucid look DIR... [FILE|-] [--export FILE] [--terminal]"""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from pellucid.cli.arguments import parsed
from pellucid.cli.messages import say
from pellucid.cli.sources import check_order, standard_input
from pellucid.config.settings import DataConfig, Device, Header, Limit
from pellucid.data.examples import STANDARD_INPUT, BadLine, Example, Input, parse_sources, read_sources
from pellucid.data.headers import of_another_file
from pellucid.errors import DataError, InputError, quote
from pellucid.files import check_writable, write_text

if TYPE_CHECKING:
    from pellucid.decoding.trace import Trace
    from pellucid.viewer.inputs import Model, Sources
    from pellucid.viewer.page_contents import Assembled

DASH = Path("-")
"""Stands for standard input in the place of FILE."""
EXPORTS = (".html", ".png", ".svg", ".json", ".tex")


@dataclass(frozen=True)
class Arguments:
    """Show what a model does and where it looks: in the browser, as a file, or in the terminal."""

    paths: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="DIR... [FILE|-]")]
    """Folders of runs (the first is shown, the others beside it), and pairs or sources; - is standard
    input, in the terminal. Without FILE, the run's own development file."""
    export: Path | None = None
    """Write page.html, which works offline, or the first source as .png, .svg, .json or .tex, instead of serving."""
    terminal: bool = False
    """Show FILE, or the development file, in the terminal."""
    target: Path | None = None
    """File of targets, where FILE holds sources, one a line."""
    header: Header = "auto"
    """Whether the first line of FILE names the columns (--header, --no-header); auto: as in the training file."""
    items: int = 200
    """How many examples of FILE the page shows; its numbers are of all of them."""
    port: int = 0
    """Port of the page on 127.0.0.1; 0 takes one that is free."""
    open: bool = True
    """Open the page in a browser, where there is one."""
    beam_size: int | None = None
    """Hypotheses kept for each source at every step, instead of the run's search.beam_size; 1 is greedy."""
    device: Device = "cpu"
    """What decodes: cpu, cuda (one GPU), or auto, which takes a GPU where there is one."""
    most: int = 10
    """How many sources to show in the terminal."""
    width: Limit = 0
    """Columns of the terminal view; 0 takes the terminal's own."""
    ascii: bool = False
    """Draw in the terminal with ASCII only."""

    @property
    def file(self) -> Path | None:
        """FILE, the last path, where it is no folder."""
        return self.paths[-1] if len(self.paths) > 1 and not self.paths[-1].is_dir() else None

    @property
    def runs(self) -> tuple[Path, ...]:
        """The folders."""
        return self.paths[: len(self.paths) - (self.file is not None)]


def run(arguments: list[str]) -> int:
    """Serve, export, or show in the terminal."""
    given = parsed(Arguments, "look", arguments)
    _check(given)
    if given.export is not None:
        _export(given, given.export)
        print(given.export)
    elif given.terminal or given.file == DASH:
        _show(given)
    else:
        _serve(given)
    return 0


def _check(given: Arguments) -> None:
    """Refuse what cannot be meant, before anything takes time."""
    if not given.paths:
        raise InputError("the folder of a run is required: pellucid look DIR [FILE]")
    check_order(given.paths, "look")
    if given.export is not None and given.terminal:
        raise InputError("--terminal shows FILE here and --export writes it: expected one of them")
    for name, value in (("most", given.most), ("items", given.items)):
        if value < 1:
            raise InputError(f"--{name}: expected 1 or more, got {value}")
    if given.export is not None and given.export.suffix not in EXPORTS:
        endings = f"{', '.join(EXPORTS[:-1])} or {EXPORTS[-1]}"
        ending = given.export.suffix or "no ending"
        raise InputError(f"--export takes a file that ends with {endings}, got {quote(ending)}")
    if given.export is not None:
        check_writable(given.export)


def _serve(given: Arguments) -> None:
    """The page, until Ctrl-C."""
    from pellucid.viewer.server import abandon, address, application, listening, serve

    opened = listening(given.port)
    app = application(_assembled(given, served=True), again=lambda: _assembled(given, served=True))
    where = address(opened)
    print(where, flush=True)
    say("Ctrl-C ends it")
    if given.open and _graphical():
        import webbrowser

        webbrowser.open(where)
    serve(app, opened)
    say("ended")
    abandon()


def _graphical() -> bool:
    """Whether there is a screen for a browser: one that draws in the terminal is not wanted."""
    screen = sys.platform in ("darwin", "win32") or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    return screen and sys.stdout.isatty()


def _export(given: Arguments, path: Path) -> None:
    """The page in one file, or the first source as a picture."""
    if path.suffix == ".html":
        from pellucid.viewer.pages import exported

        write_text(path, exported(_assembled(given, served=False).contents))
    else:
        (trace,), _ = _traces(given, 1)
        trace.save(path)


def _assembled(given: Arguments, served: bool) -> "Assembled":
    """All that the page shows."""
    # Only now, when the arguments are known to be right, what takes seconds to import.
    from pellucid.model.device import use_threads
    from pellucid.viewer.inputs import check_tasks, names_of, open_model
    from pellucid.viewer.page_contents import assemble

    names = names_of(given.runs)
    models = [open_model(*each, given.device, given.beam_size) for each in zip(given.runs, names, strict=True)]
    check_tasks(models)
    if models[0].transducer is not None:
        use_threads(models[0].transducer.config.threads)
    sources = _sources(given, models[0])
    if not sources and not served:
        raise InputError(
            f"{_no_own_file(given.runs[0])}; a page in a file shows a file of pairs or sources: "
            "pellucid look DIR FILE --export page.html"
        )
    for each in sources:
        say(f"decoding {len(each.examples):,} examples of {each.name}")
        if each.left_out:
            say(f"{each.name}: {each.left_out}")
    return assemble(models, sources, given.items, served, awaited=given.file.name if given.file else "")


def _sources(given: Arguments, model: "Model") -> "list[Sources]":
    """The file to show: the one given, else the run's own; none where there is neither, or no model yet."""
    from pellucid.training.run_folder import load_run_config
    from pellucid.viewer.inputs import own_file, read_file, sources_alone

    if model.transducer is None:
        if given.file and given.file != DASH:
            # Its mistakes are told at once, and not when there is a model to show it with.
            read_file(given.file, _data(given, load_run_config(model.folder).data), given.target)
        return []
    data = _data(given, model.transducer.config.data)
    if given.file == DASH:
        return [sources_alone(STANDARD_INPUT, _standard_input(given, data), data)]
    found = (given.file, given.target) if given.file else own_file(model.folder)
    return [read_file(found[0], data, found[1])] if found else []


def _data(given: Arguments, trained: DataConfig) -> DataConfig:
    """How FILE is read; without FILE as in training."""
    return trained if given.file is None else of_another_file(trained, given.header)


def _show(given: Arguments) -> None:
    """The terminal view."""
    from pellucid.reporting.terminal import caption_of, legend, render

    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ and not given.ascii
    width = given.width or shutil.get_terminal_size((120, 24)).columns
    traces, left = _traces(given, given.most)
    for trace in traces:
        print(render(trace, width=width, color=color, ascii_only=given.ascii), end="\n\n")
    if not traces[0].per_position:  # which has no shades
        print(legend(color=color, ascii_only=given.ascii))
    print(caption_of(traces[0]))
    if left:
        say(f"{len(traces):,} of {len(traces) + left:,} sources are shown: --most shows more")
    elif given.file == DASH and len(traces) == given.most:
        say(f"{len(traces):,} sources are shown, and no more are read: --most shows more")


def _traces(given: Arguments, most: int) -> "tuple[list[Trace], int]":
    """The first sources of the input, decoded, and how many more a file has; an unreadable one is an error."""
    from pellucid.model.device import use_threads
    from pellucid.training.run_folder import load

    if len(given.runs) > 1:
        raise InputError("the terminal and pictures show one run: give one DIR (pellucid look DIR [FILE])")
    transducer = load(given.runs[0], given.device)
    transducer = transducer if given.beam_size is None else transducer.with_beam(given.beam_size)
    use_threads(transducer.config.threads)
    data = _data(given, transducer.config.data)
    examples, left = _own_examples(given, data, most) if given.file is None else _first_sources(given, data, most)
    return transducer.trace(examples), left


def _no_own_file(run: Path) -> str:
    """Return why no FILE was found for a run."""
    return f"{run}: its log names no validation file that is still where it was in training"


def _own_examples(given: Arguments, data: DataConfig, most: int) -> tuple[list[Example], int]:
    """The first examples of the run's own development file, and how many more it has."""
    from pellucid.viewer.inputs import own_file, read_file

    found = own_file(given.runs[0])
    if found is None:
        raise InputError(f"{_no_own_file(given.runs[0])}: give a FILE")
    examples = read_file(found[0], data, found[1]).examples
    return examples[:most], max(0, len(examples) - most)


def _first_sources(given: Arguments, data: DataConfig, most: int) -> tuple[list[Example], int]:
    """The first sources of FILE that can be read, and how many more there are; of standard input no more are read."""
    from pellucid.viewer.inputs import skipped

    assert given.file is not None
    lines = _standard_input(given, data) if given.file == DASH else read_sources(given.file, data)
    bad = list[BadLine]()
    examples = list(islice(_good(lines, data, bad), most))
    told = skipped(bad)
    if not examples:
        raise DataError(f"{given.file} holds no source" + (f": {told}" if told else ""))
    if told:
        say(told)
    return examples, 0 if given.file == DASH else sum(isinstance(each, Example) for each in lines)


def _good(lines: Iterable[Example | BadLine], data: DataConfig, bad: list[BadLine]) -> Iterator[Example]:
    """The sources that can be read; the others are noted in `bad` where they are skipped, else a `DataError`."""
    for line in lines:
        if isinstance(line, Example):
            yield line
        elif data.on_bad_line == "stop":
            raise DataError(str(line))
        else:
            bad.append(line)


def _standard_input(given: Arguments, data: DataConfig) -> Iterator[Example | BadLine]:
    """The sources that standard input has."""
    return parse_sources(standard_input(), STANDARD_INPUT, data, Input(header=given.header))
