"""The study: all trials and their results, in a journal that Optuna writes line by line. Optuna is an extra.

References:
    Akiba et al. 2019, "Optuna"; Bergstra et al. 2011 (tree-structured Parzen estimator, which suggests trials);
    Jamieson and Talwalkar 2016 (successive halving; the other pruner takes the median of earlier trials).
"""

import copy
import math
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    json_to_distribution,
)
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from pellucid.config.settings import MetricName
from pellucid.config.training_types import metric_sign
from pellucid.errors import InputError, RunError, abbreviate_reason, quote
from pellucid.files import os_error_text
from pellucid.tuning.journal import (
    JOURNAL,
    STUDY_NAME,
    JournalEntry,
    ParameterSet,
    StudyCreated,
    TrialCreated,
    journal_error,
    read_journal,
)
from pellucid.tuning.space import ChoiceDimension, RangeDimension, SearchSpace, Value

Pruning = Literal["median", "halving", "none"]
"""Rule that ends bad trials early: below the median of earlier trials, by successive halving, or never."""
NUM_STARTUP_TRIALS = 8
"""Random trials before the estimator suggests trials."""
MAX_TRIES = 3
"""Number of times the settings of a failing trial are tried, once per call."""
MIN_FINISHED_TRIALS = 4
"""Minimum number of finished trials for a median."""
REDUCTION_FACTOR = 3
"""Successive halving continues the best trial of this number, and its rungs are farther apart by this factor."""


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


