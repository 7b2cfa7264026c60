"""pellucid look DIR [FILE|-] [--export FILE]"""

import os
import shutil
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from pellucid.config import Device
from pellucid.data.examples import BadLine, Example, parse_sources, read_examples, read_sources
from pellucid.errors import DataError, InputError
from pellucid.files import write_atomic, write_text
from pellucid.look.report import write_report
from pellucid.look.terminal import CAPTION, legend, render
from pellucid.search.trace import Trace

if TYPE_CHECKING:
    from pellucid.search.transducer import Transducer


@dataclass(frozen=True)
class Arguments:
    """Show where a model looked: in the terminal, as one picture, or as a report."""

    run: tyro.conf.Positional[Path]
    """Folder of a trained run."""
    file: tyro.conf.Positional[Path] = Path("-")
    """Sources, or - for standard input; for an HTML report, pairs."""
    export: Path | None = None
    """Write report.html (all of FILE judged), or the first source as .png or .svg, instead of the terminal view."""
    most: int = 10
    """How many sources to show in the terminal."""
    width: int = 0
    """Columns of the terminal view; 0 takes the terminal's own."""
    ascii: bool = False
    """Draw with ASCII only."""
    beam: int | None = None
    """Hypotheses kept for each source at every step, instead of the run's search.beam_width; 1 is greedy."""
    device: Device = "cpu"
    """What decodes: cpu, cuda (one GPU), or auto, which takes a GPU where there is one."""


def run(arguments: list[str]) -> int:
    """Show or export."""
    given = tyro.cli(Arguments, prog="pellucid look", args=arguments)
    if given.most < 1:
        raise InputError(f"--most: expected 1 or more, got {given.most}")
    if given.export is None:
        _show(given)
        return 0
    match given.export.suffix:
        case ".html":
            _export_report(given, given.export)
        case ".png" | ".svg":
            _export_picture(_traces(given, 1)[0], given.export)
        case other:
            raise InputError(f"--export takes a file that ends with .html, .png or .svg, got {other or 'no ending'!r}")
    print(given.export)
    return 0


def _show(given: Arguments) -> None:
    """The terminal view."""
    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ and not given.ascii
    width = given.width or shutil.get_terminal_size((120, 24)).columns
    for trace in _traces(given, given.most):
        print(render(trace, width=width, color=color, ascii_only=given.ascii), end="\n\n")
    print(legend(color=color, ascii_only=given.ascii), CAPTION, sep="\n")


def _traces(given: Arguments, most: int) -> list[Trace]:
    """The first sources of the input, decoded; an unreadable one is an error."""
    # Only now, when the arguments are known to be right, what takes seconds to import.
    from pellucid.model.threads import use_threads

    transducer = _loaded(given)
    use_threads(transducer.config.threads)
    data = transducer.config.data
    if sys.stdin is None and str(given.file) == "-":
        raise DataError("standard input is closed: give a file of sources")
    lines = parse_sources(sys.stdin.buffer, "standard input", data) if str(given.file) == "-" else None
    items = list(islice(lines if lines is not None else read_sources(given.file, data), most))
    for item in items:
        if isinstance(item, BadLine):
            raise DataError(str(item))
    examples = [item for item in items if isinstance(item, Example)]
    if not examples:
        raise DataError(f"{given.file} holds no source")
    return transducer.trace(examples)


def _loaded(given: Arguments) -> "Transducer":
    """The run's model, searching as wide as is asked for."""
    from pellucid.training.run import load

    transducer = load(given.run, given.device)
    return transducer if given.beam is None else transducer.with_beam(given.beam)


def _export_report(given: Arguments, path: Path) -> None:
    """All pairs of the file, judged."""
    from pellucid.look.judgement import judge, report_on

    if str(given.file) == "-":
        raise InputError("an HTML report is made from a file of pairs: pellucid look DIR FILE --export report.html")
    transducer = _loaded(given)
    judgement = judge(transducer, read_examples(given.file, transducer.config.data).examples)
    introduction = f"The best model of {given.run}, judged on {given.file}."
    write_report(path, report_on(given.run, judgement, f"{given.run.name} on {given.file.name}", introduction))


def _export_picture(trace: Trace, path: Path) -> None:
    """One attention heat map."""
    from pellucid.look.figures import attention_figure, png, svg

    figure = attention_figure(trace)
    if path.suffix == ".png":
        write_atomic(path, png(figure))
    else:
        write_text(path, svg(figure))
