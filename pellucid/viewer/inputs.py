"""Runs and example files of a page, and the selection of examples from a large file."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from os.path import isfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pellucid.config.settings import DataConfig, Device
from pellucid.config.toml import to_toml
from pellucid.data.examples import (
    BadLine,
    Example,
    describe_used_columns,
    is_header_unknown,
    read_examples,
    read_pairs,
    read_sources,
)
from pellucid.data.headers import header_note
from pellucid.decoding.predictor import Predictor
from pellucid.errors import DataError, InputError, RunError, quote
from pellucid.evaluation.metrics import ScoredExample, worst_examples
from pellucid.files import file_exists
from pellucid.model.network import parameter_count
from pellucid.tasks.registry import configured_task
from pellucid.tasks.task import Task
from pellucid.training.run_folder import (
    CONFIG,
    MODEL,
    has_stopped,
    load,
    load_run_config,
    log_damage,
    members,
    read_log,
)
from pellucid.viewer.examples import SourceMetadata, are_spelled_digits
from pellucid.viewer.schema import ModelCard


def select_examples(
    scored: Sequence[ScoredExample], max_examples: int, others: Sequence[Sequence[ScoredExample]] = ()
) -> tuple[list[int], str]:
    """Select the examples that the page shows.

    All examples are shown if there are at most `max_examples`. Otherwise, up to four fifths are examples that one run
    has right and another wrong, half of them right in the first run. The others are the worst errors, at most half,
    and correct examples sampled evenly from the file. Unused places are filled from the other groups.

    Args:
        scored: Scored outputs of the first run.
        max_examples: Maximum number of examples.
        others: Scored outputs of the compared runs.

    Returns:
        Indices of the selected examples in file order, and a description of the selection.
    """
    if len(scored) <= max_examples:
        return list(range(len(scored))), f"all {len(scored):,} examples"
    parted = [at for at, own in enumerate(scored) if any(other[at].exact != own.exact for other in others)]
    reserved = min(max_examples // 5, len(scored) - len(parted))
    differing, left = _select_differing(scored, parted, max_examples - reserved), set(parted)
    room = max_examples - len(differing)
    wrong = [at for at in worst_examples(scored, len(scored)) if at not in left]
    right = [at for at, each in enumerate(scored) if each.exact and at not in left]
    shown_wrong = wrong[: max(room - len(right), min(len(wrong), room // 2))]
    shown_right = sample_evenly(right, room - len(shown_wrong))
    chosen = sorted([*differing, *shown_wrong, *shown_right])
    ones = ("that all runs have wrong", "that all have right") if others else ("wrong ones", "right ones")
    if not others and not wrong:
        return (
            chosen,
            f"{max_examples:,} of {len(scored):,} examples, sampled evenly from the file, in which none is wrong",
        )
    mistaken = _share_text(len(shown_wrong), len(wrong), f"the {len(shown_wrong):,} worst of {len(wrong):,}")
    words = f"{_differing_text(len(differing), len(parted)) if others else ''}{mistaken} {ones[0]}"
    drawn = f"{len(shown_right):,} of {len(right):,}"
    good = f"{_share_text(len(shown_right), len(right), drawn)} {ones[1]}"
    even = ", sampled evenly from the file" if 0 < len(shown_right) < len(right) else ""
    return chosen, f"{len(chosen):,} of {len(scored):,} examples: {words}, and {good}{even}"


def _select_differing(scored: Sequence[ScoredExample], parted: Sequence[int], max_examples: int) -> list[int]:
    """Select examples on which the runs differ, half of them correct in the first run."""
    first, other = ([at for at in parted if scored[at].exact is right] for right in (True, False))
    share = max(min(len(first), max_examples // 2), max_examples - len(other))
    return [*sample_evenly(first, share), *sample_evenly(other, max_examples - min(share, len(first)))]


def _share_text(shown: int, there: int, some: str) -> str:
    """Return the description of a share: all, none, or `some`."""
    return f"all {there:,}" if shown == there else some if shown else f"none of {there:,}"


def _differing_text(shown: int, parted: int) -> str:
    """Return the description of the shown examples on which the runs differ."""
    those = "that one run has right and another wrong"
    many = f"{shown:,} of {parted:,} {those}, sampled evenly"
    return f"{many if shown < parted else f'all {parted:,} {those}'}; "


def sample_evenly(numbers: Sequence[int], count: int) -> list[int]:
    """Select elements at even distances.

    Args:
        numbers: Elements.
        count: Maximum number of selected elements.

    Returns:
        Selected elements, or all if there are at most `count`.
    """
    if count >= len(numbers):
        return list(numbers)
    return [numbers[at] for at in np.linspace(0, len(numbers) - 1, max(count, 0)).round().astype(int).tolist()]


@dataclass(frozen=True)
class ViewedRun:
    """Run, or ensemble of runs, that the page shows."""

    name: str
    folder: Path
    predictor: Predictor | None
    """None before the first validation of its training."""

    @property
    def loaded_predictor(self) -> Predictor:
        """Predictor of the run; `RunError` before the first validation."""
        if self.predictor is None:
            raise RunError(f"{self.folder} holds no model yet: the first validation of its training is pending")
        return self.predictor

    @property
    def supports_states(self) -> bool:
        """True for a single autoregressive model, whose states can be inspected."""
        return self.predictor is not None and self.predictor.autoregressive and not self.predictor.is_ensemble


def open_run(folder: Path, name: str, device: Device, beam: int | None) -> ViewedRun:
    """Load the run of a folder.

    Args:
        folder: Run folder, or folder of an ensemble.
        name: Name on the page.
        device: Device for decoding.
        beam: Beam size; None: that of the run.

    Returns:
        Run, without a predictor if its training has no checkpoint yet.

    Raises:
        InputError: The folder holds no run.
    """
    if _is_training(folder):
        return ViewedRun(name, folder, None)
    predictor = load(folder, device)
    return ViewedRun(name, folder, predictor if beam is None else predictor.with_beam(beam))


def _is_training(folder: Path) -> bool:
    """Return whether the run is in training and has no model yet; a finished training without a model is an error."""
    here = file_exists(folder / CONFIG) and not file_exists(folder / MODEL) and members(folder) == [folder]
    return here and not has_stopped(read_log(folder))


def run_names(folders: Sequence[Path]) -> list[str]:
    """Return a unique name for each run folder.

    Args:
        folders: Run folders.

    Returns:
        Folder names, or paths if folder names are not unique; repeated folders are numbered.
    """
    short = [folder.resolve().name for folder in folders]
    names = short if len(set(short)) == len(short) else [str(folder) for folder in folders]
    before = [names[:at].count(name) for at, name in enumerate(names)]
    return [f"{name} ({times + 1})" if times else name for name, times in zip(names, before, strict=True)]


def find_validation_file(run: Path) -> tuple[Path, Path | None] | None:
    """Return the validation file of a run, or of the first member of an ensemble.

    Args:
        run: Run folder.

    Returns:
        File of pairs or sources and file of targets, or None if they are no longer at their place.
    """
    folder = members(run)[0]
    read = [record for record in read_log(folder) if record["event"] == "read"]
    if len(read) < 2:
        return None
    path, target = Path(str(read[1].get("path", ""))), read[1].get("target")
    if target is None and load_run_config(folder).data.format == "text":
        return None
    beside = None if target is None else Path(str(target))
    # isfile, unlike is_file, accepts any name: the log is untrusted.
    return (path, beside) if isfile(path) and (beside is None or isfile(beside)) else None


def model_card(model: ViewedRun) -> ModelCard:
    """Return the description of a run.

    Args:
        model: Run.

    Returns:
        Model card with sizes, training and settings.
    """
    log = read_log(model.folder)
    if model.predictor is None:
        config, facts = load_run_config(model.folder), list[tuple[str, str]]()
    else:
        config, facts = model.predictor.config, _model_sizes(model, model.predictor)
    task = configured_task(config)
    told = [
        ("model", task.describe_architecture(config)),
        *facts,
        *_training_facts(log, task),
        ("seed", f"{config.seed}"),
    ]
    told += [("log", sentence) for sentence in log_damage(model.folder)]
    attends = config.attention.type != "none" and not task.settings.per_position
    return ModelCard(name=model.name, facts=told, config=to_toml(config), has_attention=attends, task=config.task)


def _model_sizes(model: ViewedRun, predictor: Predictor) -> list[tuple[str, str]]:
    """Return the numbers of parameters and symbols."""
    vocabularies, count = predictor.vocabularies, len(members(model.folder))
    each = " each" if count > 1 else ""
    return [
        *([("ensemble", f"{count} networks")] if count > 1 else []),
        ("parameters", f"{parameter_count(predictor.network):,}{each}"),
        ("source symbols", f"{len(vocabularies.source.symbols):,}"),
        ("target symbols", f"{len(vocabularies.target.symbols):,}"),
        *([("search", _search_text(predictor.config.search.beam_size))] if predictor.autoregressive else []),
    ]


def _search_text(width: int) -> str:
    """Return the description of the search."""
    return "greedy" if width == 1 else f"beam of {width}"


def _training_facts(log: Sequence[dict[str, Any]], task: Task) -> list[tuple[str, str]]:
    """Return facts about data and training from the log."""
    read = [record for record in log if record["event"] == "read"]
    counted = [record for record in log if "update" in record]
    best = [record for record in log if record["event"] == "validated" and record["best"]]
    facts = []
    if read:
        facts.append(("training set", f"{read[0].get('examples', 0):,} examples"))
    if counted:
        last = counted[-1]
        facts.append(("training", f"{last['update']:,} updates, {last['samples']:,} samples, {last['seconds']:,.0f} s"))
    if best:
        name, key = task.labels.best_score
        scores = f"{name} {best[-1][key]:.2f} % at update {best[-1]['update']:,}"
        facts.append(("best validation", scores))
    return facts


def check_same_task(models: Sequence[ViewedRun]) -> None:
    """Raise `InputError` if runs have different tasks, whose outputs cannot be compared.

    Args:
        models: Runs of the page.
    """
    first, *others = [(each.name, _task_name(each)) for each in models]
    for name, task in others:
        if task != first[1]:
            raise InputError(
                f"runs of different tasks cannot be compared: {first[0]} is {quote(first[1])}, {name} is {quote(task)}"
            )


def _task_name(model: ViewedRun) -> str:
    """Return the task of a run, which is known before it has a model."""
    return (load_run_config(model.folder) if model.predictor is None else model.predictor.config).task


def select_run(models: Sequence[ViewedRun], run: int) -> ViewedRun:
    """Return the run at an index, 0 for the first; `InputError` for an index out of range."""
    if len(models) == 1 and run != 0:
        raise InputError(f"run: the page shows one run, expected 0, got {quote(run)}")
    if not 0 <= run < len(models):
        raise InputError(f"run: expected 0 to {len(models) - 1}, got {quote(run)}")
    return models[run]


BAD_LINE_ADVICE = "look requires a file without bad lines: correct or remove such lines"


class ExampleFile(NamedTuple):
    """Examples of a file with their metadata."""

    name: str
    examples: list[Example]
    metadata: list[SourceMetadata]
    has_targets: bool
    is_spelled: bool = False
    """Whether every source spells the digits of its target, which determines the gold alignment."""
    note: str = ""
    """Description of unread columns, skipped bad lines and blank lines."""


def read_example_file(path: Path, data: DataConfig, target: Path | None = None) -> ExampleFile:
    """Read pairs, or sources if the first line is no pair and there is no file of targets.

    Args:
        path: File of pairs or sources.
        data: Data configuration.
        target: File of targets, if `path` holds sources.

    Returns:
        Examples with references and line numbers.

    Raises:
        DataError: The file cannot be read; the message names the line.
    """
    for each in (path, target):
        if each is not None and each.is_fifo():
            raise DataError(f"{each} is a pipe, but look reads its input several times: write it to a file first")
    if target is None and _has_only_sources(path, data):
        return sources_without_targets(path.name, read_sources(path, data), data)
    reading = read_examples(path, msgspec.structs.replace(data, on_bad_line="skip"), target)
    if reading.bad and data.on_bad_line == "stop":
        raise DataError(str(reading.bad[0]), BAD_LINE_ADVICE)
    pairs = zip(reading.examples, reading.lines, strict=True)
    truth = are_spelled_digits(reading.examples)
    known = [SourceMetadata((each.target,), line, truth) for each, line in pairs]
    columns = describe_used_columns(path, data) if target is None else ""
    header = header_note(reading.examples) if is_header_unknown(path, data, target) else ""
    note = "; ".join(
        each for each in (header, columns, bad_line_note(reading.bad), blank_line_note(reading.blank)) if each
    )
    return ExampleFile(path.name, reading.examples, known, has_targets=True, is_spelled=truth, note=note)


def sources_without_targets(name: str, lines: Iterable[Example | BadLine], data: DataConfig) -> ExampleFile:
    """Return sources without targets; blank lines are skipped.

    Args:
        name: Name of the file.
        lines: Sources and bad lines.
        data: Data configuration.

    Returns:
        Examples without references.

    Raises:
        DataError: There is no source, or a bad line that may not be skipped.
    """
    listed, known, bad, empty = list[Example](), list[SourceMetadata](), list[BadLine](), 0
    for number, each in enumerate(lines, start=1):
        if isinstance(each, BadLine):
            if data.on_bad_line == "stop":
                raise DataError(str(each))
            bad.append(each)
        elif each.source:
            listed.append(each)
            known.append(SourceMetadata(line=number))
        else:
            empty += 1
    if not listed:
        raise DataError(f"{name} holds no source" + (f": {bad_line_note(bad)}" if bad else ""))
    note = "; ".join(each for each in (bad_line_note(bad), blank_line_note(empty)) if each)
    return ExampleFile(name, listed, known, has_targets=False, note=note)


def bad_line_note(bad: Sequence[BadLine]) -> str:
    """Return the number of skipped bad lines and the error of the first; "" if there are none.

    Args:
        bad: Skipped lines.

    Returns:
        Text.
    """
    lines = "bad line" if len(bad) == 1 else "bad lines"
    return f"{len(bad):,} {lines} skipped, the first: line {bad[0].line}: {bad[0].reason}" if bad else ""


def blank_line_note(lines: int) -> str:
    """Return the number of skipped blank lines; "" if there are none.

    Args:
        lines: Number of blank lines.

    Returns:
        Text.
    """
    return f"{lines:,} blank {'line' if lines == 1 else 'lines'} skipped" if lines else ""


def _has_only_sources(path: Path, data: DataConfig) -> bool:
    """Return whether the first line is a source and no pair."""
    if data.format == "text":
        return True
    first = next(iter(read_pairs(path, data)), None)
    if not isinstance(first, BadLine):
        return False
    return all(isinstance(each, Example) for each in islice(read_sources(path, data), 1))
