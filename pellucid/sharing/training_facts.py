"""Facts of a training for the model card: from the log of its run, or from the manifest of a shared folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pellucid.config.settings import Config
from pellucid.decoding.confidence import ConfidenceModel
from pellucid.evaluation.metrics import wilson_interval
from pellucid.files import file_exists
from pellucid.run_folder.log import RunLog, load_run_log
from pellucid.run_folder.run_files import ENSEMBLE, LOG, member_folders
from pellucid.run_folder.unfinished_training import find_unfinished
from pellucid.sharing.manifest import MANIFEST, ScoreFact, TrainingFacts, read_manifest
from pellucid.tasks.registry import get_task


def gather_facts(run: Path, config: Config) -> TrainingFacts:
    """Return the facts of the training of a run, or of the first member of an ensemble.

    The validation scores of one member are not those of an ensemble, and are left out.

    Args:
        run: Run folder, folder of an ensemble, or shared folder.
        config: Configuration of the run, or of the first member.

    Raises:
        RunError: The log or the manifest cannot be read.
    """
    first = member_folders(run)[0]
    if file_exists(first / LOG):
        known = _facts_of_log(load_run_log(first), config, file_exists(run / ENSEMBLE))
        return TrainingFacts(**known, finished=not find_unfinished(run))
    return read_manifest(run).facts if file_exists(run / MANIFEST) else TrainingFacts()


def _facts_of_log(log: RunLog, config: Config, is_ensemble: bool) -> dict[str, Any]:
    """Return the facts in a log, by the names of the fields."""
    read, started = log.all("read"), log.first("started") or {}
    augmented, fitted = log.first("augmented") or {}, log.first("confidence") or {}
    facts = {
        "training_examples": read[0]["examples"] if read else None,
        "validation_examples": read[1]["examples"] if len(read) > 1 else None,
        "shared_examples": log.num_shared_examples,
        "synthetic_examples": augmented.get("made", 0),
        "date": str(started.get("time", ""))[:10],
        "versions": str(started.get("versions", ""))[:500],
    }
    if is_ensemble:
        return facts
    best = log.last_best or {}
    return {
        **facts,
        "updates": best.get("update"),
        "scores": _scores(best, facts["validation_examples"], config),
        "probability_error": fitted.get("probability_error"),
        "confidence_error": fitted.get("confidence_error"),
    }


def _scores(best: Mapping[str, Any], num_examples: int | None, config: Config) -> tuple[ScoreFact, ...]:
    """Return the scores of the best validation; the share of correct outputs has an interval."""
    facts = []
    for metric in get_task(config.task).metrics.validation_metrics:
        if metric.key in best:
            value = best[metric.key]
            if metric.key == "exact_match" and num_examples:
                num_correct = round(value * num_examples / 100)
                facts.append(accuracy_fact(metric.key, metric.name, num_correct, num_examples))
            else:
                facts.append(ScoreFact(metric.key, metric.name, round(value, 4)))
    return tuple(facts)


def accuracy_fact(key: str, name: str, num_correct: int, total: int) -> ScoreFact:
    """Return the percentage of correct outputs with its Wilson interval.

    Args:
        key: Key of the score.
        name: Display name.
        num_correct: Number of correct outputs.
        total: Number of outputs, at least 1.
    """
    low, high = wilson_interval(num_correct, total).percent
    return ScoreFact(key, name, round(100 * num_correct / total, 4), round(low, 4), round(high, 4))


def accuracy_of_confidence(model: ConfidenceModel, config: Config) -> ScoreFact:
    """Return the share of correct validation outputs to which a confidence was fitted.

    These are outputs of the search of the run, with its pair n-gram model and of all members of an ensemble.

    Args:
        model: Fitted confidence.
        config: Configuration of the run.
    """
    name = get_task(config.task).metrics.exact_match_name
    return accuracy_fact("exact_match", name, model.num_examples - len(model.wrong_confidences), model.num_examples)
