"""pellucid score DIR [DIR ...] [FILE|-] [--format text|tsv|jsonl]"""

import sys
from dataclasses import dataclass
from typing import Literal, TypeGuard

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.search_flags import MoreRuns, RunFolder
from pellucid.cli.sources import DecodingNotes, InputLine, escape_text, first_bad_line, read_chunks, split_paths
from pellucid.config.settings import Device, Format, Header
from pellucid.data.examples import Example, Input, parse_pairs, read_pairs
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import encode_json
from pellucid.errors import DataError

ScoreFormat = Literal["text", "tsv", "jsonl"]


@dataclass(frozen=True)
class ScoreArguments:
    """Tell how probable given outputs are: one line out for every pair in, empty fields for blank ones."""

    run: RunFolder
    """Folder of a trained run."""
    more: MoreRuns = ()
    """Folders of further runs, which score together with the first (an ensemble); then the pairs: a file like the
    training file, or - (or nothing) for standard input."""
    format: ScoreFormat = "text"
    """text: ln p of the target; tsv: source, target, ln p, ln p of each symbol and the end; jsonl: the trace."""
    input_format: Format = "auto"
    """Format of the input; auto goes by the file's name, then by the training file's."""
    on_bad_line: Literal["stop", "skip"] = "stop"
    """What a malformed line does: stop, or give an empty output, counted and listed."""
    header: Header = "auto"
    """Whether the first line of the input names the columns (--header, --no-header); auto: as in the training file."""
    device: Device = "cpu"
    """What scores: cpu, cuda (one GPU), or auto, which takes a GPU where there is one."""


def main(arguments: list[str]) -> int:
    """Score, and say on standard error what a person should know of it."""
    given = parse_arguments(ScoreArguments, "score", arguments)
    # Only now, when the arguments are known to be right, what takes seconds to import.
    from pellucid.model.device import use_threads
    from pellucid.training.run_folder import load

    runs, file = split_paths(given.run, given.more, "score")
    transducer = load(runs[0] if len(runs) == 1 else runs, given.device)
    use_threads(transducer.config.threads)
    teller, data = DecodingNotes(), transducer.config.data
    known = Input(given.input_format, given.header, transducer.vocabularies.columns)
    for chunk in read_chunks(file, data, known, (read_pairs, parse_pairs)):
        stop = first_bad_line(chunk) if given.on_bad_line == "stop" else None
        traces = iter(transducer.force([item for item in chunk[:stop] if _is_pair(item)]))
        for item in chunk[:stop]:
            trace = next(traces) if _is_pair(item) else None
            teller.note(item, trace)
            sys.stdout.write(_format_score(trace, item, given.format) + "\n")
        sys.stdout.flush()
        if stop is not None:
            raise DataError(f"{chunk[stop]} (--on-bad-line skip gives such lines an empty output)")
    teller.tell(bool(data.features_column))
    return 0


def _is_pair(item: InputLine) -> TypeGuard[Example]:
    """Whether there is something to score: neither an unreadable line nor a blank one."""
    return isinstance(item, Example) and bool(item.source)


def _format_score(trace: Trace | None, item: InputLine, kind: ScoreFormat) -> str:
    """One output line; empty where nothing was scored, or the reason as JSON."""
    if trace is None:
        error = {} if isinstance(item, Example) else {"error": str(item)}
        nothing = encode_json({"output": None, **error}).decode()
        return {"text": "", "tsv": "\t\t\t", "jsonl": nothing}[kind]
    match kind:
        case "text":
            return f"{trace.score:.6f}"
        case "tsv":
            each = " ".join(f"{value:.6f}" for value in trace.log_probabilities)
            return "\t".join([escape_text(trace.text), escape_text(trace.output), f"{trace.score:.6f}", each])
        case "jsonl":
            return trace.to_json()
