"""The training loop: the order of events, the best validation, gradients, and resuming at any event."""

import math
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from trained_runs import make_copy_examples, make_small_config

from pellucid.config.settings import Config, MetricName, SearchConfig, TrainingConfig
from pellucid.data.batches import bucket_by_length, collate
from pellucid.data.encoding import encode_examples
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import PAD, learn_vocabularies
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ConfigError, DivergenceError, RunError
from pellucid.run_folder.progress import Progress
from pellucid.tasks.registry import build_network
from pellucid.training import loop
from pellucid.training.checkpoint import restore_training_state, save_training_state
from pellucid.training.events import Event, TrainingStarted, TrainingStopped, UpdateCompleted, ValidationCompleted
from pellucid.training.loop import (
    TrainingState,
    derived_batch_size,
    derived_epochs,
    derived_eval_interval,
    fit,
    is_out_of_epochs,
    max_updates,
    stop_reason,
    validation_rank,
)
from pellucid.training.optimizer import build_optimizer

TRAINING_EXAMPLES = make_copy_examples(20, seed=1)
VALIDATION_EXAMPLES = make_copy_examples(7, seed=2)


def build_session(config: Config, examples: Sequence[Example] = TRAINING_EXAMPLES) -> TrainingState:
    torch.set_num_threads(1)
    tokenizers = build_tokenizers(config.data)
    vocabularies = learn_vocabularies(examples, tokenizers, 1)
    network = build_network(config, vocabularies)
    optimizer = build_optimizer(network, config.training)
    encoded = encode_examples(examples, tokenizers, vocabularies)
    return TrainingState(Transducer(config, vocabularies, network), optimizer, encoded, VALIDATION_EXAMPLES)


def script_validations(monkeypatch: pytest.MonkeyPatch, losses: list[float], exact: list[float] | None = None) -> None:
    """Replace the scores of the validations with these values."""
    remaining_losses, remaining_matches = iter(losses), iter(exact or [0.0] * len(losses))
    rates = {"symbol_error_rate": 50.0, "symbol_accuracy": 50.0}
    monkeypatch.setattr(loop, "_validation_loss", lambda session: next(remaining_losses))
    monkeypatch.setattr(loop, "metrics_for_log", lambda evaluation: {"exact_match": next(remaining_matches), **rates})


def select_validations(events: Iterator[Event]) -> list[ValidationCompleted]:
    return [event for event in events if isinstance(event, ValidationCompleted)]


@pytest.mark.parametrize(
    ("epochs", "eval_interval", "validated_updates"),
    [
        (2.0, 1.0, [3, 6]),
        (2.0, 0.5, [2, 3, 5, 6]),
        (1.5, 1.0, [3, 5]),
        (0.1, 1.0, [1]),
        (2.0, 5.0, [6]),
        (2.0, 0.01, [1, 2, 3, 4, 5, 6]),
        (2.0, 1e-6, [1, 2, 3, 4, 5, 6]),
        (2.0, 1e9, [6]),
        (2.0, 1e308, [6]),
        (1e-9, 1.0, [1]),
        (1e-300, 1e10, [1]),
    ],
)
def test_updates_and_validations_follow_epochs_and_interval(
    epochs: float, eval_interval: float, validated_updates: list[int]
) -> None:
    """20 examples in batches of 8 are 3 updates per epoch."""
    events = list(fit(build_session(make_small_config({"epochs": epochs, "eval_interval": eval_interval}))))
    assert isinstance(events[0], TrainingStarted) and events[0].max_updates == math.ceil(3 * epochs)
    assert (
        isinstance(events[-1], TrainingStopped)
        and events[-1].progress.stop_cause == "epochs"
        and events[-1].reason == "the maximum number of epochs is reached"
    )
    assert [e.progress.update for e in events if isinstance(e, UpdateCompleted)] == list(
        range(1, validated_updates[-1] + 1)
    )
    assert [e.progress.update for e in select_validations(iter(events))] == validated_updates
    assert not any(isinstance(event, TrainingStarted | TrainingStopped) for event in events[1:-1])


@cache
def shared_session() -> TrainingState:
    """Return a session whose configuration a test replaces."""
    return build_session(make_small_config())


