"""The command line: one module per subcommand.

Imports: bench, config, data, decoding, errors, evaluation, files, kernels, model, recipes, reporting, tasks,
    training, tuning, version, viewer, wording.
Start with: __init__.py.

Exit codes: 0 done, 1 nothing came of it (every trial of tune failed), 2 a mistake in what was given (one message, no
traceback), 130 interrupted, 141 nobody reads on. What cannot be written on standard error changes none of them.
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from importlib import import_module
from io import TextIOWrapper
from typing import TextIO, cast

from pellucid.cli.messages import abandon, optional, say, use_messages
from pellucid.errors import InputError, nearest, quote
from pellucid.files import reason
from pellucid.version import __version__

VERBS = {
    "train": "train a model on pairs of sequences, or go on with an unfinished training",
    "tune": "search the settings that suit the data best",
    "predict": "decode sources: one line out for every line in",
    "score": "tell how probable given outputs are: one line out for every pair in",
    "evaluate": "score a model on pairs, with confidence intervals",
    "look": "show where the model looked, in the terminal or as a picture",
    "bench": "measure speed and memory beside the least time the work can take",
    "recipe": "run a reference experiment from data to report",
}

USAGE = f"""usage: pellucid VERB ...

Recurrent encoder-decoders with attention, trained on your own pairs of sequences, and clear to see through.

{chr(10).join(f"  {verb:<10}{about}" for verb, about in VERBS.items())}

"pellucid VERB --help" tells a verb's arguments. Version {__version__}."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    # Threads of PyTorch's own that wait for each other spin by default: on a busy machine that triples the time.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    given = list(sys.argv[1:] if arguments is None else arguments)
    with redirect_stderr(None if sys.stderr is None else cast(TextIO, optional(sys.stderr))):
        code = _guarded(given)
        if sys.stderr is not None:
            sys.stderr.flush()
    return code


def _run(given: list[str]) -> int:
    """Help, the version, or one verb."""
    if not given or given[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if given else 2
    if given[0] in ("-V", "--version"):
        print(f"pellucid {__version__}")
        return 0
    if given[0] not in VERBS:
        raise InputError(f"there is no verb {quote(given[0])}{nearest(given[0], VERBS)} (pellucid --help lists them)")
    if sys.stdout is None and given[0] != "train":
        raise InputError("standard output is closed: there is nowhere to write")
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # A service may have closed it: what nobody reads goes nowhere.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (open to the process's end)
    use_messages()
    run: Callable[[list[str]], int] = import_module(f"pellucid.cli.{given[0]}").run
    return run(given[1:])


def _guarded(given: list[str]) -> int:
    """Run; every mistake of the user and every refusal of the system becomes one line and an exit code."""
    try:
        code = _run(given)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except InputError as error:
        return _complain(*map(str, error.args))
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130
    except BrokenPipeError:
        _abandon_stdout()
        return 141
    except MemoryError:
        return _complain("not enough memory; a smaller training.batch_size, search.batch_size or size needs less")
    except OSError as error:
        _abandon_stdout()
        where = f" {error.filename}" if error.filename else ""
        return _complain(f"the system refused{where}: {reason(error)}")
    except RuntimeError as error:
        if not any(words in str(error) for words in ("not enough memory", "can't allocate memory", "out of memory")):
            raise
        return _complain("not enough memory; a smaller training.batch_size, search.batch_size or size needs less")


def _complain(*lines: str) -> int:
    """Say what was wrong, on standard error; the exit code."""
    say(*lines)
    return 2


def _abandon_stdout() -> None:
    """Let the interpreter's last flush go nowhere."""
    if sys.stdout is not None:
        abandon(sys.stdout)
