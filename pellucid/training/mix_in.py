"""Earlier training pairs, some of which each epoch of a fine-tuning draws."""

from collections.abc import Sequence
from pathlib import Path

from pellucid.config.settings import Config, DataConfig
from pellucid.data.examples import Example, read_examples
from pellucid.data.validation_split import normalize_sources
from pellucid.errors import DataError
from pellucid.files import digest_file
from pellucid.training.events import PairsMixedIn
from pellucid.training.training_data import TrainingData, check_reading
from pellucid.training.training_length import num_drawn


def mix_in_pairs(data: TrainingData, config: Config, unresolved: DataConfig) -> tuple[TrainingData, PairsMixedIn]:
    """Return training data with the earlier pairs of `training.mix_in` after its examples, and their numbers.

    They count for the vocabularies. Each epoch draws some of them (`TrainingState.rows_of_epoch`). Pairs whose sources
    are in the validation set are left out, so that the validation still measures generalization; of running text,
    words that are there with the same context, since a text has the same words again.

    Args:
        data: Training data as texts.
        config: Configuration, whose `mix_in` names a file.
        unresolved: Data settings as they were given; the format of the file is found by its own name.

    Raises:
        DataError: The file cannot be read or holds no example besides validation pairs, or a line is bad (unless bad
            lines are skipped), or most lines are.
    """
    path = Path(config.training.mix_in)
    read, new = read_examples(path, unresolved), data.training_examples
    check_reading(read, path)
    validation_keys = set(_mixing_keys(data.validation_examples, config.data))
    keys = _mixing_keys(read.examples, config.data)
    earlier = [example for example, key in zip(read.examples, keys, strict=True) if key not in validation_keys]
    if not earlier:
        raise DataError(f"{path}: the sources of all pairs are in the validation set; mix in other pairs")
    event = PairsMixedIn(
        path,
        len(earlier),
        num_drawn(len(new), config.training.mix_in_fraction),
        len(new),
        len(read.examples) - len(earlier),
        read.bad_lines,
        digest_file(path),
    )
    return data._replace(training_examples=[*new, *earlier], num_mixed_in=len(earlier)), event


def _mixing_keys(examples: Sequence[Example], config: DataConfig) -> list[tuple[str, str]]:
    """Return what earlier pairs must not share with validation pairs: the source, with its context if it has one."""
    normalized = normalize_sources(examples, config)
    return [(example.source, example.features if config.context_words else "") for example in normalized]
