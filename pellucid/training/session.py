"""Training from files into a run folder, new or resumed."""

import hashlib
import math
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from pellucid.argument_checks import check_arguments
from pellucid.config.extension_errors import named_extension_errors
from pellucid.config.renamed_settings import hashed_settings
from pellucid.config.settings import Config, DataConfig, memory_size
from pellucid.config.task_settings import pair_ngram_notes
from pellucid.config.toml import unused_extension_notes, validate_config
from pellucid.data.corpus import EncodedCorpus
from pellucid.data.encoding import EncodedExamples
from pellucid.data.examples import Example
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.length_limits import check_length_limits
from pellucid.errors import ConfigError, OutOfMemoryError, RunError, is_out_of_memory, quote
from pellucid.files import file_exists, has_content, remove_file, write_atomic
from pellucid.kernels.dispatch import are_kernels_disabled, will_compile
from pellucid.kernels.kernel_loader import compilation_seconds, load_kernels
from pellucid.model.attention import attention_notes
from pellucid.model.device import (
    check_gradients,
    check_precision,
    check_torch_defaults,
    find_device,
    move_to_device,
    use_determinism,
    use_threads,
)
from pellucid.model.footprint import check_memory
from pellucid.model.network import Network, parameter_count
from pellucid.process_limits import memory_advice
from pellucid.run_folder import run_files
from pellucid.run_folder.identity import find_versions, format_versions, read_identity
from pellucid.run_folder.initial_run import InitialRun, load_initial_run, resolve_initial_run
from pellucid.run_folder.initialization import (
    check_same_config,
    check_same_vocabularies,
    check_training_folder,
    initialize_run_folder,
    repair_config,
)
from pellucid.run_folder.lock import FolderLock, lock_run_folder
from pellucid.run_folder.log import RunLog, append_log, load_run_log, sync_log, truncate_log
from pellucid.run_folder.model_file import VERSIONS
from pellucid.run_folder.network_file import check_network
from pellucid.tasks.registry import build_meta_network, build_network, get_task
from pellucid.training import snapshots
from pellucid.training.augmentation import augment_data
from pellucid.training.callbacks import build_callbacks, notify_callbacks
from pellucid.training.checkpoint import DataMismatchError, restore_training_state, save_training_state
from pellucid.training.confidence_training import has_confidence
from pellucid.training.corpus_cache import save_corpus
from pellucid.training.data_parallel import check_data_parallel, serve_updates, start_workers
from pellucid.training.data_warnings import check_vocabularies, data_warnings
from pellucid.training.events import (
    GIVEN_SIZE,
    DataAugmented,
    FileRead,
    ModelBuilt,
    PairsMixedIn,
    RunEvent,
    SizeOrigin,
    TrainingStopped,
)
from pellucid.training.fine_tuning import freeze_parts, frozen_part_warnings, initialize_network
from pellucid.training.loop import fit
from pellucid.training.mix_in import mix_in_pairs
from pellucid.training.model_card import build_model_card, is_damaged_card
from pellucid.training.optimizer import build_optimizer
from pellucid.training.pretrained_embeddings import load_pretrained
from pellucid.training.run_folder_writer import (
    RunFolderWriter,
    append_records,
    encode_best_model,
    finish_run_folder,
    fit_or_read_pair_ngram,
)
from pellucid.training.schedule import stop_reason
from pellucid.training.training_data import (
    PairCounts,
    TrainingData,
    TrainingInputs,
    count_pairs,
    encode_training_data,
    input_paths,
    prepared_folder,
    read_training_data,
    resolve_auto_settings,
)
from pellucid.training.training_length import has_equal_epochs
from pellucid.training.training_lock import one_training_thread
from pellucid.training.training_records import LoggedOnce, changed_files, log_record_before_training, size_record
from pellucid.training.training_state import TrainingState
from pellucid.training.worker_group import WorkerGroup, connected_workers

HASH_BLOCK = 1 << 20
"""Number of ids hashed at a time."""


