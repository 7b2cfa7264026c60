"""The study: all trials and their results, in a journal that Optuna writes line by line. Optuna is an extra.

References:
    Akiba et al. 2019, "Optuna"; Bergstra et al. 2011 (tree-structured Parzen estimator, which suggests trials);
    Jamieson and Talwalkar 2016 (successive halving; the other pruner takes the median of earlier trials).
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from pellucid.config.settings import Metric
from pellucid.errors import RunError, abbreviate_reason
from pellucid.files import read_bytes, write_atomic
from pellucid.tuning.space import ChoiceDimension, RangeDimension, SearchSpace, Value

JOURNAL = "study.journal"
"""One JSON object per line, as Optuna's `JournalFileBackend` writes and reads them."""
STUDY_NAME = "pellucid"
Pruning = Literal["median", "halving", "none"]
"""Rule that ends bad trials early: below the median of earlier trials, by successive halving, or never."""
NUM_STARTUP_TRIALS = 8
"""Random trials before the estimator suggests trials."""
MAX_TRIES = 3
"""Number of times the settings of a failing trial are tried, once per call."""
MIN_FINISHED_TRIALS = 4
"""Minimum number of finished trials for a median."""


class EndedTrial(NamedTuple):
    """A finished, pruned or failed trial."""

    number: int
    """Number of the trial, from 0."""
    state: Literal["finished", "pruned", "failed"]
    score: float | None
    """Metric of the best validation; None without validation."""
    reason: str
    """Reason of pruning or failure; empty for a finished trial."""
    seconds: float
    """Seconds of training and validation."""
    values: dict[str, Value]
    """Values of the searched settings, by key."""
    tries: int = 1
    """Number of times its settings were tried, including this one."""


class SuggestedTrial(NamedTuple):
    """A trial to run, new or resumed."""

    number: int
    """Number of the trial, from 0."""
    values: dict[str, Value]
    """Values of the searched settings, by key."""


class StudySettings(NamedTuple):
    """Settings of a study, by which trials are suggested, pruned and ranked."""

    space: SearchSpace
    metric: Metric
    """Metric that the search improves."""
    seed: int
    """Seed of the sampler."""
    pruning: Pruning
    validations: int
    """Approximate number of validations of a trial."""


class _NoLock(JournalFileOpenLock):
    """No lock: one process uses the folder at a time, and Optuna's lock would survive a killed process."""

    def acquire(self) -> bool:
        """Return True."""
        return True

    def release(self) -> None:
        """Do nothing."""


