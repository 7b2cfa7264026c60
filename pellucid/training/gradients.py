"""A batch's loss, and its gradients with the parameters."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from pellucid.config.settings import Config
from pellucid.data.batches import Batch
from pellucid.kernels.cuda_graphs import Replayed, bucketed
from pellucid.model.device import arithmetic
from pellucid.model.losses import coverage_loss, disagreement, generated_cross_entropy
from pellucid.model.memory import Unrolled
from pellucid.model.network import Network, writing
from pellucid.tasks.registry import configured_task
from pellucid.training.scheduled_sampling import unroll_sampled


class Found(NamedTuple):
    """A loss, and its gradient with each parameter that is trained, in their order; None where it plays no part."""

    loss: Float[Tensor, ""]
    gradients: Sequence[Tensor | None]


class Gradients:
    """From a batch on the host to the loss of a network on its device, in the arithmetic that is asked for."""

    def __init__(self, network: Network, config: Config) -> None:
        """`config.cuda_graphs` records the way there and back once a shape of batch, and replays it."""
        self.network = network
        self.config = config
        self.task = configured_task(config)
        self.parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.device = self.parameters[0].device
        self.replayed = Replayed(self._there_and_back, self.device) if config.cuda_graphs else None

    def prepared(self, batch: Batch) -> Batch:
        """What can be done for a batch before its turn: padded to a recorded shape, or else sent to the device.

        A recording stays on the host until then, for no other thread may speak to a GPU while one is made.
        """
        return bucketed(batch) if self.replayed is not None else batch.to(self.device)

    def __call__(self, batch: Batch, own_share: float = 0.0) -> Found:
        """The loss, without its history, and the gradients, of a batch that may have been prepared.

        `own_share` of the symbols fed back are the model's own (scheduled sampling).
        """
        if self.replayed is None:
            loss = self.loss(batch.to(self.device), own_share)
            return Found(loss.detach(), torch.autograd.grad(loss, self.parameters, allow_unused=True))
        loss, *gradients = self.replayed(bucketed(batch))
        return Found(loss, gradients)

    def loss(self, batch: Batch, own_share: float = 0.0) -> Float[Tensor, ""]:
        """What training makes small, of a batch on the network's device.

        With consistency α it is half of R-Drop's, so that its size stays: (L + L') / 2 + α / 4 (KL(p ‖ p') + KL(p' ‖
        p)) of two passes with dropout of their own. Liang et al. 2021, equation 3.
        """
        with arithmetic(self.device, self.config.precision):
            one = self._unrolled(batch, own_share)
            loss = self._loss_of(one, batch)
            weight = self.config.training.rdrop_alpha
            if not weight:
                return loss
            other = self._unrolled(batch, own_share)
            apart = disagreement(one.logits, other.logits, batch.target)
            return (loss + self._loss_of(other, batch)) / 2 + weight / 4 * apart

    def _unrolled(self, batch: Batch, own_share: float) -> Unrolled:
        """One pass over a batch."""
        if own_share:
            return unroll_sampled(writing(self.network), batch, own_share)
        unrolled: Unrolled = self.network(batch)
        return unrolled

    def _loss_of(self, unrolled: Unrolled, batch: Batch) -> Float[Tensor, ""]:
        """What one pass costs: −ln p of the targets, smoothed, and what was looked at again.

        Of a decoder that copies, half counts what is written all in all, half what it writes without copying.
        """
        config = self.config.training
        loss = self.task.loss(self.network, unrolled, batch, config.label_smoothing)
        if unrolled.generated is not None:
            own = generated_cross_entropy(unrolled.generated, batch.target, config.label_smoothing)
            loss = (loss + own) / 2
        if config.coverage_loss:
            loss = loss + config.coverage_loss * coverage_loss(unrolled.weights, batch.target)
        return loss

    def _there_and_back(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The loss of a batch and the gradients of all parameters, nothing of it left anywhere."""
        loss = self.loss(Batch(*inputs))
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
        return [loss.detach(), *gradients]
