"""pellucid predict DIR [DIR ...] [FILE|-] [--format text|tsv|jsonl]"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import tyro

from pellucid.cli.sources import Item, Notes, apart, chunks, escaped, refused, say
from pellucid.config import Device, Format, SearchConfig
from pellucid.data.examples import BadLine, Example, parse_sources, read_sources
from pellucid.errors import ConfigError, DataError
from pellucid.search.trace import Trace

if TYPE_CHECKING:
    from pellucid.search.sampling import Drawing
    from pellucid.search.transducer import Transducer

Kind = Literal["text", "tsv", "jsonl"]
Answer = Callable[[list[Example], int], list[list[Trace]]]
"""The outputs of examples, the first of which has that number, from 0, among the sources of the input."""


@dataclass(frozen=True)
class Arguments:
    """Decode sources with a trained model: one line out for every line in, empty lines included.

    Several outputs a line (--nbest, --until, --sample): text gives them on one line with tabs between, tsv a line each
    (input line, rank, probability, log-probability, output), jsonl a line with the list of their traces.
    """

    run: tyro.conf.Positional[Path]
    """Folder of a trained run."""
    more: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Folders of further runs, which write together with the first (an ensemble); then the sources: a file like the
    training file (the target column may be missing), or - for standard input."""
    format: Kind = "text"
    """text: the output alone; tsv: source, output, log-probability; jsonl: the whole trace with its attention."""
    input_format: Format = "auto"
    """Format of the input; auto goes by the file's name, then by the training file's."""
    beam: int | None = None
    """Hypotheses kept for each source at every step, instead of the run's search.beam_width; 1 is greedy."""
    nbest: int | None = None
    """Give so many outputs a line, likeliest first, with their shares of the probability of these outputs."""
    until: float | None = None
    """Give only as many of them (without --nbest: of as many as the beam is wide) as have this share together."""
    sample: int | None = None
    """Draw so many outputs a line at random."""
    temperature: float | None = None
    """For --sample: what ln p is divided by before drawing (1)."""
    top_k: int | None = None
    """For --sample: draw among so many likeliest symbols."""
    top_p: float | None = None
    """For --sample: draw among the fewest likeliest symbols that have this probability together."""
    seed: int | None = None
    """For --sample: seed of the draws (1)."""
    prefix: str = ""
    """A text that every output begins with."""
    forbid: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A symbol that no output holds; may be given again."""
    require: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A symbol that every output holds; may be given again."""
    lexicon: Path | None = None
    """File of pairs: its sources get its targets, and the model answers the others."""
    length_normalisation: Literal["none", "average", "gnmt"] | None = None
    """What ln p of an output is divided by to rank it, instead of the run's."""
    length_power: float | None = None
    """Exponent of gnmt, instead of the run's."""
    coverage_penalty: float | None = None
    """Weight of the penalty for source symbols not looked at, instead of the run's."""
    maximum_length: int | None = None
    """Longest output, in symbols, instead of the run's."""
    minimum_length: int | None = None
    """Shortest output, in symbols, instead of the run's."""
    maximum_ratio: float | None = None
    """Longest output in symbols for each source symbol, instead of the run's."""
    maximum_offset: int | None = None
    """Symbols added to what the maximum ratio allows, instead of the run's."""
    minimum_ratio: float | None = None
    """Shortest output in symbols for each source symbol, instead of the run's."""
    minimum_offset: int | None = None
    """Symbols added to what the minimum ratio asks, instead of the run's."""
    lattice: bool = False
    """Put everything that the beam considered into each trace (jsonl)."""
    on_bad_line: Literal["stop", "skip"] = "stop"
    """What an unreadable line does: stop, or give an empty output, counted and listed."""
    device: Device = "cpu"
    """What decodes: cpu, cuda (one GPU), or auto, which takes a GPU where there is one."""


