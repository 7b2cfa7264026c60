"""Records of a training in its log."""

import time
from collections.abc import Sequence
from typing import Any

import torch

from pellucid.data.readers import BadLine
from pellucid.errors import count_noun, quote
from pellucid.run_folder.environment import describe_environment
from pellucid.run_folder.identity import find_versions, format_versions
from pellucid.run_folder.log import MAX_RECORD_SIZE, RunLog
from pellucid.run_folder.progress import LOSS_WINDOW, Progress
from pellucid.training.events import (
    ConfidenceFitted,
    DataAugmented,
    Event,
    FileRead,
    ModelBuilt,
    NetworkInitialized,
    PairNgramFitted,
    PairNgramWeighted,
    PairsMixedIn,
    SizeChosen,
    TrainingStarted,
    TrainingStopped,
    UpdateCompleted,
    ValidationCompleted,
)
from pellucid.training.training_state import TrainingState

LoggedOnce = FileRead | DataAugmented | PairsMixedIn | NetworkInitialized
"""Events whose records a log has once, before the first update."""


def log_record(event: Event, fingerprint: str, state: TrainingState) -> dict[str, Any] | None:
    """Return the log record of an event; None for the end and for most updates, whose losses are averaged.

    The start of a training records its fingerprint, the hash of settings and data; the numbers that were derived from
    the data; the versions of Pellucid and of the packages of its extensions; and the environment.

    Args:
        event: Event of the training loop.
        fingerprint: Hash of the settings and the data.
        state: Training state.
    """
    fields = progress_fields(event.progress)
    match event:
        case TrainingStarted():
            start = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "fingerprint": fingerprint}
            start["versions"] = format_versions(find_versions(state.config, of_training=True))
            derived = {"epochs": event.max_epochs, "updates": event.max_updates, "batch_size": state.batch_size}
            gpu = torch.cuda.get_device_name() if state.config.device == "cuda" else ""
            environment = describe_environment(torch.get_num_threads(), gpu)
            workers = {} if state.workers is None else {"workers": state.workers.size}
            return {"event": "started", **fields, **derived, **start, **environment, **workers}
        case UpdateCompleted():
            if event.progress.update % LOSS_WINDOW:
                return None
            rates = {"learning_rate": event.learning_rate, "gradient_norm": event.gradient_norm}
            return {"event": "stepped", **fields, "loss": event.progress.training_loss, **rates}
        case ValidationCompleted():
            # Before the first update, where a fine-tuning validates, there is no training loss.
            loss = {"training_loss": event.progress.training_loss} if event.progress.update else {}
            number = {"validation": event.progress.validations}
            return {"event": "validated", **fields, **number, **event.metrics, **loss, "best": event.is_best}
        case TrainingStopped():
            return None


def progress_fields(progress: Progress) -> dict[str, Any]:
    """Return the progress fields of a log record.

    Args:
        progress: Progress of the training.
    """
    fields = {"update": progress.update, "samples": progress.samples, "epoch": progress.epoch}
    return {**fields, "seconds": round(progress.seconds, 3)}


def size_record(choice: SizeChosen | ModelBuilt) -> dict[str, Any]:
    """Return the log record of the choice of a size for a time limit, or of a default size.

    Args:
        choice: The choice for a time limit; or the network of a training with a default size.
    """
    if isinstance(choice, ModelBuilt):
        counts = {"pairs": choice.num_pairs, "held_out": choice.num_held_out, "batch_size": choice.batch_size}
        return {"event": "size_chosen", "size": choice.size, **counts, "reason": choice.default_size_reason}
    estimated_updates = {f"updates_{size}": updates for size, updates in choice.estimated_updates}
    facts = {"size": choice.size, "time_limit": choice.time_limit, "batch_size": choice.batch_size}
    return {"event": "size_chosen", **facts, **estimated_updates, "reason": choice.reason}


