"""Functions for programs: train, evaluate, compare, predict, score, align, audit; with files or objects in memory."""

import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import msgspec

from pellucid.alignment.pair_aligner import align_symbols
from pellucid.alignment.types import DEFAULT_LIMITS, Alignment, AlignmentMethod, ChunkLimits
from pellucid.argument_checks import convert_argument, python_scalar
from pellucid.auditing.audit import audit_entries
from pellucid.auditing.decisions import exclude_decided, read_decided_pairs
from pellucid.auditing.types import AuditEntry, AuditOptions, AuditRecord, reject_unused_settings
from pellucid.config.presets import gives_size
from pellucid.config.settings import Config, DataConfig, Device
from pellucid.config.toml import build_config, overlay_settings, override_settings, validate_config
from pellucid.config.validation import reject_unused
from pellucid.data.examples import (
    Example,
    InputFormat,
    config_for_rows,
    describe_pair_files,
    pair_config,
    parse_table_pairs,
    parse_table_sources,
    read_examples,
    read_pairs,
    read_partially_labeled,
    read_partially_labeled_table,
    read_sources,
    read_table_examples,
    source_columns,
    training_columns,
)
from pellucid.data.headers import with_header
from pellucid.data.in_memory import InMemoryTable, read_table
from pellucid.data.prepared_data import settings_over_prepared
from pellucid.data.readers import BadLine
from pellucid.data.size_choice import build_sized_config
from pellucid.data.tokenizers import build_tokenizers
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.streaming import map_chunks
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import require_transducer
from pellucid.error_messages import describe_value
from pellucid.errors import ArgumentError, ConfigError, DataError, RunError
from pellucid.evaluation.evaluation_pairs import EvaluationPairs, ReportNote
from pellucid.model.device import check_torch_defaults
from pellucid.reporting.progress import multi_progress, training_progress
from pellucid.run_evaluation import (
    EvaluatedFile,
    EvaluationOptions,
    GroupColumn,
    RunComparisons,
    RunEvaluation,
    add_provenance,
    check_evaluation,
    choose_custom_metrics,
    compare_evaluations,
    describe_evaluated_file,
    evaluate_predictors,
    evaluation_data_config,
    read_evaluation_blocks,
    with_custom_metrics,
)
from pellucid.run_folder.initial_run import columns_of_initial_run, settings_over_initial_run
from pellucid.run_folder.log import read_training_checksums
from pellucid.run_folder.predictor_loader import load, load_without_warnings
from pellucid.run_folder.run_files import pair_file_config
from pellucid.run_folder.unfinished_training import (
    FinalUpdates,
    UnfinishedTraining,
    find_unfinished,
    read_final_updates,
)
from pellucid.training.callbacks import close_callbacks, is_interruption
from pellucid.training.ensemble_training import num_parallel_trainings, plan_ensemble, train_ensemble
from pellucid.training.events import (
    DEFAULT_SIZE,
    GIVEN_SIZE,
    CallbackFailed,
    CallbackInterrupted,
    RunEvent,
    SizeOrigin,
    TrainingCallback,
    TrainingStopped,
)
from pellucid.training.session import train_run
from pellucid.training.size_measurement import SizedConfig, choose_config_for_time_limit
from pellucid.training.training_data import TrainingSets, check_bad_lines_fraction


@runtime_checkable
class SupportsArrow(Protocol):
    """Object with the Arrow PyCapsule interface, such as a data frame of pandas or polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule of an Arrow stream.

        Args:
            requested_schema: Capsule of the schema that the caller prefers; None for the schema of the object.
        """


PairFiles = str | Path | tuple[str | Path, str | Path]
"""A file of pairs, or a file of sources and a file of targets."""
Pairs = PairFiles | Iterable[Any] | SupportsArrow
"""Files of pairs; or pairs in memory: a list or iterable, a data frame, an Arrow table, or a dataset."""
Sources = str | Path | Iterable[Any] | SupportsArrow
"""A file of sources; or sources in memory: a list or iterable of texts, a column or table of any kind."""
Model = str | Path | list[str] | list[Path] | tuple[str | Path, ...] | Predictor
"""A run folder; the folder of an ensemble, or several run folders as one ensemble; or a loaded model."""


