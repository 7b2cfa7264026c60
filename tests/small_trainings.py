"""Small trainings without a run folder, for the tests of the training loop."""

from collections.abc import Iterator, Sequence

import pytest
import torch
from trained_runs import make_copy_examples

from pellucid.config.settings import Config
from pellucid.data.encoding import encode_examples
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import learn_vocabularies
from pellucid.decoding.transducer import Transducer
from pellucid.tasks.registry import build_network
from pellucid.training import loop
from pellucid.training.events import Event, ValidationCompleted
from pellucid.training.optimizer import build_optimizer
from pellucid.training.training_state import TrainingState

TRAINING_EXAMPLES = make_copy_examples(20, seed=1)
VALIDATION_EXAMPLES = make_copy_examples(7, seed=2)


def build_session(
    config: Config,
    examples: Sequence[Example] = TRAINING_EXAMPLES,
    validation_examples: Sequence[Example] = VALIDATION_EXAMPLES,
) -> TrainingState:
    torch.set_num_threads(1)
    tokenizers = build_tokenizers(config.data)
    vocabularies = learn_vocabularies(examples, tokenizers, 1)
    network = build_network(config, vocabularies)
    optimizer = build_optimizer(network, config.training)
    encoded = encode_examples(examples, tokenizers, vocabularies)
    return TrainingState(Transducer(config, vocabularies, network), optimizer, encoded, validation_examples)


def script_validations(monkeypatch: pytest.MonkeyPatch, losses: list[float], exact: list[float] | None = None) -> None:
    """Replace the scores of the validations with these values."""
    remaining_losses, remaining_matches = iter(losses), iter(exact or [0.0] * len(losses))
    rates = {"symbol_error_rate": 50.0, "symbol_accuracy": 50.0}
    monkeypatch.setattr(loop, "_validation_loss", lambda session: next(remaining_losses))
    monkeypatch.setattr(loop, "metrics_for_log", lambda evaluation: {"exact_match": next(remaining_matches), **rates})


def select_validations(events: Iterator[Event]) -> list[ValidationCompleted]:
    return [event for event in events if isinstance(event, ValidationCompleted)]


class FakeClock:
    """Clock whose time grows by these seconds at each reading."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.time = 0.0

    def perf_counter(self) -> float:
        self.time += self.seconds
        return self.time