@given(st.floats(0.001, 40).map(lambda epochs: round(epochs, 2)).filter(bool), st.integers(1, 30))
@settings(max_examples=50)
def test_the_maximum_number_of_updates_is_the_one_at_which_the_training_ends(epochs: float, num_batches: int) -> None:
    """Regression test: 1.1 epochs of 10 updates were announced as 12 updates, and ended after 11."""
    session = shared_session()
    session.predictor = replace(session.predictor, config=make_small_config({"epochs": epochs}))

    def is_over(update: int) -> bool:
        progress = Progress(epoch=update // num_batches, batch=update % num_batches, update=update)
        return is_out_of_epochs(session, progress, num_batches)

    last = max_updates(epochs, float(num_batches))
    assert is_over(last) and (last == 1 or not is_over(last - 1))
    assert max_updates(1.1, 10.0) == 11


def test_training_ends_if_rounding_skips_the_last_validation() -> None:
    """The second-to-last validation is so close to the end that rounding makes it the last one."""
    session = build_session(make_small_config({"epochs": 1e6, "eval_interval": 1e6}))
    session.progress = Progress(epoch=999_999, batch=2, update=2_999_999, validations=1)
    events = list(islice(fit(session), 9))
    assert [type(event) for event in events] == [TrainingStarted, UpdateCompleted, ValidationCompleted, TrainingStopped]
    assert events[-1].progress.is_finished


class FakeClock:
    """Clock whose time grows by these seconds at each reading."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.time = 0.0

    def perf_counter(self) -> float:
        self.time += self.seconds
        return self.time


def test_a_time_limit_ends_the_training_and_its_learning_rate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An update and a validation take one second each: of 40 seconds, 37 have 35 updates and 2 validations, and three
    are for the confidence."""
    monkeypatch.setattr(loop, "time", FakeClock(1.0))
    settings = {"epochs": 1000.0, "time_limit": "40s", "eval_interval": 8.0}
    session = build_session(make_small_config(settings))
    restored = build_session(make_small_config(settings))
    events = list[Event]()
    for event in fit(session):
        events.append(event)
        save_training_state(tmp_path / "state", session, "data")
        restore_training_state(tmp_path / "state", restored, "data")  # accepts the progress
    updates = [event for event in events if isinstance(event, UpdateCompleted)]
    fractions = [event.progress_fraction for event in updates]
    assert fractions == sorted(fractions) and fractions[0] < 0.1 and 0.9 < fractions[-1] <= 1
    assert updates[-1].learning_rate < 0.02 * max(event.learning_rate for event in updates)
    assert [event.progress.update for event in select_validations(iter(events))] == [24, 35]
    assert isinstance(events[0], TrainingStarted) and events[0].seconds_left == 40
    progress = events[-1].progress
    assert progress.stop_cause == "time_limit" and progress.seconds == 37
    assert stop_reason(progress, session.config.training) == "its time limit of 40s is reached"


def test_the_schedule_begins_at_the_first_update_whatever_time_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a limit of 80 seconds, 40 pass before the first update: the other 40 have a complete schedule."""
    monkeypatch.setattr(loop, "time", FakeClock(1.0))
    session = build_session(make_small_config({"epochs": 1000.0, "time_limit": "80s", "eval_interval": 8.0}))
    session.progress = Progress(overhead_seconds=40.0, preparation_seconds=40.0)
    events = list(fit(session))
    updates = [event for event in events if isinstance(event, UpdateCompleted)]
    assert updates[0].progress_fraction < 0.001 and 0.9 < updates[-1].progress_fraction <= 1
    rates = [event.learning_rate for event in updates]
    assert rates[0] < max(rates) / 2 and rates[-1] < 0.02 * max(rates)  # warmup, peak and decay
    assert events[-1].progress.seconds + 40 == 77


@pytest.mark.parametrize(("has_pair_ngram", "last_update"), [(True, 31), (False, 34)])
def test_the_time_of_the_weight_is_kept_only_with_a_pair_ngram_model(
    monkeypatch: pytest.MonkeyPatch, has_pair_ngram: bool, last_update: int
) -> None:
    """Regression test: without one, the time of six validations was not used, and later none was kept for the
    confidence."""
    monkeypatch.setattr(loop, "time", FakeClock(1.0))
    settings = {"epochs": 1000.0, "time_limit": "40s", "eval_interval": 4.0, "pair_ngram": True}
    session = build_session(make_small_config(settings))
    assert session.has_pair_ngram
    session.has_pair_ngram = has_pair_ngram
    assert list(fit(session))[-1].progress.update == last_update


def test_the_time_of_the_weight_is_that_of_the_sources_that_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: for 12,000 validation pairs the time to decode all of them was kept, and at most 2,000 are."""
    session = build_session(make_small_config({"time_limit": "40s", "pair_ngram": True}))
    progress = Progress(validations=1, validation_seconds=1.0)
    assert loop._seconds_for_training(session, progress) == 40 - 1.5 - 6
    monkeypatch.setattr(loop, "MAX_CONFIDENCE_PAIRS", len(session.validation_examples) / 6)
    monkeypatch.setattr(loop, "MAX_WEIGHTING_SOURCES", len(session.validation_examples) / 12)
    assert loop._seconds_for_training(session, progress) == pytest.approx(40 - 1.5 - 0.5 - 0.25)
    session.has_pair_ngram = False
    assert loop._seconds_for_training(session, progress) == pytest.approx(40 - 1.5 - 0.5)


@pytest.mark.parametrize("seconds", [0.0, 3.0, 100.0])
def test_a_time_limit_that_is_over_at_the_start_leaves_one_update(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seconds: float
) -> None:
    monkeypatch.setattr(loop, "time", FakeClock(1.0))
    session = build_session(make_small_config({"epochs": 2.0, "time_limit": "1s"}))
    session.progress = Progress(overhead_seconds=seconds)
    events = list(fit(session))
    assert [type(event) for event in events] == [TrainingStarted, UpdateCompleted, ValidationCompleted, TrainingStopped]
    save_training_state(tmp_path / "state", session, "data")
    restore_training_state(tmp_path / "state", session, "data")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.sampled_from([0.3, 1.0, 2.5]), st.lists(st.integers(0, 12), max_size=3))