def train(  # noqa: PLR0913 (data, folder, settings and receivers of events)
    train: Pairs,
    valid: Pairs | None,
    run: str | Path,
    config: Config | Mapping[str, Any] | None = None,
    ensemble: int = 1,
    progress: bool = True,
    callbacks: Sequence[TrainingCallback] = (),
    init_from: str | Path | None = None,
) -> Predictor:
    """Train a model, save it in a run folder, and return a predictor with the parameters of the best validation.

    An interrupted run is resumed; a finished run of the same settings and data is loaded. The members of an ensemble
    have the seeds `seed`, `seed` + 1, ...; they train in parallel, each in a subfolder of `run` and in a process of its
    own, so a script must call this function under `if __name__ == "__main__":`.

    Only one thread of a process may train at a time, because threads share torch's random number generator: start
    parallel trainings in processes. While a training runs, other threads may predict, but must not load models or draw
    random numbers from torch.

    Args:
        train: Training set: a file of pairs, or two parallel files of sources and targets; or a list or iterable of
            pairs or dicts, a data frame of pandas or polars, an Arrow table, or a dataset of Hugging Face. Columns are
            selected by `data.source_column` and `data.target_column`; by default they are the first two.
        valid: Validation set, in any of these forms; it selects the best parameters. None holds out a tenth of the
            sources of the training set, at most 2,000, chosen at random; or groups of `data.group_column`. A validation
            set in memory, or one that is held out, is stored in the run folder.
        run: Run folder; created, or resumed.
        config: A `Config`, or settings nested as in a TOML file: {"size": "small", "data": {"target_symbols":
            "words"}}. Without a size, or without a configuration, the size is "large" for task "transduce" with at
            least 5,000 training pairs, otherwise "base"; with a time limit, a smaller one if the time is not enough
            for 5,000 updates of that size.
        ensemble: Number of members, 1 to 1,000. The default, 1, trains a single run without subfolders.
        progress: Print the progress on standard error; True by default.
        callbacks: Receivers of the events of the training, such as validations; none by default. Those with a method
            `close` are closed when the training ends, in whatever way.
        init_from: Run folder from whose parameters and symbols the training begins (fine-tuning), or folder of an
            ensemble with as many members. Its task, tokenization and network are the defaults of the settings. None,
            the default, is `training.init_from` of the settings, or else a new network.

    Returns:
        The predictor of the model, or of the ensemble, on the device of the training.

    Raises:
        ArgumentError: An argument has the wrong type.
        ConfigError: A setting is invalid or has no effect, or `ensemble` is out of range.
        DataError: A data file cannot be read; or a row is bad, unless bad rows are skipped (`data.on_bad_line`).
        RunError: The run folder holds other files or a run with other settings, or is in use; or another thread of
            this process is training; or torch's default type is not float32, its default device is "meta", or it
            computes no gradients; or (`DivergenceError`) a loss, gradient or parameter is not finite.
    """
    started_at = time.monotonic()
    given = convert_argument("config", config, Config | Mapping[str, Any] | None) or {}
    folder: Path = convert_argument("run", run, str | Path)
    num_members: int = convert_argument("ensemble", ensemble, int)
    initial: Path | None = convert_argument("init_from", init_from, str | Path | None)
    given = _over_initial_run(given, initial, folder, train)
    receivers = _check_callbacks(convert_argument("callbacks", callbacks, Sequence[TrainingCallback]))
    event_callbacks = EventCallbacks(convert_argument("progress", progress, bool), receivers)
    if isinstance(given, Mapping) and _is_path(train):
        given = settings_over_prepared(given, convert_argument("train", train, str | Path))
    data = given.data if isinstance(given, Config) else build_config(given, "config").data
    source, target = _read_argument("train", train, "training", data)
    valid_source, valid_target = (None, None) if valid is None else _read_argument("valid", valid, "validation", data)
    files = TrainingSets(source, valid_source, target, valid_target)
    settings = _build_settings(given, source, target)
    reject_unused(settings)
    check_torch_defaults()
    try:
        if not isinstance(given, Config) and not gives_size(given):
            event_callbacks = event_callbacks._replace(size_origin=DEFAULT_SIZE)
            if settings.training.time_limit:
                sized = _choose_size(files, folder, given, settings, num_members, event_callbacks.progress)
                settings, event_callbacks = sized.config, event_callbacks._replace(size_origin=sized.origin)
        if num_members == 1:
            interrupted = _train_single(files, folder, settings, started_at, event_callbacks)
        else:
            interrupted = _train_ensemble(files, folder, settings, num_members, event_callbacks)
    except KeyboardInterrupt as error:
        error.add_note(f"the same call continues the training in {folder}")
        raise
    finally:
        for failure in event_callbacks.close():
            warnings.warn(f"a callback, {failure.callback}, failed at its end: {failure.reason}", stacklevel=2)
    try:
        # A callback may have ended the training early.
        model = load_without_warnings(folder, settings.device, needs_validated_model=True)
    except RunError as error:
        if not interrupted:
            raise
        raise RunError(
            f"a callback interrupted the training, and {folder} holds no model yet: the same call continues it"
        ) from error
    if interrupted and not event_callbacks.progress:
        warnings.warn(
            f"a callback interrupted the training of {folder}: this is its best model so far, and the same call "
            "continues the training",
            stacklevel=2,
        )
    return model


