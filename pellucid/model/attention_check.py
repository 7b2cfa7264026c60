"""Check of an attention of another package: its shapes, weights, rows, masks and gradients in two small steps.

B sources, S source positions, K queries a source, R = B·K all queries, D memory, H hidden units of the query, T steps.
Networks call it when they are built, and `pellucid.check_attention` calls it for the tests of an author.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from pellucid.errors import ConfigError, InputError, abbreviate_reason
from pellucid.model.memory import AttentionOutput, DecoderCache, DecoderState, Memory

LENGTHS = (3, 5)
"""Lengths of the two sources; the first has padding."""
NUM_QUERIES = 2
"""K, as in a beam search with two hypotheses."""
QUERY_SCALES = (1.0, 5.0)
"""Standard deviation of the queries of each step; great ones bring bounded weights near their bounds."""
MAX_SUM = 1 + 1e-4
"""Maximum sum of a row of weights, with rounding."""
MIN_WEIGHT = 1e-6
"""Weight that counts as zero."""
STATES = "the states of the encoder"
"""Name of the states beside those of parameters, in messages."""


@runtime_checkable  # for the checks of types in tests
class CheckedAttention(Protocol):
    """Methods of `Attention` that the check calls; model/attention.py imports this module."""

    has_weights: ClassVar[bool]
    training: bool

    def __call__(
        self, query: Tensor, cache: DecoderCache, attention_state: Tensor | None, override: Tensor | None = None
    ) -> AttentionOutput:
        """Return contexts and weights."""

    def build_cache(self, memory: Memory) -> DecoderCache:
        """Return the memory and its keys."""

    def initial_weights(self, memory: Memory) -> Tensor | None:
        """Return `attention_state` of the first step."""

    def train(self, mode: bool = True) -> object:
        """Set the mode."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Return the parameters by name."""

    def state_dict(self) -> Mapping[str, Tensor]:
        """Return parameters and buffers by name."""


class Sizes(NamedTuple):
    """Sizes with which an attention was built."""

    query: int
    """H."""
    memory: int
    """D."""


def check_attention_module(attention: CheckedAttention, query_size: int, memory_size: int) -> None:
    """Check a new attention of another package; parameters without values (on the device "meta") are not checked.

    Its parameters, its buffers, its mode and the random numbers of PyTorch are afterwards as before.

    Args:
        attention: The attention.
        query_size: H.
        memory_size: D.

    Raises:
        ConfigError: A method fails; a result has a wrong shape, or numbers that are not finite; equal calls differ;
            weights are negative or sum to more than 1; results depend on padding or on other rows; a masked position
            has weight; forced weights have no effect; or no parameter has a gradient.
    """
    parameters = list(attention.parameters())
    if any(parameter.is_meta for parameter in parameters):
        return
    device = parameters[0].device if parameters else torch.device("cpu")
    check = _AttentionCheck(attention, Sizes(query_size, memory_size), device)
    was_training = attention.training
    try:
        with torch.inference_mode(False), torch.random.fork_rng([device] if device.type == "cuda" else []):
            attention.train(False)
            with torch.no_grad():
                check.check_results()
            attention.train()
            if not any(parameter.is_inference() for parameter in attention.parameters()):
                check.check_gradients()
    finally:
        attention.train(was_training)


