"""Results of a search as files and texts: the best configuration, all trials, a report."""

from collections.abc import Sequence
from pathlib import Path

from pellucid.config.settings import Config, MetricName
from pellucid.config.toml import to_toml
from pellucid.config.training_types import format_metric, metric_sign
from pellucid.files import write_json, write_text
from pellucid.tuning.study import EndedTrial, StudyResults
from pellucid.viewer.report_schema import ReportTable
from pellucid.viewer.reports import Report, write_report

INTRODUCTION = """\
Each trial trains with its own settings; its score is that of its best validation. A difference of a point or two
between the first trials may be chance. The score of the best trial on the validation set is biased, because the same
set selected the trial. Evaluate it on a test set that neither training nor search has used."""


def write_results(folder: Path, metric: MetricName, results: StudyResults, best: Config | None) -> None:
    """Write trials.json and report.html; write best.toml if a trial has finished.

    Args:
        folder: Folder of the search.
        metric: Metric by which trials are ranked.
        results: Results of the study.
        best: Configuration of the best finished trial; None if no trial has finished.

    Raises:
        RunError: A file cannot be written.
    """
    ended, weights = results.ended, results.importances
    trials = [trial._asdict() for trial in rank_trials(ended, metric)]
    write_json(folder / "trials.json", {"metric": metric, "importances": weights, "trials": trials})
    if best is not None:
        write_text(folder / "best.toml", to_toml(best))
    summary = [(name, str(sum(trial.state == name for trial in ended))) for name in ("finished", "pruned", "failed")]
    heads = ["trial", "state", metric.replace("_", " "), "seconds", *searched_keys(ended)]
    parts = [
        ReportTable(
            "Trials",
            "Finished trials, the best first; then pruned and failed ones.",
            heads,
            trial_rows(ended, metric),
        )
    ]
    if weights:
        caption = "Importance of each setting for the best trials (PED-ANOVA); the shares sum to 100 %."
        shares = [(key, f"{100 * weight:.0f} %") for key, weight in weights.items()]
        parts.append(ReportTable("Importance of settings", caption, ["setting", "share"], shares))
    config = to_toml(best) if best is not None else ""
    page = Report("Hyperparameter search", INTRODUCTION, summary=summary, parts=parts, config_toml=config)
    write_report(folder / "report.html", page)


def rank_trials(ended: Sequence[EndedTrial], metric: MetricName) -> list[EndedTrial]:
    """Return finished trials, then pruned ones, then failed ones; in each group the best score first, then by number.

    A missing score counts as 0.

    Args:
        ended: Ended trials.
        metric: Metric of the scores, which says whether greater ones are better.
    """
    sign = -metric_sign(metric)
    order = ("finished", "pruned", "failed")
    return sorted(ended, key=lambda trial: (order.index(trial.state), sign * (trial.score or 0.0), trial.number))


def searched_keys(ended: Sequence[EndedTrial]) -> list[str]:
    """Return the full keys of the searched settings that occur in any trial, such as "training.learning_rate".

    Args:
        ended: Ended trials; without any there are no keys.
    """
    return list(dict.fromkeys(key for trial in ended for key in trial.values))


def trial_rows(ended: Sequence[EndedTrial], metric: MetricName) -> list[list[str]]:
    """Return a table row per trial: number, state with its reason, score, seconds of training, and all values.

    Args:
        ended: Ended trials.
        metric: Metric of the scores.

    Returns:
        Rows of texts in the order of `rank_trials`; the values are in the order of `searched_keys`.
    """
    return [
        [
            str(trial.number),
            f"{trial.state}: {trial.reason}" if trial.reason else trial.state,
            format_score(trial.score, metric),
            f"{trial.seconds:,.0f}",
            *(
                f"{value:g}" if isinstance(value := trial.values.get(key, ""), float) else str(value)
                for key in searched_keys(ended)
            ),
        ]
        for trial in rank_trials(ended, metric)
    ]


def format_score(score: float | None, metric: MetricName) -> str:
    """Return a score as text: a rate with two decimals and " %", a loss with three decimals.

    Args:
        score: The score; None is shown as "-".
        metric: Metric of the score.
    """
    if score is None:
        return "-"
    return format_metric(metric, score)
