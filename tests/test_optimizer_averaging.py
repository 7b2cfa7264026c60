"""Weight averaging equals explicit sums. The average is validated and saved, and does not affect training."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from trained_runs import make_copy_examples, make_small_config, read_tensors, train_to_end, write_copy_files

from pellucid.errors import RunError
from pellucid.evaluation.assessment import score_traces
from pellucid.evaluation.metrics import evaluate_examples, metrics_for_log
from pellucid.run_folder.network_file import load_parameters
from pellucid.run_folder.predictor_loader import load
from pellucid.training.events import ValidationCompleted
from pellucid.training.optimizer import CheckpointAverage, MovingAverage, averaged_weights
from pellucid.training.training_data import TrainingFiles


@pytest.fixture
def layer_and_weights() -> tuple[nn.Linear, list[Tensor]]:
    """Return a layer and the weights that it has after each of seven updates."""
    torch.manual_seed(1)
    return nn.Linear(2, 3), [torch.randn(3, 2) for _ in range(7)]


def set_weights(layer: nn.Linear, weights: Tensor) -> None:
    with torch.no_grad():
        layer.weight.copy_(weights)


def test_the_moving_average_equals_its_recurrence(layer_and_weights: tuple[nn.Linear, list[Tensor]]) -> None:
    layer, weight_sequence = layer_and_weights
    average, mean = MovingAverage(layer, 0.3), layer.weight.detach().clone()
    for t, weights in enumerate(weight_sequence, start=1):
        set_weights(layer, weights)
        average.after_update()
        decay = min(0.3, (1 + t) / (10 + t))
        mean = decay * mean + (1 - decay) * weights
        torch.testing.assert_close(average.weights()[0], mean)


def test_the_checkpoint_average_is_the_mean_of_the_last_validations(
    layer_and_weights: tuple[nn.Linear, list[Tensor]],
) -> None:
    layer, weight_sequence = layer_and_weights
    average = CheckpointAverage(layer, 3)
    for t, weights in enumerate(weight_sequence, start=1):
        set_weights(layer, weights)
        average.after_update()
        average.record_validation()
        torch.testing.assert_close(average.weights()[0], torch.stack(weight_sequence[max(0, t - 3) : t]).mean(dim=0))


@pytest.mark.parametrize("kind", [MovingAverage, CheckpointAverage])
def test_the_context_uses_the_average_and_restores_the_weights_bit_for_bit(
    layer_and_weights: tuple[nn.Linear, list[Tensor]], kind: type[MovingAverage] | type[CheckpointAverage]
) -> None:
    layer, weight_sequence = layer_and_weights
    average = MovingAverage(layer, 0.9) if kind is MovingAverage else CheckpointAverage(layer, 4)
    for weights in weight_sequence:
        set_weights(layer, weights)
        average.after_update()
        average.record_validation()
    with pytest.raises(ZeroDivisionError), averaged_weights(average):
        assert torch.equal(layer.weight, average.weights()[0]) and not torch.equal(layer.weight, weight_sequence[-1])
        raise ZeroDivisionError
    assert torch.equal(layer.weight, weight_sequence[-1])
    other = MovingAverage(layer, 0.9) if kind is MovingAverage else CheckpointAverage(layer, 4)
    other.restore({name: value.clone() for name, value in average.state().items()})
    assert all(torch.equal(*pair) for pair in zip(other.weights(), average.weights(), strict=True))
    with averaged_weights(None):
        assert torch.equal(layer.weight, weight_sequence[-1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ema", "last"])
def test_the_average_is_validated_and_saved_without_effect_on_training(tmp_path: Path, kind: str) -> None:
    files = write_copy_files(tmp_path)
    settings = {"epochs": 3, "metric": "loss", "ema_decay": 0.9, "averaged_checkpoints": 2}
    events_without_average = train_to_end(files, tmp_path / "none", make_small_config(settings, dropout=0.2))
    events = train_to_end(
        files, tmp_path / kind, make_small_config({**settings, "weight_averaging": kind}, dropout=0.2)
    )
    parameters, average = (read_tensors(tmp_path / name / "training.safetensors")[0] for name in ("none", kind))
    assert all(average[name] == value for name, value in parameters.items())
    assert any(name.startswith("average.") for name in average) and not any(
        n.startswith("average.") for n in parameters
    )
    best = next(event for event in reversed(events) if isinstance(event, ValidationCompleted) and event.is_best)
    assert (
        best.metrics
        != [event for event in events_without_average if isinstance(event, ValidationCompleted)][-1].metrics
    )
    model = load(tmp_path / kind)
    traces = model.with_beam(1).predict_examples(make_copy_examples(10, seed=2))  # validation is greedy
    assert [trace.output for trace in traces] == [trace.output for trace in best.traces]
    scored = score_traces(traces, [(each.target,) for each in make_copy_examples(10, seed=2)], model.tokenizers)
    assert metrics_for_log(evaluate_examples(scored))["symbol_error_rate"] == best.metrics["symbol_error_rate"]
    own_network = load(tmp_path / "none").network
    with pytest.raises(RunError):
        load_parameters(tmp_path / kind / "training.safetensors", own_network)


def test_resuming_with_another_averaging_is_refused(tmp_path: Path) -> None:
    files: TrainingFiles = write_copy_files(tmp_path)
    train_to_end(files, tmp_path / "run", make_small_config({"epochs": 1}))
    with pytest.raises(RunError, match=r"training\.weight_averaging: 'none' in the run, 'ema' now"):
        train_to_end(files, tmp_path / "run", make_small_config({"epochs": 1, "weight_averaging": "ema"}))