class TuningStudy:
    """Trials of a search and their results: an Optuna study, stored in the journal of a folder."""

    def __init__(self, folder: Path, settings: StudySettings) -> None:
        """Open or create the journal; an incomplete last line is removed.

        Args:
            folder: Folder of the search.
            settings: Arguments that all trials share.

        Raises:
            RunError: The journal is not a study of Pellucid.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.settings = settings
        self.open: dict[int, Trial] = {}
        journal = folder / JOURNAL
        if journal.exists():
            _repair_journal(journal)
        pruner = _build_pruner(settings)
        try:
            storage = JournalStorage(JournalFileBackend(str(journal), lock_obj=_NoLock(str(journal))))
            if storage.get_all_studies():
                self.study = optuna.load_study(study_name=STUDY_NAME, storage=storage, pruner=pruner)
            else:
                higher = settings.metric in ("exact_match", "symbol_accuracy")
                direction = StudyDirection.MAXIMIZE if higher else StudyDirection.MINIMIZE
                self.study = optuna.create_study(
                    study_name=STUDY_NAME, storage=storage, pruner=pruner, direction=direction
                )
        except (KeyError, ValueError, TypeError) as error:
            reason = abbreviate_reason(error)
            raise RunError(f"{journal} is not a study of Pellucid in Optuna's journal format: {reason}") from error

    def check_description(self, new: Mapping[str, Any]) -> list[str]:
        """Store the description of a new study, or compare it with that of an existing one.

        Args:
            new: Description of this call: "data" (a hash), "settings" (by key) and "space" (lines).

        Returns:
            What differs from the stored description: "data", "space" and "settings (key)"; empty for a new study.
        """
        stored = self.study.user_attrs.get("terms")
        if stored is None:
            self.study.set_user_attr("terms", dict(new))
            return []
        return [name for name in new if name != "settings" and stored[name] != new[name]] + [
            f"settings ({key})" for key, value in new["settings"].items() if stored["settings"].get(key, value) != value
        ]

    def enqueue_first(self, values: Mapping[str, Value]) -> None:
        """Enqueue the first trial of a new study; do nothing if the study has trials.

        Args:
            values: Values of the trial, by key; missing ones are sampled.
        """
        if not self.study.get_trials(deepcopy=False):
            self.study.enqueue_trial(dict(values))

    @property
    def num_started(self) -> int:
        """Number of started trials; repeated trials count once."""
        return sum(trial.state != TrialState.WAITING for trial in self._latest_trials())

    def retry_failed(self) -> int:
        """Enqueue the values of failed trials again, each at most `MAX_TRIES` times in all; return their number."""
        failed = [
            trial
            for trial in self._latest_trials()
            if trial.state == TrialState.FAIL and _count_tries(trial) < MAX_TRIES
        ]
        for trial in failed:
            self.study.enqueue_trial(trial.params, {"again": trial.number, "tries": _count_tries(trial) + 1})
        return len(failed)

    def _latest_trials(self) -> list[FrozenTrial]:
        """Return all trials except those that were repeated."""
        trials = self.study.get_trials(deepcopy=False)
        retried = {trial.user_attrs.get("again") for trial in trials}
        return [trial for trial in trials if trial.number not in retried]

    def unfinished_trials(self) -> list[SuggestedTrial]:
        """Return the trials that have started and not ended, because their process was stopped, and open them again."""
        running = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        suggested = []
        for frozen in running:
            self._seed_sampler(frozen.number)
            suggested.append(self._suggest_trial(Trial(self.study, frozen._trial_id)))
        return suggested

    def ask(self) -> SuggestedTrial:
        """Start the next trial and return it: the next enqueued one, or one that the sampler suggests.

        It depends on the seed and on the trials so far.
        """
        self._seed_sampler(sum(trial.state != TrialState.WAITING for trial in self.study.get_trials(deepcopy=False)))
        return self._suggest_trial(self.study.ask())

    def report(self, number: int, validation: int, score: float) -> str:
        """Record a trial's score at a validation, and decide whether to prune the trial.

        Args:
            number: Number of an open trial.
            validation: Number of the validation, from 1.
            score: Value of the metric at this validation.

        Returns:
            The reason to prune the trial; empty to continue, also if this validation was recorded before or the score
            is NaN (it is then not recorded).
        """
        trial = self.open[number]
        reported = self.study.get_trials(deepcopy=False)[number].intermediate_values
        if validation in reported or math.isnan(score):
            return ""
        trial.report(score, validation)
        if not trial.should_prune():
            return ""
        threshold = "the median of earlier trials" if self.settings.pruning == "median" else "the best third so far"
        return f"worse than {threshold} at validation {validation}"

    def trial_values(self, number: int) -> dict[str, Value]:
        """Return the values of a trial's searched settings, by key.

        Args:
            number: Number of the trial.
        """
        return _trial_values(self.study.get_trials(deepcopy=False)[number])

    def record_end(self, ended: EndedTrial) -> None:
        """Record the end of an open trial in the journal.

        Args:
            ended: The trial with its final state, score, reason and seconds.
        """
        trial = self.open.pop(ended.number)
        for name, value in (("reason", ended.reason), ("seconds", ended.seconds), ("score", ended.score)):
            trial.set_user_attr(name, value)
        state = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}[ended.state]
        self.study.tell(trial, ended.score if ended.state == "finished" else None, state=state)

    def ended_trials(self) -> list[EndedTrial]:
        """Return all ended trials in the order of their numbers, except those that are repeated by another trial."""
        return [_ended_trial(trial) for trial in self._latest_trials() if trial.state.is_finished()]

    def best_trial(self) -> EndedTrial | None:
        """Return the finished trial with the best score, the earliest of equals; None if none has finished."""
        finished = [trial for trial in self.ended_trials() if trial.state == "finished" and trial.score is not None]
        sign = -1.0 if self.study.direction == StudyDirection.MINIMIZE else 1.0
        return max(finished, key=lambda trial: (sign * (trial.score or 0.0), -trial.number), default=None)

    def importances(self) -> dict[str, float]:
        """Return the importance of each searched setting for a trial to be among the best, by key; they sum to 1.

        Empty while fewer than 2 `MIN_FINISHED_TRIALS` trials have finished.

        References:
            Watanabe et al. 2023 (PED-ANOVA).
        """
        if len([trial for trial in self.ended_trials() if trial.state == "finished"]) < 2 * MIN_FINISHED_TRIALS:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return get_param_importances(self.study, evaluator=PedAnovaImportanceEvaluator())

    def _seed_sampler(self, number: int) -> None:
        """Seed the sampler by the number of the trial, so that its random state need not be saved."""
        seed = int(np.random.SeedSequence([self.settings.seed, number]).generate_state(1)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self.study.sampler = TPESampler(
                n_startup_trials=NUM_STARTUP_TRIALS, multivariate=True, constant_liar=True, seed=seed
            )

    def _suggest_trial(self, trial: Trial) -> SuggestedTrial:
        """Return a trial with a value for every searched setting."""
        self.open[trial.number] = trial
        return SuggestedTrial(
            trial.number,
            {dimension.key: _suggest_value(trial, dimension) for dimension in self.settings.space.searched},
        )


def _suggest_value(trial: Trial, dimension: ChoiceDimension | RangeDimension) -> Value:
    """Return a trial's value of one setting."""
    if isinstance(dimension, ChoiceDimension):
        return cast(Value, trial.suggest_categorical(dimension.key, dimension.values))
    key, low, high, step, log = dimension
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(key, low, high, step=int(step or 1), log=log)
    return round(trial.suggest_float(key, low, high, step=step, log=log), 10)


