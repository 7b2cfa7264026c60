"""The study: every trial and what came of it, in a journal that Optuna writes line by line (an extra).

Akiba et al. 2019, "Optuna". What to try next is chosen by a tree-structured Parzen estimator (Bergstra et al. 2011);
hopeless trials are found by the median of those before them, or by successive halving (Jamieson and Talwalkar 2016).
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
from pellucid.tuning.space import Choice, Range, Space, Value

JOURNAL = "study.journal"
"""One JSON object a line, as Optuna's JournalFileBackend writes and reads them."""
NAME = "pellucid"
Pruning = Literal["median", "halving", "none"]
STARTUP = 8
"""Trials that are drawn at random before those that came out well guide the choice."""
TRIES = 3
"""How often the settings of a trial that fails are tried in all, once at each call."""
EXAMPLES = 4
"""Finished trials that a median is taken of at least."""


class Ended(NamedTuple):
    """A trial that has come to its end."""

    number: int
    state: Literal["finished", "pruned", "failed"]
    score: float | None
    """The metric of the best validation; none where there was none."""
    why: str
    """Why it was pruned, or failed."""
    seconds: float
    values: dict[str, Value]
    tries: int = 1
    """How often its settings were tried, this time included."""


class Asked(NamedTuple):
    """A trial to be made."""

    number: int
    values: dict[str, Value]


class Terms(NamedTuple):
    """What all trials of a study have in common."""

    space: Space
    metric: Metric
    seed: int
    pruning: Pruning
    validations: int
    """How many validations a trial has, about."""


class _Alone(JournalFileOpenLock):
    """No lock: the folder is one process's at a time, and a lock of Optuna's outlives a process that is killed."""

    def acquire(self) -> bool:
        """Nobody else is there."""
        return True

    def release(self) -> None:
        """Nothing to give back."""