class _AttentionCheck:
    """Inputs of a check, and its parts."""

    def __init__(self, attention: CheckedAttention, sizes: Sizes, device: torch.device) -> None:
        """Draw the numbers of two memories, which share one source in another row, and of the queries of all steps."""
        self.attention = attention
        self.name = type(attention).__name__
        self.sizes = sizes
        dtype = next((each.dtype for each in attention.parameters() if each.is_floating_point()), None)
        generator = torch.Generator("cpu").manual_seed(1)

        def draw(*shape: int) -> Tensor:
            """Return normal random numbers."""
            numbers = torch.randn(shape, generator=generator, device="cpu", dtype=dtype or torch.get_default_dtype())
            return numbers.to(device)

        first, second, other = (draw(length, sizes.memory) for length in (*LENGTHS, LENGTHS[1]))
        self.memory, self.other_memory = _build_memory([first, second]), _build_memory([other, first])
        num_rows = len(LENGTHS) * NUM_QUERIES
        self.queries = [scale * draw(num_rows, sizes.query) for scale in QUERY_SCALES]

    def check_results(self) -> None:
        """Check everything that needs no gradient, errors and shapes first."""
        outputs = self._take_steps(self.memory, self.queries)
        self._check_repetition(outputs)
        if self.attention.has_weights:
            self._check_weights(outputs)
        for memory in (self.memory, self.other_memory):
            together = self._take_steps(memory, self.queries)
            lengths = memory.lengths.tolist()
            for source in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):  # first without padding
                self._check_source(memory, source, together)
        if self.attention.has_weights:
            self._check_masks()
            self._check_override()

    def _take_steps(
        self, memory: Memory, queries: Iterable[Tensor], override: Tensor | None = None, *, repeats: int = 1
    ) -> list[AttentionOutput]:
        """Return the outputs of consecutive steps, after a check of their shapes.

        Each step is computed `repeats` times with equal arguments; its last output is returned.
        """
        num_sources, num_positions = memory.states.shape[:2]
        outputs = list[AttentionOutput]()
        with self._named_errors("keys", memory):
            cache = self.attention.build_cache(memory)
        self._check_shape("keys", cache.keys, ("B",), (num_sources,), is_prefix=True)
        with self._named_errors("initial_weights", memory):
            initial = self.attention.initial_weights(memory)
        if initial is not None:
            self._check_shape("initial_weights", initial, ("B",), (num_sources,), is_prefix=True)
        state = initial
        for query in queries:
            if state is initial and initial is not None:
                state = initial.repeat_interleave(len(query) // num_sources, dim=0)
            with self._named_errors("forward", memory):
                for _ in range(repeats):
                    output = self.attention(query, cache, state, override)
            self._check_output(output, initial, (len(query), num_positions))
            outputs.append(output)
            state = output.attention_state
        return outputs

    @contextmanager
    def _named_errors(self, method: str, memory: Memory) -> Iterator[None]:
        """Convert any error of the attention in the block to a `ConfigError` that names the method."""
        num_sources, num_positions = memory.states.shape[:2]
        try:
            yield
        except InputError:
            raise
        except Exception as error:  # the code of another package may raise anything
            raise ConfigError(
                f"{self.name}.{method} failed for B = {num_sources} and S = {num_positions}: {abbreviate_reason(error)}"
            ) from error

    def _check_output(self, output: object, initial: Tensor | None, rows: tuple[int, int]) -> None:
        """Check the types and shapes of an output, and that its numbers are finite."""
        if not isinstance(output, AttentionOutput):
            raise ConfigError(
                f"{self.name}.forward: expected an AttentionOutput, as attend() returns it, got {type(output).__name__}"
            )
        num_rows, num_positions = rows
        self._check_shape("forward: context", output.context, ("R", "D"), (num_rows, self.sizes.memory))
        self._check_shape("forward: weights", output.weights, ("R", "S"), (num_rows, num_positions))
        if output.heads is not None:
            num_heads = output.heads.shape[1] if output.heads.dim() == len("RNS") else 1
            self._check_shape("forward: heads", output.heads, ("R", "N", "S"), (num_rows, num_heads, num_positions))
        for what, value in (("context", output.context), ("weights", output.weights), ("heads", output.heads)):
            if value is not None and not bool(torch.isfinite(value).all()):
                raise ConfigError(f"{self.name}.forward: {what}: expected finite numbers, got NaN or infinite ones")
        if (output.attention_state is None) != (initial is None):
            raise ConfigError(
                f"{self.name}: expected that either initial_weights returns a tensor and every step an "
                "attention_state, or both are None: the state of the first step is that of initial_weights"
            )
        if output.attention_state is not None and initial is not None:
            dimensions = ("R", *map(str, initial.shape[1:]))
            self._check_shape(
                "forward: attention_state", output.attention_state, dimensions, (num_rows, *initial.shape[1:])
            )

    def _check_shape(
        self, what: str, value: object, dimensions: tuple[str, ...], shape: tuple[int, ...], *, is_prefix: bool = False
    ) -> None:
        """Check that a result is a tensor whose shape is the given one, or begins with it."""
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        if got != shape and not (is_prefix and isinstance(got, tuple) and got[: len(shape)] == shape):
            rest = ", …" if is_prefix else ","[len(dimensions) > 1 :]
            expected = f"({', '.join(dimensions)}{rest}) = ({', '.join(map(str, shape))}{rest})"
            raise ConfigError(f"{self.name}.{what}: expected the shape {expected}, got {got}")

    def _check_repetition(self, outputs: list[AttentionOutput]) -> None:
        """Check that equal calls have equal results: of all steps again, and of each step twice."""
        if not all(_are_close(outputs, self._take_steps(self.memory, self.queries, repeats=n)) for n in (1, 2)):
            raise ConfigError(
                f"{self.name}: a second call with equal inputs has another result, so outputs would depend on earlier "
                "lines: keep nothing on the object between calls (a value of the previous step is attention_state), "
                "and draw random numbers only if self.training"
            )

    def _check_weights(self, outputs: list[AttentionOutput]) -> None:
        """Check that weights are not negative, sum to at most 1, and are zero at padding."""
        weights = torch.cat([output.weights for output in outputs])
        least, greatest_sum = float(weights.min()), float(weights.sum(dim=-1).max())
        if least < -MIN_WEIGHT or greatest_sum > MAX_SUM:
            got = f"a weight of {least:.4g}" if least < -MIN_WEIGHT else f"a sum of {greatest_sum:.4g}"
            raise ConfigError(
                f"{self.name}: expected weights of at least 0 whose sum over the positions is at most 1, got {got}: "
                "divide the weights of each row by their sum, or by a number that is at least their sum"
            )
        padding = ~self.memory.mask().repeat_interleave(NUM_QUERIES, dim=0).repeat(len(outputs), 1)
        if bool((weights[padding] > MIN_WEIGHT).any()):
            raise ConfigError(
                f"{self.name}: positions of padding have weight: expected 0 where memory.attention_mask() is false"
            )

    def _check_source(self, memory: Memory, source: int, together: list[AttentionOutput]) -> None:
        """Check that the first query of a source has the results that it has without other sources and queries."""
        length, row = int(memory.lengths[source]), source * NUM_QUERIES
        alone = self._take_steps(
            _build_memory([memory.states[source, :length]]), [query[row : row + 1] for query in self.queries]
        )
        cut = [AttentionOutput(each.context[row, None], each.weights[row, None, :length]) for each in together]
        if _are_close(cut, alone):
            return
        longest = max(LENGTHS)
        if length == longest:
            raise ConfigError(
                f"{self.name}: the context of a source changes with the other sources of its batch, with the number of "
                "its queries, or with earlier calls, so outputs would depend on the other lines: compute each row by "
                "itself, and keep nothing on the object"
            )
        raise ConfigError(
            f"{self.name}: the context of a source of {length} positions changes if a source of {longest} is in its "
            "batch, so outputs would depend on the other lines. The keys have the positions of the longest source "
            "(padding): compute what depends on the length or on other positions in keys(), with memory.lengths and "
            "memory.mask()"
        )

    def _check_masks(self) -> None:
        """Check that a position that a user masks has no weight."""
        masked = torch.zeros_like(self.memory.mask())
        masked[0, 1] = masked[1, 0] = True
        for output in self._take_steps(self.memory._replace(masked=masked), self.queries):
            weights = output.weights[masked.repeat_interleave(NUM_QUERIES, dim=0)]
            if bool((weights > MIN_WEIGHT).any()):
                raise ConfigError(
                    f"{self.name}: a masked position has the weight {float(weights.max()):.4g}: expected 0 where "
                    "memory.attention_mask() is false (memory.mask() is that of padding only)"
                )

    def _check_override(self) -> None:
        """Check that forced weights are those of the output, and change the context."""
        contexts = list[Tensor]()
        for position in range(2):
            forced = torch.zeros_like(self.memory.states[:, :, 0]).repeat_interleave(NUM_QUERIES, dim=0)
            forced[:, position] = 1
            (output,) = self._take_steps(self.memory, self.queries[:1], forced)
            contexts.append(output.context)
            if not torch.allclose(output.weights, forced, atol=1e-4):
                raise ConfigError(
                    f"{self.name}: the weights of forced attention are not those of `override`: expected "
                    "weights = override where override is given"
                )
        if torch.allclose(contexts[0], contexts[1], rtol=1e-6, atol=1e-6):
            raise ConfigError(
                f"{self.name}: forced attention does not change the context: expected the context of the weights "
                "`override` where it is given"
            )

    def check_gradients(self) -> None:
        """Check that some parameter has a gradient, and that gradients are finite; parameters and buffers are kept."""
        kept = {name: value.detach().clone() for name, value in self.attention.state_dict().items()}
        try:
            gradients = self._gradients()
        finally:
            with torch.no_grad():
                for name, value in self.attention.state_dict().items():
                    value.copy_(kept[name])
        parameters = [gradient for name, gradient in gradients.items() if name != STATES]
        if parameters and all(gradient is None for gradient in parameters):
            raise ConfigError(
                f"{self.name}: no parameter has a gradient, so training would not change them: compute the weights "
                "with PyTorch, without detach(), .data, .item() or NumPy"
            )
        for name, gradient in gradients.items():
            if gradient is not None and not bool(torch.isfinite(gradient).all()):
                raise ConfigError(
                    f"{self.name}: the gradient of {name} is not finite: states at padding are zeros, where a norm or "
                    "a root has no finite gradient"
                )

    def _gradients(self) -> dict[str, Tensor | None]:
        """Return the gradients of trainable parameters and of the states by a sum of all contexts and weights."""
        inputs: dict[str, Tensor] = {
            name: each for name, each in self.attention.named_parameters() if each.requires_grad
        }
        with torch.enable_grad():
            inputs[STATES] = states = self.memory.states.clone().requires_grad_()
            outputs = self._take_steps(self.memory._replace(states=states), self.queries)
            parts = [part for output in outputs for part in (output.context, output.weights)]
            factors = [torch.arange(1.0, 1.0 + part.numel()).to(part).view_as(part) for part in parts]
            total = torch.stack([(part * factor).sum() for part, factor in zip(parts, factors, strict=True)]).sum()
            if not total.requires_grad:
                return dict.fromkeys(inputs)
            with self._named_errors("forward, its gradient,", self.memory):
                gradients = torch.autograd.grad(total, [*inputs.values()], allow_unused=True)
        return dict(zip(inputs, gradients, strict=True))


def _build_memory(sources: list[Tensor]) -> Memory:
    """Return the memory of sources, with zeros at padding."""
    states = nn.utils.rnn.pad_sequence(sources, batch_first=True)
    lengths = torch.tensor([len(source) for source in sources], device=states.device)
    return Memory(states, lengths, DecoderState(states[:, :1]))


def _are_close(outputs: list[AttentionOutput], others: list[AttentionOutput]) -> bool:
    """Return whether contexts and weights of steps are equal, except for rounding."""
    pairs = zip(outputs, others, strict=True)
    return all(
        torch.allclose(part, expected, rtol=1e-3, atol=1e-4)
        for output, other in pairs
        for part, expected in ((output.context, other.context), (output.weights, other.weights))
    )