def run(arguments: list[str]) -> int:
    """Decode, and say on standard error what a person should know of it."""
    given = tyro.cli(Arguments, prog="pellucid predict", args=arguments)
    # Only now, when the arguments are known to be right, what takes seconds to import.
    from pellucid.model.threads import use_threads
    from pellucid.training.run import load

    runs, file = apart(given.run, given.more)
    transducer = _asked(load(runs[0] if len(runs) == 1 else runs, given.device), given)
    use_threads(transducer.config.threads)
    answer, listing = _answer(transducer, given), _lists(given)
    teller, data = Notes(), transducer.config.data
    number = answered = 0  # lines, and the sources among them
    for chunk in chunks(file, data, given.input_format, (read_sources, parse_sources)):
        stop = refused(chunk) if given.on_bad_line == "stop" else None
        examples = [item for item in chunk[:stop] if isinstance(item, Example)]
        lists = iter(answer(examples, answered))
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
    return 0


def _lists(given: Arguments) -> bool:
    """Whether lists of outputs are asked for."""
    return (given.nbest, given.until, given.sample) != (None, None, None)


def _asked(transducer: "Transducer", given: Arguments) -> "Transducer":
    """The transducer with the settings and options of the command line."""
    from pellucid.search.lexicon import load_lexicon
    from pellucid.search.options import Options

    names = [field.name for field in msgspec.structs.fields(SearchConfig) if hasattr(given, field.name)]
    changes = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    if given.beam is not None:
        changes["beam_width"] = given.beam
    if changes:
        transducer = transducer.with_search(msgspec.structs.replace(transducer.config.search, **changes))
    lexicon = None
    if given.lexicon:
        data = msgspec.structs.replace(transducer.config.data, on_bad_line=given.on_bad_line)
        lexicon = load_lexicon(given.lexicon, data)
        for line in lexicon.bad:
            say(f"skipped {line}")
    return transducer.with_options(Options(given.prefix, given.forbid, given.require, lexicon, given.lattice))


def _answer(transducer: "Transducer", given: Arguments) -> Answer:
    """What is asked of each source: the best output, the best few, or samples; `ConfigError` for what contradicts."""
    drawing = _drawing(given)
    if drawing is not None:
        return lambda examples, first: transducer.samples(examples, drawing, first)
    width = transducer.config.search.beam_width
    if not _lists(given):
        return lambda examples, first: [[trace] for trace in transducer.trace(examples)]
    if given.nbest is None and width == 1:
        raise ConfigError("--until shares out the probability of several outputs: it needs --nbest, or a wider --beam")
    count, until = given.nbest if given.nbest is not None else width, given.until if given.until is not None else 1.0
    return lambda examples, first: transducer.hypotheses(examples, count, until)


def _drawing(given: Arguments) -> "Drawing | None":
    """How samples are drawn, if any are; `ConfigError` for values out of range, and flags that need --sample."""
    from pellucid.search.sampling import Drawing

    asked = {name: getattr(given, name) for name in ("temperature", "top_k", "top_p", "seed")}
    changes = {name: value for name, value in asked.items() if value is not None}
    if given.sample is None:
        if changes:
            raise ConfigError(f"--{next(iter(changes)).replace('_', '-')} needs --sample")
        return None
    if given.nbest is not None or given.until is not None:
        raise ConfigError("--sample draws outputs, --nbest and --until search for them: give one of them")
    try:
        return msgspec.convert({"samples": given.sample, **changes}, Drawing)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        raise ConfigError(f"--{where.rstrip('`').replace('samples', 'sample').replace('_', '-')}: {what}") from error


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
            return msgspec.json.encode(trace.to_dict()).decode()


def _listed(traces: Sequence[Trace], item: Item, kind: Kind, number: int) -> list[str]:
    """The output lines of one input line, several outputs asked for; an unreadable one has a line of rank 0."""
    match kind:
        case "text":
            return ["\t".join(escaped(trace.output) for trace in traces)]
        case "tsv":
            return [_row(trace, number) for trace in traces] or [f"{number}\t0\t\t\t"]
        case "jsonl":
            lists = [trace.to_dict() for trace in traces]
            return [msgspec.json.encode(lists).decode() if traces else _error(item)]


def _row(trace: Trace, number: int) -> str:
    """One output of several as TSV; the probability is its share of the list, of a sample p itself."""
    probability = trace.probability if trace.probability is not None else exp(trace.score)
    return f"{number}\t{trace.rank}\t{probability:.6f}\t{trace.score:.6f}\t{escaped(trace.output)}"


def _error(item: Item) -> str:
    """Why there is no output, as JSON."""
    assert isinstance(item, BadLine)
    return msgspec.json.encode({"output": None, "error": str(item)}).decode()
