"""Trainings that have not reached their end: a run folder then holds a model of an early update, or lacks the weight
of its pair n-gram model."""

from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.argument_checks import check_arguments
from pellucid.errors import RunError
from pellucid.files import file_exists
from pellucid.run_folder.identity import ModelIdentity, read_identity
from pellucid.run_folder.lock import in_use
from pellucid.run_folder.log import load_run_log
from pellucid.run_folder.pair_ngram_file import has_provisional_weight
from pellucid.run_folder.progress import Progress, read_progress
from pellucid.run_folder.provisional_weight import provisional_weight
from pellucid.run_folder.run_files import CHECKPOINT, PAIR_NGRAM, member_folders


class UnfinishedTraining(NamedTuple):
    """A training that was interrupted, or that still runs: before its last update, or before the choice of the weight
    of its pair n-gram model."""

    run: str
    """Run folder."""
    update: int
    """Number of updates in the checkpoint."""
    max_updates: int | None
    """Approximate maximum number of updates; None if the log does not tell it."""
    running: bool
    """Whether a process trains the run."""
    pair_ngram_weight: float | None = None
    """Weight of the pair n-gram model in predictions until the training chooses one; None without such a model."""
    made_all_updates: bool = False
    """Whether only the choice of this weight is missing."""
    validated: bool = True
    """Whether the saved network is that of a validation; before the first one, it is hardly trained."""
    has_checkpoint: bool = True
    """Whether the folder has a checkpoint, from which the training is resumed; a copy for prediction has none."""

    def __str__(self) -> str:
        """Return the warning: "run: the training is unfinished (update 120 of 1,000); ..."."""
        return f"{self.run}: {self.description}"

    @property
    def description(self) -> str:
        """The warning without the run folder.

        It names the provisional weight of the pair n-gram model, if there is one; before the first validation, it says
        that the pair n-gram model predicts alone.
        """
        if self.made_all_updates:
            end = "the training still runs" if self.running else "the training command chooses it"
            return (
                f"the weight of the pair n-gram model is not chosen yet, and is {self.pair_ngram_weight:g} until then; "
                f"{end}"
            )
        if not self.has_checkpoint:
            return (
                "the training was unfinished when this model was saved, and the folder has no checkpoint to resume it "
                "from; the network has no validation, and outputs are those of the pair n-gram model"
            )
        total = "" if self.max_updates is None else f" of {self.max_updates:,}"
        end = "and still runs" if self.running else "the training command resumes it"
        separator = " " if self.running else "; "
        weight = ""
        if not self.validated:
            weight = "; the network has no validation yet, and outputs are those of the pair n-gram model until then"
        elif self.pair_ngram_weight is not None:
            weight = f"; until its end, the weight of the pair n-gram model is {self.pair_ngram_weight:g}"
        return f"the training is unfinished (update {self.update:,}{total}){separator}{end}{weight}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return self._asdict()


class FinalUpdates(NamedTuple):
    """Number of updates of a training that has ended."""

    updates: int
    stopped_by_time_limit: bool
    """Whether its time limit has ended it, so that the number depends on the speed of the machine."""


@check_arguments
def find_unfinished(folder: str | Path) -> list[UnfinishedTraining]:
    """Return the unfinished trainings of a run folder, or of the members of an ensemble.

    A folder without a checkpoint, such as a copy for prediction, counts as finished, unless its network has no
    validation.

    Args:
        folder: Run folder, or folder of an ensemble.

    Raises:
        RunError: The list of members cannot be read.
    """
    return [unfinished for run in member_folders(folder) if (unfinished := _unfinished_training(run)) is not None]


@check_arguments
def has_unfinished(folder: str | Path) -> bool:
    """Return whether a run, or a member of an ensemble, has an unfinished training; no log is read.

    Args:
        folder: Run folder, or folder of an ensemble.

    Raises:
        RunError: The list of members cannot be read.
    """
    return any(_unfinished_progress(run) is not None for run in member_folders(folder))


@check_arguments
def read_final_updates(folder: str | Path) -> FinalUpdates | None:
    """Return the number of updates of a training that has ended.

    None for a training that is unfinished, for an ensemble, and without a checkpoint that can be read.

    Args:
        folder: Run folder, or folder of an ensemble.

    Raises:
        RunError: The list of members cannot be read.
    """
    folders = member_folders(folder)
    with suppress(RunError):
        if len(folders) == 1 and file_exists(folders[0] / CHECKPOINT):
            progress = read_progress(folders[0] / CHECKPOINT)
            if progress.is_finished:
                return FinalUpdates(progress.update, progress.stop_cause == "time_limit")
    return None


def _unfinished_training(run: Path) -> UnfinishedTraining | None:
    """Return the state of a training without an end; None if it has ended, or if a file cannot be read."""
    unfinished = _unfinished_progress(run)
    if unfinished is None:
        return None
    has_checkpoint, model, progress = unfinished
    made_all_updates = progress.is_finished and model.validated
    with suppress(RunError):  # outputs need no log, and the training command reports a damaged one
        log = load_run_log(run)
        started = log.all("started")
        updates = started[-1].get("updates") if started else None
        return UnfinishedTraining(
            str(run),
            progress.update,
            progress.update if made_all_updates else updates,
            in_use(run),
            provisional_weight(model.identity, log) if model.lacks_weight else None,
            made_all_updates,
            model.validated,
            has_checkpoint,
        )
    return None


def _unfinished_progress(run: Path) -> "_UnfinishedProgress | None":
    """Return the progress of a training without an end; None if it has ended, or if its checkpoint cannot be read."""
    with suppress(RunError):  # outputs need no checkpoint, and the training command reports a damaged one
        has_checkpoint, model = file_exists(run / CHECKPOINT), _model_state(run)
        if not has_checkpoint and model.validated:
            return None
        progress = read_progress(run / CHECKPOINT) if has_checkpoint else Progress()
        is_finished = progress.is_finished and model.validated and not model.lacks_weight
        return None if is_finished else _UnfinishedProgress(has_checkpoint, model, progress)
    return None


class _ModelState(NamedTuple):
    """State of the saved model of a run."""

    identity: ModelIdentity
    lacks_weight: bool
    """Whether there is a pair n-gram model whose weight the training has not chosen."""

    @property
    def validated(self) -> bool:
        """True if the model is that of a validation, or if there is none."""
        return self.identity.is_validated


class _UnfinishedProgress(NamedTuple):
    """Checkpoint and model of a training without an end."""

    has_checkpoint: bool
    model: _ModelState
    progress: Progress


def _model_state(run: Path) -> _ModelState:
    """Return the state of the saved model; that of a finished training if a file is damaged."""
    with suppress(RunError):  # whoever loads a damaged file reports it
        return _ModelState(read_identity(run), has_provisional_weight(run / PAIR_NGRAM))
    return _ModelState(ModelIdentity(run, {}), lacks_weight=False)
