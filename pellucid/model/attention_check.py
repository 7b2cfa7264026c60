"""Check of an attention of another package: its shapes, weights, rows, masks and gradients in two small steps.

B sources, S source positions, K queries a source, R = B·K all queries, D memory, H hidden units of the query, T steps.
Networks call it when they are built, and `pellucid.check_attention` calls it for the tests of an author.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from pellucid.config.extensions import own_modules
from pellucid.errors import ConfigError, InputError, describe_failure, quote
from pellucid.model.memory import AttentionOutput, DecoderCache, DecoderState, Memory

LENGTHS = (3, 5)
"""Lengths of the two sources; the first has padding."""
LONG_LENGTHS = (40,)
"""Length of a longer source, at which a table of positions may end."""
NUM_QUERIES = 2
"""K, as in a beam search with two hypotheses."""
QUERY_SCALES = (1.0, 5.0)
"""Standard deviation of the queries of each step; great ones bring bounded weights near their bounds."""
MAX_SUM = 1 + 1e-4
"""Maximum sum of a row of weights, with rounding."""
MIN_WEIGHT = 1e-6
"""Weight that counts as zero."""
MAX_DEPTH = 5
"""Maximum depth of lists, tuples, sets and dicts within each other that are searched for parameters."""
CONTAINERS = ("_parameters", "_modules")
"""Attributes of a module of PyTorch that hold its registered parameters and modules."""
STATE_ADVICE = (
    "; attention_state is None because initial_attention_state returns None: define initial_attention_state(memory), "
    "the state of the first step, if forward reads attention_state"
)
"""What to do if `forward` fails without a state."""
STATES = "the states of the encoder"
"""Name of the states beside those of parameters, in messages."""


@runtime_checkable  # for the checks of types in tests
class CheckedAttention(Protocol):
    """Methods of `Attention` that the check calls; model/attention.py imports this module."""

    has_weights: ClassVar[bool]
    training: bool

    def __call__(
        self, query: Tensor, cache: DecoderCache, attention_state: Tensor | None, forced_weights: Tensor | None = None
    ) -> AttentionOutput:
        """Return contexts and weights."""

    def build_cache(self, memory: Memory) -> DecoderCache:
        """Return the memory and its keys."""

    def initial_attention_state(self, memory: Memory) -> Tensor | None:
        """Return `attention_state` of the first step."""

    def train(self, mode: bool = True) -> object:
        """Set the mode."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters."""

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Return the module itself and those within it, by name."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Return the parameters by name."""

    def state_dict(self) -> Mapping[str, Tensor]:
        """Return parameters and buffers by name."""