def _check_callbacks(callbacks: Sequence[TrainingCallback]) -> tuple[TrainingCallback, ...]:
    """Return callbacks; raise `ArgumentError` for a class in place of an object."""
    for position, callback in enumerate(callbacks):
        if issubclass(type(callback), type):
            name = cast(type, callback).__name__
            raise ArgumentError(f"callbacks[{position}]: expected an object, got the class {name}: give {name}()")
    return tuple(callbacks)


def _build_settings(given: Config | Mapping[str, Any], source: Path | InMemoryTable, target: Path | None) -> Config:
    """Return the configuration of a training; without a size, the training set determines it (`build_sized_config`).

    With a time limit, it has any size: that of the training is chosen by its speed.
    """
    if isinstance(given, Config):
        return validate_config(given)
    config = build_config(given, "config")
    return config if config.training.time_limit else build_sized_config(given, "config", source, target)


def _choose_size(
    files: TrainingSets, folder: Path, settings: Mapping[str, Any], config: Config, num_members: int, progress: bool
) -> SizedConfig:
    """Return the configuration of the size preset that suits the time limit of the settings.

    See `choose_config_for_time_limit`. `config` are the settings with any size.
    """
    with training_progress() if progress else nullcontext() as reporter:
        return choose_config_for_time_limit(
            folder,
            files,
            lambda preset: build_config({**settings, "size": preset}, "config"),
            (lambda event: None) if reporter is None else reporter.report,
            0 if num_members == 1 else num_members,
            num_members == 1 or num_parallel_trainings(0, config) == 1,
        )


def _over_initial_run(
    given: Config | Mapping[str, Any], initial: Path | None, folder: Path, train: object
) -> Config | Mapping[str, Any]:
    """Return the settings with their initial run, if there is one; settings that are not given are inherited from it.

    A `Config` is complete, so only its initial run is set. The columns are inherited if the training pairs are a file.
    """
    if isinstance(given, Config):
        if initial is None:
            return given
        return override_settings(given, {"training": {"init_from": str(initial)}})
    try:
        nested = overlay_settings(given, {} if initial is None else {"training": {"init_from": str(initial)}})
    except ConfigError:  # reported with its origin when the configuration is built
        return given
    named = nested.get("training", {}).get("init_from", "")
    if not (issubclass(type(named), str | Path) and str(named)):
        return nested
    settings = settings_over_initial_run(nested, named, folder)
    if not _is_path(train):
        return settings
    columns = columns_of_initial_run(named, folder, Path(cast(str, train)), build_config(settings, "config").data)
    return overlay_settings(settings, columns)


