"""The study: all trials and their results, in a storage of `storage.py` or `database.py`. Optuna is an extra.

Several processes may work on one study. Each change of it holds the lock of its storage, and each running trial names
the process that runs it. A process takes a trial only from one that has ended or has released it, and writes nothing to
a trial that was taken from it.

References:
    Akiba et al. 2019, "Optuna"; Bergstra et al. 2011 (tree-structured Parzen estimator, which suggests trials);
    Jamieson and Talwalkar 2016 (successive halving; the other pruner takes the median of earlier trials).
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from pellucid.config.renamed_settings import current_key
from pellucid.config.settings import MetricName
from pellucid.config.training_types import metric_sign
from pellucid.errors import RunError, quote
from pellucid.tuning.journal import JournalEntry, ParameterSet, StudyCreated, TrialCreated, journal_error
from pellucid.tuning.space import ChoiceDimension, RangeDimension, SearchSpace, Value
from pellucid.tuning.storage import PROCESS_KEY, StudyStorage

Pruning = Literal["median", "halving", "none"]
"""Rule that ends bad trials early: below the median of earlier trials, by successive halving, or never."""
NUM_STARTUP_TRIALS = 8
"""Random trials before the estimator suggests trials."""
MAX_TRIES = 3
"""Number of times the settings of a failing trial are tried, once per call."""
DEATHS_KEY = "deaths"
"""Attribute of a trial: number of processes that died while they ran it."""
MAX_DEATHS = 10
"""Number of processes that may die while they run a trial; then it has failed, because it may be the cause."""
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


class TrialLostError(RunError):
    """A trial of this process that another process has taken, because it took this one for dead."""


class StudyResults(NamedTuple):
    """Results of a study so far."""

    ended: list[EndedTrial]
    """Ended trials in the order of their numbers, except those that are repeated by another trial."""
    best: EndedTrial | None
    """Finished trial with the best score, the earliest of equals; None if none has finished."""
    importances: dict[str, float]
    """Importance of each searched setting, by key (see `TuningStudy.importances`)."""


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
    num_validations: int
    """Approximate number of validations of a trial."""


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
    """Trials of a search and their results: an Optuna study in a storage."""

    def __init__(self, storage: StudyStorage, settings: StudySettings) -> None:
        """Open the study, or create it.

        Args:
            storage: Storage of the study.
            settings: Arguments that all trials share.

        Raises:
            RunError: The storage holds something else than a study of Pellucid; it is then unchanged.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.settings = settings
        self.storage = storage
        self.own_trials: dict[int, Trial] = {}
        """Running trials of this process, by number."""
        higher = metric_sign(settings.metric) > 0
        self.direction = StudyDirection.MAXIMIZE if higher else StudyDirection.MINIMIZE
        with storage.transaction():
            self.study = storage.open_study(self.direction, _build_pruner(settings))

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
        with self.storage.transaction():
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
        stored_settings = {current_key(key): value for key, value in stored["settings"].items()}
        return [name for name in new if name != "settings" and stored[name] != new[name]] + [
            f"settings ({key})" for key, value in new["settings"].items() if stored_settings.get(key, value) != value
        ]

    def _check_values(self) -> None:
        """Check that the trials of earlier calls have values of the search space."""
        for line, entry in enumerate(self.storage.entries, 1):
            if reason := self._entry_error(entry):
                raise journal_error(self.storage.place, line, reason)
        keys = {dimension.key for dimension in self.settings.space.searched}
        for trial in self.study.get_trials(deepcopy=False):
            if trial.state.is_finished() and (missing := keys - trial.params.keys()):
                raise RunError(
                    f"{self.storage.place} is damaged: trial {trial.number} has ended without a value of "
                    f"{min(missing)}; {self.storage.advice}"
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
        with self.storage.transaction():
            if not self._all_trials():
                self.study.enqueue_trial(dict(values))

    @property
    def num_trials(self) -> int:
        """Number of all trials, also of repeated and waiting ones; they are numbered from 0."""
        return len(self._all_trials())

    @property
    def num_started(self) -> int:
        """Number of started trials of all processes; repeated trials count once."""
        return sum(trial.state != TrialState.WAITING for trial in _latest_trials(self._all_trials()))

    @property
    def num_running(self) -> int:
        """Number of trials that have started and not ended, with and without a process."""
        return sum(trial.state == TrialState.RUNNING for trial in self._all_trials())

    def retry_failed(self) -> int:
        """Enqueue the values of failed trials again, each at most `MAX_TRIES` times in all; return their number."""
        with self.storage.transaction():
            failed = [
                trial
                for trial in _latest_trials(self._all_trials())
                if trial.state == TrialState.FAIL and _count_tries(trial) < MAX_TRIES
            ]
            for trial in failed:
                self.study.enqueue_trial(trial.params, {"retry_of": trial.number, "tries": _count_tries(trial) + 1})
        return len(failed)

    def _all_trials(self) -> list[FrozenTrial]:
        """Return all trials in the order of their numbers."""
        with self.storage.transaction():
            return self.study.get_trials(deepcopy=False)

    def running_elsewhere(self) -> set[int]:
        """Return the numbers of the trials that other processes run."""
        with self.storage.transaction():
            running, abandoned = self._foreign_trials(), self._abandoned_trials()
        return {trial.number for trial in running} - {trial.number for trial in abandoned}

    def _foreign_trials(self) -> list[FrozenTrial]:
        """Return the running trials that this process does not run."""
        return [
            trial
            for trial in self._all_trials()
            if trial.state == TrialState.RUNNING and trial.number not in self.own_trials
        ]

    def _abandoned_trials(self) -> list[FrozenTrial]:
        """Return the running trials that no process runs; also those that this one began to take before an error."""
        running = self._foreign_trials()
        begun = [trial for trial in running if self.storage.process and self._is_own(trial)]
        return begun + self.storage.find_abandoned([trial for trial in running if trial not in begun])

    def _is_own(self, trial: FrozenTrial) -> bool:
        """Return whether a trial names this process, or no process if no other one can work on the study."""
        return bool(trial.user_attrs.get(PROCESS_KEY, "") == self.storage.process)

    def claim_trial(self, max_trials: int, is_busy: Callable[[int], bool]) -> SuggestedTrial | None:
        """Take a trial to run: an abandoned one, else a new one. No other process gets the same trial.

        A trial that `MAX_DEATHS` processes did not survive is not taken, but has failed.

        Args:
            max_trials: Maximum number of started trials of all processes.
            is_busy: Function that returns whether a process still writes to the run folder of a trial. The trial is
                then left for a later call.

        Returns:
            The trial; None if there is none, or no more may start.
        """
        with self.storage.transaction():
            for frozen in self._abandoned_trials():
                if is_busy(frozen.number):
                    continue
                has_died = bool(frozen.user_attrs.get(PROCESS_KEY)) and not self._is_own(frozen)
                deaths = frozen.user_attrs.get(DEATHS_KEY, 0) + has_died
                suggested = self._take(Trial(self.study, frozen._trial_id), deaths)
                if deaths < MAX_DEATHS:
                    return suggested
                reason = f"{deaths} processes died while they ran it"
                self.record_end(EndedTrial(frozen.number, "failed", None, reason, 0.0, suggested.values))
            return self.ask() if self.num_started < max_trials else None

    def ask(self) -> SuggestedTrial:
        """Start the next trial and return it: the next enqueued one, or one that the sampler suggests.

        It depends on the seed and on the trials so far.
        """
        with self.storage.transaction():
            return self._take(self.study.ask())

    def _take(self, trial: Trial, deaths: int = 0) -> SuggestedTrial:
        """Note that this process runs a trial, and return it with its values."""
        self.storage.start_heartbeat(trial._trial_id)
        try:
            attributes = trial.user_attrs
            if deaths != attributes.get(DEATHS_KEY, 0):
                trial.set_user_attr(DEATHS_KEY, deaths)
            if self.storage.process != attributes.get(PROCESS_KEY, ""):
                trial.set_user_attr(PROCESS_KEY, self.storage.process)
            suggested = self._suggest_trial(trial)
        except BaseException:
            self.storage.stop_heartbeat(trial._trial_id)
            raise
        self.own_trials[trial.number] = trial
        return suggested

    def _own_trial(self, number: int) -> FrozenTrial:
        """Return a trial that this process runs; raise `TrialLostError` if another one has taken it."""
        frozen = self._all_trials()[number]
        if not self._is_own(frozen):
            raise TrialLostError(f"trial {number} was taken over by another process")
        return frozen

    def drop_trial(self, number: int) -> None:
        """Forget an open trial, which has ended, or which another process has taken.

        Args:
            number: Number of the trial.
        """
        trial = self.own_trials.pop(number, None)
        if trial is not None:
            self.storage.stop_heartbeat(trial._trial_id)

    def release_trials(self, numbers: Iterable[int]) -> None:
        """Leave open trials, whose trainings have stopped, to any process.

        Args:
            numbers: Numbers of the trials.
        """
        with self.storage.transaction():
            for number in sorted(self.own_trials.keys() & set(numbers)):
                if self.storage.process and self._is_own(self._all_trials()[number]):
                    self.own_trials[number].set_user_attr(PROCESS_KEY, "")
                self.drop_trial(number)

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

        Raises:
            TrialLostError: Another process has taken the trial.
        """
        with self.storage.transaction():
            frozen = self._own_trial(number)
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
                self.own_trials[number].set_user_attr("prune", pruned._asdict())
            self.own_trials[number].report(score, validation)
            return pruned

    def trial_values(self, number: int) -> dict[str, Value]:
        """Return the values of a trial's searched settings, by key.

        Args:
            number: Number of the trial.
        """
        return _trial_values(self._all_trials()[number])

    def record_end(self, ended: EndedTrial) -> None:
        """Record the end of an open trial; a call that was interrupted may be repeated.

        Args:
            ended: The trial with its final state, score, reason and seconds.

        Raises:
            TrialLostError: Another process has taken the trial.
        """
        states = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
        with self.storage.transaction():
            if not self._own_trial(ended.number).state.is_finished():
                trial = self.own_trials[ended.number]
                for name, value in (("reason", ended.reason), ("seconds", ended.seconds), ("score", ended.score)):
                    trial.set_user_attr(name, value)
                score = ended.score if ended.state == "finished" else None
                self.study.tell(trial, score, state=states[ended.state])
        self.drop_trial(ended.number)

    def results(self) -> StudyResults:
        """Return the results of the trials of all processes so far."""
        with self.storage.transaction():
            return StudyResults(self.ended_trials(), self.best_trial(), self.importances())

    def ended_trials(self) -> list[EndedTrial]:
        """Return all ended trials in the order of their numbers, except those that are repeated by another trial."""
        return [_ended_trial(trial) for trial in _latest_trials(self._all_trials()) if trial.state.is_finished()]

    def best_trial(self) -> EndedTrial | None:
        """Return the finished trial with the best score, the earliest of equals; None if none has finished."""
        finished = [trial for trial in self.ended_trials() if trial.state == "finished" and trial.score is not None]
        sign = -1.0 if self.study.direction == StudyDirection.MINIMIZE else 1.0
        return max(finished, key=lambda trial: (sign * (trial.score or 0.0), -trial.number), default=None)

    def importances(self) -> dict[str, float]:
        """Return the importance of each searched setting for a trial to be among the best, by key; they sum to 1.

        Empty while fewer than 2 · `MIN_FINISHED_TRIALS` trials have finished, or if most trials have the same score, so
        that no smaller group is the best.

        References:
            Watanabe et al. 2023 (PED-ANOVA).
        """
        if len([trial for trial in self.ended_trials() if trial.state == "finished"]) < 2 * MIN_FINISHED_TRIALS:
            return {}
        with self.storage.transaction(), warnings.catch_warnings():
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
        searched = self.settings.space.searched
        if any(dimension.key not in trial.params for dimension in searched):
            self._seed_sampler(trial.number, 0)
            trial.relative_params  # noqa: B018 (a property that samples when it is first read)
        values = dict[str, Value]()
        for parameter, dimension in enumerate(searched, 1):
            self._seed_sampler(trial.number, parameter)
            values[dimension.key] = _suggest_value(trial, dimension)
        return SuggestedTrial(trial.number, values)


def _latest_trials(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return all trials except those that were repeated."""
    retried = {trial.user_attrs.get("retry_of") for trial in trials}
    return [trial for trial in trials if trial.number not in retried]


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
    warm_up = max(1, settings.num_validations // 4)
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