def test_a_training_with_a_time_limit_resumes_after_any_event(limit: int, interval: float, stops: list[int]) -> None:
    """Each process also takes time before its first update; the progress stays one that a training can have."""
    config = make_small_config({"epochs": 4.0, "time_limit": f"{limit}s", "eval_interval": interval})
    with pytest.MonkeyPatch.context() as monkeypatch, TemporaryDirectory() as folder:
        monkeypatch.setattr(loop, "time", FakeClock(0.7))
        session, path = build_session(config), Path(folder, "state")
        for stop in [*stops, 1000]:
            for number, _ in enumerate(fit(session)):
                if number == stop:
                    break
            save_training_state(path, session, "data")
            session = build_session(config)
            restore_training_state(path, session, "data")
            if session.progress.is_finished:
                break
            later = session.progress.overhead_seconds + 2.0
            session.progress = msgspec.structs.replace(session.progress, overhead_seconds=later)
        assert session.progress.is_finished and session.progress.validations


def test_time_that_passes_after_a_validation_ends_the_resumed_training(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process that is stopped before its first update saves its own time: the limit may be reached by it."""
    config = make_small_config({"epochs": 4.0, "time_limit": "60s"})
    monkeypatch.setattr(loop, "time", FakeClock(1.0))
    session = build_session(config)
    for event in fit(session):
        if isinstance(event, ValidationCompleted):
            break
    session.progress = msgspec.structs.replace(session.progress, overhead_seconds=70.0)
    for _ in range(2):
        save_training_state(tmp_path / "state", session, "data")
        session = build_session(config)
        restore_training_state(tmp_path / "state", session, "data")
        events = list(fit(session))
        session.progress = events[-1].progress
    assert session.progress.stop_cause == "time_limit"


@pytest.mark.parametrize("settings", [{"epochs": 9.0}, {"epochs": 100.0, "time_limit": "37s"}])
def test_a_perfect_training_resumes_between_the_validations_around_its_half(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """The loss has not improved before the half, where a perfect metric does not end the training yet."""
    script_validations(monkeypatch, [1.0, *[2.0] * 9], [100.0] * 10)
    monkeypatch.setattr(loop, "time", FakeClock(1.0))
    config = make_small_config({**settings, "perfect_patience": 1, "eval_interval": 1})
    session, restored = build_session(config), build_session(config)
    for _ in fit(session):
        save_training_state(tmp_path / "state", session, "data")
        restore_training_state(tmp_path / "state", restored, "data")
        assert restored.progress == session.progress
    assert session.progress.stop_cause == "perfect" and session.progress.validations == 5


def test_a_perfect_training_resumes_if_its_half_passes_after_a_validation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Regression test: a process that was stopped at its start saved its own time; the checkpoint was then refused."""
    script_validations(monkeypatch, [1.0, *[2.0] * 9], [100.0] * 10)
    monkeypatch.setattr(loop, "time", FakeClock(1.0))
    config = make_small_config({"epochs": 100.0, "time_limit": "60s", "perfect_patience": 1, "eval_interval": 1})
    session, restored = build_session(config), build_session(config)
    for event in fit(session):
        if isinstance(event, ValidationCompleted) and event.progress.validations_since_best == 1:
            break
    assert not session.progress.is_finished
    session.progress = msgspec.structs.replace(session.progress, overhead_seconds=40.0)
    save_training_state(tmp_path / "state", session, "data")
    restore_training_state(tmp_path / "state", restored, "data")
    assert restored.progress == session.progress


def test_without_a_time_limit_the_progress_has_no_other_times() -> None:
    session = build_session(make_small_config({"epochs": 1.0}))
    progress = list(fit(session))[-1].progress
    assert (progress.overhead_seconds, progress.validation_seconds) == (0.0, 0.0)


def extreme_values(kind: type) -> st.SearchStrategy[Any]:
    """Return a strategy of the smallest, the largest, and intermediate values of a setting's type."""
    match msgspec.inspect.type_info(kind):
        case msgspec.inspect.FloatType(ge=ge, gt=gt, le=le, lt=lt):
            least = math.nextafter(gt, math.inf) if gt is not None else ge or 0.0
            greatest = math.nextafter(lt, -math.inf) if lt is not None else le
            return st.sampled_from([least, max(least, 5e-324), max(least, 1e-9), 0.5, greatest or sys.float_info.max])
        case msgspec.inspect.IntType(ge=ge, le=le):
            return st.sampled_from([ge, 3, le])
        case _:
            return st.from_type(kind)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    st.fixed_dictionaries(
        {"epochs": st.sampled_from([5e-324, 1e-9, 1e-3, 0.5, 1.0])},
        optional={
            field.name: extreme_values(field.type)
            for field in msgspec.structs.fields(TrainingConfig)
            if field.name not in ("epochs", "augmentation", "augmentation_ratio")
        },
    )
)
def test_training_ends_or_is_refused_for_all_settings(training: dict[str, Any]) -> None:
    """There are at most 20 updates with one validation each. Augmentation precedes training and is excluded."""
    try:
        config = make_small_config({"batch_size": 8, **training}, dropout=0.2)
        events = list(islice(fit(build_session(config)), 50))
    except (ConfigError, DivergenceError):
        return
    assert isinstance(events[-1], TrainingStopped)