class EventCallbacks(NamedTuple):
    """Callbacks that receive the events of a training, and how its size was chosen, for progress and log."""

    progress: bool
    """Whether the progress is printed on standard error."""
    callbacks: tuple[TrainingCallback, ...]
    size_origin: SizeOrigin = GIVEN_SIZE
    """How the size was chosen."""

    def notify(self, folder: Path, event: RunEvent) -> bool:
        """Call all callbacks with an event, and return whether one of them interrupts the training.

        Args:
            folder: Run folder of the training.
            event: The event.
        """
        # A list: every callback is called, also after one that interrupts the training.
        return any([is_interruption(callback.on_event(folder, event)) for callback in self.callbacks])

    def close(self) -> list[CallbackFailed]:
        """Close the callbacks that have a method for it, the last one first, and return the failures."""
        return [
            failure
            for callback in reversed(self.callbacks)
            for failure in close_callbacks({type(callback).__name__: callback})
        ]


def evaluate(
    run: Model, pairs: Pairs, options: EvaluationOptions | None = None, device: Device = "cpu"
) -> RunEvaluation:
    """Decode the sources of pairs, and compare the outputs with the targets, as `pellucid evaluate` does.

    Args:
        run: Run folder, folders of an ensemble, or a loaded model, with its search settings and decoding options.
        pairs: A file of pairs, two parallel files, or pairs in memory; see `train`. Tuples and lists are (source,
            target), or (source, target, features), also if the columns of the training file are selected by name.
        options: Groups, references and metrics; the defaults of `EvaluationOptions` if None.
        device: Device for decoding, unless the model is loaded.

    Returns:
        The metrics with their confidence intervals (`assessment`), counts of the input, and the decoding time.

    Raises:
        ArgumentError: An argument has the wrong type.
        DataError: The pairs cannot be read, or a row is bad (unless bad rows are skipped).
        ConfigError: A column is not valid, or the task has no such search or metric.
        RunError: The run folder is missing, incomplete or damaged.
    """
    return _evaluate([run], pairs, options, device)[0]


def compare(
    runs: Sequence[Model], pairs: Pairs, options: EvaluationOptions | None = None, device: Device = "cpu"
) -> RunComparisons:
    """Evaluate several runs on the same pairs, and compare the first with each other one by significance tests.

    Args:
        runs: At least two run folders or loaded models. A list within the list is an ensemble.
        pairs: The pairs, as in `evaluate`.
        options: Options, as in `evaluate`.
        device: Device for decoding, except for loaded models.

    Returns:
        The evaluation of each run, the comparisons, and means over runs that differ in their seeds only.

    Raises:
        ArgumentError: There are fewer than two runs, or an argument has the wrong type.
        DataError: As in `evaluate`.
        ConfigError: As in `evaluate`.
        RunError: As in `evaluate`.
        InputError: The tasks of the runs differ.
    """
    models = convert_argument("runs", runs, Sequence[str | Path | Sequence[str | Path] | Predictor])
    if len(models) < 2:
        raise ArgumentError(f"runs: expected two runs or more, got {describe_value(models)}")
    return compare_evaluations(_evaluate(models, pairs, options, device))


def predict(run: Model, sources: Sources, device: Device = "cpu") -> list[Trace]:
    """Decode sources, as `pellucid predict` does.

    Args:
        run: Run folder, folders of an ensemble, or a loaded model, with its search settings and decoding options.
        sources: A file of sources; or a list or iterable of texts, or a column, data frame, Arrow table or dataset,
            whose columns of sources and features are selected as in training.
        device: Device for decoding, unless the model is loaded.

    Returns:
        The best output of each row, in order.

    Raises:
        ArgumentError: An argument has the wrong type.
        DataError: The sources cannot be read, or a row is bad.
        ConfigError: A column is not valid.
        RunError: The run folder is missing, incomplete or damaged.
    """
    predictor = _load_model(run, device)
    data = predictor.config.data
    if _is_path(sources):
        path: Path = convert_argument("sources", sources, str | Path)
        items = read_sources(
            path, with_header(pair_file_config(path, data)), InputFormat(columns=predictor.vocabularies.columns)
        )
    else:
        items = parse_table_sources(read_table("sources", sources, "", source_columns(data), "source"), data)
    return predictor.predict_examples(list(_good_rows(items)))