def log_record_before_training(event: LoggedOnce) -> dict[str, Any]:
    """Return the log record of an event before the first update, such as a data file with its bad lines.

    Args:
        event: Event before the first update.
    """
    if isinstance(event, NetworkInitialized):
        counts = {name: len(getattr(event, name)) for name in ("new_source", "new_target", "new_features")}
        if event.new_characters:
            counts["new_characters"] = len(event.new_characters)
        return {"event": "initialized", "run": str(event.run), "sha256": event.digest, **counts}
    if isinstance(event, PairsMixedIn):
        counts = {
            "examples": event.num_examples,
            "per_epoch": event.num_per_epoch,
            "new_examples": event.num_new_examples,
        }
        digest = {} if event.digest is None else {"sha256": event.digest.sha256}
        return {"event": "mixed_in", "path": str(event.path), **counts, "bad_lines": len(event.bad_lines), **digest}
    if isinstance(event, DataAugmented):
        return {"event": "augmented", "kind": event.kind, "examples": event.num_examples, "made": event.num_synthetic}
    fields = {
        "examples": event.num_examples,
        "blank_lines": event.num_blank_lines,
        "bad_lines": (described := _describe_bad_lines(event.bad_lines)),
    }
    if len(described) < len(event.bad_lines):
        fields["num_bad_lines"] = len(event.bad_lines)
    if event.num_shared:
        fields["shared"] = event.num_shared
    digest = {} if event.digest is None else dict[str, Any](event.digest._asdict())
    if event.target_digest is not None:
        digest |= {f"target_{key}": value for key, value in event.target_digest._asdict().items()}
    target = {"target": str(event.target)} if event.target else {}
    return {"event": "read", "path": str(event.path), **target, **digest, **fields}


def pair_ngram_record(event: PairNgramFitted) -> dict[str, Any]:
    """Return the log record of the fit of a pair n-gram model.

    Args:
        event: Event before the first update.
    """
    return {
        "event": "pair_ngram",
        "examples": event.num_examples,
        "exact_match": event.exact_match,
        "sources": event.num_sources,
    }


def weight_record(event: PairNgramWeighted) -> dict[str, Any]:
    """Return the log record of the weight of a pair n-gram model.

    Args:
        event: Event after the last validation.
    """
    return {
        "event": "interpolated",
        "weight": event.weight,
        "exact_match": event.exact_match,
        "network_exact_match": event.network_exact_match,
        "pair_ngram_exact_match": event.pair_ngram_exact_match,
        "sources": event.num_sources,
        "in_predictions": event.in_predictions,
    }


def confidence_record(event: ConfidenceFitted) -> dict[str, Any]:
    """Return the log record of the confidence of outputs.

    Args:
        event: Event at the end of the training.
    """
    return {
        "event": "confidence",
        "examples": event.num_examples,
        "exact_match": event.exact_match,
        "probability_error": event.probability_error,
        "confidence_error": event.confidence_error,
    }


def _describe_bad_lines(bad_lines: Sequence[BadLine]) -> list[str]:
    """Return the descriptions of the first bad lines, as many as fit into a line of the log."""
    described, size = list[str](), 0
    for line in bad_lines:
        text = str(line)
        size += 6 * len(text)  # a character takes at most six bytes in JSON
        if size > MAX_RECORD_SIZE // 2:
            break
        described.append(text)
    return described


def changed_files(log: RunLog, file_events: Sequence[FileRead]) -> list[str]:
    """Return a clause for each data file whose content differs from that in the log of a run.

    Args:
        log: Log of the run.
        file_events: Events of the training and the validation file.
    """
    changed = []
    for name, record, read in zip(("training", "validation"), log.all("read"), file_events, strict=False):
        digests = ((record.get("sha256"), read.digest), (record.get("target_sha256"), read.target_digest))
        if any(digest is not None and former not in (None, digest.sha256) for former, digest in digests):
            former = f"{quote(record['path'])} with {count_noun(record['examples'], 'example')} in the log of the run"
            changed.append(f"the {name} file differs: {former}, {read.path} with {read.num_examples:,} now")
            if record["examples"] == read.num_examples:
                changed[-1] += ", as many, but the content is another one (SHA-256)"
    return changed
