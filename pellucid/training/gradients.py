"""A batch's loss, and its gradients with the parameters."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from pellucid.config import Config
from pellucid.data.batches import Batch
from pellucid.kernels.graphs import Replayed, bucketed
from pellucid.model.device import arithmetic
from pellucid.model.network import Network
from pellucid.training.objective import cross_entropy


class Found(NamedTuple):
    """A loss, and its gradient with each parameter that is trained, in their order; None where it plays no part."""

    loss: Float[Tensor, ""]
    gradients: Sequence[Tensor | None]


class Gradients:
    """From a batch on the host to the loss of a network on its device, in the arithmetic that is asked for."""

    def __init__(self, network: Network, config: Config) -> None:
        """`config.graphs` records the way there and back once a shape of batch, and replays it."""
        self.network = network
        self.config = config
        self.parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.device = self.parameters[0].device
        self.replayed = Replayed(self._there_and_back, self.device) if config.graphs else None

    def prepared(self, batch: Batch) -> Batch:
        """What can be done for a batch before its turn: padded to a recorded shape, or else sent to the device.

        A recording stays on the host until then, for no other thread may speak to a GPU while one is made.
        """
        return bucketed(batch) if self.replayed is not None else batch.to(self.device)

    def __call__(self, batch: Batch) -> Found:
        """The loss, without its history, and the gradients, of a batch that may have been prepared."""
        if self.replayed is None:
            loss = self.loss(batch.to(self.device))
            return Found(loss.detach(), torch.autograd.grad(loss, self.parameters, allow_unused=True))
        loss, *gradients = self.replayed(bucketed(batch))
        return Found(loss, gradients)

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """What training makes small, of a batch on the network's device."""
        with arithmetic(self.device, self.config.precision):
            logits = self.network(batch).logits
            return cross_entropy(logits, batch.target, self.config.training.label_smoothing)

    def _there_and_back(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The loss of a batch and the gradients of all parameters, nothing of it left anywhere."""
        loss = self.loss(Batch(*inputs))
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
        return [loss.detach(), *gradients]
