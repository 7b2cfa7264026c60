"""pellucid evaluate DIR FILE [--json]"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pellucid.config import DataConfig, Device, Format
from pellucid.data.examples import Example, has_known_name, read_examples
from pellucid.errors import InputError
from pellucid.evaluation.answers import merge_references, score
from pellucid.evaluation.metrics import Evaluation, Scored, evaluate, worst
from pellucid.look.visible import visible_text
from pellucid.search.trace import Trace


@dataclass(frozen=True)
class Arguments:
    """Score a trained model on pairs: exact match and symbol error rate with 95 % confidence intervals."""

    run: tyro.conf.Positional[Path]
    """Folder of a trained run."""
    file: tyro.conf.Positional[Path]
    """Pairs, in a file like the training file."""
    target: Path | None = None
    """The targets of FILE, line by line, where they are in a file of their own."""
    multi_reference: bool = False
    """Take lines with the same source as one example that may be answered by any of their targets."""
    worst: int = 10
    """How many of the worst examples to list."""
    json: bool = False
    """Print one JSON object instead of tables."""
    input_format: Format = "auto"
    """Format of FILE; auto goes by its name, then by the training file's."""
    beam: int | None = None
    """Hypotheses kept for each source at every step, instead of the run's search.beam_width; 1 is greedy."""
    on_bad_line: Literal["stop", "skip"] = "stop"
    """What a malformed line does: stop, or be skipped, counted and listed."""
    device: Device = "cpu"
    """What decodes: cpu, cuda (one GPU), or auto, which takes a GPU where there is one."""


def run(arguments: list[str]) -> int:
    """Decode, score, and print."""
    given = tyro.cli(Arguments, prog="pellucid evaluate", args=arguments)
    if given.worst < 0:
        raise InputError(f"--worst: expected 0 or more, got {given.worst}")
    # Only now, when the arguments are known to be right, what takes seconds to import.
    from pellucid.model.threads import use_threads
    from pellucid.training.run import load

    transducer = load(given.run, given.device)
    if given.beam is not None:
        transducer = transducer.with_beam(given.beam)
    use_threads(transducer.config.threads)
    data = _data_config(transducer.config.data, given)
    reading = read_examples(given.file, data, given.target)
    merged = merge_references(reading.examples) if given.multi_reference else _apart(reading.examples)
    began = time.perf_counter()
    traces = transducer.trace([example for example, _ in merged])
    seconds = time.perf_counter() - began
    scored = score(traces, [references for _, references in merged], transducer.segmenters)
    evaluation = evaluate(scored)
    mistakes = [_mistake(traces[at], scored[at], merged[at]) for at in worst(scored, given.worst)]
    counts = {
        "lines": len(reading.examples),
        "bad_lines": len(reading.bad),
        "blank_lines": reading.blank,
        "unknown_symbols": sum(len(trace.unknown) for trace in traces),
        "cut_outputs": sum(not trace.finished for trace in traces),
    }
    for line in reading.bad:
        print(f"pellucid: skipped {line}", file=sys.stderr)
    if given.json:
        report = {**evaluation.to_dict(), **counts, "seconds": seconds, "worst": mistakes}
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        _print(evaluation, counts, seconds, mistakes)
    return 0


def _data_config(trained: DataConfig, given: Arguments) -> DataConfig:
    """How FILE is read: as was asked, else as its name says, else as the training file was."""
    format = given.input_format
    if format == "auto" and not has_known_name(given.file):
        format = trained.format
    return msgspec.structs.replace(trained, on_bad_line=given.on_bad_line, format=format)


def _apart(examples: Sequence[Example]) -> list[tuple[Example, tuple[str, ...]]]:
    """Every line an example of its own; a source that stands on several lines with several targets is told of."""
    several = len({(e.source, e.features, e.target) for e in examples}) - len(
        {(e.source, e.features) for e in examples}
    )
    if several:
        print(
            f"pellucid: note: {several:,} further targets belong to sources that have one already; each line is scored "
            f"against its own target (--multi-reference accepts any of them)",
            file=sys.stderr,
        )
    return [(example, (example.target,)) for example in examples]


def _mistake(trace: Trace, scored: Scored, example: tuple[Example, tuple[str, ...]]) -> dict[str, Any]:
    """One wrong output, as plain values."""
    return {
        "source": trace.text,
        "features": example[0].features,
        "output": trace.output,
        "references": list(example[1]),
        "errors": scored.errors,
        "score": trace.score,
    }


class Tables(Console):
    """A console whose reader may go away, which ends the program as it ends every other."""

    def on_broken_pipe(self) -> None:
        """Pass it on; rich would leave with exit code 1."""
        raise BrokenPipeError


def _print(evaluation: Evaluation, counts: dict[str, int], seconds: float, mistakes: list[dict[str, Any]]) -> None:
    """Tables for people."""
    console = Tables(highlight=False)
    console.print(_summary(evaluation, counts, seconds))
    for title, accuracies in (("target position", evaluation.positions), ("source length", evaluation.lengths)):
        table = Table(title=f"accuracy by {title}", title_justify="left")
        for column in (title, "right", "of", "%", "95 % interval"):
            table.add_column(column, justify="right")
        for accuracy in accuracies:
            interval = f"{accuracy.low:.1f} to {accuracy.high:.1f}"
            counted = (f"{accuracy.right:,}", f"{accuracy.total:,}", f"{accuracy.percent:.1f}")
            table.add_row(accuracy.label, *counted, interval)
        console.print(table)
    if mistakes:
        table = Table("source", "output", "expected", "errors", "ln p", title="worst examples", title_justify="left")
        for row in mistakes:
            cells = [row["source"], row["output"], " | ".join(row["references"])]
            table.add_row(*(Text(visible_text(cell)) for cell in cells), str(row["errors"]), f"{row['score']:.2f}")
        console.print(table)


def _summary(evaluation: Evaluation, counts: dict[str, int], seconds: float) -> Table:
    """The scores."""
    table = Table(show_header=False, box=None)
    low, high = evaluation.exact_match_ci95
    table.add_row("exact match", f"{evaluation.exact_match:.2f} %", f"95 %: {low:.2f} to {high:.2f}")
    low, high = evaluation.wer_ci95
    table.add_row("word error rate", f"{evaluation.wer:.2f} %", f"95 %: {low:.2f} to {high:.2f}")
    low, high = evaluation.symbol_error_rate_ci95
    table.add_row("symbol error rate", f"{evaluation.symbol_error_rate:.2f} %", f"95 %: {low:.2f} to {high:.2f}")
    table.add_row("symbol accuracy", f"{evaluation.symbol_accuracy:.2f} %", "by position, the end included")
    table.add_row("examples", f"{evaluation.examples:,}", f"decoded in {seconds:.1f} s")
    for name, count in counts.items():
        if count and name != "lines":
            table.add_row(name.replace("_", " "), f"{count:,}", "")
    return table
