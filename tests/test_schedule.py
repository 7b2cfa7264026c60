"""When a training validates, when its last part begins, and when it ends."""

from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_trainings import VALIDATION_EXAMPLES, FakeClock, build_session, script_validations, select_validations
from trained_runs import make_small_config

from pellucid.run_folder.progress import Progress
from pellucid.training import loop, schedule
from pellucid.training.checkpoint import restore_training_state, save_training_state
from pellucid.training.events import Event, TrainingStarted, TrainingStopped, UpdateCompleted, ValidationCompleted
from pellucid.training.loop import fit
from pellucid.training.schedule import is_out_of_epochs, stop_reason
from pellucid.training.training_length import max_updates
from pellucid.training.training_state import TrainingState

WHOLE = "the maximum number of epochs is reached"
PERFECT = "exact_match is perfect, and the loss did not improve in {} validations"


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


@cache
def shared_session() -> TrainingState:
    """Return a session whose configuration a test replaces."""
    return build_session(make_small_config())


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
    assert schedule._seconds_for_training(session, progress) == 40 - 1.5 - 6
    monkeypatch.setattr(schedule, "MAX_CONFIDENCE_PAIRS", len(session.validation_examples) / 6)
    monkeypatch.setattr(schedule, "MAX_WEIGHTING_SOURCES", len(session.validation_examples) / 12)
    assert schedule._seconds_for_training(session, progress) == pytest.approx(40 - 1.5 - 0.5 - 0.25)
    session.has_pair_ngram = False
    assert schedule._seconds_for_training(session, progress) == pytest.approx(40 - 1.5 - 0.5)


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
    assert session.progress.stop_cause == "time_limit" and session.progress.in_last_part
    assert session.progress.best_update > 0.6 * session.progress.update


def test_the_last_part_begins_once_with_batches_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: the number of batches differs by epoch, and the part began twice, so that a worse validation
    replaced a better one."""
    script_validations(monkeypatch, losses=[2.0] * 20, exact=[*[0.0] * 15, 50.0, *[10.0] * 4])
    config = make_small_config({"epochs": 20, "batch_type": "tokens", "batch_size": 30, "eval_interval": 1})
    validations = select_validations(fit(build_session(config)))
    assert [index for index, event in enumerate(validations) if event.is_best] == [0, 15]


def test_a_large_validation_set_selects_from_all_validations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "MIN_SELECTION_EXAMPLES", len(VALIDATION_EXAMPLES))
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


def test_a_plateau_halves_the_rate_after_three_validations_without_improvement(monkeypatch: pytest.MonkeyPatch) -> None:
    script_validations(monkeypatch, losses=[1.0] * 8)
    config = make_small_config(
        {"epochs": 8, "lr_schedule": "plateau", "warmup_ratio": 0, "learning_rate": 0.01, "metric": "loss"}
    )
    rates = [event.learning_rate for event in fit(build_session(config)) if isinstance(event, UpdateCompleted)]
    assert rates == [0.01] * (4 * 3) + [0.005] * (3 * 3) + [0.0025] * 3
