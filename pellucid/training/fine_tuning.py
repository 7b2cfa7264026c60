"""Fine-tuning: a network that begins from the parameters of another run, with more symbols, and with frozen parts.

V is the number of ids of a vocabulary, special ones included, N the number of ids that both networks have.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.config.settings import Config, NetworkPart, has_source_features
from pellucid.data.vocabulary import Vocabularies, extend_vocabulary
from pellucid.errors import ConfigError, RunError, count_noun, quote
from pellucid.model.network import Network
from pellucid.run_folder.initial_run import InitialRun
from pellucid.shapes import Int
from pellucid.training.events import NetworkInitialized

PARTS: tuple[NetworkPart, ...] = ("encoder", "attention", "decoder", "embeddings", "output")
"""All parts of a network that can be frozen."""


class VocabularyGrowth(NamedTuple):
    """Number of ids of one side of a network, in the initial run and now: symbols, and after them features."""

    symbols: int
    """Number of ids of symbols in the initial run."""
    features: int
    """Number of ids of features in the initial run; 0 if its network has none, and for targets."""
    new_symbols: int
    """Number of ids of symbols now."""
    new_features: int
    """Number of ids of features now."""

    def kept_ids(self) -> Int[np.ndarray, "N 2"]:
        """Return the ids that symbols and features of both networks have in the initial run, and their ids now.

        New symbols follow the old ones, and features follow all symbols. Features that the network no longer reads have
        no id now.
        """
        symbols, features = np.arange(self.symbols), np.arange(min(self.features, self.new_features))
        old, new = np.append(symbols, self.symbols + features), np.append(symbols, self.new_symbols + features)
        return np.stack([old, new], axis=1)

    @property
    def old_size(self) -> int:
        """Number of all ids in the initial run."""
        return self.symbols + self.features

    @property
    def new_size(self) -> int:
        """Number of all ids now."""
        return self.new_symbols + self.new_features


def extend_vocabularies(initial: Vocabularies, learned: Vocabularies, config: Config) -> Vocabularies:
    """Return the vocabularies of an initial run, extended by the symbols of new training data.

    The ids of old symbols do not change; new symbols follow in their order of frequency. The counts are those of the
    new data: 0 for symbols that it lacks. Extending the result by the same data changes nothing.

    Args:
        initial: Vocabularies of the initial run, whose subword models are kept.
        learned: Vocabularies of the new training data, learned with these subword models.
        config: Configuration of the training; without features, those of the initial run are left out.
    """
    features = (
        extend_vocabulary(initial.features, learned.features) if has_source_features(config) else learned.features
    )
    return Vocabularies(
        source=extend_vocabulary(initial.source, learned.source),
        target=extend_vocabulary(initial.target, learned.target),
        features=features,
        longest_source=max(initial.longest_source, learned.longest_source),
        longest_target=max(initial.longest_target, learned.longest_target),
        pieces=initial.pieces,
        columns=learned.columns,
        classes=tuple(dict.fromkeys((*initial.classes, *learned.classes))),
        tags=tuple(dict.fromkeys((*initial.tags, *learned.tags))),
        characters=extend_vocabulary(initial.characters, learned.characters),
    )


def initialize_network(
    network: Network, initial: InitialRun, config: Config, vocabularies: Vocabularies
) -> NetworkInitialized:
    """Copy the parameters of an initial run into a new network, in place; what new symbols need stays random.

    A parameter with a dimension of size V, such as the rows of an embedding or of an output layer, or the inputs of a
    cell that reads one-hot embeddings, is copied for the old symbols. For new ones it has the values of the new
    network, which depend on the seed.

    Args:
        network: New network of the same shapes, except for the sizes of the vocabularies.
        initial: Run that the training begins from.
        config: Configuration of the training.
        vocabularies: Vocabularies of the training, which extend those of the initial run.

    Returns:
        The numbers of new symbols.

    Raises:
        RunError: A parameter has another shape, and its size does not follow from the vocabularies.
    """
    predictor, new = initial.predictor, network.state_dict()
    old = predictor.network.state_dict()
    if set(old) != set(new):
        names = ", ".join(sorted(set(old) ^ set(new))[:3])
        raise RunError(f"{initial.folder}: its network has other parameters than the new one: {names}")
    growths = _growths(predictor.config, predictor.vocabularies, config, vocabularies)
    with torch.no_grad():
        for name, values in old.items():
            growth = growths[_ids_of(name)]
            if not _copy_parameter(new[name], values, growth, is_table=".table." in name):
                raise RunError(
                    f"{initial.folder}: {name} has the shape {tuple(values.shape)}, and {tuple(new[name].shape)} with "
                    "the new symbols: the network cannot be extended; train on data without new symbols"
                )
    before = predictor.vocabularies
    source, target, features, characters = (
        getattr(vocabularies, name).symbols[len(getattr(before, name).symbols) :]
        for name in ("source", "target", "features", "characters")
    )
    return NetworkInitialized(initial.folder, initial.digest, source, target, features, characters)


def _growths(
    before: Config, initial: Vocabularies, config: Config, vocabularies: Vocabularies
) -> Mapping[str, VocabularyGrowth]:
    """Return the growth of the encoder's ids, of the target ids, and of the ids of characters."""
    old_features = len(initial.features) if has_source_features(before) else 0
    new_features = len(vocabularies.features) if has_source_features(config) else 0
    return {
        "source": VocabularyGrowth(len(initial.source), old_features, len(vocabularies.source), new_features),
        "target": VocabularyGrowth(len(initial.target), 0, len(vocabularies.target), 0),
        "characters": VocabularyGrowth(len(initial.characters), 0, len(vocabularies.characters), 0),
    }