def test_every_example_is_used_once_per_epoch() -> None:
    events = list(fit(build_session(make_small_config({"epochs": 3, "batch_size": 7}))))
    assert [e.progress.samples for e in events if isinstance(e, ValidationCompleted)] == [20, 40, 60]


@pytest.mark.parametrize(
    ("metric", "better", "worse"),
    [
        ("exact_match", {"exact_match": 2.0, "symbol_error_rate": 9.0}, {"exact_match": 1.0, "symbol_error_rate": 0.0}),
        ("symbol_accuracy", {"symbol_accuracy": 2.0}, {"symbol_accuracy": 1.0}),
        ("symbol_error_rate", {"symbol_error_rate": 1.0}, {"symbol_error_rate": 2.0, "exact_match": 9.0}),
        ("loss", {"loss": 1.0, "symbol_error_rate": 99.0}, {"loss": 1.1}),
        ("exact_match", {"symbol_error_rate": 3.0}, {"symbol_error_rate": 4.0, "loss": 0.0}),
    ],
)
def test_the_chosen_metric_ranks_and_the_error_rate_breaks_ties(
    metric: MetricName, better: dict[str, float], worse: dict[str, float]
) -> None:
    defaults = {"exact_match": 0.0, "symbol_accuracy": 0.0, "symbol_error_rate": 50.0, "loss": 5.0}
    assert validation_rank(defaults | better, metric) > validation_rank(defaults | worse, metric)


@pytest.mark.parametrize(
    ("metric", "best"), [("loss", [True, True, False, False]), ("exact_match", [True, False, True, True])]
)
def test_the_best_validation_has_the_best_chosen_metric(
    monkeypatch: pytest.MonkeyPatch, metric: MetricName, best: list[bool]
) -> None:
    script_validations(monkeypatch, losses=[2.0, 1.0, 1.0, 3.0], exact=[10.0, 5.0, 10.0, 20.0])
    events = list(fit(build_session(make_small_config({"epochs": 4, "metric": metric}))))
    assert [event.is_best for event in select_validations(iter(events))] == best
    assert events[-1].progress.best_update == 3 * (1 + max(index for index, is_best in enumerate(best) if is_best))