def score(run: Model, pairs: Pairs, device: Device = "cpu") -> list[Trace]:
    """Compute the log-probability of the target of each pair, given its source, as `pellucid score` does.

    Args:
        run: Run folder, folders of an ensemble, or a loaded model.
        pairs: A file of pairs, two parallel files, or pairs in memory; see `train`. Blank lines of files are skipped.
        device: Device for scoring, unless the model is loaded.

    Returns:
        The trace of each pair, in order; `score` is the natural log-probability of the target.

    Raises:
        ArgumentError: An argument has the wrong type.
        DataError: The pairs cannot be read, or a row is bad.
        ConfigError: A column is not valid, or the task scores no targets.
        RunError: The run folder is missing, incomplete or damaged.
    """
    predictor = _load_model(run, device, needs_pair_ngram=False)
    return predictor.score_examples(_read_pairs(pairs, predictor.config.data, predictor))


def _read_pairs(pairs: Pairs, trained: DataConfig, predictor: Predictor | None = None) -> list[Example]:
    """Return pairs whose source is not empty; raise `DataError` for the first bad row.

    Args:
        pairs: Files or pairs in memory.
        trained: Data settings, those of the model if there is one.
        predictor: The model; None for pairs without a model.
    """
    data = msgspec.structs.replace(trained if predictor is None else pair_config(trained), group_column="")
    columns = 0 if predictor is None else predictor.vocabularies.columns
    source, target = _read_argument("pairs", pairs, "", data)
    if isinstance(source, InMemoryTable):
        items = parse_table_pairs(source, data if predictor is None else config_for_rows(source, data))
    elif target is None:
        items = read_pairs(source, with_header(pair_file_config(source, data)), InputFormat(columns=columns))
    else:
        strict = msgspec.structs.replace(trained, on_bad_line="stop")
        items = iter(read_examples(source, strict, target).examples)
    return [example for example in _good_rows(items) if example.source]


def align(
    pairs: Pairs,
    run: Model | None = None,
    limits: ChunkLimits = DEFAULT_LIMITS,
    method: AlignmentMethod = "auto",
    data: DataConfig | Mapping[str, Any] | None = None,
    device: Device = "cpu",
) -> list[Alignment | None]:
    """Align the source symbols of pairs with their target symbols, as `pellucid align` does.

    Args:
        pairs: A file of pairs, two parallel files, or pairs in memory; see `train`. Blank lines of files are skipped.
        run: Run folder, folders of an ensemble, or a loaded model; None, the default, for a many-to-many model that is
            fitted to the pairs.
        limits: Sizes that a chunk may have; by default at most two symbols on one side, with insertions and deletions.
        method: "attention" (the monotone path through the attention weights of `run`), or "em": without `run`, a model
            fitted by expectation-maximization; with `run`, its pair n-gram model, whose chunks have their own limits.
            "auto", the default, is attention with `run`, else em.
        data: Data settings of pairs without `run`, such as {"target_symbols": "words"}; None for the defaults.
        device: Device of the run, unless the model is loaded.

    Returns:
        The alignment of each pair, in order; None for a pair without an alignment within the limits.

    Raises:
        ArgumentError: An argument has the wrong type, or is out of range or without effect.
        DataError: The pairs cannot be read, or a row is bad.
        ConfigError: A setting is not valid, or the run has no attention, or no pair n-gram model.
        RunError: The run folder is missing, incomplete or damaged.
    """
    limits = convert_argument("limits", limits, ChunkLimits)
    method = convert_argument("method", method, AlignmentMethod)
    if run is None:
        if method == "attention":
            raise ArgumentError("method: 'attention' needs a run")
        settings = _data_settings(data)
        tokenizers = build_tokenizers(settings)
        examples = _read_pairs(pairs, settings)
        symbols = [tokenizers.split_pair(pair.source, pair.target) for pair in examples]
        return align_symbols(symbols, limits)
    if data is not None:
        raise ArgumentError("data: expected None with a run, whose data settings are used")
    if method == "em" and limits != DEFAULT_LIMITS:
        raise ArgumentError("limits: the pair n-gram model of a run has its own chunks; leave out the limits")
    predictor = _load_model(run, device)
    transducer = require_transducer(predictor, "method") if method == "em" else None
    if transducer is not None:
        transducer.check_pair_ngram_alignment()  # before the pairs are read
    examples = _read_pairs(pairs, predictor.config.data, predictor)
    return predictor.align(examples, limits) if transducer is None else transducer.align_by_pair_ngram(examples)


