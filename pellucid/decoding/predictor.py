"""Predictors of networks of PyTorch, for every task.

`BasePredictor` has the methods; this class holds the networks, and computes within the modes of PyTorch.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pellucid.config.settings import has_source_features
from pellucid.data.characters import WordCharacters
from pellucid.data.vocabulary import NUM_SPECIAL
from pellucid.decoding.base_predictor import BasePredictor, PreparedChunk
from pellucid.decoding.inference import NO_MEMBERS, EnsembleMembers, check_members
from pellucid.decoding.preprocessing import SourceBatch
from pellucid.errors import ArgumentError, quote
from pellucid.kernels.dispatch import disable_kernels_unless_worth_loading
from pellucid.model.device import check_process, disable_autocast
from pellucid.model.evaluation_mode import evaluation_modes
from pellucid.model.network import EncoderDecoder, Network
from pellucid.shapes import Int


@dataclass(frozen=True)
class Predictor(BasePredictor):
    """Predictor of a PyTorch network, or of an ensemble of them, with its vocabularies and settings.

    Subclasses are `Transducer` and `Ensemble` for autoregressive tasks, and `LabelingPredictor` for the others.
    Predictors are immutable.

    Raises:
        ArgumentError: A field has a wrong type, or the network has another kind or other sizes than this class,
            the task of `config` and the vocabularies need.
    """

    network: Network
    """The network; of an ensemble the first member, whose configuration controls the search."""
    members: EnsembleMembers = NO_MEMBERS
    """Members of an ensemble; empty for one network."""

    def _field_kinds(self) -> dict[str, Any]:
        """Return the type of each field, in the order in which they are checked."""
        kinds = super()._field_kinds()
        return {"config": kinds["config"], "vocabularies": kinds["vocabularies"], "network": Network, **kinds}

    def _check_networks(self) -> None:
        """Check that configuration, vocabularies and networks can be of one model, by the task and the sizes."""
        check_members(self.members)
        advice = "config, vocabularies and network must be those of one model"
        if self.autoregressive != self.class_is_autoregressive:
            task = quote(self.config.task)
            raise ArgumentError(f"config: a {type(self).__name__} cannot have the task {task}; {advice}")
        for network in self.networks:
            if isinstance(network, EncoderDecoder) != self.class_is_autoregressive:
                raise ArgumentError(
                    f"network: a {type(self).__name__} cannot use the class {type(network).__name__}; {advice}"
                )
            if network.vocabulary_size != len(self.vocabularies.target):
                expected = f"target symbols for the {network.vocabulary_size} ids of the network"
                raise ArgumentError(f"vocabularies: expected {expected}, got {len(self.vocabularies.target)}; {advice}")
        if self.is_ensemble:
            return  # the source symbols of an ensemble are those of all its members
        encoder = self.network.encoder
        source = len(self.vocabularies.source)
        num_characters = NUM_SPECIAL if encoder.characters is None else len(encoder.characters.table.weight)
        if num_characters != len(self.vocabularies.characters):
            expected = f"characters for the {num_characters} ids of the network"
            raise ArgumentError(f"vocabularies: expected {expected}, got {len(self.vocabularies.characters)}; {advice}")
        ids = source + (len(self.vocabularies.features) if has_source_features(self.config) else 0)
        if (encoder.symbols, len(encoder.table.weight)) != (source, ids):
            expected = f"{encoder.symbols} source ids and {len(encoder.table.weight) - encoder.symbols} of features"
            raise ArgumentError(
                f"vocabularies: expected {expected}, as the network has, got {source} and {ids - source}; {advice}"
            )

    @property
    def networks(self) -> tuple[Network, ...]:
        """All networks that predict together."""
        return self.members.networks or (self.network,)

    @property
    def num_networks(self) -> int:
        """Number of networks that predict together."""
        return len(self.networks)

    @property
    def is_ensemble(self) -> bool:
        """True for an ensemble, also for one of a single member."""
        return bool(self.members.networks)

    def map_source_ids(self, source: Int[Tensor, "B S"]) -> list[Int[Tensor, "B S"]]:
        """Translate source ids to those of each network.

        Args:
            source: Source ids of the predictor's vocabulary.
        """
        return self.members.map_source_ids(source) if self.is_ensemble else [source]

    def map_characters(self, characters: WordCharacters | None) -> list[WordCharacters | None]:
        """Translate ids of characters to those of each network; None for networks that read none.

        Args:
            characters: Characters of source words, in ids of the predictor's vocabulary; None if there is none.
        """
        return self.members.map_characters(characters) if self.is_ensemble else [characters]

    def evaluation_mode(self) -> AbstractContextManager[None]:
        """Return a context in which all networks are in evaluation mode; it restores their modes afterwards."""
        return evaluation_modes(self.networks)

    @contextmanager
    def _inference_context(self, num_hypotheses: int) -> Iterator[None]:
        """Put the networks in evaluation mode, without gradients, autocast and kernels that are not worth loading.

        The last depends on the number of hypotheses to decode.
        """
        device = self._device
        check_process(device)
        with (
            torch.inference_mode(),
            disable_autocast(device),
            self.evaluation_mode(),
            disable_kernels_unless_worth_loading(num_hypotheses, device.type),
        ):
            yield

    def _batches(self, prepared: PreparedChunk) -> Iterator[SourceBatch]:
        """Yield the sources to decode in batches, as tensors on the device of the networks."""
        device = self._device
        for batch in super()._batches(prepared):
            source, lengths, positions = (
                torch.from_numpy(values).to(device) for values in (batch.source, batch.lengths, batch.positions)
            )
            characters = batch.characters
            if characters is not None:
                characters = WordCharacters(*(torch.from_numpy(values).to(device) for values in characters))
            yield batch._replace(source=source, lengths=lengths, positions=positions, characters=characters)

    @property
    def _device(self) -> torch.device:
        """Device of the networks."""
        return next(self.network.parameters()).device
