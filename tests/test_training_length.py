"""Default number of epochs, batch size and interval of validations."""

import pytest

from pellucid.training.training_length import derived_batch_size, derived_epochs, derived_eval_interval


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
    ("validation_examples", "expected_epochs", "interval"),
    [
        (600, 2.7, 1),  # regression test: the interval was three epochs, of which the time allowed 2.7
        (600, 16.9, 2),
        (600, 28.5, 3),
        (600, 100.0, 3),
        (600, 0.01, 1),
        (2000, 2.7, 3),
        (1500, 2.7, 2),
        (20_000, 2.7, 3),
        (100, 2.7, 1),
    ],
)
def test_the_interval_follows_the_time_limit(validation_examples: int, expected_epochs: float, interval: float) -> None:
    assert derived_eval_interval(5400, validation_examples, 28.5, expected_epochs) == interval
