"""Predictor of the runtime: sequences by greedy and beam search, and scores of given targets, in NumPy."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from pellucid.decoding.base_transducer import BaseTransducer
from pellucid.decoding.beam_steps import BeamConfig, search_beam
from pellucid.decoding.constraints import Constraints
from pellucid.decoding.hypothesis import Hypothesis
from pellucid.decoding.member_ids import (
    check_members_agree,
    copy_offset,
    join_vocabularies,
    source_id_map,
    target_id_map,
)
from pellucid.decoding.options import NO_OPTIONS, DecodingOptions
from pellucid.decoding.outputs import BatchLengthLimits
from pellucid.decoding.pair_ngram_interpolation import NetworkIds
from pellucid.decoding.preprocessing import SourceBatch
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.runtime.inference import MemberIds, RuntimeNetwork, initialize, score_targets
from pellucid.runtime.support import UnsupportedError
from pellucid.shapes import Int


@dataclass(frozen=True)
class RuntimePredictor(BaseTransducer):
    """Predictor of an encoder-decoder, or of an ensemble of several, which needs neither PyTorch nor Numba.

    It has the methods of `Predictor` and gives the same traces. Sampling, required symbols, and options that change
    attention raise `UnsupportedError`.
    """

    network: tuple[RuntimeNetwork, ...]
    """One network, or the members of an ensemble."""

    def _check_networks(self) -> None:
        """Check nothing: the networks were read for these vocabularies (`read_network`)."""

    @property
    def num_networks(self) -> int:
        """Number of networks that predict together."""
        return len(self.network)

    @property
    def is_ensemble(self) -> bool:
        """True for an ensemble, also for one of a single member."""
        return self.network[0].ids is not None

    @contextmanager
    def _inference_context(self, num_hypotheses: int) -> Iterator[None]:
        """Compute without warnings about numbers that are not finite: outputs are checked for them."""
        with np.errstate(all="ignore"):
            yield

    def _run_search(self, batch: SourceBatch, config: BeamConfig, fits_kernel: bool) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each source of a batch."""
        return search_beam(initialize(self.network, batch.source, batch.lengths), batch.positions, config)

    def _score_batch(
        self, batch: SourceBatch, targets: Int[np.ndarray, "B T"], target_lengths: Int[np.ndarray, " B"]
    ) -> list[Hypothesis]:
        """Score targets as if they had been decoded."""
        inference = initialize(self.network, batch.source, batch.lengths)
        return score_targets(inference, batch.positions, targets, target_lengths)

    def _sample_batch(
        self,
        batch: SourceBatch,
        numbers: Int[np.ndarray, " B"],
        limits: BatchLengthLimits,
        constraints: Constraints,
        sampling: SamplingConfig,
    ) -> list[list[Hypothesis]]:
        """Raise `UnsupportedError`."""
        raise UnsupportedError("the runtime without PyTorch does not support sampling")

    def _network_ids(self, network: int) -> NetworkIds:
        """Return the ids of a network for those of the predictor."""
        ids = self.network[network].ids
        return NetworkIds() if ids is None else NetworkIds(ids.source, ids.target)

    def _check_attention_options(self) -> None:
        """Raise `UnsupportedError` for options that the runtime does not compute."""
        reason = unsupported_option(self.options)
        if reason:
            raise UnsupportedError(f"the runtime without PyTorch does not support {reason}")


def unsupported_option(options: DecodingOptions) -> str:
    """Return the name of an option that the runtime does not compute; "" if it computes all.

    Args:
        options: Options of a predictor.
    """
    if options.required:
        return "required symbols"
    return "" if options.attention_options == NO_OPTIONS else "attention that is forced or masked"


def join_predictors(members: Sequence[RuntimePredictor], names: Sequence[str]) -> RuntimePredictor:
    """Combine predictors of single runs into an ensemble, as `pellucid.decoding.ensemble.join_members` does.

    Args:
        members: Predictors of the members, the first of which controls the search.
        names: Name of each member, for error messages.

    Raises:
        RunError: There is no member, or two members differ in task, target symbols or tokenization.
    """
    check_members_agree(members, names)
    first, vocabularies = members[0], join_vocabularies(members)
    networks = []
    for member in members:
        source = source_id_map(vocabularies, member)
        ids = MemberIds(source, copy_offset(member.vocabularies), target_id_map(first, member))
        networks.append(RuntimeNetwork(member.config, member.network[0].arrays, ids))
    models = [(number, member.pair_ngram) for number, member in enumerate(members) if member.pair_ngram is not None]
    weight = sum(pair_ngram.weight for _, pair_ngram in models) / len(members)
    pair_ngram = models[0][1]._replace(weight=weight, network_index=models[0][0]) if models else None
    return RuntimePredictor(
        first.config, vocabularies, tuple(networks), name=" with ".join(names), pair_ngram=pair_ngram
    )
