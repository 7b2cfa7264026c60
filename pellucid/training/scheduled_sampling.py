"""Scheduled sampling: training with some predicted symbols in place of true ones.

B batch, T target positions, V vocabulary, W = V, or V + S with copying.
"""

import math

import torch
from torch import Tensor

from pellucid.config.settings import TrainingConfig
from pellucid.data.batches import Batch
from pellucid.data.vocabulary import BOS, EOS, PAD, UNK
from pellucid.model.memory import NetworkOutput
from pellucid.model.network import EncoderDecoder, shift_right
from pellucid.shapes import Float, Int

STEEPNESS = 100.0
"""k of the inverse sigmoid. 1 − g(x) rises from 1 % over 50 % in the middle to 99 %, and is then rescaled to 0 to e."""


def scheduled_sampling_probability(config: TrainingConfig, progress_fraction: float) -> float:
    """Return the probability of feeding back a prediction at fraction `progress_fraction` (x, 0 to 1) of the training.

    With the final probability e, all schedules rise from 0 to e; "none" is 0. The paper defines ε, the probability of
    the true symbol:

        linear            e x
        exponential       1 − (1 − e)ˣ                              ε = kⁱ
        inverse-sigmoid   e (g(0) − g(x)) / (g(0) − g(1)), g(x) = 1 / (1 + k^(2x − 1))     ε = k / (k + exp(i / k))

    Args:
        config: Training settings, with `scheduled_sampling` (the schedule) and `sampling_probability` (e).
        progress_fraction: Fraction of the maximum training length, 0 to 1.

    References:
        Bengio et al. 2015, "Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks", section 2.4.
    """
    end = config.sampling_probability
    match config.scheduled_sampling:
        case "none":
            return 0.0
        case "linear":
            return end * progress_fraction
        case "exponential":
            return 1 - math.pow(1 - end, progress_fraction)
        case "inverse-sigmoid":
            first, now, last = (1 / (1 + math.pow(STEEPNESS, 2 * x - 1)) for x in (0.0, progress_fraction, 1.0))
            return end * (first - now) / (first - last)


def unroll_sampled(network: EncoderDecoder, batch: Batch, probability: float) -> NetworkOutput:
    """Unroll the decoder over targets in which some symbols are replaced by sampled ones.

    The first of two passes uses the true symbols, without gradients, and samples ŷ_t ~ p(· | y_<t, x). The second pass
    reads y_t or ŷ_t at each position t. So kernels can unroll both passes; in Bengio et al. 2015, section 2.3, ŷ_t
    depends on the previously sampled symbols. No gradient flows through sampling.

    Args:
        network: Network to train.
        batch: Batch on the device.
        probability: Probability of replacing a symbol, independent at each position; BOS is never replaced.

    Returns:
        Outputs of the second pass, with its graph.

    References:
        Mihaylova & Martins 2019, "Scheduled Sampling for Transformers", section 3.
    """
    memory = network.encoder(batch.source, batch.source_lengths, batch.characters)
    state, cache = network.decoder.init_state(memory), network.decoder.build_cache(memory)
    inputs = shift_right(batch.target)
    with torch.no_grad():
        sampled = sample_symbols(network.decoder.unroll(inputs, state, cache).logits)
        replace = torch.rand(inputs.shape, device=inputs.device) < probability
        replace[:, 0] = False  # BOS is never sampled
        mixed_inputs = torch.where(replace, sampled.roll(1, dims=1), inputs)
    return network.decoder.unroll(mixed_inputs, state, cache)


def sample_symbols(logits: Float[Tensor, "B T W"]) -> Int[Tensor, "B T"]:
    """Sample one symbol per position from softmax(logits) without PAD, BOS, EOS and UNK.

    Uses the Gumbel-max trick: the argmax of logits plus noise −log(−log u), from torch's default generator.

    Args:
        logits: Logits of each position.

    Returns:
        Ids of symbols; from V on, of copies.
    """
    suppressed = torch.zeros(logits.shape[2], dtype=torch.bool, device=logits.device)
    suppressed[[PAD, BOS, EOS, UNK]] = True
    noise = torch.empty_like(logits).exponential_().log()
    return (logits - noise).masked_fill(suppressed, -torch.inf).argmax(dim=2)
