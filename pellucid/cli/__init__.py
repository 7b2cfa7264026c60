"""The command line: one module per subcommand.

Imports: alignment, argument_checks, auditing, bench, cluster, config, data, decoding, dependencies, error_messages,
    errors, evaluation, export, files, http_requests, kernels, launched_workers, model, process_limits, recipes,
    record_file, reporting, run_evaluation, run_folder, runtime, serving, sharing, training, tuning, version, viewer,
    worker_pool.
Start with: __init__.py.

Exit codes: 0 success, 1 no result (every trial of tune failed), 2 user error (one message, no traceback), 130
interrupted, 141 broken pipe, 143 stopped by SIGTERM, 129 by SIGHUP. A closed or full standard error changes none of
them.
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stderr, suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO, cast

from pellucid.cli.flag_suggestions import UnknownFlagError
from pellucid.cli.messages import (
    BestEffortStream,
    describe_stop,
    format_warnings_as_messages,
    print_message,
    raise_on_termination,
    redirect_to_devnull,
    stop_signal,
)
from pellucid.cli.subcommands import SUBCOMMANDS
from pellucid.dependencies import missing_packages_as_errors
from pellucid.errors import InputError, is_out_of_memory, quote, suggest
from pellucid.files import inaccessible_folder, os_error_text
from pellucid.launched_workers import launched_workers
from pellucid.process_limits import memory_advice, process_limit
from pellucid.version import __version__

USAGE = f"""usage: pellucid SUBCOMMAND ...

Train, evaluate and inspect recurrent encoder-decoder models with attention on your own pairs of sequences.

{chr(10).join(f"  {name:<12}{summary}" for name, summary in SUBCOMMANDS.items())}

"pellucid SUBCOMMAND --help" shows what most people set, with examples, and
"pellucid SUBCOMMAND --help-all" all options. Version {__version__}."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; errors of the user are printed, not raised.

    Args:
        arguments: Command line without the program name. Default: `sys.argv[1:]`.

    Returns:
        Exit code, as listed in the docstring of this module.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    # By default, waiting OpenMP threads of PyTorch spin, which triples the time on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    command_line = list(sys.argv[1:] if arguments is None else arguments)
    with redirect_stderr(None if sys.stderr is None else cast(TextIO, BestEffortStream(sys.stderr))):
        with nullcontext() if _is_launched() else raise_on_termination():
            code = _run_with_exit_code(command_line)
        if sys.stderr is not None:
            sys.stderr.flush()
    return code


def _is_launched() -> bool:
    """Return whether torchrun has started this process with others, which it ends by SIGTERM, also during an update."""
    with suppress(InputError):  # a damaged variable is reported by the subcommand
        return launched_workers() > 1
    return False


def _run_subcommand(command_line: list[str]) -> int:
    """Print the help or the version, or run one subcommand."""
    if not command_line or command_line[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if command_line else 2
    if command_line[0] in ("-V", "--version"):
        print(f"pellucid {__version__}")
        return 0
    if command_line[0] not in SUBCOMMANDS:
        raise InputError(
            f"there is no subcommand {quote(command_line[0])}{suggest(command_line[0], SUBCOMMANDS)} "
            "(pellucid --help lists all)"
        )
    if {"-h", "--help"} & set(command_line):
        from pellucid.cli.help_pages import help_page

        print(help_page(command_line[0]))
        return 0
    if sys.stdout is None and command_line[0] != "train":
        raise InputError("standard output is closed")
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # A daemon may run with closed streams.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (open to the process's end)
    format_warnings_as_messages()
    return _run_module(command_line[0], command_line[1:])


def _run_module(name: str, arguments: list[str]) -> int:
    """Import the module of a subcommand, and run it; name the extra if a package of training is missing."""
    try:
        with missing_packages_as_errors(f"pellucid {name}"):
            run: Callable[[list[str]], int] = import_module(f"pellucid.cli.{name}").main
            return run(arguments)
    except UnknownFlagError as error:
        from pellucid.cli.subcommand_flags import explain_unknown_flag

        raise InputError(explain_unknown_flag(error.flag_text, error.verb, error.flags)) from None


def _run_with_exit_code(command_line: list[str]) -> int:
    """Run a subcommand; report user errors and system errors in one line and return the exit code."""
    try:
        code = _run_subcommand(command_line)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except InputError as error:
        return _report_error(*map(str, error.args))
    except KeyboardInterrupt as error:
        number = stop_signal(error)
        _report_error(describe_stop(number))
        return 128 + number
    except BrokenPipeError:
        _abandon_stdout()
        return 141
    except OSError as error:
        _abandon_stdout()
        return _report_error(_system_error_message(error))
    except Exception as error:
        message = _failure_message(error)
        if message is None:
            raise
        return _report_error(message)


def _failure_message(error: Exception) -> str | None:
    """Return the message of lack of memory or of a failing extension; None for any other error."""
    if is_out_of_memory(error) or _is_lost_memory_error(error):
        return f"out of memory; {memory_advice()}"
    try:
        from pellucid.config.extension_errors import extension_error  # a moment to import

        named = extension_error(error)
    except Exception as second:  # in a small address space, any import fails
        if not is_out_of_memory(second):
            raise
        return f"out of memory; {memory_advice()}"
    return None if named is None else str(named)


def _is_lost_memory_error(error: Exception) -> bool:
    """Return whether a compiled library has failed without saying why, where the address space is limited."""
    return (
        isinstance(error, SystemError)
        and "without exception set" in str(error)
        and process_limit("RLIMIT_AS") is not None
    )


def _system_error_message(error: OSError) -> str:
    """Return the message of an error of the operating system that no module has described."""
    if is_out_of_memory(error):
        return f"out of memory; {memory_advice()}"
    if isinstance(error.filename, str) and (folder := inaccessible_folder(error, Path(error.filename))):
        return f"cannot enter the folder {folder}: {os_error_text(error)}"
    file_name = f" {error.filename}" if error.filename else ""
    return f"system error{file_name}: {os_error_text(error)}"


def _report_error(*lines: str) -> int:
    """Write an error message on standard error and return the exit code 2."""
    print_message(*lines, *_removed_folder_note())
    return 2


def _removed_folder_note() -> list[str]:
    """Return a line that the current folder was removed, if it was: relative paths then lead nowhere."""
    note = "the current folder was removed, so that relative paths lead nowhere: change to another folder (cd)"
    with suppress(PermissionError):  # a folder above cannot be read
        try:
            os.getcwd()
        except FileNotFoundError:
            return [note]
    return []


def _abandon_stdout() -> None:
    """Redirect the interpreter's last flush of standard output to the null device."""
    if sys.stdout is not None:
        redirect_to_devnull(sys.stdout)
