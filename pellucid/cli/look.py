"""Subcommand look: pellucid look RUN... [FILE|-] [--export FILE] [--terminal]"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import tyro

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.input_flags import PairFileFlags, check_columns_of_pairs, file_data_config, given_columns
from pellucid.cli.messages import print_message
from pellucid.cli.output_files import check_output_file, check_output_files
from pellucid.cli.sources import check_path_order, print_result, standard_input
from pellucid.config.settings import DataConfig, Device, Limit
from pellucid.data.examples import SKIP_HINT, STANDARD_INPUT, Example, InputFormat, parse_sources, read_sources
from pellucid.data.readers import BadLine, has_known_suffix
from pellucid.error_messages import describe_suffix
from pellucid.errors import DataError, InputError, count_noun
from pellucid.files import follow_links, write_text

if TYPE_CHECKING:
    from pellucid.decoding.predictor import Predictor
    from pellucid.decoding.trace import Trace
    from pellucid.run_folder.log import RunLog
    from pellucid.viewer.inputs import ViewedFile, ViewedRun
    from pellucid.viewer.page_contents import PageData

STDIN_PATH = Path("-")
"""FILE argument for standard input."""
MAX_PAGE_EXAMPLES = 200
"""Maximum number of examples on the page if --max-examples is not given."""
MAX_PRINTED_EXAMPLES = 10
"""Maximum number of examples in the terminal if --max-examples is not given."""
EXPORT_SUFFIXES = (".html", ".png", ".svg", ".json", ".tex")


@dataclass(frozen=True)
class LookArguments(PairFileFlags):
    """Show the outputs and attention weights of a model: in the browser, in a file, or in the terminal.

    The browser and an .html file show the page, which can compare several runs; the terminal and other files show one
    run.
    """

    paths: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN... [FILE|-]")]
    """Run folders, then a file of pairs or sources. The first run is shown and compared with the others. - is standard
    input, shown in the terminal. Default of FILE: the validation file of the first run, if its content is unchanged."""
    export: Path | None = None
    """Write a file instead of starting a server: the page as .html (works offline), or the first example as .png, .svg,
    .json or .tex."""
    terminal: bool = False
    """Show outputs in the terminal; of pairs, the wrong ones first, with the expected output. Excludes --export."""
    target: Path | None = None
    """File of targets, one per line, if FILE holds sources only."""
    max_examples: int | None = None
    """Maximum number of examples, 1 or more. Default: 200 on the page, whose scores and statistics are computed on all
    examples of FILE; 10 in the terminal."""
    port: int = 0
    """Port of the local server (127.0.0.1), 0 to 65535; 0: any free port."""
    open: bool = True
    """Open the page in a browser if there is a display and standard output is a terminal."""
    beam_size: int | None = None
    """Beam size, 1 (greedy search) to 1,024. Default: search.beam_size of the run, which is 5 unless it was set."""
    device: Device = "cpu"
    """Device for decoding: cpu, cuda (one GPU), or auto (a GPU if there is one)."""
    width: Limit = 0
    """Width of the output in the terminal, in columns; 0: width of the terminal."""
    ascii: bool = False
    """Use ASCII characters only in the terminal."""
    alignment: bool = False
    """Also print the monotone alignment of each output, by its attention, in the terminal. The page has a button."""

    @property
    def file(self) -> Path | None:
        """FILE: the last of several paths, unless it is a folder; else None."""
        return self.paths[-1] if len(self.paths) > 1 and not self.paths[-1].is_dir() else None

    @property
    def runs(self) -> tuple[Path, ...]:
        """All paths but FILE."""
        return self.paths[: len(self.paths) - (self.file is not None)]


def main(arguments: list[str]) -> int:
    """Serve the page until Ctrl-C, write a file and print its path, or print to the terminal.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: An argument, a run folder or FILE is invalid, or there is no FILE where one is required.
    """
    args = parse_arguments(LookArguments, "look", arguments)
    _check_arguments(args)
    if args.export is not None:
        _export(args, args.export)
        _report_unfinished(args.runs)
        print_result(str(args.export))
    elif args.terminal or args.file == STDIN_PATH:
        _print_traces(args)
    else:
        _serve(args)
    return 0


def _check_arguments(args: LookArguments) -> None:
    """Raise `InputError` for invalid arguments, before any slow work."""
    if not args.paths:
        raise InputError("the folder of a run is required: pellucid look RUN [FILE]")
    check_path_order(args.paths, "look")
    check_columns_of_pairs(args, args.target)
    if args.file is None and (given := given_columns(args)):
        raise InputError(f"{given[0]} selects a column of FILE: pellucid look RUN FILE")
    if args.file is None and args.delimiter != "auto":
        raise InputError("--delimiter separates the columns of FILE: pellucid look RUN FILE")
    if args.export is not None and args.terminal:
        raise InputError("--terminal and --export exclude each other")
    if args.alignment and not (args.terminal or args.file == STDIN_PATH):
        raise InputError('--alignment requires --terminal; the page has the button "Monotone alignment"')
    if args.max_examples is not None and args.max_examples < 1:
        raise InputError(f"--max-examples: expected 1 or more, got {args.max_examples}")
    if args.export is not None and args.export.suffix not in EXPORT_SUFFIXES:
        endings = f"{', '.join(EXPORT_SUFFIXES[:-1])} or {EXPORT_SUFFIXES[-1]}"
        raise InputError(f"--export takes a file that ends with {endings}, got {describe_suffix(args.export.suffix)}")
    check_output_files(args, {"export": ""})


def _report_unfinished(runs: Sequence[Path]) -> None:
    """Print a message for each run whose training is unfinished."""
    from pellucid.run_folder.unfinished_training import find_unfinished

    for run in runs:
        for unfinished in find_unfinished(run):
            print_message(str(unfinished))


def _serve(args: LookArguments) -> None:
    """Serve the page until Ctrl-C."""
    from pellucid.viewer.server import (
        create_app,
        exit_without_waiting,
        open_socket,
        serve_until_interrupted,
        server_url,
    )

    server_socket = open_socket(args.port)
    page = _assemble_page(args, served=True)
    _report_unfinished(args.runs)
    app = create_app(page, reload=lambda: _assemble_page(args, served=True))
    url = server_url(server_socket)
    print(url, flush=True)
    print_message("press Ctrl-C to stop the server")
    if args.open and _has_display():
        import webbrowser

        webbrowser.open(url)
    serve_until_interrupted(app, server_socket)
    print_message("server stopped")
    exit_without_waiting()


def _has_display() -> bool:
    """Return whether a graphical browser can open; text browsers are not wanted."""
    screen = sys.platform in ("darwin", "win32") or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    return screen and sys.stdout.isatty()


def _export(args: LookArguments, path: Path) -> None:
    """Write the page, or the first example, to a file."""
    if path.suffix == ".html":
        from pellucid.viewer.pages import export_page

        write_text(follow_links(path), export_page(_assemble_page(args, served=False).contents))
    else:
        (trace,) = _decode_first(args, 1)
        trace.save(path)


def _assemble_page(args: LookArguments, served: bool) -> "PageData":
    """Return the contents of the page."""
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.model.device import use_threads
    from pellucid.run_folder.run_parts import missing_model_error
    from pellucid.viewer.inputs import check_same_task, open_run, run_names
    from pellucid.viewer.page_contents import assemble_page

    names = run_names(args.runs)
    named = zip(args.runs, names, strict=True)
    runs = [open_run(folder, name, args.device, args.beam_size) for folder, name in named]
    check_same_task(runs)
    if runs[0].predictor is not None:
        use_threads(runs[0].predictor.config.threads)
    files = _read_examples(args, runs[0], served)
    if files or not served:
        missing = [run for run in runs if run.predictor is None]
        if missing:  # told before any example is decoded
            raise missing_model_error(missing[0].folder, missing[0].log)
    for file in files:
        print_message(f"decoding {count_noun(len(file.examples), 'example')} of {file.name}")
        if file.note:
            print_message(f"{file.name}: {file.note}")
    max_examples = MAX_PAGE_EXAMPLES if args.max_examples is None else args.max_examples
    return assemble_page(runs, files, max_examples, served, pending_file=args.file.name if args.file else "")


def _read_examples(args: LookArguments, model: "ViewedRun", served: bool) -> "list[ViewedFile]":
    """Read FILE, or the validation file of the run.

    Empty if there is no model yet; for a served page, also without FILE and validation file, with a message.
    """
    from pellucid.run_folder.run_files import load_run_config
    from pellucid.viewer.inputs import (
        PairFile,
        ValidationFileError,
        find_validation_file,
        read_example_file,
        sources_without_targets,
    )

    if model.predictor is None:
        if args.file and args.file != STDIN_PATH:
            # Errors in the file are reported at once, not when the first model exists.
            read_example_file(args.file, _data_config(args, load_run_config(model.folder).data), args.target)
        return []
    data = _data_config(args, model.predictor.config.data)
    if args.file == STDIN_PATH:
        return [sources_without_targets(STANDARD_INPUT, _standard_input(args, data), data)]
    try:
        file = (
            PairFile(args.file, args.target, data) if args.file else find_validation_file(model.folder, data, model.log)
        )
    except ValidationFileError as error:
        if not served:
            raise
        print_message(f"the page has no examples: {error}")
        return []
    check_output_file("--export", args.export, [file.path, file.target])  # without FILE, the log names it
    return [read_example_file(file.path, file.data, file.target)]


def _data_config(args: LookArguments, trained: DataConfig) -> DataConfig:
    """Return the data configuration of FILE; without FILE, that of training. Either can skip bad lines.

    The format of FILE is that of its name, else that of the training file.
    """
    data = trained if args.file is None else file_data_config(trained, args, args.file)
    if args.file is not None and has_known_suffix(args.file):
        data = msgspec.structs.replace(data, input_format="auto")
    skips = "skip" in (trained.on_bad_line, args.on_bad_line)
    return msgspec.structs.replace(data, on_bad_line="skip" if skips else "stop")


def _print_traces(args: LookArguments) -> None:
    """Print outputs and attention weights to the terminal."""
    from pellucid.reporting.terminal import attention_caption, render_trace, shade_legend
    from pellucid.reporting.terminal_width import terminal_width

    predictor, data, log = _load_one_run(args)
    _report_unfinished(args.runs)
    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ and not args.ascii
    width = args.width or terminal_width(120)
    max_examples = MAX_PRINTED_EXAMPLES if args.max_examples is None else args.max_examples
    outputs, num_remaining = _decode_for_terminal(args, predictor, _read_pairs(args, data, log), max_examples)
    traces = [output.trace for output in outputs]
    for trace, expected in outputs:
        picture = render_trace(trace, width, color, args.ascii, expected, args.alignment)
        print(picture, end="\n\n")
    if not traces[0].per_position:  # tags have no attention weights
        print(shade_legend(color=color, ascii_only=args.ascii))
    print(attention_caption(traces[0]))
    if num_remaining:
        print_message(
            f"{len(traces):,} of {len(traces) + num_remaining:,} sources are shown; raise --max-examples to show more"
        )
    elif args.file == STDIN_PATH and len(traces) == max_examples:
        print_message(f"{len(traces):,} sources are shown, and no more are read; raise --max-examples to show more")


class _TerminalOutput(NamedTuple):
    """An output in the terminal, with the expected one if it is wrong."""

    trace: "Trace"
    expected: str | None = None


def _decode_for_terminal(
    args: LookArguments, predictor: "Predictor", file: "ViewedFile | None", limit: int
) -> tuple[list[_TerminalOutput], int]:
    """Decode examples, and return their outputs and the number of examples that are not shown.

    If there are references, the outputs are the first wrong ones, and then the first correct ones; no more examples are
    decoded than needed. Else the sources are the first ones.
    """
    from pellucid.evaluation.assessment import score_traces

    if file is None:
        examples, num_remaining = _first_sources(args, _data_config(args, predictor.config.data), limit)
        return [_TerminalOutput(trace) for trace in predictor.predict_examples(examples)], num_remaining
    if file.note:
        print_message(f"{file.name}: {file.note}")
    wrong, right, num_decoded = list[_TerminalOutput](), list[_TerminalOutput](), 0
    for example, trace in zip(file.examples, predictor.predict_examples(iter(file.examples)), strict=False):
        num_decoded += 1
        if score_traces([trace], [[example.target]], predictor.tokenizers)[0].exact:
            right.append(_TerminalOutput(trace))
        else:
            wrong.append(_TerminalOutput(trace, example.target))
        if len(wrong) == limit:
            break
    print_message(f"{file.name}: {_wrong_outputs_text(len(wrong), num_decoded, len(file.examples))}")
    shown = [*wrong, *right][:limit]
    return shown, len(file.examples) - len(shown)


def _wrong_outputs_text(num_wrong: int, num_decoded: int, num_examples: int) -> str:
    """Return how many of the decoded outputs are wrong, as a sentence."""
    is_part = num_decoded < num_examples
    if num_decoded == 1:
        return f"the {'first' if is_part else 'only'} output is {'wrong' if num_wrong else 'correct'}"
    verb, order = "is" if num_wrong == 1 else "are", "; wrong outputs are shown first" if num_wrong else ""
    return f"{num_wrong:,} of {'the first ' if is_part else ''}{num_decoded:,} outputs {verb} wrong{order}"


def _read_pairs(args: LookArguments, data: DataConfig, log: "RunLog | None") -> "ViewedFile | None":
    """Return the pairs of FILE or of the validation file of the run; None if FILE has sources only or is a pipe."""
    from pellucid.viewer.inputs import find_validation_file, has_only_sources, read_example_file

    if args.file is None:
        file, target, data = find_validation_file(args.runs[0], data, log)
        check_output_file("--export", args.export, [file, target])
        return read_example_file(file, data, target)
    if not args.file.is_file() or (args.target is None and has_only_sources(args.file, data)):
        return None
    return read_example_file(args.file, data, args.target)


def _decode_first(args: LookArguments, limit: int) -> "list[Trace]":
    """Decode the first examples, and return their traces."""
    predictor, data, log = _load_one_run(args)
    if args.file is not None:
        return predictor.predict_examples(_first_sources(args, data, limit)[0])
    pairs = _read_pairs(args, data, log)
    assert pairs is not None, "the run has a validation file"
    return predictor.predict_examples(pairs.examples[:limit])


def _load_one_run(args: LookArguments) -> "tuple[Predictor, DataConfig, RunLog | None]":
    """Return the predictor of the one run, the data settings of FILE, and without FILE the log of the run."""
    from pellucid.model.device import use_threads
    from pellucid.run_folder.log import load_run_log
    from pellucid.run_folder.predictor_loader import load_with_log, load_without_warnings
    from pellucid.run_folder.run_files import member_folders

    if len(args.runs) > 1:
        raise InputError("the terminal and picture files show one run: give one RUN (pellucid look RUN [FILE])")
    run = member_folders(args.runs[0])[0]
    log = load_run_log(run) if args.file is None else None  # the log names the validation file
    is_single = run == args.runs[0]
    if log and is_single:
        predictor = load_with_log(run, args.device, log)
    else:
        predictor = load_without_warnings(args.runs[0], args.device, needs_validated_model=True)
    predictor = predictor if args.beam_size is None else predictor.with_beam(args.beam_size)
    use_threads(predictor.config.threads)
    return predictor, _data_config(args, predictor.config.data), log


def _first_sources(args: LookArguments, data: DataConfig, limit: int) -> tuple[list[Example], int]:
    """Return the first readable sources of FILE, and the number of remaining ones; 0 for standard input."""
    from pellucid.viewer.inputs import bad_line_note

    assert args.file is not None
    lines = _standard_input(args, data) if args.file == STDIN_PATH else read_sources(args.file, data)
    bad = list[BadLine]()
    examples = list(islice(_readable_examples(lines, data, bad), limit))
    note = bad_line_note(bad)
    if not examples:
        raise DataError(f"{args.file} holds no source" + (f": {note}" if note else ""))
    if note:
        print_message(note)
    return examples, 0 if args.file == STDIN_PATH else sum(isinstance(line, Example) for line in lines)


def _readable_examples(lines: Iterable[Example | BadLine], data: DataConfig, bad: list[BadLine]) -> Iterator[Example]:
    """Yield readable sources; bad lines are appended to `bad` if they are skipped, else raise `DataError`."""
    for line in lines:
        if isinstance(line, Example):
            yield line
        elif data.on_bad_line == "stop":
            raise DataError(f"{line}; {SKIP_HINT}")
        else:
            bad.append(line)


def _standard_input(args: LookArguments, data: DataConfig) -> Iterator[Example | BadLine]:
    """Yield the sources of standard input."""
    return parse_sources(standard_input(), STANDARD_INPUT, data, InputFormat(header=args.header))