def _ids_of(name: str) -> str:
    """Return the side of the network whose ids a parameter has, by its name."""
    if name.startswith("encoder.characters."):
        return "characters"
    return "source" if name.startswith("encoder.") else "target"


def _copy_parameter(new: Tensor, old: Tensor, growth: VocabularyGrowth, is_table: bool) -> bool:
    """Copy a parameter of the initial run, in place; return False if the shapes do not follow from the vocabularies.

    A dimension that differs holds the ids, or ends with them, as that of a gate that reads a one-hot embedding last.
    """
    if new.dim() != old.dim():
        return False
    differing = [i for i, (size, new_size) in enumerate(zip(old.shape, new.shape, strict=True)) if size != new_size]
    if not differing and not (is_table and growth.symbols != growth.new_symbols):
        # If fewer features make up for new symbols, no shape differs, and one-hot inputs cannot be told from others.
        is_hidden = growth.symbols != growth.new_symbols and growth.old_size == growth.new_size
        is_known = not (is_hidden and growth.old_size in old.shape)
        if is_known:
            new.copy_(old)
        return is_known
    if len(differing) > 1:
        return False
    dimension = differing[0] if differing else 0
    others = old.shape[dimension] - growth.old_size
    if others < 0 or new.shape[dimension] - growth.new_size != others:
        return False
    kept = torch.from_numpy(growth.kept_ids())
    before, now = (torch.cat([torch.arange(others), kept[:, side] + others]) for side in (0, 1))
    new.index_copy_(dimension, now, old.index_select(dimension, before).to(new))
    return True


def part_of(name: str) -> NetworkPart:
    """Return the part of the network that a parameter belongs to.

    Args:
        name: Name of the parameter in `Network.named_parameters`, such as "decoder.attention.energy".
    """
    first, *others = name.split(".")
    if "table" in others:
        return "embeddings"
    if first == "encoder":
        return "encoder"
    if first == "attention" or "attention" in others:
        return "attention"
    return "output" if first == "head" or "head" in others else "decoder"


def freeze_parts(network: Network, config: Config) -> None:
    """Switch off the gradients of the parts of a network in `training.freeze`: no update and no average changes them.

    With tied embeddings, the output layer shares the vectors of the embeddings, to which they belong.

    Args:
        network: Network, which is changed.
        config: Configuration.

    Raises:
        ConfigError: The network has no such part with parameters that are trained, or no other part.
    """
    frozen = frozenset(config.training.freeze)
    if not frozen:
        return
    parts = _trained_parts(network)
    for part in PARTS:
        if part in frozen and part not in parts:
            has = ", ".join(each for each in PARTS if each in parts)
            raise ConfigError(
                f"training.freeze: the network has no part {quote(part)} with trained parameters; it has {has}"
            )
    if frozen >= set(parts):
        raise ConfigError(f"training.freeze: all parts are frozen ({', '.join(parts)}): nothing would be trained")
    for parameter in [parameter for part in frozen for parameter in parts[part]]:
        parameter.requires_grad_(False)


def frozen_part_warnings(config: Config, initialized: NetworkInitialized) -> Iterator[str]:
    """Yield a sentence if new symbols keep random parameters, because their part of the network is frozen.

    Args:
        config: Configuration.
        initialized: Numbers of new symbols.

    Yields:
        Sentences.
    """
    num_source, num_target = len(initialized.new_source) + len(initialized.new_features), len(initialized.new_target)
    # With one-hot embeddings, the inputs of the cells have the parameters of the symbols.
    has_source_table, has_target_table = (
        embedding != "one-hot" for embedding in (config.encoder.embedding, config.decoder.embedding)
    )
    num_new = {
        "embeddings": num_source * has_source_table + num_target * has_target_table + len(initialized.new_characters),
        "encoder": num_source * (not has_source_table),
        "decoder": num_target * (not has_target_table),
        "output": num_target,
    }
    for part in config.training.freeze:
        if num_new.get(part):
            symbols = count_noun(num_new[part], "new symbol")
            yield f"training.freeze = {part}: the parameters of the {symbols} there stay random"


def _trained_parts(network: nn.Module) -> dict[NetworkPart, list[nn.Parameter]]:
    """Return the trained parameters of each part of a network that has some."""
    parts: dict[NetworkPart, list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad and parameter.numel():
            parts.setdefault(part_of(name), []).append(parameter)
    return parts


def initial_run_sentence(config: Config) -> str:
    """Return a sentence on the initial run and the frozen parts for the model card; "" without an initial run.

    Args:
        config: Configuration of the run.
    """
    training = config.training
    if not training.init_from:
        return ""
    frozen = f"; not trained: {', '.join(training.freeze)}" if training.freeze else ""
    name = quote(str(Path(training.init_from)))
    return f"Fine-tuned from {name} (SHA-256 of its model {training.init_from_digest}){frozen}."
