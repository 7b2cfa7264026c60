"""pellucid predict DIR [DIR ...] [FILE|-] [--format text|tsv|jsonl]"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from pellucid.cli.arguments import parsed
from pellucid.cli.search_flags import (
    More,
    Place,
    Real,
    Run,
    SearchFlags,
    check_list,
    drawing_of,
    lexicon_of,
    with_settings,
)
from pellucid.cli.sources import Item, Notes, Prefixes, apart, chunks, escaped, refused
from pellucid.config.settings import Device, Format
from pellucid.data.examples import BadLine, Example, Input, parse_sources, read_sources
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import encode_json
from pellucid.errors import ConfigError, DataError

if TYPE_CHECKING:
    from pellucid.decoding.predictor import Predictor

Kind = Literal["text", "tsv", "jsonl"]
Symbols = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="SYMBOL")]
Answer = Callable[[list[Example], int, list[str] | None], list[list[Trace]]]
"""The outputs of examples, of which the first has that number, from 0, among those of the input; with prefixes."""


@dataclass(frozen=True)
class Arguments(SearchFlags):
    """Decode sources with a trained model: one line out for every line in, empty lines included.

    Several outputs a line (--nbest, --until, --sample): text gives them on one line with tabs between, tsv a line each
    (input line, rank, probability, log-probability, output), jsonl a line with the list of their traces.
    """

    run: Run
    """Folder of a trained run."""
    more: More = ()
    """Folders of further runs, which write together with the first (an ensemble); then the sources: a file like the
    training file (the target column may be missing), or - (or nothing) for standard input."""
    format: Kind = "text"
    """text: the output alone; tsv: source, output, log-probability; jsonl: the whole trace with its attention."""
    input_format: Format = "auto"
    """Format of the input; auto goes by the file's name, then by the training file's."""
    until: Real = None
    """Give the likeliest outputs until their shares of the probability of the list sum to this (above 0, at most 1)."""
    prefix: Annotated[str, tyro.conf.arg(metavar="TEXT")] = ""
    """A text that every output begins with."""
    prefixes: Place = None
    """A file with a line for each line of input: what its output begins with (an empty line: anything)."""
    forbid: Symbols = ()
    """A symbol that no output holds; may be given again."""
    require: Symbols = ()
    """A symbol that every output holds; may be given again. The beam gets a place for each number of them held."""
    lattice: bool = False
    """Put everything that the beam considered into each trace (jsonl)."""
    device: Device = "cpu"
    """What decodes: cpu, cuda (one GPU), or auto, which takes a GPU where there is one."""


def run(arguments: list[str]) -> int:
    """Decode, and say on standard error what a person should know of it."""
    given = parsed(Arguments, "predict", arguments)
    # Only now, when the arguments are known to be right, what takes seconds to import.
    from pellucid.model.device import use_threads
    from pellucid.training.run_folder import load

    runs, file = apart(given.run, given.more, "predict")
    transducer = _asked(load(runs[0] if len(runs) == 1 else runs, given.device), given)
    use_threads(transducer.config.threads)
    answer, listing = _answer(transducer, given), _lists(given)
    prefixes = None if given.prefixes is None else Prefixes(given.prefixes, transducer)
    teller, data = Notes(given.require), transducer.config.data
    number = answered = 0  # lines, and the sources among them
    most = given.nbest or given.sample or transducer.config.search.beam_size
    known = Input(given.input_format, given.header, transducer.vocabularies.columns)
    held = most if listing or given.lattice else 1
    for chunk in chunks(file, data, known, (read_sources, parse_sources), held):
        stop = refused(chunk) if given.on_bad_line == "stop" else None
        examples = [item for item in chunk[:stop] if isinstance(item, Example)]
        lists = iter(answer(examples, answered, None if prefixes is None else _begun(chunk[:stop], prefixes)))
        answered += len(examples)
        for item in chunk[:stop]:
            traces = next(lists) if isinstance(item, Example) else []
            number += 1
            teller.note(item, traces[0] if traces else None)
            lines = _listed(traces, item, given.format, number) if listing else [_line(traces, item, given.format)]
            sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        if stop is not None:
            raise DataError(f"{chunk[stop]} (--on-bad-line skip gives such lines an empty output)")
    teller.tell(bool(data.features_column))
    if prefixes is not None:
        prefixes.end()
    return 0


def _begun(items: Sequence[Item], prefixes: Prefixes) -> list[str]:
    """The prefixes of those items that are answered."""
    pairs = zip(items, prefixes.take(len(items)), strict=True)
    return [prefix for item, prefix in pairs if isinstance(item, Example)]


def _lists(given: Arguments) -> bool:
    """Whether lists of outputs are asked for."""
    return (given.nbest, given.until, given.sample) != (None, None, None)


def _asked(transducer: "Predictor", given: Arguments) -> "Predictor":
    """The transducer with the settings and options of the command line."""
    from pellucid.decoding.options import Options

    transducer = with_settings(transducer, given)
    lexicon = lexicon_of(transducer, given)
    return transducer.with_options(Options(given.prefix, given.forbid, given.require, lexicon, given.lattice))


def _answer(transducer: "Predictor", given: Arguments) -> Answer:
    """What is asked of each source: the best output, the best few, or samples; `ConfigError` for what contradicts."""
    drawing = drawing_of(given)
    _check(given)
    if given.lattice and (given.format != "jsonl" or drawing is not None):
        raise ConfigError(
            "--lattice puts what a beam considered into traces: it needs --format jsonl, without --sample"
        )
    if drawing is not None:
        return lambda examples, first, begun: transducer.samples(examples, drawing, first, begun)
    width = transducer.config.search.beam_size
    if not _lists(given):
        return lambda examples, first, begun: [[trace] for trace in transducer.trace(examples, begun)]
    if given.nbest is None and width == 1:
        raise ConfigError(
            "--until shares out the probability of several outputs: it needs --nbest, or a wider --beam-size"
        )
    count, until = given.nbest if given.nbest is not None else width, given.until if given.until is not None else 1.0
    return lambda examples, first, begun: transducer.hypotheses(examples, count, until, begun)


def _check(given: Arguments) -> None:
    """`ConfigError` for numbers that cannot be, and for two kinds of prefix."""
    check_list(given)
    if given.until is not None and not 0 < given.until <= 1:
        raise ConfigError(f"--until: expected a share above 0 and at most 1, got {given.until}")
    if given.prefix and given.prefixes is not None:
        raise ConfigError("--prefix is for all sources, --prefixes for each: give one of them")


def _line(traces: Sequence[Trace], item: Item, kind: Kind) -> str:
    """The output line of one input line; of an unreadable one it is empty, or the reason as JSON."""
    if not traces:
        return _error(item) if kind == "jsonl" else "" if kind == "text" else "\t\t"
    trace = traces[0]
    match kind:
        case "text":
            return escaped(trace.output, tabs=False)
        case "tsv":
            return "\t".join([escaped(trace.text), escaped(trace.output), f"{trace.score:.6f}"])
        case "jsonl":
            return trace.to_json()


def _listed(traces: Sequence[Trace], item: Item, kind: Kind, number: int) -> list[str]:
    """The output lines of one input line, several outputs asked for; an unreadable one has a line of rank 0."""
    match kind:
        case "text":
            return ["\t".join(escaped(trace.output) for trace in traces)]
        case "tsv":
            return [_row(trace, number) for trace in traces] or [f"{number}\t0\t\t\t"]
        case "jsonl":
            return [f"[{','.join(trace.to_json() for trace in traces)}]" if traces else _error(item)]


def _row(trace: Trace, number: int) -> str:
    """One output of several as TSV; the probability is its share of the list, of a sample p itself."""
    probability = trace.probability if trace.probability is not None else exp(trace.score)
    return f"{number}\t{trace.rank}\t{probability:.6f}\t{trace.score:.6f}\t{escaped(trace.output)}"


def _error(item: Item) -> str:
    """Why there is no output, as JSON."""
    assert isinstance(item, BadLine)
    return encode_json({"output": None, "error": str(item)}).decode()