@pytest.mark.parametrize(
    ("settings", "exact", "best_update"),
    [
        ({}, [0.0, 50.0, 0.0, 0.0, 0.0, 0.0, 0.0, 10.0, 20.0, 20.0], 9 * 3),
        ({}, [0.0, 50.0, 0.0, 0.0, 0.0, 0.0, 0.0, 10.0, 9.0, 9.0], 8 * 3),
        ({"metric": "symbol_accuracy"}, [0.0] * 10, 8 * 3),
        ({}, [0.0, 100.0, 0.0, 0.0, 0.0, 0.0, 0.0, 10.0, 20.0, 20.0], 2 * 3),
        ({"lr_schedule": "constant"}, [0.0, 50.0, 0.0, 0.0, 0.0, 0.0, 0.0, 10.0, 20.0, 20.0], 2 * 3),
        ({"patience": 20}, [0.0, 50.0, 0.0, 0.0, 0.0, 0.0, 0.0, 10.0, 20.0, 20.0], 2 * 3),
        ({"metric": "loss"}, [0.0] * 10, 1 * 3),
    ],
)
def test_a_small_validation_set_selects_from_the_last_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: dict[str, Any], exact: list[float], best_update: int
) -> None:
    script_validations(monkeypatch, losses=[1.0, *[2.0] * 9], exact=exact)
    config = make_small_config({"epochs": 10, "perfect_patience": 0, **settings})
    session, restored = build_session(config), build_session(config)
    for _ in fit(session):
        save_training_state(tmp_path / "state", session, "data")
        restore_training_state(tmp_path / "state", restored, "data")
        assert restored.progress == session.progress
    assert session.progress.best_update == best_update


def test_a_small_validation_set_selects_from_the_last_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: the last part was that of the epochs only, which a time limit may end long before."""
    monkeypatch.setattr(loop, "time", FakeClock(1.0))
    script_validations(monkeypatch, losses=[2.0] * 99, exact=[50.0, *[10.0] * 98])
    session = build_session(make_small_config({"epochs": 1000.0, "time_limit": "200s"}))
    list(fit(session))
    assert session.progress.stop_cause == "time_limit" and session.progress.is_best_of_last_part
    assert session.progress.best_update > 0.6 * session.progress.update


def test_the_last_part_begins_once_with_batches_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: the number of batches differs by epoch, and the part began twice, so that a worse validation
    replaced a better one."""
    script_validations(monkeypatch, losses=[2.0] * 20, exact=[*[0.0] * 15, 50.0, *[10.0] * 4])
    config = make_small_config({"epochs": 20, "batch_type": "tokens", "batch_size": 30, "eval_interval": 1})
    validations = select_validations(fit(build_session(config)))
    assert [index for index, event in enumerate(validations) if event.is_best] == [0, 15]


def test_a_large_validation_set_selects_from_all_validations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MIN_SELECTION_EXAMPLES", len(VALIDATION_EXAMPLES))
    script_validations(monkeypatch, losses=[1.0] * 10, exact=[0.0, 50.0, *[10.0] * 8])
    session = build_session(make_small_config({"epochs": 10}))
    list(fit(session))
    assert session.progress.best_update == 2 * 3


def test_patience_ends_training_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    script_validations(monkeypatch, losses=[3.0, 2.0, 2.0, 2.5, 1.0])
    events = list(fit(build_session(make_small_config({"epochs": 9, "metric": "loss", "patience": 2}))))
    assert events[-1].progress.update == 4 * 3
    assert events[-1].progress.stop_cause == "patience"
    assert isinstance(events[-1], TrainingStopped) and events[-1].reason == "loss did not improve in 2 validations"
    assert events[-1].progress.best_update == 2 * 3


PERFECT = "exact_match is perfect, and the loss did not improve in {} validations"
WHOLE = "the maximum number of epochs is reached"


@pytest.mark.parametrize(
    ("settings", "exact", "epochs", "reason"),
    [
        ({}, [100.0] * 10, 5, PERFECT.format(3)),
        ({}, [99.0] * 10, 10, WHOLE),
        ({}, [100.0, *[99.0] * 9], 5, PERFECT.format(4)),
        ({}, [99.0, 99.0, 99.0, 99.0, 100.0, 98.0, *[99.0] * 4], 7, PERFECT.format(2)),
        ({"perfect_patience": 4}, [100.0] * 10, 6, PERFECT.format(4)),
        ({"perfect_patience": 0}, [100.0] * 10, 10, WHOLE),
        ({"metric": "loss"}, [100.0] * 10, 10, WHOLE),
        ({"metric": "symbol_accuracy"}, [100.0] * 10, 10, WHOLE),
        ({"patience": 1}, [100.0] * 10, 3, "exact_match did not improve in 1 validation"),
    ],
)
def test_training_ends_when_the_metric_is_perfect_and_the_loss_is_not_better(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], exact: list[float], epochs: int, reason: str
) -> None:
    """The second of ten losses is the best; the training ends at half of its length at the earliest."""
    script_validations(monkeypatch, losses=[3.0, 2.0, 2.5, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7], exact=exact)
    config = make_small_config({"epochs": 10, "perfect_patience": 2, **settings})
    events = list(fit(build_session(config)))
    assert isinstance(events[-1], TrainingStopped) and events[-1].reason == reason
    assert events[-1].progress.update == epochs * 3