class _LineCounter(JournalFileBackend):
    """Journal that counts the lines it has read, for error messages."""

    line = 0
    """Number of the last line, from 1."""

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Yield the entries from a line on.

        Args:
            log_number_from: Index of the line, from 0.
        """
        for self.line, entry in enumerate(super().read_logs(log_number_from), log_number_from + 1):
            yield entry


class PruneDecision(NamedTuple):
    """Decision to prune a trial."""

    validation: int
    """Number of the decisive validation, from 1."""
    reason: str


class StudySettings(NamedTuple):
    """Settings of a study, by which trials are suggested, pruned and ranked."""

    space: SearchSpace
    metric: MetricName
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


class HalvingPruner(BasePruner):
    """Asynchronous successive halving, which depends only on the recorded scores and writes nothing.

    Rung i is the first validation from `min_resource` ηⁱ on, with η = `REDUCTION_FACTOR`. There a trial continues if
    its score is among the best n/η of the n trials that have reached the rung, or is the best if n < η.

    References:
        Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning", algorithm 2.
    """

    def __init__(self, min_resource: int) -> None:
        """Set the first rung.

        Args:
            min_resource: Number of the validation of rung 0.
        """
        self.min_resource = min_resource

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Return whether to prune a trial at its last validation.

        Args:
            study: The study, which gives the scores of the other trials.
            trial: The trial.
        """
        last = max(trial.intermediate_values, default=0)
        previous = max((step for step in trial.intermediate_values if step < last), default=0)
        sign = 1.0 if study.direction == StudyDirection.MAXIMIZE else -1.0
        rung = self.min_resource
        while rung <= last:
            if previous < rung:  # the trial reaches this rung now
                score = sign * trial.intermediate_values[last]
                others = (other for other in study.get_trials(deepcopy=False) if other.number != trial.number)
                reached = [sign * value for other in others if (value := _score_at(other, rung)) is not None]
                num_continued = max(1, (len(reached) + 1) // REDUCTION_FACTOR)
                if score < sorted([*reached, score], reverse=True)[num_continued - 1]:
                    return True
            rung *= REDUCTION_FACTOR
        return False


class TuningStudy:
    """Trials of a search and their results: an Optuna study, stored in the journal of a folder."""

    def __init__(self, folder: Path, settings: StudySettings) -> None:
        """Open the journal, whose incomplete last line is removed, or create it.

        Args:
            folder: Folder of the search.
            settings: Arguments that all trials share.

        Raises:
            RunError: The journal is not a study of Pellucid; it is then unchanged.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.settings = settings
        self.open: dict[int, Trial] = {}
        self.journal = folder / JOURNAL
        self.entries = read_journal(self.journal)
        """Entries of earlier calls."""
        higher = metric_sign(settings.metric) > 0
        self.direction = StudyDirection.MAXIMIZE if higher else StudyDirection.MINIMIZE
        pruner = _build_pruner(settings)
        with self._optuna_errors():
            storage = self._load_storage()
            if self.entries:
                self.study = optuna.load_study(study_name=STUDY_NAME, storage=storage, pruner=pruner)
            else:
                self.study = optuna.create_study(
                    study_name=STUDY_NAME, storage=storage, pruner=pruner, direction=self.direction
                )

    def _load_storage(self) -> JournalStorage:
        """Return Optuna's storage, which has read the journal."""
        backend = _LineCounter(str(self.journal), lock_obj=_NoLock(str(self.journal)))
        try:
            return JournalStorage(backend)
        except OSError:
            raise
        except Exception as error:  # Optuna checks no type and no range
            reason = f"{type(error).__name__}: {abbreviate_reason(error)}"
            raise journal_error(self.journal, backend.line, reason) from error

    @contextmanager
    def _optuna_errors(self) -> Iterator[None]:
        """Convert any error that Optuna raises in the block to `RunError`, and drop its warnings."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield
            except InputError:
                raise
            except OSError as error:
                raise RunError(f"cannot read or write {self.journal}: {os_error_text(error)}") from error
            except Exception as error:  # a line of valid form may still contradict another in any way
                reason = f"{type(error).__name__}: {abbreviate_reason(error)}"
                raise RunError(
                    f"{self.journal} is damaged, or is not of a study of Pellucid: Optuna reports {reason}; restore "
                    "the file, or name a new folder"
                ) from error

    def check_description(self, new: Mapping[str, Any]) -> list[str]:
        """Store the description of a new study, or compare it with that of an existing one.

        Args:
            new: Description of this call: "data" (a hash), "settings" (by key) and "space" (lines).

        Returns:
            What differs from the stored description: "data", "space" and "settings (key)"; empty for a new study.

        Raises:
            RunError: Nothing differs, but a trial in the journal has other settings or values than the search space, or
                has ended without them; or the journal cannot be written.
        """
        with self._optuna_errors():
            stored = self.study.user_attrs.get("description")
            if stored is None:
                self.study.set_user_attr("description", dict(new))
                return []
            changed = self._changes(stored, new)
            if not changed:
                self._check_values()
            return changed

    @staticmethod
    def _changes(stored: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
        """Return what differs between two descriptions."""
        return [name for name in new if name != "settings" and stored[name] != new[name]] + [
            f"settings ({key})" for key, value in new["settings"].items() if stored["settings"].get(key, value) != value
        ]

    def _check_values(self) -> None:
        """Check that the trials of earlier calls have values of the search space."""
        for line, entry in enumerate(self.entries, 1):
            if reason := self._entry_error(entry):
                raise journal_error(self.journal, line, reason)
        keys = {dimension.key for dimension in self.settings.space.searched}
        for trial in self.study.get_trials(deepcopy=False):
            if trial.state.is_finished() and (missing := keys - trial.params.keys()):
                raise RunError(
                    f"{self.journal} is damaged: trial {trial.number} has ended without a value of {min(missing)}; "
                    "restore the file, or name a new folder"
                )

    def _entry_error(self, entry: JournalEntry) -> str:
        """Return why an entry does not fit the metric or the search space; empty if it does."""
        dimensions = {dimension.key: dimension for dimension in self.settings.space.searched}
        match entry:
            case StudyCreated() if entry.directions != (self.direction.value,):
                return f"expected the direction {self.direction.value} for {self.settings.metric}"
            case TrialCreated() if entry.system_attrs.fixed_params:
                values = entry.system_attrs.fixed_params
            case ParameterSet():
                dimension = dimensions.get(entry.param_name)
                distribution = _parse_distribution(entry.distribution)
                if dimension is None or distribution != _distribution(dimension):
                    return f"{quote(entry.param_name)} is not in the search space, or has another range"
                try:
                    values = {entry.param_name: distribution.to_external_repr(entry.param_value_internal)}
                except (IndexError, ValueError, OverflowError):
                    return f"{entry.param_name}: there is no choice {entry.param_value_internal:g}"
                if distribution.to_internal_repr(values[entry.param_name]) != entry.param_value_internal:
                    return f"{entry.param_name}: there is no choice {entry.param_value_internal:g}"
            case _:
                return ""
        for key, value in values.items():
            if key not in dimensions or not _allows(dimensions[key], value):
                return f"{quote(key)}: {quote(value)} is not in the search space"
        return ""

    def enqueue_first(self, values: Mapping[str, Value]) -> None:
        """Enqueue the first trial of a new study; do nothing if the study has trials.

        Args:
            values: Values of the trial, by key; missing ones are sampled.
        """
        with self._optuna_errors():
            if not self.study.get_trials(deepcopy=False):
                self.study.enqueue_trial(dict(values))

    @property
    def num_trials(self) -> int:
        """Number of all trials, also of repeated and waiting ones; they are numbered from 0."""
        return len(self.study.get_trials(deepcopy=False))

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
            with self._optuna_errors():
                self.study.enqueue_trial(trial.params, {"retry_of": trial.number, "tries": _count_tries(trial) + 1})
        return len(failed)

    def _latest_trials(self) -> list[FrozenTrial]:
        """Return all trials except those that were repeated."""
        trials = self.study.get_trials(deepcopy=False)
        retried = {trial.user_attrs.get("retry_of") for trial in trials}
        return [trial for trial in trials if trial.number not in retried]

    def unfinished_trials(self) -> list[SuggestedTrial]:
        """Return the trials that have started and not ended, because their process was stopped, and open them again."""
        with self._optuna_errors():
            running = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            return [self._suggest_trial(Trial(self.study, frozen._trial_id)) for frozen in running]

    def ask(self) -> SuggestedTrial:
        """Start the next trial and return it: the next enqueued one, or one that the sampler suggests.

        It depends on the seed and on the trials so far.
        """
        with self._optuna_errors():
            return self._suggest_trial(self.study.ask())

    def report(self, number: int, validation: int, score: float) -> PruneDecision | None:
        """Record a trial's score at a validation, and decide whether to prune the trial.

        The decision is recorded before the score. So the journal of a killed search has the decision on each score in
        it, and the next call does not decide again with other trials.

        Args:
            number: Number of an open trial.
            validation: Number of the validation, from 1.
            score: Value of the metric at this validation.

        Returns:
            The decision to prune the trial, which may have been recorded before; None to continue, also if the score is
            NaN or infinite (it is then not recorded).
        """
        with self._optuna_errors():
            trial, frozen = self.open[number], self.study.get_trials(deepcopy=False)[number]
            if stored := frozen.user_attrs.get("prune"):
                decision = PruneDecision(stored["validation"], stored["reason"])
                return decision if validation >= decision.validation else None
            if validation in frozen.intermediate_values or not math.isfinite(score):
                return None
            validated = copy.copy(frozen)
            validated.intermediate_values = {**frozen.intermediate_values, validation: score}
            pruned: PruneDecision | None = None
            if self.study.pruner.prune(self.study, validated):
                median = self.settings.pruning == "median"
                threshold = "the median of earlier trials" if median else "the best third so far"
                pruned = PruneDecision(validation, f"worse than {threshold} at validation {validation}")
                trial.set_user_attr("prune", pruned._asdict())
            trial.report(score, validation)
            return pruned

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
        states = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
        with self._optuna_errors():
            for name, value in (("reason", ended.reason), ("seconds", ended.seconds), ("score", ended.score)):
                trial.set_user_attr(name, value)
            score = ended.score if ended.state == "finished" else None
            self.study.tell(trial, score, state=states[ended.state])

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

        Empty while fewer than 2 `MIN_FINISHED_TRIALS` trials have finished, or if most trials have the same score, so
        that no smaller group is the best.

        References:
            Watanabe et al. 2023 (PED-ANOVA).
        """
        if len([trial for trial in self.ended_trials() if trial.state == "finished"]) < 2 * MIN_FINISHED_TRIALS:
            return {}
        with self._optuna_errors():
            warnings.simplefilter("error", UserWarning)  # the importances would be equal
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            try:
                return get_param_importances(self.study, evaluator=PedAnovaImportanceEvaluator())
            except UserWarning:
                return {}

    def _seed_sampler(self, number: int, parameter: int) -> None:
        """Seed the sampler for one value of a trial, so that its random state need not be saved."""
        seed = int(np.random.SeedSequence([self.settings.seed, number, parameter]).generate_state(1)[0])
        self.study.sampler = TPESampler(
            n_startup_trials=NUM_STARTUP_TRIALS, multivariate=True, constant_liar=True, seed=seed
        )

    def _suggest_trial(self, trial: Trial) -> SuggestedTrial:
        """Return a trial with a value for every searched setting.

        Values depend on the seed, the trial and the earlier trials, not on whether other values of this trial are in
        the journal of a killed search: each value is sampled by its own seed, and values that are sampled together (see
        `Trial.relative_params`) are sampled before all others.
        """
        self.open[trial.number] = trial
        searched = self.settings.space.searched
        if any(dimension.key not in trial.params for dimension in searched):
            self._seed_sampler(trial.number, 0)
            trial.relative_params  # noqa: B018 (a property that samples when it is first read)
        values = dict[str, Value]()
        for parameter, dimension in enumerate(searched, 1):
            self._seed_sampler(trial.number, parameter)
            values[dimension.key] = _suggest_value(trial, dimension)
        return SuggestedTrial(trial.number, values)


def _suggest_value(trial: Trial, dimension: ChoiceDimension | RangeDimension) -> Value:
    """Return a trial's value of one setting."""
    distribution = _distribution(dimension)
    return _round_value(trial._suggest(dimension.key, distribution), distribution)


def _distribution(dimension: ChoiceDimension | RangeDimension) -> BaseDistribution:
    """Return the distribution of one setting's values."""
    if isinstance(dimension, ChoiceDimension):
        return CategoricalDistribution(dimension.values)
    _, low, high, step, log = dimension
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high, log=log, step=int(step or 1))
    return FloatDistribution(low, high, log=log, step=step)