def audit(
    pairs: Pairs,
    options: AuditOptions | None = None,
    config: Config | Mapping[str, Any] | None = None,
    device: Device = "cpu",
    decided: Sequence[str | Path] = (),
) -> list[AuditRecord]:
    """Rank pairs by how suspicious their targets are, and say why, as `pellucid audit` does.

    Each target is compared with the output of models that were trained without its source. With more than one job, a
    script must call this function under `if __name__ == "__main__":`.

    Args:
        pairs: A file of pairs, two parallel files, or pairs in memory; see `train`. Bad rows and rows without a target
            are left out, with a warning; the records of the others have their line or row numbers.
        options: Models, folds and jobs; the defaults of `AuditOptions` if None.
        config: Settings of the networks and of the data, as in `train`, such as {"data": {"target_symbols": "words"}};
            the size is "small" if none is given.
        device: Device of the networks, unless `config` is a `Config`.
        decided: Files of earlier decisions: pairs that they keep are left out; none by default.

    Returns:
        One record per pair, the most suspicious first.

    Raises:
        ArgumentError: An argument has the wrong type, or is only for networks, which are not used.
        DataError: The pairs cannot be read, most rows are bad, there is a single source, or no pair n-gram model can be
            fitted to them; or a file of decisions cannot be read.
        ConfigError: A setting is not valid, or has no effect in an audit.
        RunError: A network cannot be trained (as in `train`).
    """
    chosen = AuditOptions() if options is None else convert_argument("options", options, AuditOptions)
    given = convert_argument("config", config, Config | Mapping[str, Any] | None) or {}
    device = convert_argument("device", device, Device)
    settings = (
        given
        if isinstance(given, Config)
        else build_config({"device": device, **given, "size": given.get("size", "small")}, "config")
    )
    reject_unused_settings(settings.data, settings.task)
    if chosen.models == "pair-ngram" and chosen.run is not None:
        raise ArgumentError("options.run is for networks: give models 'network' or 'both'")
    if chosen.models == "pair-ngram" and device != "cpu":
        raise ArgumentError("device is for networks: give options with models 'network' or 'both'")
    kept = read_decided_pairs([Path(path) for path in convert_argument("decided", decided, Sequence[str | Path])])
    entries, notes = _read_audited(pairs, settings.data)
    report = audit_entries(entries, settings, chosen)
    for note in (*notes, *report.notes):
        warnings.warn(note, stacklevel=2)
    return exclude_decided(report.records, kept)


def _read_audited(pairs: Pairs, data: DataConfig) -> tuple[list[AuditEntry], list[str]]:
    """Return the entries of pairs, and notes on rows that are left out: bad ones, and those without a target."""
    data, without_target, notes = msgspec.structs.replace(data, on_bad_line="skip"), list[int](), list[str]()
    source, target = _read_argument("pairs", pairs, "", data)
    if isinstance(source, InMemoryTable):
        reading, unlabeled = read_partially_labeled_table(source, data)
        without_target = [row for row, _ in unlabeled]
    elif target is None:
        reading, unlabeled = read_partially_labeled(source, data)
        without_target = [line for line, _ in unlabeled]
    else:
        reading = read_examples(source, data, target)
    name, num_bad = source.name if isinstance(source, InMemoryTable) else source, len(reading.bad_lines)
    if num_bad:
        check_bad_lines_fraction(num_bad, num_bad + len(reading.examples), name, reading.bad_lines[0])
        notes.append(f"bad rows of {name} that are skipped: {num_bad:,}; the first: {reading.bad_lines[0]}")
    if without_target:
        notes.append(
            f"rows of {name} without a target, which are not audited: {len(without_target):,}; the first is "
            + (f"{source.unit} " if isinstance(source, InMemoryTable) else "in line ")
            + f"{without_target[0]:,}"
        )
    lines = zip(reading.line_numbers, reading.examples, strict=True)
    return [AuditEntry(line, example) for line, example in lines], notes


def _data_settings(data: DataConfig | Mapping[str, Any] | None) -> DataConfig:
    """Return data settings of pairs without a run; those that are not given have their defaults."""
    given = convert_argument("data", data, DataConfig | Mapping[str, Any] | None)
    if not isinstance(given, DataConfig):
        given = build_config({"size": "tiny", "data": given or {}}, "data").data
    if "subwords" in (given.source_symbols, given.target_symbols):
        raise ConfigError("data: subwords are learned by a training: give its run")
    return given


