"""Prediction of sequences by networks of PyTorch: greedy search, beam search, sampling, and scores of given targets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.decoding.base_transducer import BaseTransducer
from pellucid.decoding.beam_search import beam_search, beam_search_stepwise
from pellucid.decoding.beam_steps import BeamConfig
from pellucid.decoding.constraints import Constraints
from pellucid.decoding.forced_attention import check_attention_options, force_attention, forced_weights
from pellucid.decoding.forced_decoding import score_targets
from pellucid.decoding.greedy import greedy
from pellucid.decoding.hypothesis import Hypothesis
from pellucid.decoding.inference import Inference, SingleModelInference, encode_and_initialize
from pellucid.decoding.outputs import BatchLengthLimits
from pellucid.decoding.pair_ngram_interpolation import NetworkIds
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import SourceBatch
from pellucid.decoding.sampling import sample
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.errors import ArgumentError
from pellucid.shapes import Float, Int


@dataclass(frozen=True)
class Transducer(BaseTransducer, Predictor):
    """Predictor of one encoder-decoder in PyTorch, which decodes symbol by symbol.

    Raises:
        ArgumentError: A field has a wrong type, or `members` is not empty (only an `Ensemble` has members).
    """

    class_is_ensemble: ClassVar[bool] = False
    """True for ensembles."""

    def __post_init__(self) -> None:
        """Check the types of the fields, and that there are no members."""
        super().__post_init__()
        if self.members.networks and not self.class_is_ensemble:
            raise ArgumentError(
                "members: a Transducer has one network, the field `network`; pellucid.load([...]) makes an Ensemble"
            )

    def combine(self, member_inferences: Sequence[SingleModelInference]) -> Inference:
        """Return the hypotheses of all networks as one `Inference`; here those of the only network.

        Args:
            member_inferences: Hypotheses of each network; one, unless this is an ensemble.
        """
        return member_inferences[0]

    def initialize(self, batch: SourceBatch) -> Inference:
        """Encode the sources and return one empty hypothesis per source, with the options that change attention.

        Args:
            batch: Sources.

        Raises:
            InputError: Forced attention weights or masked positions do not fit a source or the model.
        """
        rows = self.forced_attention_rows(batch)  # checks the masked positions, before they are used
        return force_attention(self._initialize(batch), rows)

    def forced_attention_rows(self, batch: SourceBatch) -> dict[int, Float[Tensor, " S"]]:
        """Return the forced attention weights of the options, after checking these and the masked positions.

        Args:
            batch: Sources.

        Returns:
            The attention weights of each forced step, by its index; they sum to one.

        Raises:
            InputError: Forced attention weights or masked positions do not fit a source or the model
                (`forced_weights`).
        """
        return forced_weights(self.options, batch, self.networks, self._max_steps)

    def _initialize(self, batch: SourceBatch) -> Inference:
        """Return the model before its first step, without forced attention."""
        return encode_and_initialize(
            self.network, batch.source, batch.lengths, self.options.masked_positions, batch.characters
        )

    def _check_attention_options(self) -> None:
        """Raise `InputError` for forced attention and masked positions that fit no source or not the model."""
        check_attention_options(self.options, self.networks, self._max_steps)

    def _network_ids(self, network: int) -> NetworkIds:
        """Return the ids of a network for those of the predictor."""
        members = self.members
        if not members.networks:
            return NetworkIds()
        target = members.target_id_maps[network]
        return NetworkIds(
            members.source_id_maps[network].numpy(force=True), None if target is None else target.numpy(force=True)
        )

    def _score_batch(
        self, batch: SourceBatch, targets: Int[np.ndarray, "B T"], target_lengths: Int[np.ndarray, " B"]
    ) -> list[Hypothesis]:
        """Score targets as if they had been decoded."""
        device = batch.source.device
        ids, steps = (torch.from_numpy(values).to(device) for values in (targets, target_lengths))
        return score_targets(self.initialize(batch), batch.positions, ids, steps)

    def _sample_batch(
        self,
        batch: SourceBatch,
        numbers: Int[np.ndarray, " B"],
        limits: BatchLengthLimits,
        constraints: Constraints,
        sampling: SamplingConfig,
    ) -> list[list[Hypothesis]]:
        """Sample outputs of each source of a batch."""
        return sample(self.initialize(batch), batch.positions, numbers, limits, constraints, sampling)

    def _run_search(self, batch: SourceBatch, config: BeamConfig, fits_kernel: bool) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each source of a batch.

        If all its steps fit a kernel, `greedy` or `beam_search` runs it, in a kernel if one supports the model. Every
        other search takes single steps, of which kernels may compute parts.
        """
        if not fits_kernel:
            return beam_search_stepwise(self.initialize(batch), batch.positions, config)
        limits = config.limits.of_source(0)  # without length ratios all sources have the same limits
        if config.beam_size == 1:
            hypotheses = greedy(self.network, batch.source, batch.lengths, limits, batch.characters)
            return [[hypothesis] for hypothesis in hypotheses]
        return beam_search(
            self.network, batch.source, batch.lengths, limits, config.beam_size, config.nbest, batch.characters
        )


def require_transducer(predictor: Predictor, argument: str) -> Transducer:
    """Return the predictor if it decodes symbol by symbol.

    Args:
        predictor: Any predictor.
        argument: Name of the argument that is the predictor, for the error.

    Raises:
        ConfigError: The predictor does not decode symbol by symbol, because of its task.
    """
    if not isinstance(predictor, Transducer):
        raise predictor.unsupported_error(argument)
    return predictor
