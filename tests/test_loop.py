"""The training loop: the order of events, the best validation, gradients, and resuming at any event."""

import math
import sys
import threading
from collections.abc import Generator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_trainings import (
    TRAINING_EXAMPLES,
    VALIDATION_EXAMPLES,
    build_session,
    script_validations,
    select_validations,
)
from torch import Tensor
from trained_runs import make_small_config

from pellucid.config.settings import Config, MetricName, SearchConfig, TrainingConfig
from pellucid.data.batches import bucket_by_length, collate
from pellucid.data.encoding import encode_examples
from pellucid.data.vocabulary import PAD
from pellucid.errors import ConfigError, DivergenceError, RunError
from pellucid.training import loop
from pellucid.training.checkpoint import restore_training_state, save_training_state
from pellucid.training.events import Event, TrainingStarted, TrainingStopped, UpdateCompleted, ValidationCompleted
from pellucid.training.loop import fit, validation_score


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
    assert validation_score(defaults | better, metric) > validation_score(defaults | worse, metric)


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
            (
                type(event),
                progress.epoch,
                progress.update,
                progress.best_validation_score,
                progress.stop_cause,
                fields,
                outputs,
            )
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
            loop, "validation_score", lambda metrics, metric: validation_score(dict.fromkeys(metrics, 0.0), metric)
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