class Study:
    """A study in a folder, new or gone on with."""

    def __init__(self, folder: Path, terms: Terms) -> None:
        """Open the journal, or begin it; a line that a crash cut is removed."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.terms = terms
        self.open: dict[int, Trial] = {}
        journal = folder / JOURNAL
        if journal.exists():
            _mend(journal)
        pruner = _pruner(terms)
        try:
            storage = JournalStorage(JournalFileBackend(str(journal), lock_obj=_Alone(str(journal))))
            if storage.get_all_studies():
                self.study = optuna.load_study(study_name=NAME, storage=storage, pruner=pruner)
            else:
                higher = terms.metric in ("exact_match", "symbol_accuracy")
                way = StudyDirection.MAXIMIZE if higher else StudyDirection.MINIMIZE
                self.study = optuna.create_study(study_name=NAME, storage=storage, pruner=pruner, direction=way)
        except (KeyError, ValueError, TypeError) as error:
            told = abbreviate_reason(error)
            raise RunError(f"{journal} is not a study of Pellucid's in Optuna's format: {told}") from error

    def agree(self, told: Mapping[str, Any]) -> list[str]:
        """Note what a new study is about; for an old one the names of what is different now, setting by setting."""
        before = self.study.user_attrs.get("terms")
        if before is None:
            self.study.set_user_attr("terms", dict(told))
            return []
        return [name for name in told if name != "settings" and before[name] != told[name]] + [
            f"settings ({key})"
            for key, value in told["settings"].items()
            if before["settings"].get(key, value) != value
        ]

    def begin_with(self, values: Mapping[str, Value]) -> None:
        """Make the first trial of a new study one of these values; the rest of its values is drawn."""
        if not self.study.get_trials(deepcopy=False):
            self.study.enqueue_trial(dict(values))

    @property
    def asked(self) -> int:
        """How many trials have been begun, those that were tried again counted once."""
        return sum(trial.state != TrialState.WAITING for trial in self._current())

    def try_again(self) -> int:
        """Line up the settings of trials that failed, those not tried too often; how many there are."""
        failed = [trial for trial in self._current() if trial.state == TrialState.FAIL and _tries(trial) < TRIES]
        for trial in failed:
            self.study.enqueue_trial(trial.params, {"again": trial.number, "tries": _tries(trial) + 1})
        return len(failed)

    def _current(self) -> list[FrozenTrial]:
        """Every trial but those whose settings were tried again."""
        trials = self.study.get_trials(deepcopy=False)
        again = {trial.user_attrs.get("again") for trial in trials}
        return [trial for trial in trials if trial.number not in again]

    def unfinished(self) -> list[Asked]:
        """Trials that were begun and have not ended: the process that made them was stopped."""
        begun = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        asked = []
        for frozen in begun:
            self._guide(frozen.number)
            asked.append(self._asked(Trial(self.study, frozen._trial_id)))
        return asked

    def ask(self) -> Asked:
        """The next trial; the same for the same seed and the same trials so far."""
        self._guide(sum(trial.state != TrialState.WAITING for trial in self.study.get_trials(deepcopy=False)))
        return self._asked(self.study.ask())

    def report(self, number: int, validation: int, score: float) -> str:
        """Note a trial's score at a validation; why it is hopeless, in words, or nothing."""
        trial = self.open[number]
        known = self.study.get_trials(deepcopy=False)[number].intermediate_values
        if validation in known or math.isnan(score):
            return ""
        trial.report(score, validation)
        if not trial.should_prune():
            return ""
        behind = "the median of the trials before" if self.terms.pruning == "median" else "the best third so far"
        return f"at validation {validation} it was behind {behind}"

    def values(self, number: int) -> dict[str, Value]:
        """A trial's value of every setting that is searched."""
        return _values(self.study.get_trials(deepcopy=False)[number])

    def end(self, ended: Ended) -> None:
        """Note what came of a trial."""
        trial = self.open.pop(ended.number)
        for name, value in (("why", ended.why), ("seconds", ended.seconds), ("score", ended.score)):
            trial.set_user_attr(name, value)
        state = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}[ended.state]
        self.study.tell(trial, ended.score if ended.state == "finished" else None, state=state)

    def ended(self) -> list[Ended]:
        """Every trial that has ended, in the order of their numbers, but those that were tried again."""
        return [_ended(trial) for trial in self._current() if trial.state.is_finished()]

    def best(self) -> Ended | None:
        """The finished trial with the best score, the earliest of equals."""
        finished = [trial for trial in self.ended() if trial.state == "finished" and trial.score is not None]
        sign = -1.0 if self.study.direction == StudyDirection.MINIMIZE else 1.0
        return max(finished, key=lambda trial: (sign * (trial.score or 0.0), -trial.number), default=None)

    def importances(self) -> dict[str, float]:
        """How much each setting decides whether a trial is among the best; sums to 1.

        PED-ANOVA (Watanabe et al. 2023). Empty while too few trials have finished to say anything.
        """
        if len([trial for trial in self.ended() if trial.state == "finished"]) < 2 * EXAMPLES:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return get_param_importances(self.study, evaluator=PedAnovaImportanceEvaluator())

    def _guide(self, number: int) -> None:
        """Choose by a sampler of this trial's own randomness: nothing of it has to be saved to go on."""
        seed = int(np.random.SeedSequence([self.terms.seed, number]).generate_state(1)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self.study.sampler = TPESampler(n_startup_trials=STARTUP, multivariate=True, constant_liar=True, seed=seed)

    def _asked(self, trial: Trial) -> Asked:
        """A trial with its value of every setting, those that it has by now among them."""
        self.open[trial.number] = trial
        return Asked(trial.number, {each.key: _suggest(trial, each) for each in self.terms.space.searched})


def _suggest(trial: Trial, dimension: Choice | Range) -> Value:
    """A trial's value of one setting."""
    if isinstance(dimension, Choice):
        return cast(Value, trial.suggest_categorical(dimension.key, dimension.values))
    key, low, high, step, log = dimension
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(key, low, high, step=int(step or 1), log=log)
    return round(trial.suggest_float(key, low, high, step=step, log=log), 10)


def _pruner(terms: Terms) -> BasePruner:
    """What finds hopeless trials: none does so before a quarter of a trial's validations."""
    warm_up = max(1, terms.validations // 4)
    match terms.pruning:
        case "median":
            return MedianPruner(n_startup_trials=EXAMPLES, n_warmup_steps=warm_up)
        case "halving":
            return SuccessiveHalvingPruner(min_resource=warm_up, reduction_factor=3)
        case "none":
            return NopPruner()


def _ended(trial: FrozenTrial) -> Ended:
    """A trial as it stands in the journal."""
    states: Sequence[tuple[TrialState, Literal["finished", "pruned"]]] = (
        (TrialState.COMPLETE, "finished"),
        (TrialState.PRUNED, "pruned"),
    )
    state: Literal["finished", "pruned", "failed"] = dict(states).get(trial.state, "failed")
    noted = trial.user_attrs
    told = noted.get("score"), noted.get("why", ""), noted.get("seconds", 0.0)
    return Ended(trial.number, state, *told, _values(trial), _tries(trial))


def _tries(trial: FrozenTrial) -> int:
    """How often a trial's settings were tried."""
    tries: int = trial.user_attrs.get("tries", 1)
    return tries


def _values(trial: FrozenTrial) -> dict[str, Value]:
    """A trial's values, as they were given to its configuration."""
    return {key: round(value, 10) if isinstance(value, float) else value for key, value in trial.params.items()}


def _mend(journal: Path) -> None:
    """Remove what a crash has left of a last line."""
    content = read_bytes(journal)
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        write_atomic(journal, whole)
