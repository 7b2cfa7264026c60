"""Events of a training: those of its loop (`Event`), and those of the files around it (`RunEvent`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from pellucid.config.presets import LARGE_DATA
from pellucid.config.settings import DEFAULT_TASK, Config, Size, TaskName
from pellucid.data.readers import BadLine
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.trace import Trace
from pellucid.errors import count_noun
from pellucid.files import FileDigest
from pellucid.run_folder.progress import Progress
from pellucid.training.training_length import max_updates


class FileRead(NamedTuple):
    """The training or the validation set was read."""

    path: Path | str
    """The file; the name of a table in memory, such as "the training data frame"."""
    num_examples: int
    """Number of examples."""
    bad_lines: Sequence[BadLine]
    """Lines that are no examples and were skipped."""
    num_blank_lines: int
    """Number of blank lines, which are skipped."""
    note: str
    """Remark about the file for the user, such as examples shared with the training file; empty if there is none."""
    target: Path | None = None
    """Separate file of the targets; None if `path` holds pairs."""
    digest: FileDigest | None = None
    """Size and checksum of the file; None if it is not a regular file."""
    target_digest: FileDigest | None = None
    """Size and checksum of the separate file of the targets."""
    text_note: str = ""
    """Note about repeated examples and about spaces at the ends of texts; empty if there is none."""
    num_shared: int = 0
    """Number of validation examples that are training examples, too; 0 for a training file."""


class DataAugmented(NamedTuple):
    """Synthetic pairs were added to the training examples."""

    kind: Literal["copy", "hallucinate"]
    num_examples: int
    """Number of pairs in the file."""
    num_synthetic: int
    """Number of synthetic pairs."""


class PairsMixedIn(NamedTuple):
    """Earlier training pairs were read, some of which are drawn for each epoch."""

    path: Path
    """File of the earlier pairs."""
    num_examples: int
    """Number of pairs in it, without those of the validation set."""
    num_per_epoch: int
    """Number of them that are drawn for each epoch."""
    num_new_examples: int
    """Number of other training examples, each of which an epoch has once."""
    num_validation: int
    """Number of its pairs that are left out, because the validation set has their sources, or words in context."""
    bad_lines: Sequence[BadLine] = ()
    """Lines that are no examples and were skipped."""
    digest: FileDigest | None = None
    """Size and checksum of the file; None if it is not a regular file."""


class NetworkInitialized(NamedTuple):
    """A new network received the parameters of an initial run, which has fewer symbols or the same."""

    run: Path
    """Folder of the initial run."""
    digest: str
    """SHA-256 of its model file in hexadecimal."""
    new_source: tuple[str, ...]
    """Source symbols that the initial run lacks."""
    new_target: tuple[str, ...]
    """Target symbols that the initial run lacks."""
    new_features: tuple[str, ...]
    """Features that the initial run lacks."""
    new_characters: tuple[str, ...] = ()
    """Characters of source words that the initial run lacks; empty for an encoder that reads none."""


class EmbeddingCoverage(NamedTuple):
    """Number of symbols of the source or target vocabulary that a file of pretrained embeddings contains."""

    path: Path
    """File of pretrained embeddings."""
    side: str
    """"source" or "target"."""
    num_found: int
    """Number of vocabulary symbols with a pretrained vector."""
    num_symbols: int
    """Number of vocabulary symbols, without PAD, BOS, EOS and UNK."""


class SizeMeasurementStarted(NamedTuple):
    """The speed of a few updates of each size is measured, to choose the size of a training with a time limit."""

    time_limit: str
    """The setting `training.time_limit`."""
    num_examples: int
    """Number of training examples."""
    compiles: bool
    """True if CPU kernels are compiled first, which takes one to two minutes of a core."""


class SizeChosen(NamedTuple):
    """The size of a training with a time limit was chosen by the speed of a few updates."""

    size: Size
    time_limit: str
    """The setting `training.time_limit`."""
    epochs: float
    """Estimated number of epochs for which the time is enough; it may exceed the maximum."""
    max_epochs: float
    """Maximum number of epochs."""
    updates_per_epoch: float
    """Estimated number of updates of an epoch."""
    batch_size: str
    """Size of a batch with its unit, such as "32 examples"."""
    next_larger_size: Size | None
    """The next larger size, which would make fewer than `needed_updates`; None if the largest size was chosen."""
    needed_updates: float
    """Number of updates for which the time of a size should be enough."""
    has_one_process: bool = True
    """False if several processes train at once, or on other machines: the measured speed is that of one process here.
    """
    estimated_updates: tuple[tuple[Size, int], ...] = ()
    """Each measured size, from the largest, with the estimated number of its updates."""
    updates_per_second: float = 0.0
    """Measured speed of the chosen size; 0 if it is unknown."""

    @property
    def updates(self) -> int:
        """Estimated number of updates."""
        return max_updates(min(self.epochs, self.max_epochs), self.updates_per_epoch)

    @property
    def reason(self) -> str:
        """Reason for no larger size, as a clause; empty if the time is enough for the largest."""
        needed = round(self.needed_updates)
        if self.epochs * self.updates_per_epoch < self.needed_updates:
            return f"even {self.size} makes fewer than {needed:,} updates in this time"
        if self.next_larger_size is not None:
            return f"size {self.next_larger_size} would make fewer than {needed:,} updates in this time"
        return ""


class SizeOrigin(NamedTuple):
    """Origin of the size of a network: the user gives it, it is a default, or it was measured for a time limit."""

    is_default: bool = False
    """Whether the size is the default for the number of training pairs."""
    measured: SizeChosen | None = None
    """Choice of the size for a time limit, by measured speed; None without a measurement."""

    def says_default(self, config: Config) -> bool:
        """Return whether a line says that the size is a default; with a time limit, another line has said it.

        Args:
            config: Configuration of the training.
        """
        return self.is_default and not config.training.time_limit


GIVEN_SIZE = SizeOrigin()
"""The user gives the size, or the run was started with it."""
DEFAULT_SIZE = SizeOrigin(is_default=True)
"""The number of training pairs determines the size."""


class SizeMeasurementSkipped(NamedTuple):
    """The size of a training with a time limit is the default, because its training file cannot be read twice."""

    size: Size
    path: Path
    """The file, such as a pipe."""


class ModelBuilt(NamedTuple):
    """The network is ready, new or restored from a checkpoint."""

    folder: Path
    """Run folder."""
    size: Size
    """Size preset of the network."""
    num_parameters: int
    """Number of parameters of the network."""
    vocabularies: Vocabularies
    resumed: bool
    """True if the training continues from a checkpoint. This event then precedes those of the data."""
    compiles: bool = False
    """True if CPU kernels are compiled before the first update, which takes one to two minutes of a core."""
    coverage: tuple[EmbeddingCoverage, ...] = ()
    """Coverage of the vocabularies by pretrained embeddings; empty without such embeddings, and if resumed."""
    warnings: tuple[str, ...] = ()
    """Sentences about the data and about damaged files of a resumed run."""
    initialized: NetworkInitialized | None = None
    """Initial run of a fine-tuning; None for a new network without one, and if resumed."""
    is_finished: bool = False
    """True if the training has reached its end before: it is not continued."""
    num_pairs: int = 0
    """Number of training pairs by which a default size is chosen, those that are held out for validation included."""
    num_held_out: int = 0
    """Number of these that are held out for validation."""
    batch_size: str = ""
    """Size of a batch with its unit, such as "32 examples"."""
    is_stream: bool = False
    """True if the pairs come from a pipe, so that their number was not known when a default size was chosen."""
    task: TaskName = DEFAULT_TASK
    """Name of the task; the number of pairs decides for the default task only."""
    num_updates: int = 0
    """Number of updates of the checkpoint from which the training continues; 0 for a new one."""
    max_updates: int | None = None
    """Maximum number of updates of a training that continues; None for a new one, or if its log does not tell it."""
    has_equal_epochs: bool = True
    """False if batches are measured in tokens, so that the maximum number of updates is approximate."""

    @property
    def default_size_reason(self) -> str:
        """Reason for the size if it is a default, as a clause."""
        if self.task != DEFAULT_TASK:
            return f"the default for task {self.task}"
        pairs = count_noun(self.num_pairs, "pair" if self.num_held_out else "training pair")
        verb = "is" if self.num_held_out == 1 else "are"
        held_out = f", of which {self.num_held_out:,} {verb} held out for validation" if self.num_held_out else ""
        if self.is_stream:
            return f"the default for a pipe, which cannot be counted before it is read; it has {pairs}{held_out}"
        rule = f" (from {LARGE_DATA:,} on)" if self.size == "large" else ""
        return f"the default for {pairs}{rule}{held_out}"


class PairNgramFitted(NamedTuple):
    """A pair n-gram model was fitted to the training examples, or none could be fitted."""

    num_examples: int
    """Number of examples to which it was fitted; 0 if there is no model: all are too long, none has an alignment, or
    the symbols are too many or too varied (`fit_pair_ngram`)."""
    num_available: int
    """Number of training examples, without the copied targets of augmentation. Those beyond a limit of size, without an
    alignment, or with unknown target symbols are left out."""
    exact_match: float
    """Percentage of these validation sources whose best output, by this model alone, is correct; 0 without sources."""
    num_sources: int
    """Number of different validation sources that were decoded; 0 without a model, or if none has a symbol."""
    are_all_too_long: bool = False
    """True if there is no model because every example exceeds the limit of size, which depends on a time limit."""
    num_uncovered: int = 0
    """Number of these sources with symbols for which the model writes nothing: no training pair aligns them alone or
    with their neighbor (`PairNgram.covers_source`)."""


class PairNgramWeighted(NamedTuple):
    """The interpolation weight of the pair n-gram model in predictions was chosen."""

    weight: float
    """Interpolation weight of its scores, 0 to 1; 0 unless another weight gives better outputs (`choose_weight`)."""
    exact_match: float
    """Percentage of validation sources whose best output, by the interpolated score, is correct; 0 without sources."""
    network_exact_match: float
    """Percentage of correct outputs if the network alone ranks the candidates."""
    pair_ngram_exact_match: float
    """Percentage of correct outputs if the pair n-gram model alone ranks the candidates of both. An unknown source
    symbol fits any target symbols there; its own outputs (`PairNgramFitted.exact_match`) have none for it."""
    num_sources: int
    """Number of different validation sources; 0 if none has a symbol."""
    in_predictions: bool = True
    """Whether the search settings of the run use the weight; otherwise they rank by the network alone."""


class ConfidenceFitted(NamedTuple):
    """The confidence of outputs was fitted to the outputs of the finished model for validation pairs."""

    num_examples: int
    """Number of validation pairs."""
    exact_match: float
    """Percentage of them whose output is correct."""
    probability_error: float
    """Expected calibration error of the probabilities of these outputs, in percent."""
    confidence_error: float
    """Expected calibration error of the confidences, which were fitted to these outputs, in percent."""
    seconds: float
    """Time of decoding and fitting."""


class TrainingStarted(NamedTuple):
    """A training started or resumed."""

    progress: Progress
    max_epochs: float
    """Maximum number of epochs."""
    max_updates: int
    """Maximum number of updates; approximate if batches are measured in tokens."""
    seconds_left: float | None = None
    """Seconds until the time limit; None without one."""
    has_equal_epochs: bool = True
    """False if batches are measured in tokens: epochs then differ in their number of batches."""


class UpdateCompleted(NamedTuple):
    """One parameter update was done."""

    progress: Progress
    """Progress after the update."""
    progress_fraction: float
    """Fraction of the maximum training length at the middle of the update, 0 to 1, for the schedules."""
    loss: float
    """Training loss of the batch."""
    learning_rate: float
    gradient_norm: float
    """Norm of all gradients after clipping by value and before clipping by norm."""


class ValidationCompleted(NamedTuple):
    """The validation set was decoded and evaluated."""

    progress: Progress
    """Progress after the validation."""
    metrics: dict[str, float]
    """Validation metrics by their keys in the log: rates in percent, and the loss."""
    is_best: bool
    """True if this validation is better than all before it."""
    traces: list[Trace]
    """Traces of the validation examples in order; empty in events that a worker process sends."""
    task: TaskName = DEFAULT_TASK
    epochs: float = 0.0
    """Number of passes over the training data before the validation, which may be a fraction."""


class TrainingStopped(NamedTuple):
    """The training reached its end, by maximum length or early stopping. An interruption has no such event."""

    progress: Progress
    reason: str
    """Reason of the end, as a clause: "the maximum number of epochs is reached"."""


class CallbackFailed(NamedTuple):
    """A callback that the settings name (`training.callbacks`) raised an error, and receives no further events."""

    callback: str
    """Name of the callback."""
    event: str
    """Class of the event at which it failed: "UpdateCompleted"; "close" for the end of the training."""
    reason: str
    """The error."""


class CallbackInterrupted(NamedTuple):
    """A callback that the settings name returned true: the training ends, and its state is saved."""

    callback: str
    """Name of the callback."""


class FileSaved(NamedTuple):
    """The checkpoint or the best model was written."""

    path: Path
    is_best_model: bool
    """True for the model of the best validation so far, False for a checkpoint."""


Event = TrainingStarted | UpdateCompleted | ValidationCompleted | TrainingStopped
"""Events of the training loop (`fit`)."""
RunEvent = (
    Event
    | FileRead
    | DataAugmented
    | PairsMixedIn
    | SizeMeasurementStarted
    | SizeChosen
    | SizeMeasurementSkipped
    | ModelBuilt
    | FileSaved
    | PairNgramFitted
    | PairNgramWeighted
    | ConfidenceFitted
    | CallbackFailed
    | CallbackInterrupted
)
"""Events of a training from files into a run folder (`train_run`), and of the choice of its size."""


@runtime_checkable
class TrainingCallback(Protocol):
    """Receiver of the events of a training.

    Any object with this method is one. It is called in the order of the events, after the run folder has been updated.

    An object of `pellucid.train(..., callbacks=[...])` is called in the process of the caller; an exception ends the
    training, whose state is saved. A class that the setting `training.callbacks` names is constructed, without
    arguments, by each training process; an exception is reported, and the training continues without this callback. If
    such an object has a method `close()`, it is called when the training ends, in whatever way.
    """

    def on_event(self, folder: Path, event: RunEvent) -> bool | None:
        """Receive an event.

        Args:
            folder: Run folder of the training; for an ensemble, that of the member, whose updates arrive at most every
                0.25 seconds and whose validations have no traces.
            event: The event, one of the classes of this module.

        Returns:
            True to interrupt the training; its state is saved, and the same call of `pellucid.train` resumes it. Any
            other value lets it go on.
        """