def test_validations_within_an_epoch_do_not_end_a_perfect_training_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The patience is counted in validations and in epochs; the later one decides."""
    script_validations(monkeypatch, losses=[1.0] * 12, exact=[100.0] * 12)
    config = make_small_config({"epochs": 4, "perfect_patience": 3, "eval_interval": 1 / 3})
    events = list(fit(build_session(config)))
    assert events[-1].progress.update == 1 + 3 * 3 and events[-1].progress.validations_since_best == 9


def test_a_plateau_halves_the_rate_after_three_stale_validations(monkeypatch: pytest.MonkeyPatch) -> None:
    script_validations(monkeypatch, losses=[1.0] * 8)
    config = make_small_config(
        {"epochs": 8, "lr_schedule": "plateau", "warmup_ratio": 0, "learning_rate": 0.01, "metric": "loss"}
    )
    rates = [event.learning_rate for event in fit(build_session(config)) if isinstance(event, UpdateCompleted)]
    assert rates == [0.01] * (4 * 3) + [0.005] * (3 * 3) + [0.0025] * 3


def test_validation_scores_the_greedy_outputs() -> None:
    session = build_session(make_small_config({"epochs": 30, "learning_rate": 0.02, "eval_interval": 15}, dropout=0.2))
    assert session.config.search.beam_size == 5, "the default of other decoding"
    events = fit(session)
    for event in events:
        if isinstance(event, ValidationCompleted):
            predicted = session.predictor.with_beam(1).predict([example.source for example in VALIDATION_EXAMPLES])
            assert [trace.output for trace in event.traces] == [trace.output for trace in predicted]
            num_correct = sum(t.output == e.target for t, e in zip(event.traces, VALIDATION_EXAMPLES, strict=True))
            assert event.metrics["exact_match"] == pytest.approx(100 * num_correct / len(VALIDATION_EXAMPLES))
    assert num_correct > 0, "a model without a correct output tests nothing"


def compute_cross_entropy(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """Return −Σ q log p for each position that is not padding, by definition."""
    target_distribution = (1 - smoothing) * torch.nn.functional.one_hot(
        target, logits.shape[-1]
    ) + smoothing / logits.shape[-1]
    return -(target_distribution * logits.log_softmax(-1)).sum(-1)[target != PAD]


@pytest.mark.parametrize("batch_size", [1, 3, 128])
def test_the_validation_loss_is_the_mean_over_symbols_without_smoothing(batch_size: int) -> None:
    config = make_small_config({"epochs": 0.1, "label_smoothing": 0.3}, dropout=0.5)
    session = build_session(msgspec.structs.replace(config, search=SearchConfig(batch_size=batch_size)))
    (event,) = select_validations(fit(session))
    encoded = encode_examples(VALIDATION_EXAMPLES, session.predictor.tokenizers, session.predictor.vocabularies)
    network = session.predictor.network.eval()
    single_batches = [collate(encoded, torch.tensor([row]).numpy()) for row in range(len(VALIDATION_EXAMPLES))]
    with torch.no_grad():
        entropies = torch.cat(
            [compute_cross_entropy(network(batch).logits, batch.target, 0.0) for batch in single_batches]
        )
    assert event.metrics["loss"] == pytest.approx(float(entropies.mean()), rel=1e-5)


@pytest.mark.parametrize(("value", "norm"), [(0.0, 0.0), (0.01, 0.0), (0.0, 0.05), (0.01, 0.05)])
def test_gradients_are_clipped_by_value_and_then_by_norm(value: float, norm: float) -> None:
    config = make_small_config({"epochs": 1, "clip_value": value, "clip_norm": norm, "label_smoothing": 0.2})
    session, twin_network = build_session(config), build_session(config).predictor.network
    batch = collate(
        session.encoded_training_examples,
        bucket_by_length(session.encoded_training_examples, 8, "examples", config.seed, 0)[0],
    )
    loss = compute_cross_entropy(twin_network(batch).logits, batch.target, 0.2).mean()
    gradients = torch.autograd.grad(loss, list(twin_network.parameters()))
    clamped = [gradient.clamp(-value, value) if value else gradient for gradient in gradients]
    length = math.sqrt(sum(float((gradient**2).sum()) for gradient in clamped))
    scale = min(1.0, norm / length) if norm else 1.0
    assert scale < 1.0 or not norm, "the limit is not reached, so nothing is tested"

    events = fit(session)
    event = next(event for event in events if isinstance(event, UpdateCompleted))
    assert event.loss == pytest.approx(float(loss.detach()), rel=1e-5)
    assert event.gradient_norm == pytest.approx(length, rel=1e-4)
    first_moments = [value for name, value in session.optimizer.state().items() if name.endswith(".mean")]
    for moment, gradient in zip(first_moments, clamped, strict=True):
        torch.testing.assert_close(moment, 0.1 * gradient * scale, rtol=1e-3, atol=1e-8)


def test_the_first_update_of_adam_has_the_size_of_the_learning_rate() -> None:
    session = build_session(make_small_config({"epochs": 4, "warmup_ratio": 0.5, "learning_rate": 0.01}))
    before = [parameter.detach().clone() for parameter in session.predictor.network.parameters()]
    event = next(event for event in fit(session) if isinstance(event, UpdateCompleted))
    after = [parameter.detach() for parameter in session.predictor.network.parameters()]
    changes = [(one - other).abs().max() for one, other in zip(after, before, strict=True)]
    assert 0 < event.learning_rate < 0.01
    assert float(torch.stack(changes).max()) == pytest.approx(event.learning_rate, rel=1e-2)


def test_divergence_names_the_key_and_leaves_the_parameters_finite() -> None:
    session = build_session(make_small_config({"epochs": 4, "learning_rate": 1e30}))
    with pytest.raises(RunError, match=r"^training diverged at update \d+: .*training\.learning_rate \(now 1e\+30\)"):
        list(fit(session))
    assert all(bool(parameter.isfinite().all()) for parameter in session.predictor.network.parameters())


@pytest.mark.parametrize("seed", [0, 2**31, 2**32 - 1])
def test_every_allowed_seed_trains(seed: int) -> None:
    config = msgspec.structs.replace(make_small_config({"epochs": 0.1}, dropout=0.5), seed=seed)
    assert isinstance(list(fit(build_session(config)))[-1], TrainingStopped)


def test_random_numbers_differ_between_updates_and_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    random_numbers: list[float] = []

    def draw_number(*_: object) -> tuple[float, float]:
        random_numbers.append(float(torch.rand(1)))
        return 0.0, 0.0

    monkeypatch.setattr(loop, "_update_parameters", draw_number)
    for seed in (1, 2):
        events = fit(build_session(msgspec.structs.replace(make_small_config({"epochs": 4}), seed=seed)))
        list(islice(events, 4))
    assert len(random_numbers) == len(set(random_numbers)) == 6


def resume_training(path: Path, config: Config) -> list[Event]:
    """Return the events of a new session that resumes a saved one."""
    session = build_session(config, TRAINING_EXAMPLES[:10])
    restore_training_state(path, session, "data")
    return list(fit(session))[1:]


def remove_times(events: list[Event]) -> list[tuple[object, ...]]:
    """Return the exact results of each event without the elapsed seconds."""
    results: list[tuple[object, ...]] = []
    for event in events:
        fields = tuple(event[1:3]) if isinstance(event, ValidationCompleted) else tuple(event[1:])
        outputs = (
            [trace.log_probabilities.tobytes() for trace in event.traces]
            if isinstance(event, ValidationCompleted)
            else []
        )
        progress = event.progress
        results.append(
            (type(event), progress.epoch, progress.update, progress.best_rank, progress.stop_cause, fields, outputs)
        )
    return results


@pytest.mark.parametrize(
    ("schedule", "batch_type", "size"),
    [
        ("constant", "examples", 4),
        ("cosine", "tokens", 30),
        ("inverse-square-root", "examples", 4),
        ("plateau", "tokens", 30),
    ],
)
def test_a_state_saved_at_any_event_resumes_bit_for_bit(
    tmp_path: Path, schedule: str, batch_type: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if schedule == "plateau":  # no validation is better than the first
        monkeypatch.setattr(
            loop, "validation_rank", lambda metrics, metric: validation_rank(dict.fromkeys(metrics, 0.0), metric)
        )
    training = {
        "epochs": 3,
        "lr_schedule": schedule,
        "batch_type": batch_type,
        "batch_size": size,
        "eval_interval": 0.5,
    }
    config = make_small_config({**training, "learning_rate": 0.01}, dropout=0.4)
    events, session = [], build_session(config, TRAINING_EXAMPLES[:10])
    for event in fit(session):
        events.append(event)
        save_training_state(tmp_path / f"{len(events)}.safetensors", session, "data")
    assert sum(isinstance(event, ValidationCompleted) for event in events) == 6
    assert (events[-1].progress.plateau_factor < 1) == (schedule == "plateau"), "the plateau is not reached"
    for index in range(1, len(events)):
        assert remove_times(resume_training(tmp_path / f"{index}.safetensors", config)) == remove_times(
            events[index:]
        ), index


def train_with_prefetch(prefetch: bool) -> tuple[list[float], list[Tensor]]:
    """Return the losses and parameters of a training with or without prefetched batches."""
    session = build_session(make_small_config({"epochs": 4, "batch_size": 40, "batch_type": "tokens"}, dropout=0.4))
    session.prefetch = prefetch
    losses = [event.loss for event in fit(session) if isinstance(event, UpdateCompleted)]
    return losses, [parameter.detach() for parameter in session.predictor.network.parameters()]


def list_prefetch_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pellucid-ahead")]


def test_prefetched_batches_change_no_bit() -> None:
    (losses, parameters), (prefetched_losses, prefetched_parameters) = (
        train_with_prefetch(prefetch=False),
        train_with_prefetch(prefetch=True),
    )
    assert len(losses) > 10 and losses == prefetched_losses
    assert all(torch.equal(one, other) for one, other in zip(parameters, prefetched_parameters, strict=True))
    assert list_prefetch_threads() == []


@pytest.mark.parametrize("kind", [TrainingStarted, UpdateCompleted, ValidationCompleted])
def test_closing_the_generator_leaves_no_thread(kind: type[Event]) -> None:
    session = build_session(make_small_config({"epochs": 2, "eval_interval": 0.5}))
    assert not session.prefetch, "prefetching is off on a CPU"
    session.prefetch = True
    events = fit(session)
    assert isinstance(next(event for event in events if isinstance(event, kind)), kind)
    assert isinstance(events, Generator)
    events.close()
    assert list_prefetch_threads() == []


def test_an_error_of_a_batch_ends_training_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    session = build_session(make_small_config({"epochs": 2}))
    session.prefetch = True

    def fail(*arguments: object) -> None:
        raise OSError(5, "Input/output error")

    events = fit(session)
    next(event for event in events if isinstance(event, UpdateCompleted))
    monkeypatch.setattr(loop, "collate", fail)
    with pytest.raises(OSError, match="Input/output error"):
        list(events)
    assert list_prefetch_threads() == []


@pytest.mark.parametrize(
    ("examples", "size"), [(1, 8), (1_000, 8), (3_600, 16), (10_000, 32), (60_811, 64), (10**6, 64)]
)
def test_few_examples_have_small_batches_unless_a_size_is_set(examples: int, size: int) -> None:
    assert derived_batch_size(examples) == size


def test_the_default_epochs_fall_with_the_number_of_examples() -> None:
    assert derived_epochs(1) == 200 and derived_epochs(900) == 60 and derived_epochs(3600) == 30
    assert derived_epochs(3600 * 2**8) == 15
    numbers = [derived_epochs(examples) for examples in range(100, 10_000, 7)]
    assert numbers == sorted(numbers, reverse=True)


@pytest.mark.parametrize(
    ("examples", "validation_examples", "epochs", "interval"),
    [
        (3600, 450, 30.0, 3),
        (100_000, 5000, 20.0, 1),
        (100_000, 5001, 20.0, 2),
        (10_000, 2167, 26.0, 3),
        (1000, 2167, 57.0, 7),
        (100, 2167, 7.9, 1),
        (100, 0, 180.0, 1),
        (1, 10**6, 1e6, 125_000),
    ],
)
def test_a_large_validation_set_is_decoded_after_several_epochs(
    examples: int, validation_examples: int, epochs: float, interval: float
) -> None:
    assert derived_eval_interval(examples, validation_examples, epochs) == interval


@pytest.mark.parametrize(
    ("settings", "interval"),
    [
        ({}, 6.0),
        ({"eval_interval": 0.5}, 0.5),
        ({"patience": 3}, 1.0),
        ({"lr_schedule": "plateau"}, 1.0),
        ({"weight_averaging": "last"}, 1.0),
    ],
)
def test_an_unset_interval_is_derived_unless_settings_count_validations(
    settings: dict[str, Any], interval: float
) -> None:
    config = make_small_config({"epochs": 50, **settings})
    assert build_session(config, TRAINING_EXAMPLES[:4]).eval_interval == interval


def test_an_unset_batch_size_is_derived() -> None:
    derived, configured = (
        build_session(make_small_config({"epochs": 1, "batch_size": each})).plan_batches(0) for each in (0, 5)
    )
    assert max(map(len, derived)) == 8
    assert max(map(len, configured)) == 5