def _parse_distribution(text: str) -> BaseDistribution | None:
    """Return the distribution that Optuna has written in JSON; None if it is damaged."""
    try:
        return json_to_distribution(text)
    except Exception:  # Optuna checks no type
        return None


def _allows(dimension: ChoiceDimension | RangeDimension, value: Value) -> bool:
    """Return whether a dimension has a value, except for the error of rounding."""
    if isinstance(dimension, ChoiceDimension):
        return value in dimension.values
    margin = 1e-9 * max(abs(dimension.low), abs(dimension.high))
    return not isinstance(value, bool | str) and dimension.low - margin <= value <= dimension.high + margin


def _score_at(trial: FrozenTrial, rung: int) -> float | None:
    """Return a trial's score at its first recorded validation from a number on; None without one."""
    step = min((step for step in trial.intermediate_values if step >= rung), default=None)
    return None if step is None else trial.intermediate_values[step]


def _build_pruner(settings: StudySettings) -> BasePruner:
    """Return the pruner; it prunes no trial before a quarter of its validations."""
    warm_up = max(1, settings.validations // 4)
    match settings.pruning:
        case "median":
            return MedianPruner(n_startup_trials=MIN_FINISHED_TRIALS, n_warmup_steps=warm_up)
        case "halving":
            return HalvingPruner(warm_up)
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
    return {key: _round_value(value, trial.distributions[key]) for key, value in trial.params.items()}


def _round_value(value: Any, distribution: BaseDistribution) -> Value:  # noqa: ANN401
    """Return a value, rounded to ten decimals if it is from a range of decimals; a choice stays as it is."""
    return cast(Value, round(value, 10) if isinstance(distribution, FloatDistribution) else value)