class AttentionSizes(NamedTuple):
    """Sizes with which an attention was built."""

    query_size: int
    """H."""
    memory_size: int
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
            has weight; forced weights have no effect; no parameter has a gradient; a tensor or module with
            parameters is not registered, so that it would be neither trained nor saved; or a step in training changes
            a value on which outputs depend and that is not saved.
    """
    if any(parameter.is_meta for parameter in attention.parameters()):
        return
    check = _new_check(attention, query_size, memory_size)
    _check_registration(attention)
    with _unchanged(attention, check.device):
        attention.train(False)
        with torch.no_grad():
            check.check_results()
            check.check_training_state()
        attention.train()
        if not any(parameter.is_inference() for parameter in attention.parameters()):
            check.check_gradients()


def unused_parameters(attention: CheckedAttention, query_size: int, memory_size: int) -> list[str]:
    """Return the names of the trainable parameters that have no gradient in two small steps.

    Args:
        attention: An attention of another package that passes the check, on the CPU or a GPU.
        query_size: H.
        memory_size: D.
    """
    check = _new_check(attention, query_size, memory_size)
    with _unchanged(attention, check.device):
        attention.train()
        gradients = check.compute_gradients()
    return [name for name, gradient in gradients.items() if gradient is None and name != STATES]


def _new_check(attention: CheckedAttention, query_size: int, memory_size: int) -> "_AttentionCheck":
    """Return the check of an attention on the device of its parameters."""
    device = next((parameter.device for parameter in attention.parameters()), torch.device("cpu"))
    return _AttentionCheck(attention, AttentionSizes(query_size, memory_size), device)


@contextmanager
def _unchanged(attention: CheckedAttention, device: torch.device) -> Iterator[None]:
    """Restore the mode, the parameters and buffers, and the random numbers of PyTorch after the block."""
    was_training = attention.training
    kept = {name: value.detach().clone() for name, value in attention.state_dict().items()}
    try:
        with torch.inference_mode(False), torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        attention.train(was_training)
        with torch.no_grad():
            for name, value in attention.state_dict().items():
                if name in kept and not torch.equal(value, kept[name]):
                    value.copy_(kept[name])


def _check_registration(attention: CheckedAttention) -> None:
    """Refuse tensors that require a gradient, and modules with parameters, that the module does not register."""
    modules = dict(attention.named_modules())
    registered = {id(each) for each in (*attention.parameters(), *modules.values())}
    for prefix, module in modules.items():
        for attribute, value in list(vars(module).items()):
            if attribute in CONTAINERS:
                continue
            for path, found in _trainable_values(attribute, value, MAX_DEPTH):
                if id(found) not in registered:
                    name = f"{prefix}.{path}" if prefix else path
                    raise _registration_error(type(attention).__name__, name, found)


def _trainable_values(path: str, value: object, depth: int) -> Iterator[tuple[str, object]]:
    """Yield leaf tensors that require a gradient, and modules with parameters, in a value, with their paths."""
    if isinstance(value, Tensor):
        if value.requires_grad and value.is_leaf:
            yield path, value
    elif isinstance(value, nn.Module):
        if any(parameter.requires_grad for parameter in value.parameters()):
            yield path, value
    elif depth and type(value) in (list, tuple, set, dict):
        items = value.items() if isinstance(value, dict) else enumerate(cast(Iterable[object], value))
        for key, item in items:
            yield from _trainable_values(path if path == "_buffers" else f"{path}[{quote(key)}]", item, depth - 1)


def _unsaved_tensors(attention: CheckedAttention) -> dict[str, Tensor]:
    """Return copies of the tensors on a module and those within it that are neither parameters nor saved buffers."""
    found = dict[str, Tensor]()
    for prefix, module in attention.named_modules():
        for attribute, value in list(vars(module).items()):
            if attribute in CONTAINERS:
                continue
            if attribute == "_buffers":
                value = {name: value[name] for name in module._non_persistent_buffers_set if name in value}
            for path, tensor in _plain_tensors(attribute, value, MAX_DEPTH):
                found[f"{prefix}.{path}" if prefix else path] = tensor.detach().clone()
    return found


def _plain_tensors(path: str, value: object, depth: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in a value with their paths."""
    if isinstance(value, Tensor):
        yield path, value
    elif depth and type(value) in (list, tuple, dict):
        items = value.items() if isinstance(value, dict) else enumerate(cast(Iterable[object], value))
        for key, item in items:
            yield from _plain_tensors(str(key) if path == "_buffers" else f"{path}[{quote(key)}]", item, depth - 1)


def _registration_error(class_name: str, name: str, found: object = None) -> ConfigError:
    """Return the error for a tensor or module that would be neither trained nor saved."""
    if isinstance(found, nn.Module):
        remedy = "assign the module to an attribute of its own, or keep modules in nn.ModuleList or nn.ModuleDict"
        return ConfigError(
            f"{class_name}.{name} is a {type(found).__name__} that PyTorch does not register, so its parameters would "
            f"be neither trained nor saved: {remedy}"
        )
    return ConfigError(
        f"{class_name}.{name} is a tensor with requires_grad that is not an nn.Parameter, so it would be neither "
        "trained nor saved: assign nn.Parameter(...) to an attribute of its own, or keep parameters in "
        "nn.ParameterList (a fixed tensor: register_buffer)"
    )