def _good_rows(items: Iterable[Example | BadLine]) -> Iterator[Example]:
    """Yield the examples; raise `DataError` for the first bad row."""
    for item in items:
        if isinstance(item, BadLine):
            raise DataError(str(item))
        yield item


def _load_model(run: Model, device: Device, needs_pair_ngram: bool = True) -> Predictor:
    """Return a loaded model."""
    if isinstance(run, Predictor):
        return run
    return load(run, device, needs_pair_ngram)


def _evaluate(
    runs: Sequence[Model], pairs: Pairs, options: EvaluationOptions | None, device: Device
) -> list[RunEvaluation]:
    """Evaluate each run on the pairs, which are read by the settings of the first."""
    chosen = EvaluationOptions() if options is None else convert_argument("options", options, EvaluationOptions)
    predictors = [_load_model(run, device) for run in runs]
    for predictor in predictors:
        check_evaluation(predictor, chosen.texts, chosen.multi_reference, str)
    notes = list[str]()
    evaluated, files = _read_evaluated(predictors[0].config.data, pairs, chosen, notes.append)
    metrics = choose_custom_metrics([each.config for each in predictors], chosen.metrics, notes.append)
    names = [predictor.name or f"model {number}" for number, predictor in enumerate(predictors, 1)]
    names = names if len(set(names)) == len(names) else [f"{name} ({n})" for n, name in enumerate(names, 1)]

    def decode(predictor: Predictor, examined: EvaluationPairs) -> Iterator[list[list[Trace]]]:
        def decode_chunk(chunk: Sequence[Example], first: int) -> list[list[Trace]]:
            if chosen.sampling is not None:
                return predictor.sample_examples(chunk, chosen.sampling, first)
            if chosen.nbest is not None:
                return predictor.nbest_examples(chunk, chosen.nbest)
            return [[trace] for trace in predictor.predict_examples(chunk)]

        return map_chunks(decode_chunk, examined.example_chunks())

    outputs_per_source = 0 if chosen.sampling is not None else chosen.nbest or 1
    named = list(zip(names, predictors, strict=True))
    evaluations = evaluate_predictors(named, evaluated, decode, chosen.texts, outputs_per_source)
    evaluations = with_custom_metrics(evaluations, metrics)
    remarks = tuple(note.removeprefix("note: ") for note in notes)
    recorded = add_provenance(evaluations, files, chosen.nbest, chosen.sampling, chosen.multi_reference)
    return [
        evaluation._replace(
            notes=remarks,
            unfinished=_unfinished_trainings(run),
            final_updates=_read_final_updates(run),
            training_checksums=_read_training_checksums(run),
        )
        for evaluation, run in zip(recorded, runs, strict=True)
    ]


def _unfinished_trainings(run: Model) -> tuple[UnfinishedTraining, ...]:
    """Return the unfinished trainings of a model; of a loaded one they are unknown."""
    return tuple(unfinished for path in _run_folders(run) for unfinished in find_unfinished(path))


def _read_final_updates(run: Model) -> FinalUpdates | None:
    """Return the number of updates of the training of a run; None for a loaded model and for an ensemble."""
    folders = _run_folders(run)
    return read_final_updates(folders[0]) if len(folders) == 1 else None


def _read_training_checksums(run: Model) -> tuple[str, ...]:
    """Return the checksums of the training files of a model; empty for a loaded one, of which they are unknown."""
    return tuple(checksum for path in _run_folders(run) for checksum in read_training_checksums(path))


def _run_folders(run: Model) -> Sequence[str | Path]:
    """Return the run folders of a model; none for a loaded one, of which they are unknown."""
    if isinstance(run, Predictor):
        return ()
    return run if isinstance(run, list | tuple) else [run]


