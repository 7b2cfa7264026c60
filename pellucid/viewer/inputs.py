"""Runs and example files of a page, and the selection of examples from a large file."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from os.path import realpath
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pellucid.config.attention_types import has_weights
from pellucid.config.settings import DataConfig, Device, has_source_features
from pellucid.config.task_settings import check_equal_tasks
from pellucid.config.toml import to_toml
from pellucid.data.examples import (
    SKIP_HINT,
    Example,
    describe_used_columns,
    is_header_unknown,
    read_examples,
    read_pairs,
    read_row_ids,
    read_sources,
)
from pellucid.data.headers import header_note
from pellucid.data.readers import BadLine
from pellucid.data.validation_split import validation_file_config
from pellucid.decoding.predictor import Predictor
from pellucid.errors import DataError, InputError, RunError, quote
from pellucid.evaluation.metrics import ScoredExample, worst_examples
from pellucid.files import MAX_FILE_SIZE, FileDigest, file_exists, has_digest
from pellucid.model.equations import VocabularySizes
from pellucid.model.network import parameter_count
from pellucid.run_folder.identity import has_validated_model
from pellucid.run_folder.lock import in_use
from pellucid.run_folder.log import RunLog, load_run_log
from pellucid.run_folder.predictor_loader import load_with_log, load_without_warnings
from pellucid.run_folder.run_files import CONFIG, VALIDATION, load_run_config, member_folders
from pellucid.run_folder.run_parts import missing_model_error
from pellucid.tasks.registry import get_task
from pellucid.tasks.task import Task
from pellucid.training.snapshots import describe_omitted_snapshots
from pellucid.viewer.examples import SourceMetadata, are_spelled_digits
from pellucid.viewer.mathml import to_mathml
from pellucid.viewer.schema import Formula, FormulaSection, FormulaSymbol, ModelCard


def select_examples(
    scored: Sequence[ScoredExample], max_examples: int, others: Sequence[Sequence[ScoredExample]] = ()
) -> tuple[list[int], str]:
    """Select the examples that the page shows.

    All examples are shown if there are at most `max_examples`. Otherwise, up to four fifths are examples that are
    correct in one run and wrong in another, half of them correct in the first run. The others are the worst errors, at
    most half, and correct examples sampled evenly from the file. Unused places are filled from the other groups.

    Args:
        scored: Scored outputs of the first run, in file order.
        max_examples: Maximum number of examples.
        others: Scored outputs of each compared run, in file order.

    Returns:
        Indices of the selected examples in file order, and a description of the selection.
    """
    if len(scored) <= max_examples:
        return list(range(len(scored))), f"all {len(scored):,} examples" if len(scored) != 1 else "one example"
    differing_indices = [
        index for index, example in enumerate(scored) if any(other[index].exact != example.exact for other in others)
    ]
    reserved = min(max_examples // 5, len(scored) - len(differing_indices))
    selected_differing = _select_differing(scored, differing_indices, max_examples - reserved)
    excluded = set(differing_indices)
    remaining = max_examples - len(selected_differing)
    wrong = [index for index in worst_examples(scored, len(scored)) if index not in excluded]
    right = [index for index, example in enumerate(scored) if example.exact and index not in excluded]
    shown_wrong = wrong[: max(remaining - len(right), min(len(wrong), remaining // 2))]
    shown_right = sample_with_ends(right, remaining - len(shown_wrong))
    selected = sorted([*selected_differing, *shown_wrong, *shown_right])
    selection = _SelectedExamples(_ShownCount(len(shown_wrong), len(wrong)), _ShownCount(len(shown_right), len(right)))
    count = f"{len(selected):,} of {len(scored):,} examples"
    if others:
        differing = _ShownCount(len(selected_differing), len(differing_indices))
        return selected, f"{count}: {_describe_selection(selection, differing, len(others))}"
    if not wrong:
        return selected, f"{count}, sampled evenly from the file, in which none is wrong"
    return selected, f"{count}: {_describe_selection_of_one_run(selection)}"


class _ShownCount(NamedTuple):
    """Number of shown examples of a group, and of all its examples."""

    shown: int
    total: int


class _SelectedExamples(NamedTuple):
    """Numbers of the examples that every run has wrong, and that every run has correct."""

    wrong: _ShownCount
    right: _ShownCount


def _describe_selection_of_one_run(selection: _SelectedExamples) -> str:
    """Describe the shown examples of one run, some of which are wrong."""
    wrong, right = selection.wrong, selection.right
    wrong_text = _describe_count(wrong, f"the {wrong.shown:,} worst of {wrong.total:,}")
    right_text = _describe_count(right, f"{right.shown:,} of {right.total:,}")
    sampling_note = ", sampled evenly from the file" if 0 < right.shown < right.total else ""
    return f"{wrong_text} wrong, and {right_text} correct{sampling_note}"


def _describe_selection(selection: _SelectedExamples, differing: _ShownCount, num_others: int) -> str:
    """Describe the shown examples of several runs."""
    is_pair = num_others == 1
    first = "only one run is correct" if is_pair else "some runs are correct and others wrong"
    every = "both" if is_pair else "all"
    groups = (
        (first, differing, "{}, sampled evenly"),
        (f"{every} are wrong", selection.wrong, "the {} worst"),
        (f"{every} are correct", selection.right, "{}, sampled evenly"),
    )
    return "; ".join(f"{name} on {_shown_text(count, sampled)}" for name, count, sampled in groups)


def _shown_text(count: _ShownCount, sampled: str) -> str:
    """Return the size of a group, and how many of its examples are shown."""
    shown, total = count.shown, count.total
    if total == 0:
        return "none"
    if shown == total == 1:
        return "1 (shown)"
    part = "none" if shown == 0 else sampled.format(f"{shown:,}") if shown < total else "all"
    return f"{total:,} (shown: {part})"


def _select_differing(
    scored: Sequence[ScoredExample], differing_indices: Sequence[int], max_examples: int
) -> list[int]:
    """Select examples on which the runs differ, half of them correct in the first run."""
    first, other = ([index for index in differing_indices if scored[index].exact is right] for right in (True, False))
    num_first = max(min(len(first), max_examples // 2), max_examples - len(other))
    return [*sample_with_ends(first, num_first), *sample_with_ends(other, max_examples - min(num_first, len(first)))]


def _describe_count(count: _ShownCount, partial_text: str) -> str:
    """Return the description of a group: no example, one, all, none, or `partial_text`."""
    shown, total = count.shown, count.total
    if total == 0:
        return "no example"
    if shown == total == 1:
        return "one"
    return f"all {total:,}" if shown == total else partial_text if shown else f"none of {total:,}"


def sample_with_ends(items: Sequence[int], count: int) -> list[int]:
    """Return elements at even distances, the first and the last included; nothing is random.

    Args:
        items: Elements.
        count: Maximum number of selected elements; 0 or less for none, 1 for the first.

    Returns:
        Selected elements in order; all if there are at most `count`.
    """
    if count >= len(items):
        return list(items)
    return [items[index] for index in np.linspace(0, len(items) - 1, max(count, 0)).round().astype(int).tolist()]


@dataclass(frozen=True)
class ViewedRun:
    """Run, or ensemble of runs, that the page shows."""

    name: str
    """Name on the page."""
    folder: Path
    """Run folder, or folder of an ensemble."""
    predictor: Predictor | None
    """Predictor of the model; None before the first validation of its training."""
    log: RunLog
    """Log of the run, or of the first member of an ensemble."""
    running: bool
    """Whether a process was training the run just before the log was read."""

    def with_newest_log(self) -> "ViewedRun":
        """Return the run with the log of its folder read again.

        Raises:
            RunError: The log cannot be read, or is of another training (`check_same_training`).
        """
        running, log = _read_state(self.folder)
        self.check_same_training(log)
        return replace(self, running=running, log=log)

    def check_same_training(self, log: RunLog) -> None:
        """Check that the run folder still holds the training of this run.

        Args:
            log: Log that was read from the folder again.

        Raises:
            RunError: The log is of a training with other data or settings.
        """
        if "" not in (self.log.fingerprint, log.fingerprint) and self.log.fingerprint != log.fingerprint:
            raise RunError(f"{self.folder} holds another training now (fingerprint): open its page again")

    @property
    def is_ensemble(self) -> bool:
        """True if the folder is that of an ensemble."""
        return member_folders(self.folder) != [self.folder]

    @property
    def loaded_predictor(self) -> Predictor:
        """Predictor of the model.

        Raises:
            RunError: The run has no model: it has not reached its first validation, or the file is missing.
        """
        if self.predictor is None:
            raise missing_model_error(self.folder, self.log)
        return self.predictor

    @property
    def supports_states(self) -> bool:
        """True for a single autoregressive model, whose states can be inspected."""
        return self.predictor is not None and self.predictor.autoregressive and not self.predictor.is_ensemble


def open_run(folder: Path, name: str, device: Device, beam_size: int | None) -> ViewedRun:
    """Load the run of a folder for the page.

    Args:
        folder: Run folder, or folder of an ensemble.
        name: Name on the page.
        device: Device for decoding.
        beam_size: Beam size of decoding; None for that of the run.

    Returns:
        Run; without a predictor if it has no model of a validation yet and its training has not ended. The page shows
        the network, so that a model that is saved before the first validation counts as missing.

    Raises:
        RunError: The folder holds no run, or it is damaged, as in `load`.
        ConfigError: The device is not available, the saved configuration is not valid, there is not enough memory, or
            the beam size is out of range or has no effect in the task.
    """
    is_single = member_folders(folder) == [folder]
    lacks_model = is_single and file_exists(folder / CONFIG) and not has_validated_model(folder)
    running, log = _read_state(folder)  # before the model, so that the model is not older than the log
    if lacks_model and not log.has_stopped:  # a finished training without a model is an error
        return ViewedRun(name, folder, None, log, running)
    predictor = (
        load_with_log(folder, device, log)
        if is_single
        else load_without_warnings(folder, device, needs_validated_model=True)
    )
    if beam_size is not None:
        predictor = predictor.with_beam(beam_size)
    return ViewedRun(name, folder, predictor, log, running)


def _read_state(folder: Path) -> tuple[bool, RunLog]:
    """Return whether a process trains a run, and its log; of an ensemble, those of its first member."""
    run = member_folders(folder)[0]
    running = in_use(run)  # before the log, which records an end in between
    return running, load_run_log(run)


def run_names(folders: Sequence[Path]) -> list[str]:
    """Return a unique name for each run folder.

    Args:
        folders: Run folders.

    Returns:
        Folder names, or paths if folder names are not unique; repeated folders are numbered.
    """
    # Path.resolve raises a RuntimeError for a link to itself; the message about it comes when the folder is read.
    folder_names = [Path(realpath(folder)).name for folder in folders]
    names = folder_names if len(set(folder_names)) == len(folder_names) else [str(folder) for folder in folders]
    repetitions = [names[:index].count(name) for index, name in enumerate(names)]
    return [f"{name} ({count + 1})" if count else name for name, count in zip(names, repetitions, strict=True)]


MAX_PATH_LENGTH = 1000
"""Maximum length of a path of a log in a message, in characters."""


class ValidationFileError(RunError):
    """A run whose log names no validation file that may be opened; the message asks for a FILE."""


class PairFile(NamedTuple):
    """File of pairs, or file of sources and file of targets, with the data settings to read them."""

    path: Path
    target: Path | None
    """File of targets; None if `path` holds pairs."""
    data: DataConfig


def find_validation_file(run: Path, data: DataConfig, log: RunLog | None = None) -> PairFile:
    """Return the validation data that the log of a run names; for an ensemble, that of its first member.

    Validation data that was held out of the training file is in the run folder.

    The log of another person may name any file of the user. Only a file whose content had the same size and checksum in
    the training is returned.

    Args:
        run: Run folder, or folder of an ensemble.
        data: Data settings of the run.
        log: Log of the run, or of the first member of an ensemble; None to read it.

    Raises:
        ValidationFileError: The log names no validation file, or has no checksum of it; or the file is missing, is no
            regular file, is empty, has another content, or has more than `MAX_FILE_SIZE` bytes.
        RunError: The log or the list of members cannot be read.
        ConfigError: The configuration of the run is not valid.
    """
    folder = member_folders(run)[0]
    file_records = (log or load_run_log(folder)).all("read")
    record, held_out = file_records[1] if len(file_records) > 1 else {}, folder / VALIDATION
    if Path(record.get("path", "")).name == VALIDATION and not record.get("target"):
        if not file_exists(held_out):
            raise ValidationFileError(f"{held_out} is missing: restore the file from a copy of the run, or give a FILE")
        _check_recorded_file(run, {**record, "path": str(held_out)}, "path", "")
        return PairFile(held_out, None, validation_file_config(data))
    if "path" not in record or ("target" not in record and load_run_config(folder).data.input_format == "text"):
        raise ValidationFileError(f"{run}: its log names no validation file; give a FILE")
    _check_recorded_file(run, record, "path", "")
    if "target" in record:
        _check_recorded_file(run, record, "target", "target_")
    return PairFile(Path(record["path"]), Path(record["target"]) if "target" in record else None, data)


def _check_recorded_file(run: Path, record: dict[str, Any], key: str, prefix: str) -> None:
    """Raise `ValidationFileError` unless a file of a log record has the recorded size and checksum."""
    name, size, checksum = (
        quote(record[key], MAX_PATH_LENGTH),
        record.get(f"{prefix}size"),
        record.get(f"{prefix}sha256"),
    )
    if size is None or checksum is None:
        reason = f"its log has no SHA-256 of the validation file {name}, which is therefore not opened"
    elif size > MAX_FILE_SIZE:
        reason = f"the validation file {name} has more than {MAX_FILE_SIZE:,} bytes"
    elif has_digest(Path(record[key]), FileDigest(size, checksum)):
        return
    else:
        reason = (
            f"{name} is not, or no longer, the validation file of this run: it is missing, or its SHA-256 is not the "
            "one in the log"
        )
    raise ValidationFileError(f"{run}: {reason}; give a FILE")


def model_card(model: ViewedRun) -> ModelCard:
    """Return the description of a run for the page: architecture, sizes, training and settings.

    Args:
        model: Run; without a model, the numbers of parameters and symbols are left out.

    Raises:
        RunError: The list of members cannot be read.
        ConfigError: The run has no model yet, and its saved configuration is not valid.
    """
    if model.predictor is None:
        config, facts = load_run_config(model.folder), list[tuple[str, str]]()
    else:
        config, facts = model.predictor.config, _model_sizes(model, model.predictor)
    task = get_task(config.task)
    all_facts = [
        ("model", task.describe_architecture(config)),
        *facts,
        *([] if model.is_ensemble else _training_facts(model.log, task)),
        ("seed", f"{config.seed}"),
    ]
    if not model.is_ensemble:
        all_facts += [("log", sentence) for sentence in model.log.describe_damage() + model.log.describe_omissions()]
        all_facts += [("snapshots", sentence) for sentence in describe_omitted_snapshots(model.folder)]
    attends = has_weights(config.attention) and not task.settings.per_position
    return ModelCard(
        name=model.name,
        facts=all_facts,
        config=to_toml(config),
        has_attention=attends,
        task=config.task,
        equations=[] if model.predictor is None else _formula_sections(task, model.predictor),
    )


def _formula_sections(task: Task, predictor: Predictor) -> list[FormulaSection]:
    """Return the equations of a network with their symbols, as MathML."""
    vocabularies, config = predictor.vocabularies, predictor.config
    num_features = len(vocabularies.features) if has_source_features(config) else 0
    sizes = VocabularySizes(
        len(vocabularies.source) + num_features, len(vocabularies.target), len(vocabularies.characters)
    )
    return [
        FormulaSection(
            title=group.title,
            equations=[_formula(equation) for equation in group.equations],
            symbols=[
                FormulaSymbol(
                    symbol=_formula(symbol.latex),
                    meaning=symbol.meaning,
                    size=symbol.size,
                    num_parameters=symbol.num_parameters,
                )
                for symbol in group.symbols
            ],
            note=group.note,
        )
        for group in task.equations(config, sizes)
    ]


def _formula(latex: str) -> Formula:
    """Return an equation in both notations."""
    return Formula(latex=latex, mathml=to_mathml(latex))


def _model_sizes(model: ViewedRun, predictor: Predictor) -> list[tuple[str, str]]:
    """Return the numbers of parameters and symbols."""
    vocabularies, count = predictor.vocabularies, len(member_folders(model.folder))
    suffix = " each" if count > 1 else ""
    return [
        *([("ensemble", f"{count} networks")] if count > 1 else []),
        ("parameters", f"{parameter_count(predictor.network):,}{suffix}"),
        ("source symbols", f"{len(vocabularies.source.symbols):,}"),
        ("target symbols", f"{len(vocabularies.target.symbols):,}"),
        *([("search", _search_text(predictor.config.search.beam_size))] if predictor.autoregressive else []),
    ]


def _search_text(beam_size: int) -> str:
    """Return the description of the search."""
    return "greedy search" if beam_size == 1 else f"beam search, beam size {beam_size}"


def _training_facts(log: RunLog, task: Task) -> list[tuple[str, str]]:
    """Return facts about data and training from the log."""
    training_file, last = log.first("read"), log.last_progress
    best_records = [record for record in log.all("validated") if record["best"]]
    facts = []
    if training_file:
        facts.append(("training set", f"{training_file.get('examples', 0):,} examples"))
    if last:
        facts.append(("training", f"{last['update']:,} updates, {last['samples']:,} samples, {last['seconds']:,.0f} s"))
    if best_records:
        key, name = task.metrics.summary_metric
        scores = f"{name} {best_records[-1][key]:.2f} % at update {best_records[-1]['update']:,}"
        facts.append(("best validation", scores))
    return facts


def check_same_task(models: Sequence[ViewedRun]) -> None:
    """Check that all runs of a page have the same task, so that their outputs can be compared.

    Args:
        models: Runs of the page, at least one.

    Raises:
        InputError: A run has another task than the first.
    """
    check_equal_tasks([(model.name, _task_name(model)) for model in models])


def _task_name(model: ViewedRun) -> str:
    """Return the task of a run, which is known before it has a model."""
    return (load_run_config(model.folder) if model.predictor is None else model.predictor.config).task


def select_run(models: Sequence[ViewedRun], run: int) -> ViewedRun:
    """Return the run of a request.

    Args:
        models: Runs of the page, at least one.
        run: Index of the run, from 0.

    Raises:
        InputError: The index is out of range.
    """
    if len(models) == 1 and run != 0:
        raise InputError(f"run: the page shows one run, expected 0, got {quote(run)}")
    if not 0 <= run < len(models):
        raise InputError(f"run: expected 0 to {len(models) - 1}, got {quote(run)}")
    return models[run]


class ViewedFile(NamedTuple):
    """Examples of a file that the page shows, with their metadata."""

    name: str
    """Name of the file, without its folder."""
    examples: list[Example]
    metadata: list[SourceMetadata]
    """References and line number of each example."""
    has_targets: bool
    """Whether the examples have targets, so that outputs can be scored."""
    is_spelled: bool = False
    """Whether every source spells the digits of its target, which determines the gold alignment."""
    note: str = ""
    """Description of unread columns, skipped bad lines and blank lines."""


def read_example_file(path: Path, data: DataConfig, target: Path | None = None) -> ViewedFile:
    """Read a file of pairs; or of sources alone, if there is no file of targets and its first line is not a pair.

    Args:
        path: File of pairs or sources.
        data: Data settings of the run.
        target: File of targets, if `path` holds sources; else None.

    Returns:
        Examples with line numbers, and with references if there are targets.

    Raises:
        DataError: A file is a pipe, cannot be read, or holds no example; parallel files differ in length; or a line is
            bad, unless bad lines are skipped. The message names the line.
        ConfigError: The configured columns are not valid.
    """
    for file in (path, target):
        if file is not None and file.is_fifo():
            raise DataError(f"{file} is a pipe, but look reads its input several times: write it to a file first")
    if target is None and has_only_sources(path, data):
        return sources_without_targets(path.name, read_sources(path, data), data)
    reading = read_examples(path, msgspec.structs.replace(data, on_bad_line="skip"), target)
    if reading.bad_lines and data.on_bad_line == "stop":
        raise DataError(f"{reading.bad_lines[0]}; {SKIP_HINT}")
    numbered_examples = zip(reading.examples, reading.line_numbers, strict=True)
    is_spelled = are_spelled_digits(reading.examples)
    ids = read_row_ids(path, data) if target is None else {}
    metadata = [
        SourceMetadata((example.target,), line, is_spelled, ids.get(line, "")) for example, line in numbered_examples
    ]
    columns = describe_used_columns(path, data) if target is None else ""
    header = header_note(reading.examples) if is_header_unknown(path, data, target) else ""
    notes = (header, columns, bad_line_note(reading.bad_lines), blank_line_note(reading.num_blank_lines))
    note = "; ".join(filter(None, notes))
    return ViewedFile(path.name, reading.examples, metadata, has_targets=True, is_spelled=is_spelled, note=note)


def sources_without_targets(name: str, lines: Iterable[Example | BadLine], data: DataConfig) -> ViewedFile:
    """Return the sources of a file as examples without references; blank lines are skipped.

    Args:
        name: Name of the file.
        lines: Every line of the file in order: a source, or a bad line.
        data: Data settings; `on_bad_line` decides whether bad lines are skipped.

    Returns:
        Examples with line numbers, and a note about skipped lines.

    Raises:
        DataError: There is no source, or a bad line that may not be skipped.
    """
    examples, metadata, bad, num_blank = list[Example](), list[SourceMetadata](), list[BadLine](), 0
    for number, line in enumerate(lines, start=1):
        if isinstance(line, BadLine):
            if data.on_bad_line == "stop":
                raise DataError(f"{line}; {SKIP_HINT}")
            bad.append(line)
        elif line.source:
            examples.append(line)
            metadata.append(SourceMetadata(line=number))
        else:
            num_blank += 1
    if not examples:
        raise DataError(f"{name} holds no source" + (f": {bad_line_note(bad)}" if bad else ""))
    note = "; ".join(filter(None, (bad_line_note(bad), blank_line_note(num_blank))))
    return ViewedFile(name, examples, metadata, has_targets=False, note=note)


def bad_line_note(bad: Sequence[BadLine]) -> str:
    """Return the number of skipped bad lines and the error of the first; "" if there are none.

    Args:
        bad: Skipped lines.
    """
    lines = "bad line" if len(bad) == 1 else "bad lines"
    return f"{len(bad):,} {lines} skipped, the first: line {bad[0].line}: {bad[0].reason}" if bad else ""


def blank_line_note(lines: int) -> str:
    """Return the number of skipped blank lines; "" if there are none.

    Args:
        lines: Number of blank lines.
    """
    return f"{lines:,} blank {'line' if lines == 1 else 'lines'} skipped" if lines else ""


def has_only_sources(path: Path, data: DataConfig) -> bool:
    """Return whether the first line of a file is a source and no pair.

    Args:
        path: The file.
        data: Data settings of the run.
    """
    if data.input_format == "text":
        return True
    first = next(iter(read_pairs(path, data)), None)
    if not isinstance(first, BadLine):
        return False
    return all(isinstance(line, Example) for line in islice(read_sources(path, data), 1))