class _AttentionCheck:
    """Inputs of a check, and its parts."""

    def __init__(self, attention: CheckedAttention, sizes: AttentionSizes, device: torch.device) -> None:
        """Draw the numbers of two memories, which share one source in another row, and of the queries of all steps."""
        self.attention = attention
        self.name = type(attention).__name__
        self.sizes, self.device = sizes, device
        self.modules = own_modules(attention)
        dtype = next((each.dtype for each in attention.parameters() if each.is_floating_point()), None)
        generator = torch.Generator("cpu").manual_seed(1)

        def draw(*shape: int) -> Tensor:
            """Return normal random numbers."""
            numbers = torch.randn(shape, generator=generator, device="cpu", dtype=dtype or torch.get_default_dtype())
            return numbers.to(device)

        first, second, other, *long = (
            draw(length, sizes.memory_size) for length in (*LENGTHS, LENGTHS[1], *LONG_LENGTHS)
        )
        self.memory, self.other_memory = _build_memory([first, second]), _build_memory([other, first])
        num_rows = len(LENGTHS) * NUM_QUERIES
        self.queries = [scale * draw(num_rows, sizes.query_size) for scale in QUERY_SCALES]
        self.long_memory = _build_memory(long)

    def check_results(self) -> None:
        """Check everything that needs no gradient, errors and shapes first."""
        outputs = self._take_steps(self.memory, self.queries)
        self._check_repetition(outputs)
        long_outputs = self._take_steps(self.long_memory, [query[:NUM_QUERIES] for query in self.queries])
        if self.attention.has_weights:
            self._check_weights(self.memory, outputs)
            self._check_weights(self.long_memory, long_outputs)
        for memory in (self.memory, self.other_memory):
            together = self._take_steps(memory, self.queries)
            lengths = memory.lengths.tolist()
            for source in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):  # first without padding
                self._check_source(memory, source, together)
        if self.attention.has_weights:
            self._check_masks()
            self._check_forced_weights()

    def _take_steps(
        self, memory: Memory, queries: Iterable[Tensor], forced_weights: Tensor | None = None, *, repeats: int = 1
    ) -> list[AttentionOutput]:
        """Return the outputs of consecutive steps, after a check of their shapes.

        Each step is computed `repeats` times with equal arguments; its last output is returned.
        """
        num_sources, num_positions = memory.states.shape[:2]
        outputs = list[AttentionOutput]()
        with self._named_errors("keys", memory):
            cache = self.attention.build_cache(memory)
        self._check_shape("keys", cache.keys, ("B",), (num_sources,), is_prefix=True)
        with self._named_errors("initial_attention_state", memory):
            initial = self.attention.initial_attention_state(memory)
        if initial is not None:
            self._check_shape("initial_attention_state", initial, ("B",), (num_sources,), is_prefix=True)
        state = initial
        for query in queries:
            if state is initial and initial is not None:
                state = initial.repeat_interleave(len(query) // num_sources, dim=0)
            with self._named_errors("forward", memory, is_stateless=state is None):
                for _ in range(repeats):
                    output = self.attention(query, cache, state, forced_weights)
            self._check_output(output, initial, len(query), num_positions)
            outputs.append(output)
            state = output.attention_state
        return outputs

    @contextmanager
    def _named_errors(self, method: str, memory: Memory, *, is_stateless: bool = False) -> Iterator[None]:
        """Convert any error of the attention in the block to a `ConfigError` that names the method.

        `is_stateless` says that the method gets None as `attention_state`, which it may not expect.
        """
        num_sources, num_positions = memory.states.shape[:2]
        try:
            yield
        except InputError:
            raise
        except Exception as error:  # the code of another package may raise anything
            failure = describe_failure(error, self.modules)
            advice = STATE_ADVICE if is_stateless and _is_about_none(error) else ""
            raise ConfigError(
                f"{self.name}.{method} failed for B = {num_sources} and S = {num_positions}: {failure}{advice}"
            ) from error

    def _check_output(self, output: object, initial: Tensor | None, num_rows: int, num_positions: int) -> None:
        """Check the types and shapes of an output, and that its numbers are finite."""
        if not isinstance(output, AttentionOutput):
            raise ConfigError(
                f"{self.name}.forward: expected an AttentionOutput, as attend() returns it, got {type(output).__name__}"
            )
        self._check_shape("forward: context", output.context, ("R", "D"), (num_rows, self.sizes.memory_size))
        self._check_shape("forward: weights", output.weights, ("R", "S"), (num_rows, num_positions))
        if output.heads is not None:
            num_heads = output.heads.shape[1] if output.heads.dim() == len("RNS") else 1
            self._check_shape("forward: heads", output.heads, ("R", "N", "S"), (num_rows, num_heads, num_positions))
        for what, value in (("context", output.context), ("weights", output.weights), ("heads", output.heads)):
            if value is not None and not bool(torch.isfinite(value).all()):
                raise ConfigError(f"{self.name}.forward: {what}: expected finite numbers, got NaN or infinite ones")
        if (output.attention_state is None) != (initial is None):
            raise ConfigError(
                f"{self.name}: expected that either initial_attention_state returns a tensor and every step an "
                "attention_state, or both are None: the state of the first step is that of initial_attention_state"
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

    def _check_weights(self, memory: Memory, outputs: list[AttentionOutput]) -> None:
        """Check that weights are not negative, sum to at most 1, and are zero at padding."""
        weights = torch.cat([output.weights for output in outputs])
        least, greatest_sum = float(weights.min()), float(weights.sum(dim=-1).max())
        if least < -MIN_WEIGHT or greatest_sum > MAX_SUM:
            got = f"a weight of {least:.4g}" if least < -MIN_WEIGHT else f"a sum of {greatest_sum:.6g}"
            raise ConfigError(
                f"{self.name}: expected weights of at least 0 whose sum over the positions is at most 1, got {got}: "
                "divide the weights of each row by their sum, or by a number that is at least their sum"
            )
        padding = ~memory.length_mask().repeat_interleave(NUM_QUERIES, dim=0).repeat(len(outputs), 1)
        if bool((weights[padding] > MIN_WEIGHT).any()):
            raise ConfigError(
                f"{self.name}: positions of padding have weight: expected 0 where memory.attention_mask() is false"
            )

    def _check_source(self, memory: Memory, source: int, together: list[AttentionOutput]) -> None:
        """Check that the first query of a source has the results that it has without other sources and queries."""
        length = int(memory.lengths[source])
        row = source * NUM_QUERIES
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
            "memory.length_mask()"
        )

    def _check_masks(self) -> None:
        """Check that a position that a user masks has no weight."""
        masked = torch.zeros_like(self.memory.length_mask())
        masked[0, 1] = masked[1, 0] = True
        for output in self._take_steps(self.memory._replace(ignored=masked), self.queries):
            weights = output.weights[masked.repeat_interleave(NUM_QUERIES, dim=0)]
            if bool((weights > MIN_WEIGHT).any()):
                raise ConfigError(
                    f"{self.name}: a masked position has the weight {float(weights.max()):.4g}: expected 0 where "
                    "memory.attention_mask() is false (memory.length_mask() is that of padding only)"
                )

    def _check_forced_weights(self) -> None:
        """Check that forced weights are those of the output, and change the context."""
        contexts = list[Tensor]()
        for position in range(2):
            forced = torch.zeros_like(self.memory.states[:, :, 0]).repeat_interleave(NUM_QUERIES, dim=0)
            forced[:, position] = 1
            (output,) = self._take_steps(self.memory, self.queries[:1], forced)
            contexts.append(output.context)
            if not torch.allclose(output.weights, forced, atol=1e-4):
                raise ConfigError(
                    f"{self.name}: the weights of forced attention are not those of `forced_weights`: expected "
                    "weights = forced_weights where forced_weights is given"
                )
        if torch.allclose(contexts[0], contexts[1], rtol=1e-6, atol=1e-6):
            raise ConfigError(
                f"{self.name}: forced attention does not change the context: expected the context of the weights "
                "`forced_weights` where it is given"
            )

    def check_training_state(self) -> None:
        """Check that steps in training change no value that is not saved and on which later outputs depend.

        A tensor that only keeps numbers of the last call, which no output depends on, may change.
        """
        tensors = _unsaved_tensors(self.attention)
        outputs = self._take_steps(self.memory, self.queries)
        with _unchanged(self.attention, self.device):
            self.attention.train()
            self._take_steps(self.memory, self.queries)
        others = self._take_steps(self.memory, self.queries)
        if all(torch.equal(output.weights, other.weights) for output, other in zip(outputs, others, strict=True)):
            return
        after = _unsaved_tensors(self.attention)
        changed = [name for name, value in after.items() if name not in tensors or not value.equal(tensors[name])]
        if changed:
            raise ConfigError(
                f"{self.name}.{changed[0]} is a tensor that changes in training, but it is not saved with the "
                "parameters, so a saved model would have other outputs than the trained one: register it in __init__ "
                f'with register_buffer("{changed[0].rpartition(".")[2]}", ...)'
            )
        if not _are_close(outputs, others):
            raise ConfigError(
                f"{self.name}: outputs change with steps in training although the parameters do not, so a saved model "
                "would have other outputs than the trained one: keep a number that training changes in a tensor, "
                "registered in __init__ with register_buffer(name, tensor)"
            )

    def check_gradients(self) -> None:
        """Check that some parameter has a gradient, and that gradients are finite."""
        gradients = self.compute_gradients()
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

    def compute_gradients(self) -> dict[str, Tensor | None]:
        """Return the gradients of trainable parameters and of the states by a sum of all contexts and weights.

        Raises:
            ConfigError: A tensor with a gradient is not registered, so that it would be neither trained nor saved.
        """
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
            known = {id(each) for each in (*self.attention.parameters(), states)}
            if unknown := next((leaf for leaf in _leaf_tensors(total) if id(leaf) not in known), None):
                raise _registration_error(self.name, _attribute_name(self.attention, unknown))
            with self._named_errors("forward, its gradient,", self.memory):
                gradients = torch.autograd.grad(total, [*inputs.values()], allow_unused=True)
        return dict(zip(inputs, gradients, strict=True))


def _leaf_tensors(value: Tensor) -> Iterator[Tensor]:
    """Yield the tensors with a gradient from which a value was computed."""
    nodes = [value.grad_fn]
    seen = set[object]()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes.extend(each for each, _ in node.next_functions)
        leaf = getattr(node, "variable", None)  # of the nodes that add to the gradient of a tensor
        if isinstance(leaf, Tensor):
            yield leaf


def _attribute_name(attention: CheckedAttention, tensor: Tensor) -> str:
    """Return the name of the class variable that holds a tensor, or else its shape."""
    for each in type(attention).__mro__:
        for name, value in vars(each).items():
            if any(found is tensor for _, found in _trainable_values(name, value, MAX_DEPTH)):
                return name
    return f"forward: a tensor of the shape {tuple(tensor.shape)}"


def _is_about_none(error: Exception) -> bool:
    """Return whether an error is that of a value None where another was expected."""
    return "None" in str(error) or isinstance(error, AssertionError)


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