@contextmanager
def _convert_memory_errors(folder: Path) -> Iterator[None]:
    """Convert a failed allocation in the block to `OutOfMemoryError`, which says what to reduce."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(
            f"{folder}: out of memory; {memory_advice()}, and name another run folder; or run the same command again "
            "where more memory is free: it resumes from the last checkpoint, which is kept"
        ) from error


@check_arguments
def train_run(
    files: TrainingInputs,
    folder: str | Path,
    config: Config,
    started_at: float | None = None,
    size_origin: SizeOrigin = GIVEN_SIZE,
) -> Generator[RunEvent]:
    """Train from files into a run folder, or resume the training in it.

    Closing the generator between two events of the training loop saves a checkpoint. The number of threads and torch's
    choice of deterministic algorithms are set for the whole process. Only one thread of a process may train at a time,
    because threads share torch's random number generator; parallel trainings need processes (`train_ensemble`).

    In the processes of torchrun, they train one network together (`pellucid.training.data_parallel`). Worker 0 yields
    the events; the others yield none.

    Args:
        files: Training and validation data.
        folder: Run folder: missing, empty, or with a run of the same settings and data.
        config: Configuration; the run folder records the detected data format and device in place of "auto".
        started_at: Start of a time limit, as time of `time.monotonic`. The default, None, is the first event.
        size_origin: How the size was chosen, which the log of a new run records; by default, the user gives it.

    Yields:
        One `FileRead` per data file, `DataAugmented` with augmentation, `PairsMixedIn` with earlier pairs,
        `ModelBuilt` (the first event of a resumed training), `PairNgramFitted` if a pair n-gram model is fitted or
        none can be, the events of `fit` with `PairNgramWeighted` before `TrainingStopped` if its weight is chosen, and
        then `ConfidenceFitted`, and `FileSaved` after each write of checkpoint or model in the loop. A training that
        has ended yields `TrainingStopped` after `ModelBuilt`, and before it the events of a pair n-gram model that was
        missing or had no weight, and of a confidence that was missing.

    Raises:
        DataError: A data file cannot be read or holds no example, a line is bad (unless bad lines are skipped), the
            validation examples equal the training examples, no synthetic pair can be made, or a file of pretrained
            embeddings is malformed.
        ConfigError: Settings contradict each other or the data, a device, an extension or an optional library is
            missing, there is not enough memory, or the attention or cell of another package fails.
        RunError: Another thread of this process is training; torch's default type is not float32, its default device is
            "meta", or it computes no gradients; or the folder holds other files, is in use, holds a run
            with other settings or data, is damaged, or cannot be written.
        DivergenceError: A loss, gradient or parameter is not finite.
        OutOfMemoryError: An allocation failed; the last checkpoint is kept.
        WorkerLostError: Another process of the training has ended.
    """
    check_torch_defaults()
    check_gradients()
    started_at = time.monotonic() if started_at is None else started_at
    with (
        one_training_thread(),
        named_extension_errors(),
        _convert_memory_errors(Path(folder)),
        connected_workers() as workers,
    ):
        if workers is not None and workers.rank:
            serve_updates(workers)
            return
        if workers is not None:
            check_data_parallel(config)
        callbacks = build_callbacks(config)
        training_start = TrainingStart(started_at, size_origin)
        with closing(_run_training(files, Path(folder), config, training_start, workers)) as events:
            yield from notify_callbacks(events, Path(folder), callbacks)


class TrainingStart(NamedTuple):
    """Start of a training: its time, and how its size was chosen."""

    started_at: float
    """Start of a time limit, as time of `time.monotonic`."""
    size_origin: SizeOrigin


def _run_training(
    files: TrainingInputs, folder: Path, config: Config, training_start: TrainingStart, workers: WorkerGroup | None
) -> Generator[RunEvent]:
    """Train from files into a run folder, new or resumed, and yield the events."""
    unresolved_data = config.data
    config = _resolve_config(files, folder, config)
    use_threads(config.threads)
    use_determinism(config)
    initial = _load_initial_run(config, folder)
    is_resumed = file_exists(folder / run_files.CHECKPOINT)
    # Without a checkpoint, nothing tells whether a corpus holds the examples of the files.
    corpus_path = folder / run_files.CORPUS if is_resumed else None
    # With header = "auto" the first lines are checked; the resolved setting would say that there is no header.
    training_data = read_training_data(files, config, unresolved_data, corpus_path, folder / run_files.VALIDATION)
    file_events = training_data.file_events
    has_saved_corpus = training_data.corpus is not None
    # A new training yields each event at once. A resumed one compares its data with the checkpoint before.
    if not is_resumed:
        yield from file_events
    with lock_run_folder(folder) as lock:
        check_same_config(folder, config)  # again: another training may have started a run here meanwhile
        training_data, pair_events = _add_pairs(training_data, config, unresolved_data)
        if not is_resumed:
            yield from pair_events
        data_events = [*file_events, *pair_events]
        initial = None if file_exists(folder / run_files.CHECKPOINT) else initial or _load_initial_run(config, folder)
        contents = _encode_training_data(training_data, files, folder, config, initial)
        validation_file = training_data.validation_file
        del training_data  # frees the texts of a large file; training needs only the ids
        with _explain_other_data(folder, file_events, has_saved_corpus and prepared_folder(files) is None):
            state, fingerprint, log, model_built = _open_training(lock, config, contents)
        if validation_file and not has_content(folder / run_files.VALIDATION, validation_file):
            write_atomic(folder / run_files.VALIDATION, validation_file)
        if not (has_saved_corpus or state.progress.is_finished or config.decoder.pointer_generator or pair_events):
            saved_corpus = save_corpus(folder / run_files.CORPUS, contents.corpus, files, unresolved_data)
            state.encoded_training_examples = saved_corpus.encoded
        del contents
        yield model_built  # of a resumed training first: it names the update from which the training continues
        if is_resumed:
            yield from data_events
        if model_built.compiles:
            append_records(lock, log, {"event": "compiling"})
        if state.progress.is_finished:
            yield from _complete_finished_run(state, lock, log, fingerprint)
            return
        # A resumed training may validate before its first update: with kernels, as the undisturbed training did.
        _load_kernels(config)  # before the first update, where the training can be interrupted at once
        if workers is not None:
            start_workers(state, workers)
        _record_size(lock, log, training_start.size_origin, model_built)
        measured = training_start.size_origin.measured
        if measured is not None and not state.progress.update:
            state.progress = msgspec.structs.replace(state.progress, expected_epochs=measured.epochs)
        writer = RunFolderWriter(state, lock, fingerprint, log)
        yield from _train_and_save(writer, data_events, training_start.started_at)


def _complete_finished_run(state: TrainingState, lock: FolderLock, log: RunLog, fingerprint: str) -> Iterator[RunEvent]:
    """Write the files that a finished run lacks, and yield the events of the fits and of the end."""
    if not has_confidence(lock.folder, fingerprint):  # it is fitted with kernels, as in an undisturbed training
        _load_kernels(state.config)
    with lock.replacement_reported():
        yield from finish_run_folder(state, lock, log, fingerprint)
    yield TrainingStopped(state.progress, stop_reason(state.progress, state.config.training))


def _add_pairs(
    data: TrainingData, config: Config, unresolved: DataConfig
) -> tuple[TrainingData, list[DataAugmented | PairsMixedIn]]:
    """Return training data with synthetic and earlier pairs, where the settings ask for them, and their numbers."""
    augmented = mixed = None
    if config.training.augmentation != "none":
        data, augmented = augment_data(data, config)
    if config.training.mix_in:
        data, mixed = mix_in_pairs(data, config, unresolved)
    return data, [event for event in (augmented, mixed) if event is not None]


def _resolve_config(files: TrainingInputs, folder: Path, config: Config) -> Config:
    """Return the checked configuration of a training, as its run folder records it.

    This precedes the reading of the data, which may take long.
    """
    config = msgspec.structs.replace(config, data=resolve_auto_settings(files, config.data))
    # The run folder records the device that was found. A training resumes only on such a device.
    device = find_device(config.device)
    check_precision(device, config.precision)
    config = validate_config(msgspec.structs.replace(config, device=device.type))
    check_training_folder(folder, input_paths(files, config))
    config = resolve_initial_run(config, folder)
    check_same_config(folder, config)
    return config


@contextmanager
def _explain_other_data(folder: Path, file_events: Sequence[FileRead], is_saved_corpus: bool) -> Iterator[None]:
    """Add the cause to the error for a checkpoint of other data: a corpus of the run folder, or changed files."""
    try:
        yield
    except DataMismatchError as error:
        if is_saved_corpus:
            raise RunError(
                f"{folder / run_files.CORPUS} does not hold the examples of {folder / run_files.CHECKPOINT}: remove "
                "it, and run the command again, which reads the training files"
            ) from error
        changed = "; ".join(["", *changed_files(load_run_log(folder), file_events)])
        raise RunError(f"{error}{changed}") from error


def _load_kernels(config: Config) -> None:
    """Load the kernels, unless the training does not use them; raise `ConfigError` if it cannot do without."""
    if config.device != "cpu" or are_kernels_disabled():
        return
    if not load_kernels() and config.precision == "bf16":
        raise ConfigError(
            "precision: expected float32 on this machine, got 'bf16': on the CPU it needs the kernels, which cannot be "
            "compiled here; the warning says why"
        )


class EncodedTrainingData(NamedTuple):
    """Data of a training, and the run from which it begins."""

    corpus: EncodedCorpus
    """Training examples in ids."""
    validation_examples: Sequence[Example]
    validation_lines: Sequence[int]
    """Number of the line of each validation example."""
    num_mixed_in: int
    """Number of the last training examples that are earlier pairs, of which each epoch draws some."""
    initial: InitialRun | None
    """Run from which the training begins; None for a random network, and if it is resumed."""
    counts: PairCounts
    """Numbers of the pairs of the training file."""


def _encode_training_data(
    data: TrainingData, files: TrainingInputs, folder: Path, config: Config, initial: InitialRun | None
) -> EncodedTrainingData:
    """Return the data of a training with its training examples in ids."""
    return EncodedTrainingData(
        encode_training_data(data, config, _initial_vocabularies(folder, config, initial)),
        data.validation_examples,
        data.validation_lines,
        data.num_mixed_in,
        initial,
        count_pairs(files, data.file_events),
    )


def _load_initial_run(config: Config, folder: Path) -> InitialRun | None:
    """Return the initial run of a new training; None without one, and if the training is resumed."""
    if not config.training.init_from or file_exists(folder / run_files.CHECKPOINT):
        return None
    return load_initial_run(config)


def _initial_vocabularies(folder: Path, config: Config, initial: InitialRun | None) -> Vocabularies | None:
    """Return the vocabularies that those of a fine-tuning extend: of its initial run, or of the run that is resumed."""
    if initial is not None:
        return initial.predictor.vocabularies
    return run_files.load_run_vocabularies(folder, config) if config.training.init_from else None


def build_checked_network(config: Config, vocabularies: Vocabularies) -> Network:
    """Return a new network, on the CPU, after checking that there is enough memory to train it.

    Args:
        config: Configuration.
        vocabularies: Vocabularies of the training examples.

    Raises:
        ConfigError: Memory is not enough.
    """
    check_memory(config, build_meta_network(config, vocabularies), "train", find_device(config.device))
    return build_network(config, vocabularies)


def build_state(
    network: Network,
    config: Config,
    vocabularies: Vocabularies,
    encoded: EncodedExamples,
    validation_examples: Sequence[Example],
    name: str,
) -> TrainingState:
    """Return the state of a training before its first update; the network is moved to its device.

    Args:
        network: The network.
        config: Configuration.
        vocabularies: Vocabularies of the training examples.
        encoded: Training examples in ids.
        validation_examples: Validation examples.
        name: Name of the model in messages.
    """
    move_to_device(network, find_device(config.device))
    predictor = get_task(config.task).build_predictor(config, vocabularies, network, name)
    return TrainingState(predictor, build_optimizer(network, config.training), encoded, validation_examples)


class OpenedTraining(NamedTuple):
    """A training that can begin or continue."""

    state: TrainingState
    fingerprint: str
    """Hash of settings and data."""
    log: RunLog
    """The log of the run, which is read once."""
    model_built: ModelBuilt


def _open_training(lock: FolderLock, config: Config, contents: EncodedTrainingData) -> OpenedTraining:
    """Return the training of a run: new, or restored from a checkpoint with the same settings and data.

    The first files of a new run are written; the folder of a resumed one is repaired (`_repair_folder`).
    """
    corpus, validation_examples, initial = contents.corpus, contents.validation_examples, contents.initial
    folder, vocabularies = lock.folder, corpus.vocabularies
    check_vocabularies(vocabularies, config)
    check_length_limits(config.search, vocabularies)
    compared = msgspec.structs.replace(config, training=msgspec.structs.replace(config.training, callbacks=()))
    fingerprint = _fingerprint((compared, vocabularies, validation_examples), corpus.encoded)
    resumed = file_exists(folder / run_files.CHECKPOINT)
    network = build_checked_network(config, vocabularies)
    coverage = () if resumed else load_pretrained(network, config, vocabularies)
    # Symbols of the initial run keep their vectors; pretrained ones are for new symbols.
    initialized = None if initial is None else initialize_network(network, initial, config, vocabularies)
    freeze_parts(network, config)
    lock.check()  # the data and the network took a while
    if not resumed:
        initialize_run_folder(folder, config, vocabularies)
    state = build_state(network, config, vocabularies, corpus.encoded, validation_examples, str(folder))
    state.num_mixed_in = contents.num_mixed_in
    if initialized is not None:  # with the checkpoint, the run needs its initial run no longer
        append_log(folder, log_record_before_training(initialized))
        sync_log(folder)
        save_training_state(folder / run_files.CHECKPOINT, state, fingerprint)
    if resumed:
        restore_training_state(folder / run_files.CHECKPOINT, state, fingerprint)
        check_same_vocabularies(folder, vocabularies, config.data)
    log, messages = _repair_folder(state, folder, fingerprint)
    is_finished = state.progress.is_finished
    frozen = () if initialized is None else frozen_part_warnings(config, initialized)
    notes = [*log.describe_damage(), *messages, *log.describe_missing_validation(state.progress)]
    notes += [] if is_finished else _continuation_notes(state, log)
    warnings = (*data_warnings(state.predictor, validation_examples, contents.validation_lines), *frozen, *notes)
    compiles = not is_finished and config.device == "cpu" and will_compile()
    started = log.all("started")
    model_built = ModelBuilt(
        folder=folder,
        size=config.size,
        num_parameters=parameter_count(network),
        vocabularies=vocabularies,
        resumed=resumed,
        compiles=compiles,
        coverage=coverage,
        warnings=warnings,
        initialized=initialized,
        is_finished=is_finished,
        num_pairs=contents.counts.all_pairs,
        num_held_out=contents.counts.held_out,
        batch_size=f"{state.batch_size:,} {config.training.batch_type}",
        is_stream=not contents.counts.are_known_before,
        task=config.task,
        num_updates=state.progress.update,
        max_updates=started[-1].get("updates") if resumed and started else None,
        has_equal_epochs=has_equal_epochs(config.training),
    )
    return OpenedTraining(state, fingerprint, log, model_built)


def _continuation_notes(state: TrainingState, log: RunLog) -> list[str]:
    """Return the notes about a training that begins or continues: versions, extensions, attention, pair n-grams."""
    config = state.config
    attention = attention_notes(state.predictor.network, config.decoder.hidden_size, memory_size(config.encoder))
    return [*_version_note(log, config), *unused_extension_notes(config), *attention, *pair_ngram_notes(config)]


def _repair_folder(state: TrainingState, folder: Path, fingerprint: str) -> tuple[RunLog, list[str]]:
    """Bring the run folder to the state of its checkpoint; return its log, and messages about repaired files.

    The log and the snapshots are written before the checkpoint, so they may be ahead. The best model is written after
    it, so it may be missing; then it equals that of the checkpoint.
    """
    progress, messages = state.progress, repair_config(folder, state.config)
    if progress.best_validation_score is not None and progress.best_update == progress.update:
        model = encode_best_model(state, fingerprint, _recorded_versions(folder))
        if not has_content(folder / run_files.MODEL, model):
            if _is_damaged(folder / run_files.MODEL, state):
                messages.append(f"{folder / run_files.MODEL} was damaged: it is written anew from the checkpoint")
            write_atomic(folder / run_files.MODEL, model)
    elif progress.best_validation_score is not None:
        check_network(folder / run_files.MODEL, state.predictor.network)
        identity = read_identity(folder)
        identity.check_training(folder / run_files.CHECKPOINT, fingerprint)
        identity.check_update(progress.best_update)
    log = truncate_log(folder, progress, fingerprint)
    snapshots.remove_later_snapshots(folder, snapshots.SnapshotNumber(progress.validations, progress.update))
    snapshots.check_snapshots(folder, fingerprint)
    if file_exists(folder / run_files.CARD) and is_damaged_card(folder / run_files.CARD, build_model_card(state, log)):
        messages.append(f"{folder / run_files.CARD} was damaged: it is written anew at the end of the training")
        remove_file(folder / run_files.CARD)
    return log, messages


def _is_damaged(model: Path, state: TrainingState) -> bool:
    """Return whether a model file exists but does not hold the parameters of this network."""
    try:
        if file_exists(model):
            check_network(model, state.predictor.network)
    except RunError:
        return True
    return False


def _recorded_versions(folder: Path) -> str:
    """Return the versions in the model file of a run, as they are recorded; "" if there are none."""
    with suppress(RunError):  # a damaged model is written anew
        return read_identity(folder).metadata.get(VERSIONS, "")
    return ""


def _version_note(log: RunLog, config: Config) -> list[str]:
    """Return a list of one sentence if a training continues with other versions than those of its start."""
    started, now = log.first("started") or {}, format_versions(find_versions(config, of_training=True))
    if started.get("versions", now) == now:
        return []
    return [
        f"the training began with {quote(started['versions'])}, and continues with {quote(now)}: results may differ"
    ]


def _record_size(lock: FolderLock, log: RunLog, origin: SizeOrigin, model_built: ModelBuilt) -> None:
    """Write into the log of a new run how its size was chosen."""
    lock.check()
    if origin != GIVEN_SIZE and not (log.all("started") or log.all("size_chosen")):
        append_records(lock, log, size_record(origin.measured or model_built))


def _train_and_save(
    writer: RunFolderWriter, data_events: Sequence[LoggedOnce], started_at: float
) -> Iterator[RunEvent]:
    """Yield the events of the loop, and update the run folder after each.

    A time limit begins at `started_at`, a time of `time.monotonic`.
    """
    state, lock, log = writer.state, writer.lock, writer.log
    # A write that a crash cut, or a loss of power, may have left the first of these records only.
    num_logged = sum(len(log.all(event)) for event in ("read", "augmented", "mixed_in"))
    if missing := data_events[num_logged:]:
        append_records(lock, log, *map(log_record_before_training, missing))
    with lock.replacement_reported():
        yield from fit_or_read_pair_ngram(state, lock, log, writer.fingerprint)
    clock = OverheadClock(state, started_at)
    clock.record()
    try:
        for event in fit(state):
            if isinstance(event, TrainingStopped):
                with lock.replacement_reported():
                    yield from finish_run_folder(state, lock, log, writer.fingerprint)
            # The files are written before the event is yielded, so that a consumer that stops here loses nothing.
            saved = writer.save_files(event)
            yield event
            yield from saved
            clock.record()
    except GeneratorExit:
        # The consumer closed the generator between two events: the state is consistent, and is saved.
        writer.save_checkpoint()
        raise


class OverheadClock:
    """Clock of the time outside updates and validations, which a time limit contains too.

    The time to compile kernels, once on a machine, does not count.
    """

    def __init__(self, state: TrainingState, started_at: float) -> None:
        """Start the clock at the start of a time limit.

        Args:
            state: Training state, new or restored.
            started_at: Start of a time limit, as time of `time.monotonic`.
        """
        self.state = state
        self.started_at = started_at
        self.first_progress = state.progress

    def record(self) -> None:
        """Write the time so far into the progress, if the training has a time limit."""
        if math.isinf(self.state.time_limit):
            return
        progress, first = self.state.progress, self.first_progress
        elapsed = time.monotonic() - self.started_at - compilation_seconds(self.started_at)
        elapsed -= progress.seconds - first.seconds
        overhead_seconds = first.overhead_seconds + max(0.0, elapsed)
        self.state.progress = msgspec.structs.replace(
            progress,
            overhead_seconds=overhead_seconds,
            preparation_seconds=progress.preparation_seconds if progress.update else overhead_seconds,
        )


def _fingerprint(description: tuple[Config, Vocabularies, Sequence[Example]], encoded: EncodedExamples) -> str:
    """Return a hash of the settings and the data, which must be equal when a run is resumed."""
    digest = hashlib.sha256()
    for column in encoded.columns().values():
        for start in range(0, len(column.values), HASH_BLOCK):
            digest.update(column.values[start : start + HASH_BLOCK].astype(np.int32).data)
        digest.update(column.offsets.data)
    config, *others = description
    digest.update(msgspec.json.encode((hashed_settings(config), *others)))
    return digest.hexdigest()