def _read_evaluated(
    trained: DataConfig, pairs: Pairs, options: EvaluationOptions, report: ReportNote
) -> tuple[EvaluationPairs, tuple[EvaluatedFile, ...]]:
    """Return the pairs of an evaluation, and the record of their file; no record of a table."""
    data = msgspec.structs.replace(trained, group_column=options.group, on_bad_line=options.on_bad_line)
    source, target = _read_argument("pairs", pairs, "", pair_config(data), "group")
    if isinstance(source, InMemoryTable):
        evaluated = EvaluationPairs(options.multi_reference, source.name)
        reading, groups = read_table_examples(source, config_for_rows(source, pair_config(data)), "group")
        evaluated.add(reading, groups or [""] * len(reading.examples))
        evaluated.arrange(report, str)
        return evaluated, ()
    if options.group and target is not None:
        raise ArgumentError("options.group: expected pairs with columns, got two parallel files")
    file_data = msgspec.structs.replace(trained, on_bad_line=options.on_bad_line)
    if target is None:
        file_data = pair_file_config(source, file_data)
    file_data = evaluation_data_config(file_data, source, "auto")
    evaluated = EvaluationPairs(options.multi_reference, describe_pair_files(source, target))
    group = GroupColumn(options.group, "group") if options.group else None
    for block, groups in read_evaluation_blocks(source, target, file_data, group, report):
        evaluated.add(block, groups)
    evaluated.arrange(report, str)
    return evaluated, (describe_evaluated_file(source, target, evaluated.num_rows, str(source)),)


def _train_single(
    files: TrainingSets, folder: Path, config: Config, started_at: float, event_callbacks: EventCallbacks
) -> bool:
    """Train a single model, and report its events; return whether a callback has interrupted the training."""
    was_interrupted = False
    events = train_run(files, folder, config, started_at, event_callbacks.size_origin)
    origin = event_callbacks.size_origin
    display = training_progress(has_default_size=origin.says_default(config), size_chosen=origin.measured)
    with display if event_callbacks.progress else nullcontext() as reporter, closing(events):
        for event in events:
            if reporter is not None:
                reporter.report(event)
            interrupted = event_callbacks.notify(folder, event)
            if isinstance(event, CallbackInterrupted):
                was_interrupted = True
            if interrupted and not isinstance(event, TrainingStopped):
                was_interrupted = True
                break
    return was_interrupted


def _train_ensemble(
    files: TrainingSets, folder: Path, config: Config, num_members: int, event_callbacks: EventCallbacks
) -> bool:
    """Train the members of an ensemble in parallel, and report each validation; see `_train_single`."""
    training_jobs = plan_ensemble(files, folder, config, num_members, event_callbacks.size_origin)
    events = train_ensemble(training_jobs, folder, min(num_members, num_parallel_trainings(0, config)))
    display = multi_progress(has_default_size=event_callbacks.size_origin.says_default(config))
    with display if event_callbacks.progress else nullcontext() as progress, closing(events):
        for worker_event in events:
            if worker_event is None:
                continue
            if progress is not None:
                progress.report(worker_event.folder.name, worker_event.event)
            is_interrupted = event_callbacks.notify(worker_event.folder, worker_event.event)
            if is_interrupted or isinstance(worker_event.event, CallbackInterrupted):
                return True
    return False


def _read_argument(
    name: str, pairs: Pairs, purpose: str, data: DataConfig, group_setting: str = ""
) -> tuple[Path | InMemoryTable, Path | None]:
    """Return the pairs as a file or a table, and the file of targets if the pairs are two parallel files."""
    if _are_paths(pairs):
        converted: Path | tuple[Path, Path] = convert_argument(name, pairs, PairFiles)
        return (converted, None) if isinstance(converted, Path) else converted
    return read_table(name, pairs, purpose, training_columns(data, group_setting)), None


def _is_path(value: object) -> bool:
    """Return whether an argument is a path."""
    try:
        return isinstance(python_scalar(value), str | os.PathLike)
    except Exception:  # __class__ of an object may raise anything
        return False


def _are_paths(pairs: object) -> bool:
    """Return whether an argument is a path, or a tuple or list of the two paths of parallel files."""
    try:
        is_pair = isinstance(pairs, tuple | list) and len(pairs) == 2
    except Exception:  # __class__ of an object may raise anything
        return False
    return _is_path(pairs) or (is_pair and all(map(_is_path, cast(Sequence[object], pairs))))
