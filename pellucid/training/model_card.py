"""The model card: a Markdown description of the model of a run."""

from pathlib import Path
from typing import Any

from pellucid.errors import quote
from pellucid.files import MAX_SETTINGS_SIZE, read_bytes
from pellucid.model.network import parameter_count
from pellucid.tasks.registry import configured_task
from pellucid.tasks.task import Task
from pellucid.training.loop import TrainingState
from pellucid.version import __version__


def build_model_card(session: TrainingState, log: list[dict[str, Any]]) -> str:
    """Return the model card of a run, from its configuration, vocabularies and log."""
    task = configured_task(session.config)
    best = max(
        (record for record in log if record["event"] == "validated" and record["best"]),
        key=lambda record: record["update"],
        default=None,
    )
    return "\n".join(
        [
            "# A Pellucid model",
            "",
            *_about(session, log),
            "",
            "## Scores on the development data",
            "",
            *(_scores(best, len(session.development), task) if best else ["No validation was made."]),
            "",
            "## What it cannot know",
            "",
            "It has seen only the symbols in `vocabulary.json`; others are read as unknown. Its attention shows where",
            "it looked, not why it decided. Scores hold for data like the development data and for no other.",
            "",
            "## Use",
            "",
            "`pellucid predict DIR FILE`, or `pellucid.load(DIR).predict([...])`, where DIR is this folder.",
            f"Every setting stands in `config.toml`. Written by Pellucid {__version__}.",
            "",
        ]
    )


def is_damaged_card(path: Path, written: str) -> bool:
    """Return whether a card is damaged: no text, cut short, or with other characters in the place of some.

    A person may have changed a card, which is kept then.

    Args:
        path: The card's file.
        written: The card as it is written for the run.

    Raises:
        RunError: It is no regular file, or cannot be read.
    """
    try:
        found = read_bytes(path, limit=MAX_SETTINGS_SIZE).decode("utf-8")
    except UnicodeDecodeError:
        return True
    return "\0" in found or (found != written and (len(found) == len(written) or written.startswith(found)))


def _about(session: TrainingState, log: list[dict[str, Any]]) -> list[str]:
    """Return sizes and data."""
    config, vocabularies, progress = session.config, session.transducer.vocabularies, session.progress
    made = next((record["made"] for record in log if record["event"] == "augmented"), 0)
    beside = f", {made:,} of them made up" if made else ""
    return [
        f"{configured_task(config).describe_architecture(config)}. "
        f"{parameter_count(session.transducer.network):,} parameters.",
        "",
        f"* Trained on {session.training.source.num_sequences:,} examples{beside}: {progress.samples:,} samples in "
        f"{progress.update:,} updates, {progress.seconds:,.0f} seconds, seed {config.seed}.",
        f"* Stopped because {progress.finished}." if progress.finished else "* Training was interrupted.",
        f"* Source: {len(vocabularies.source.symbols)} symbols ({quote(config.data.source_symbols)}), "
        f"longest {vocabularies.longest_source}.",
        f"* Target: {len(vocabularies.target.symbols)} symbols ({quote(config.data.target_symbols)}), "
        f"longest {vocabularies.longest_target}.",
    ]


def _scores(best: dict[str, Any], examples: int, task: Task) -> list[str]:
    """Return the best validation."""
    found = [f"{each.name} {best[each.key]:.2f} %" for each in task.metrics.validation_metrics if each.key in best]
    how = ""
    if task.settings.autoregressive:
        found[0] += f" (word error rate {100 - best['exact_match']:.2f} %)"
        how = ", by greedy decoding"
    lines = [*found, f"cross-entropy {best['loss']:.4f} a {task.labels.symbol}"]
    return [f"On {examples:,} examples{how}, at update {best['update']:,}:", "", *(f"* {line}" for line in lines)]