def _build_pruner(settings: StudySettings) -> BasePruner:
    """Return the pruner; it prunes no trial before a quarter of its validations."""
    warm_up = max(1, settings.validations // 4)
    match settings.pruning:
        case "median":
            return MedianPruner(n_startup_trials=MIN_FINISHED_TRIALS, n_warmup_steps=warm_up)
        case "halving":
            return SuccessiveHalvingPruner(min_resource=warm_up, reduction_factor=3)
        case "none":
            return NopPruner()


def _ended_trial(trial: FrozenTrial) -> EndedTrial:
    """Return an ended trial of the journal."""
    states: Sequence[tuple[TrialState, Literal["finished", "pruned"]]] = (
        (TrialState.COMPLETE, "finished"),
        (TrialState.PRUNED, "pruned"),
    )
    state: Literal["finished", "pruned", "failed"] = dict(states).get(trial.state, "failed")
    attributes = trial.user_attrs
    results = attributes.get("score"), attributes.get("reason", ""), attributes.get("seconds", 0.0)
    return EndedTrial(trial.number, state, *results, _trial_values(trial), _count_tries(trial))


def _count_tries(trial: FrozenTrial) -> int:
    """Return the number of times a trial's settings were tried."""
    tries: int = trial.user_attrs.get("tries", 1)
    return tries


def _trial_values(trial: FrozenTrial) -> dict[str, Value]:
    """Return a trial's values as its configuration has them."""
    return {key: round(value, 10) if isinstance(value, float) else value for key, value in trial.params.items()}


def _repair_journal(journal: Path) -> None:
    """Remove an incomplete last line."""
    content = read_bytes(journal)
    complete_lines = content[: content.rfind(b"\n") + 1]
    if complete_lines != content:
        write_atomic(journal, complete_lines)
