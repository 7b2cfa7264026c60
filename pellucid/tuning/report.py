"""What came of a search: a configuration to train with, all trials as JSON, and a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.config.settings import Config, Metric
from pellucid.config.toml import to_toml
from pellucid.files import write_json, write_text
from pellucid.viewer.report_schema import ReportTable
from pellucid.viewer.reports import Report, write_report

if TYPE_CHECKING:
    from pellucid.tuning.study import Ended, Study

UNITS = {"exact_match": " %", "symbol_error_rate": " %", "symbol_accuracy": " %", "loss": ""}
INTRODUCTION = """Each trial trained with settings of its own and was judged on the development pairs by its best
validation. A difference of a point or two between the first trials may be chance: the best of many is the luckiest too,
and the development pairs that chose it say too much good of it. Judge it on pairs that neither training nor search has
seen."""


def write_results(folder: Path, metric: Metric, study: "Study", best: Config | None) -> None:
    """Write trials.json, report.html, and best.toml where a trial has finished."""
    ended, weights = study.ended(), study.importances()
    trials = [trial._asdict() for trial in ranked(ended, metric)]
    write_json(folder / "trials.json", {"metric": metric, "importances": weights, "trials": trials})
    if best is not None:
        write_text(folder / "best.toml", to_toml(best))
    summary = [(name, str(sum(trial.state == name for trial in ended))) for name in ("finished", "pruned", "failed")]
    heads = ["trial", "state", metric.replace("_", " "), "seconds", *names(ended)]
    parts = [
        ReportTable(
            "Trials", "The best first; then those that were pruned, and those that failed.", heads, rows(ended, metric)
        )
    ]
    if weights:
        caption = "How much each decides whether a trial is among the best (PED-ANOVA); the shares sum to 100 %."
        shares = [(key, f"{100 * weight:.0f} %") for key, weight in weights.items()]
        parts.append(ReportTable("Settings that matter", caption, ["setting", "share"], shares))
    config = to_toml(best) if best is not None else ""
    page = Report("Trials of a search", INTRODUCTION, summary=summary, parts=parts, config_toml=config)
    write_report(folder / "report.html", page)


def ranked(ended: Sequence["Ended"], metric: Metric) -> list["Ended"]:
    """Finished trials, the best first; then pruned ones; then failed ones."""
    sign = -1.0 if metric in ("exact_match", "symbol_accuracy") else 1.0
    order = ("finished", "pruned", "failed")
    return sorted(ended, key=lambda trial: (order.index(trial.state), sign * (trial.score or 0.0), trial.number))


def names(ended: Sequence["Ended"]) -> list[str]:
    """The settings that were searched."""
    return list(dict.fromkeys(key for trial in ended for key in trial.values))


def rows(ended: Sequence["Ended"], metric: Metric) -> list[list[str]]:
    """One row a trial: number, state, score, seconds and every value."""
    return [
        [
            str(trial.number),
            f"{trial.state}: {trial.why}" if trial.why else trial.state,
            shown_score(trial.score, metric),
            f"{trial.seconds:,.0f}",
            *(
                f"{value:g}" if isinstance(value := trial.values.get(key, ""), float) else str(value)
                for key in names(ended)
            ),
        ]
        for trial in ranked(ended, metric)
    ]


def shown_score(score: float | None, metric: Metric) -> str:
    """A score with its unit."""
    if score is None:
        return "-"
    return f"{score:.3f}" if metric == "loss" else f"{score:.2f}{UNITS[metric]}"
