"""Loss and gradients of a batch.

U distinct rows of a parameter.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call

from pellucid.config.settings import Config
from pellucid.data.batches import Batch
from pellucid.kernels.cuda_graphs import CUDAGraphRunner, pad_to_bucket
from pellucid.model.device import autocast
from pellucid.model.losses import coverage_loss, sampled_cross_entropy, symmetric_kl, vocabulary_cross_entropy
from pellucid.model.memory import NetworkOutput
from pellucid.model.network import Network, require_encoder_decoder
from pellucid.shapes import Float
from pellucid.tasks.registry import get_task
from pellucid.training.sampled_softmax import ReducedBatch, SymbolSampler
from pellucid.training.scheduled_sampling import unroll_sampled


class LossAndGradients(NamedTuple):
    """Loss of a batch and its gradients."""

    loss: Float[Tensor, ""]
    """Loss, detached."""
    gradients: Sequence[Tensor | None]
    """Gradient of each parameter in `GradientComputer.parameters`. Where the loss does not depend on a parameter, it is
    None, and zeros with CUDA graphs. With a sampled softmax, those of the target symbols are sparse: a row for each
    symbol of the batch and of the sample.
    """


class GradientComputer:
    """Computation of the loss and the gradients of a batch, in the precision of the configuration."""

    def __init__(self, network: Network, config: Config) -> None:
        """Prepare the computation.

        Args:
            network: Network to train, already on its device; gradients are computed for parameters that require them.
            config: Configuration; `cuda_graphs` records one CUDA graph per batch shape.
        """
        self.network = network
        self.config = config
        self.task = get_task(config.task)
        self.parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.device = self.parameters[0].device
        num_sampled = config.training.sampled_softmax
        self.symbol_sampler = SymbolSampler(network.vocabulary_size, num_sampled) if num_sampled else None
        self.graph_runner = CUDAGraphRunner(self._compute_for_graph, self.device) if config.cuda_graphs else None

    def prepare_batch(self, batch: Batch) -> Batch:
        """Return a batch on the device; or, with CUDA graphs, padded to a shape that many batches share.

        With CUDA graphs the batch stays on the host: the thread that prepares batches must not use the GPU while a
        graph is recorded.

        Args:
            batch: Batch on the host.
        """
        return pad_to_bucket(batch) if self.graph_runner is not None else batch.to(self.device)

    def compute(self, batch: Batch, sampling_probability: float = 0.0) -> LossAndGradients:
        """Return the loss (detached) and the gradients of a batch. The parameters are not changed.

        Args:
            batch: Batch on the host, or a prepared one.
            sampling_probability: Probability of feeding back a predicted symbol (scheduled sampling); without effect
                with CUDA graphs, which the settings do not combine with it.
        """
        if self.symbol_sampler is not None:
            return self._compute_sampled(batch.to(self.device), self.symbol_sampler)
        if self.graph_runner is None:
            loss = self.loss(batch.to(self.device), sampling_probability)
            return LossAndGradients(loss.detach(), torch.autograd.grad(loss, self.parameters, allow_unused=True))
        loss, *gradients = self.graph_runner(pad_to_bucket(batch).tensors())
        return LossAndGradients(loss, gradients)

    def loss(self, batch: Batch, sampling_probability: float = 0.0) -> Float[Tensor, ""]:
        """Return the training loss of a batch, with its graph.

        The loss of one pass, L, is the task's loss with label smoothing, averaged with the loss without copying for a
        pointer-generator, plus the weighted coverage loss. With R-Drop weight α > 0, two passes with different dropout
        masks give (L + L') / 2 + α / 4 (KL(p ‖ p') + KL(p' ‖ p)), half of the loss of equation 3, so that the scale of
        the loss stays. With a sampled softmax, `sampled_cross_entropy` takes the place of the task's loss.

        Args:
            batch: Batch on the device.
            sampling_probability: Probability of feeding back a predicted symbol (scheduled sampling).

        References:
            Liang et al. 2021, "R-Drop: Regularized Dropout for Neural Networks", equation 3.
        """
        if self.symbol_sampler is not None:
            reduced = self.symbol_sampler.reduce_batch(batch)
            tensors = self._vocabulary_tensors()
            return self._sampled_loss(reduced, {name: tensor[reduced.vocabulary] for name, tensor in tensors.items()})
        with autocast(self.device, self.config.precision):
            output = self._forward(batch, sampling_probability)
            loss = self._pass_loss(output, batch)
            weight = self.config.training.rdrop_alpha
            if not weight:
                return loss
            second_output = self._forward(batch, sampling_probability)
            divergence = symmetric_kl(output.logits, second_output.logits, batch.target)
            return (loss + self._pass_loss(second_output, batch)) / 2 + weight / 4 * divergence

    def _compute_sampled(self, batch: Batch, sampler: SymbolSampler) -> LossAndGradients:
        """Return the loss of a sampled softmax, with sparse gradients of the parameters of the target symbols."""
        # The symbols are drawn before all masks, so that they depend on the seed and the update, and not on the batch.
        reduced = sampler.reduce_batch(batch)
        rows = {
            name: tensor.detach()[reduced.vocabulary].requires_grad_(tensor.requires_grad)
            for name, tensor in self._vocabulary_tensors().items()
        }
        loss = self._sampled_loss(reduced, rows)
        named = [(name, each) for name, each in self.network.named_parameters() if each.requires_grad]
        inputs = [rows.get(name, parameter) for name, parameter in named]
        gradients = torch.autograd.grad(loss, inputs, allow_unused=True)
        return LossAndGradients(
            loss.detach(),
            [
                gradient if gradient is None or name not in rows else _scatter_rows(parameter, reduced, gradient)
                for (name, parameter), gradient in zip(named, gradients, strict=True)
            ],
        )

    def _sampled_loss(self, reduced: ReducedBatch, rows: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """Return the training loss with a sampled softmax.

        Args:
            reduced: Batch on the device.
            rows: Rows of the reduced vocabulary in each tensor of `_vocabulary_tensors`.
        """
        config = self.config.training
        with autocast(self.device, self.config.precision):
            output = functional_call(self.network, dict(rows), (reduced.batch, reduced.symbols))
            loss = sampled_cross_entropy(
                output, reduced.batch.target, reduced.symbols, reduced.log_inclusion, config.label_smoothing
            )
            return loss + self._coverage_term(output, reduced.batch)

    def _vocabulary_tensors(self) -> dict[str, Tensor]:
        """Return the parameters and buffers with one row per target symbol, by their names in the network."""
        tensors = require_encoder_decoder(self.network).decoder.vocabulary_tensors()
        return {f"decoder.{name}": tensor for name, tensor in tensors.items()}

    def _forward(self, batch: Batch, sampling_probability: float) -> NetworkOutput:
        """Return the output of the network for a batch."""
        if sampling_probability:
            return unroll_sampled(require_encoder_decoder(self.network), batch, sampling_probability)
        output: NetworkOutput = self.network(batch)
        return output

    def _pass_loss(self, output: NetworkOutput, batch: Batch) -> Float[Tensor, ""]:
        """Return the loss of one pass: cross-entropy with label smoothing, plus the coverage loss.

        With copying, the loss is the mean of the losses with and without the copy distribution.
        """
        config = self.config.training
        loss = self.task.loss(self.network, output, batch, config.label_smoothing)
        if output.vocabulary_logits is not None:
            vocabulary_loss = vocabulary_cross_entropy(output.vocabulary_logits, batch.target, config.label_smoothing)
            loss = (loss + vocabulary_loss) / 2
        return loss + self._coverage_term(output, batch)

    def _coverage_term(self, output: NetworkOutput, batch: Batch) -> Float[Tensor, ""] | float:
        """Return the weighted coverage loss; 0 without it."""
        weight = self.config.training.coverage_loss
        return weight * coverage_loss(output.weights, batch.target) if weight else 0.0

    def _compute_for_graph(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the loss and the gradients of all parameters; no gradient stays on the parameters."""
        source, source_lengths, target, target_lengths = inputs
        loss = self.loss(Batch(source, source_lengths, target, target_lengths))
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
        return [loss.detach(), *gradients]


def _scatter_rows(parameter: Tensor, reduced: ReducedBatch, rows: Float[Tensor, "U *shape"]) -> Tensor:
    """Return the sparse gradient of a parameter from that of its rows."""
    return torch.sparse_coo_tensor(
        reduced.vocabulary[None], rows, parameter.shape, check_invariants=False, is_coalesced=True
    )
