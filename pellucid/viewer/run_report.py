"""A trained run judged on examples: decoded, scored, and laid out as a report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.data.examples import Example
from pellucid.evaluation.answers import score
from pellucid.evaluation.intervals import Interval
from pellucid.evaluation.metrics import Evaluation, Scored, evaluate, worst
from pellucid.model.network import parameter_count
from pellucid.model.threads import use_threads
from pellucid.search.predictor import Predictor
from pellucid.search.trace import Trace
from pellucid.tasks.registry import task_of
from pellucid.toml import to_toml
from pellucid.training.run import read_log
from pellucid.viewer.report import Report
from pellucid.viewer.report_examples import ExampleOutput

EXAMPLES = 6
MISTAKES = 25


class Judgement(NamedTuple):
    """What came out, and what it is worth."""

    transducer: Predictor
    traces: list[Trace]
    references: list[tuple[str, ...]]
    scored: list[Scored]
    evaluation: Evaluation


def judge(transducer: Predictor, examples: Sequence[Example]) -> Judgement:
    """Decode examples with a trained model and score them, each against its own target."""
    use_threads(transducer.config.threads)
    traces = transducer.trace(examples)
    references: list[tuple[str, ...]] = [(example.target,) for example in examples]
    scored = score(traces, references, transducer.segmenters)
    return Judgement(transducer, traces, references, scored, evaluate(scored))


def report_on(folder: Path, judgement: Judgement, title: str, introduction: str) -> Report:
    """The report of a run and its judgement: numbers, curves, attention, mistakes, settings."""
    log = read_log(folder)
    wrong = worst(judgement.scored, MISTAKES)
    mistaken = wrong[:2]
    right = [at for at, scored in enumerate(judgement.scored) if scored.exact][: EXAMPLES - len(mistaken)]
    parts = [f"the first {len(right)} right outputs"] if right else []
    parts += ["the worst mistake" if len(mistaken) == 1 else "the two worst mistakes"] if mistaken else []
    drawn = f"Drawn below: {' and '.join(parts)}."
    stopped = [record for record in log if record["event"] == "stopped"]
    return Report(
        title=title,
        introduction=f"{introduction}\n\n{drawn}",
        summary=_summary(judgement, stopped[-1] if stopped else None),
        log=log,
        followed=task_of(judgement.transducer.config).metrics.followed,
        positions=judgement.evaluation.positions,
        lengths=judgement.evaluation.lengths,
        examples=[_output(judgement, at) for at in right + mistaken],
        mistakes=[_output(judgement, at) for at in wrong],
        config_toml=to_toml(judgement.transducer.config),
    )


def _output(judgement: Judgement, at: int) -> ExampleOutput:
    """Return one output with its references."""
    unscored = judgement.transducer.segmenters.target.unscored
    return ExampleOutput(judgement.traces[at], judgement.references[at], judgement.scored[at], unscored=unscored)


def _summary(judgement: Judgement, stopped: dict[str, Any] | None) -> list[tuple[str, str]]:
    """The numbers that matter most."""
    evaluation, config = judgement.evaluation, judgement.transducer.config
    rows = [
        ("exact match", _with_interval(evaluation.exact_match, evaluation.exact_match_ci95)),
        ("symbol error rate", _with_interval(evaluation.symbol_error_rate, evaluation.symbol_error_rate_ci95)),
        ("symbol accuracy", f"{evaluation.symbol_accuracy:.3f} % (by position, the end included)"),
        ("examples", f"{evaluation.examples:,}"),
        ("parameters", f"{parameter_count(judgement.transducer.network):,}"),
        ("seed", f"{config.seed}"),
    ]
    if stopped:
        rows.append(("training", f"{stopped['seconds']:,.0f} s ({stopped['samples']:,} samples)"))
    return rows


def _with_interval(value: float, interval: Interval) -> str:
    """A percentage and its 95 % interval."""
    return f"{value:.2f} % (95 %: {interval.low:.2f} to {interval.high:.2f})"
