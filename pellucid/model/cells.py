"""Recurrent cells: the equations of each, and the modules that hold their parameters.

B batch, E input, H hidden units, Q gates, G = Q·H numbers of all gates. Gate equations as in PyTorch, the reset gate
applied after the product:

    GRU    r = σ(W_r x + U_r h + b_r)   z = σ(W_z x + U_z h + b_z)
           n = tanh(W_n x + b_n + r ⊙ (U_n h + c_n))   h' = (1 − z) ⊙ n + z ⊙ h
    LSTM   i, f, o = σ(W x + U h + b)   g = tanh(W_g x + U_g h + b_g)   c' = f ⊙ c + i ⊙ g   h' = o ⊙ tanh(c')

Sources: Cho et al. 2014, section 2.3; Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000.

A new cell is a subclass of `CellSpec`. Other packages register it with `register_cell` or declare it as an entry point
(config/cell_types.py). Here it has an entry in `CELLS`, its equations in model/equations.py, and a name in `Cell` of
config/settings.py. No other module depends on the kind of cell. PyTorch runs it step by step until
`kernels.types.CELL_LAYOUTS` names it too.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn

from pellucid.config.cell_types import CELL_TYPES, is_custom_cell
from pellucid.config.extensions import ClassRequirement, takes_arguments
from pellucid.config.settings import CellName, LayerNormalization
from pellucid.errors import ConfigError, abbreviate_reason, quote
from pellucid.kernels.types import CELL_LAYOUTS, CellLayout
from pellucid.shapes import Float

Norm = Callable[[Tensor], Tensor]
Gates = tuple[Float[Tensor, "B H"], ...]


class LayerState(NamedTuple):
    """State of one layer between two steps; `UnstackedState.stack` joins the layers of a decoder."""

    hidden: Float[Tensor, "B H"]
    cell_state: Float[Tensor, "B H"] | None
    """c of cells with a cell state, such as the LSTM."""


class CellSpec(ABC):
    """The equations of one kind of cell, and the facts that follow from them."""

    gates: ClassVar[tuple[str, ...]]
    """Names of the gates in the order of their rows in the parameters; the candidate counts as a gate."""
    has_cell_state: ClassVar[bool] = False
    """Whether the state has a second vector c besides h."""
    initial_biases: ClassVar[Mapping[str, float]] = {}
    """Input biases that do not start at zero, by gate."""
    norm_groups: ClassVar[tuple[int, ...] | None] = None
    """Numbers of consecutive gates that `NormalizedCell` normalizes together; None for all of them."""
    torch_module: ClassVar[type[nn.GRU] | type[nn.LSTM] | None] = None
    """PyTorch's module of the same equations; None where PyTorch has none, and sequences run step by step."""

    @abstractmethod
    def gate_values(self, inputs: Float[Tensor, "B G"], recurrent: Float[Tensor, "B G"]) -> Gates:
        """Return the activations of all gates, in the order of `gates`.

        Args:
            inputs: W x + b of all gates.
            recurrent: U h + c of all gates.
        """

    @abstractmethod
    def step(
        self, inputs: Float[Tensor, "B G"], recurrent: Float[Tensor, "B G"], state: LayerState, norm: Norm | None = None
    ) -> LayerState:
        """Return the state after a step.

        Args:
            inputs: W x + b of all gates.
            recurrent: U h + c of all gates.
            state: State before the step.
            norm: Normalization of c' where h' is computed from it; None if there is none.
        """

    def run_fused(
        self, inputs: Float[Tensor, "B S E"], start: Float[Tensor, "1 B H"], weights: list[Tensor], trains: bool
    ) -> Float[Tensor, "B S H"]:
        """Return the hidden states over whole sequences by one call of PyTorch.

        Args:
            inputs: Inputs x of all positions.
            start: Initial h, and initial c for cells with a cell state.
            weights: Input weight, hidden weight, input bias and hidden bias.
            trains: Whether a backward pass may follow.

        Raises:
            NotImplementedError: The cell has no `torch_module`.
        """
        raise NotImplementedError


class GRUSpec(CellSpec):
    """Gated recurrent unit, the reset gate applied after the product.

        r = σ(W_r x + b_r + U_r h + c_r)        z = σ(W_z x + b_z + U_z h + c_z)
        n = tanh(W_n x + b_n + r ⊙ (U_n h + c_n))
        h' = (1 − z) ⊙ n + z ⊙ h

    References:
        Cho et al. 2014, section 2.3.
    """

    gates: ClassVar[tuple[str, ...]] = ("reset", "update", "candidate")
    norm_groups: ClassVar[tuple[int, ...] | None] = (2, 1)
    torch_module: ClassVar[type[nn.GRU] | type[nn.LSTM] | None] = nn.GRU

    def gate_values(self, inputs: Float[Tensor, "B G"], recurrent: Float[Tensor, "B G"]) -> Gates:
        """Return r, z and n.

        Args:
            inputs: W x + b of all gates.
            recurrent: U h + c of all gates.
        """
        size = inputs.shape[-1] // 3
        reset, update = torch.sigmoid(inputs[:, : 2 * size] + recurrent[:, : 2 * size]).chunk(2, dim=-1)
        return reset, update, torch.tanh(inputs[:, 2 * size :] + reset * recurrent[:, 2 * size :])

    def step(
        self, inputs: Float[Tensor, "B G"], recurrent: Float[Tensor, "B G"], state: LayerState, norm: Norm | None = None
    ) -> LayerState:
        """Return h'.

        Args:
            inputs: W x + b of all gates.
            recurrent: U h + c of all gates.
            state: State before the step.
            norm: Not read.
        """
        _, update, candidate = self.gate_values(inputs, recurrent)
        return LayerState(candidate + update * (state.hidden - candidate), None)

    def run_fused(
        self, inputs: Float[Tensor, "B S E"], start: Float[Tensor, "1 B H"], weights: list[Tensor], trains: bool
    ) -> Float[Tensor, "B S H"]:
        """Return h of all positions.

        Args:
            inputs: Inputs of all positions.
            start: Initial h.
            weights: Input weight, hidden weight, input bias and hidden bias.
            trains: Whether a backward pass may follow.
        """
        return torch.gru(inputs, start, weights, True, 1, 0.0, trains, False, True)[0]


class LSTMSpec(CellSpec):
    """Long short-term memory with forget gate.

        i, f, o = σ(W x + b + U h + c)        g = tanh(W x + b + U h + c),    each with its own rows
        c' = f ⊙ c + i ⊙ g        h' = o ⊙ tanh c'

    The normalization of `step` applies to c' where h' is computed from it.

    References:
        Gers et al. 2000.
    """

    gates: ClassVar[tuple[str, ...]] = ("input", "forget", "candidate", "output")
    has_cell_state: ClassVar[bool] = True
    initial_biases: ClassVar[Mapping[str, float]] = {"forget": 1.0}
    torch_module: ClassVar[type[nn.GRU] | type[nn.LSTM] | None] = nn.LSTM

    def gate_values(self, inputs: Float[Tensor, "B G"], recurrent: Float[Tensor, "B G"]) -> Gates:
        """Return i, f, g and o.

        Args:
            inputs: W x + b of all gates.
            recurrent: U h + c of all gates.
        """
        input_gate, forget_gate, candidate, output_gate = (inputs + recurrent).chunk(4, dim=-1)
        return torch.sigmoid(input_gate), torch.sigmoid(forget_gate), torch.tanh(candidate), torch.sigmoid(output_gate)

    def step(
        self, inputs: Float[Tensor, "B G"], recurrent: Float[Tensor, "B G"], state: LayerState, norm: Norm | None = None
    ) -> LayerState:
        """Return h' and c'.

        Args:
            inputs: W x + b of all gates.
            recurrent: U h + c of all gates.
            state: State before the step.
            norm: Normalization of c' where h' is computed from it; None if there is none.
        """
        input_gate, forget_gate, candidate, output_gate = self.gate_values(inputs, recurrent)
        cell_state = forget_gate * cast(Tensor, state.cell_state) + input_gate * candidate
        return LayerState(output_gate * torch.tanh(cell_state if norm is None else norm(cell_state)), cell_state)

    def run_fused(
        self, inputs: Float[Tensor, "B S E"], start: Float[Tensor, "1 B H"], weights: list[Tensor], trains: bool
    ) -> Float[Tensor, "B S H"]:
        """Return h of all positions.

        Args:
            inputs: Inputs of all positions.
            start: Initial h; c starts from the same values.
            weights: Input weight, hidden weight, input bias and hidden bias.
            trains: Whether a backward pass may follow.
        """
        return torch.lstm(inputs, [start, start], weights, True, 1, 0.0, trains, False, True)[0]


CELLS: Mapping[CellName, CellSpec] = {"gru": GRUSpec(), "lstm": LSTMSpec()}
"""The built-in cells by their name in the settings."""


def _is_cell_class(value: type) -> bool:
    """Return whether a class is a cell with all methods and distinct names of gates, built without arguments."""
    if not issubclass(value, CellSpec) or inspect.isabstract(value):
        return False
    gates = getattr(value, "gates", None)
    if not (isinstance(gates, tuple) and gates and all(isinstance(gate, str) and gate for gate in gates)):
        return False
    return len(set(gates)) == len(gates) and takes_arguments(value, 0) and takes_arguments(value.step, 5)


CELL_REQUIREMENT = ClassRequirement(
    "a subclass of pellucid.CellSpec without arguments, with gates (a tuple of different names), gate_values(inputs, "
    "recurrent) and step(inputs, recurrent, state, norm)",
    _is_cell_class,
)
"""Requirement of the classes of other packages."""


def register_cell(name: str, cell_class: type[CellSpec]) -> None:
    """Register a class of recurrent cell for this process, in place of a registered one of the same name.

    The settings `encoder.cell` and `decoder.cell` then accept the name. The class is built without arguments.

    Other processes (workers of an ensemble, other commands) find a cell only as an entry point of the group
    `pellucid.cells` of an installed package.

    Args:
        name: Value of the settings.
        cell_class: The class.

    Raises:
        ArgumentError: The name is empty, too long or not printable; or the class is not a subclass of `CellSpec`, lacks
            a method or the names of its gates, or takes arguments.
        ConfigError: A built-in cell has this name.
    """
    CELL_TYPES.register_class("cell_class", name, cell_class, CELL_REQUIREMENT)


def get_cell_spec(cell: CellName) -> CellSpec:
    """Return the equations of a cell.

    Args:
        cell: Name of the cell.

    Raises:
        ConfigError: There is no such cell, its entry point does not provide a class as `register_cell` accepts, or its
            equations do not fit its description (`check_equations`).
    """
    if not is_custom_cell(cell):
        return CELLS[cell]
    return _build_checked(cast(type[CellSpec], CELL_TYPES.get_class(cell, CELL_REQUIREMENT)))


def check_cell(cell_class: type[CellSpec]) -> None:
    """Check a class of recurrent cell as networks do when they are built, for the tests of its author.

    One step is computed of two rows, of one of them alone, and again: the gates and the state are compared, and the
    description of the class with them.

    Args:
        cell_class: The class; it need not be registered.

    Raises:
        ArgumentError: The class is not a subclass of `CellSpec`, lacks a method or the names of its gates, or takes
            arguments.
        ConfigError: The class cannot be built, or its equations fail the check (`check_equations`).
    """
    if not CELL_REQUIREMENT.is_met(cell_class):
        raise CELL_REQUIREMENT.argument_error("cell_class", cell_class)
    _build_checked.__wrapped__(cell_class)  # an earlier result does not count


@cache
def _build_checked(cell_class: type[CellSpec]) -> CellSpec:
    """Return the cell of a class of another package; its equations are checked once."""
    try:
        spec = cell_class()
    except (Exception, SystemExit) as error:  # the code of another package may raise anything
        raise ConfigError(f"{cell_class.__name__} cannot be built: {abbreviate_reason(error)}") from error
    with torch.device("cpu"):  # the network may be built without values, on the device "meta"
        check_equations(spec)
    return spec


@torch.no_grad()
def check_equations(spec: CellSpec) -> None:
    """Check the gates and one step of a cell of another package: shapes, and that each row is computed by itself.

    Args:
        spec: The cell.

    Raises:
        ConfigError: A description of the class does not fit its gates, a shape is wrong, a method fails, or a result
            depends on other rows of the batch or on earlier calls.
    """
    name = type(spec).__name__
    num_gates = len(spec.gates)
    hidden_size = 3
    if unknown := sorted(set(spec.initial_biases) - set(spec.gates)):
        raise ConfigError(f"{name}.initial_biases: expected names of gates, got {quote(unknown[0])}")
    if spec.norm_groups is not None and sum(spec.norm_groups) != num_gates:
        raise ConfigError(f"{name}.norm_groups: expected numbers of gates with the sum {num_gates}")
    if spec.torch_module is not None:
        raise ConfigError(
            f"{name}.torch_module: expected None: PyTorch would compute its own cell in place of the equations of the "
            "class"
        )
    generator = torch.Generator().manual_seed(1)
    inputs, recurrent = (torch.randn(2, num_gates * hidden_size, generator=generator) for _ in range(2))
    hidden, cell_state = (torch.randn(2, hidden_size, generator=generator) for _ in range(2))
    state = LayerState(hidden, cell_state if spec.has_cell_state else None)
    together = _step_results(spec, inputs, recurrent, state)
    alone = _step_results(
        spec, inputs[:1], recurrent[:1], LayerState(hidden[:1], cell_state[:1] if spec.has_cell_state else None)
    )
    for (what, values), (_, row) in zip(together, alone, strict=True):
        if not torch.allclose(values[:1], row, rtol=1e-4, atol=1e-5):
            raise ConfigError(
                f"{name}: {what} of a row changes with the other rows of the batch or with earlier calls, so outputs "
                "would depend on the other lines: compute each row by itself, and keep nothing on the object"
            )


@contextmanager
def _reported_errors(message: str) -> Iterator[None]:
    """Raise `ConfigError` with a message for an error in a block that calls the code of another package."""
    try:
        yield
    except (Exception, SystemExit) as error:  # the code of another package may raise anything
        raise ConfigError(f"{message}: {abbreviate_reason(error)}") from error


def _step_results(
    spec: CellSpec, inputs: Float[Tensor, "B G"], recurrent: Float[Tensor, "B G"], state: LayerState
) -> list[tuple[str, Float[Tensor, "B H"]]]:
    """Return the gates and the new state of a cell of another package, by name, after a check of their shapes."""
    name = type(spec).__name__
    expected = state.hidden.shape
    failure = f"{name}: a step of a batch of {len(inputs)} and {expected[1]} hidden units failed"
    with _reported_errors(failure):
        gates = spec.gate_values(inputs, recurrent)
    if not isinstance(gates, tuple | list) or len(gates) != len(spec.gates):
        got = f"{len(gates)} values" if isinstance(gates, tuple | list) else type(gates).__name__
        names = f"{len(spec.gates)} gates ({', '.join(spec.gates)})"
        raise ConfigError(f"{name}.gate_values: expected a tuple with one tensor for each of the {names}, got {got}")
    with _reported_errors(failure):
        new = spec.step(inputs, recurrent, state)
        if spec.has_cell_state:
            spec.step(inputs, recurrent, state, nn.functional.relu)
    if not isinstance(new, LayerState):
        raise ConfigError(f"{name}.step: expected a LayerState, got {type(new).__name__}")
    results = [*zip(spec.gates, gates, strict=True), ("the hidden state", new.hidden)]
    if (new.cell_state is not None) != spec.has_cell_state:
        raise ConfigError(f"{name}.step: expected a cell state if has_cell_state is true, and None if it is false")
    if new.cell_state is not None:
        results.append(("the cell state", new.cell_state))
    for what, values in results:
        if not isinstance(values, Tensor) or values.shape != expected:
            got = f"the shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            raise ConfigError(f"{name}: {what}: expected the shape (B, H) = {tuple(expected)}, got {got}")
        if not bool(torch.isfinite(values).all()):
            raise ConfigError(f"{name}: {what}: expected finite numbers, got NaN or infinite ones")
    return results


class RecurrentMask(NamedTuple):
    """Recurrent dropout of one cell. Both parts are None outside training and without recurrent dropout."""

    weight: Float[Tensor, "G H"] | None = None
    """The hidden weight U with some entries zero and the others scaled up, which replaces U (DropConnect)."""
    state: Float[Tensor, "B H"] | None = None
    """Factor of h in U h, 0 or 1 / (1 − rate), the same at every step."""


NO_DROPOUT = RecurrentMask()


class RecurrentCell(nn.Module):
    """Parameters of one cell: input and hidden weights and biases of all gates, stacked by rows."""

    kind: ClassVar[str] = "recurrent"

    def __init__(self, cell_type: CellName, input_size: int, hidden_size: int) -> None:
        """Initialize input weights by Glorot and Bengio, hidden weights of each gate orthogonally, biases by the spec.

        Args:
            cell_type: Name of the equations.
            input_size: E; 0 for a cell without input.
            hidden_size: H.
        """
        super().__init__()
        self.cell_type: CellName = cell_type
        self.spec = get_cell_spec(cell_type)
        self.hidden_size = hidden_size
        rows = len(self.spec.gates) * hidden_size
        self.input_weight = nn.Parameter(torch.empty(rows, input_size))
        self.hidden_weight = nn.Parameter(torch.empty(rows, hidden_size))
        self.input_bias = nn.Parameter(torch.zeros(rows))
        self.hidden_bias = nn.Parameter(torch.zeros(rows))
        for gate, name in enumerate(self.spec.gates):
            block = slice(gate * hidden_size, (gate + 1) * hidden_size)
            if input_size:
                nn.init.xavier_uniform_(self.input_weight.data[block])
            nn.init.orthogonal_(self.hidden_weight.data[block])
            self.input_bias.data[block] = self.spec.initial_biases.get(name, 0.0)

    @property
    def layout(self) -> CellLayout:
        """Return the cell's layout for kernels.

        Raises:
            KeyError: No kernel supports the cell.
        """
        return CELL_LAYOUTS[self.cell_type]

    def bias_n(self) -> Float[Tensor, " C"]:
        """Return the hidden bias of the gate whose U h another gate multiplies (n of the GRU); empty without one.

        Kernels read it.

        Raises:
            KeyError: No kernel supports the cell.
        """
        gate = self.layout.gated
        return self.hidden_bias[gate * self.hidden_size : (gate + 1) * self.hidden_size if gate >= 0 else 0]

    def added_bias(self) -> Float[Tensor, " G"]:
        """Return the input bias plus the hidden bias, except the part of the latter that `bias_n` returns.

        Kernels read it.

        Raises:
            KeyError: No kernel supports the cell.
        """
        gate = self.layout.gated
        if gate < 0:
            return self.input_bias + self.hidden_bias
        return self.input_bias + nn.functional.pad(self.hidden_bias[: gate * self.hidden_size], (0, self.hidden_size))

    def flatten_parameters(self) -> None:
        """Move the four parameters into one block of GPU memory, in place; otherwise cuDNN copies them at every call.

        It has no effect on cells that PyTorch does not have.
        """
        if self.spec.torch_module is None:
            return
        module = self.spec.torch_module(self.input_weight.shape[1], self.hidden_size, device="meta")
        names = ("input_weight", "hidden_weight", "input_bias", "hidden_bias")
        for torch_name, name in zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), names, strict=True):
            setattr(module, torch_name, getattr(self, name))
        module.flatten_parameters()

    def initial_state(self, hidden: Float[Tensor, "B H"]) -> LayerState:
        """Return the state with a given h, and with c = 0 if the cell has a cell state.

        Args:
            hidden: h.
        """
        return LayerState(hidden, torch.zeros_like(hidden) if self.spec.has_cell_state else None)

    def project(self, inputs: Float[Tensor, "*shape E"]) -> Float[Tensor, "*shape G"]:
        """Return W x + b, the input of `step`.

        Args:
            inputs: x.
        """
        return nn.functional.linear(inputs, self.input_weight, self.input_bias)

    def step(self, projected: Float[Tensor, "B G"], state: LayerState, mask: RecurrentMask = NO_DROPOUT) -> LayerState:
        """Return the state after a step.

        Args:
            projected: W x + b, as `project` returns it.
            state: State before the step.
            mask: Recurrent dropout; default none.
        """
        return self.spec.step(*self.preactivations(projected, state.hidden, mask), state)

    def preactivations(
        self, projected: Float[Tensor, "B G"], hidden: Float[Tensor, "B H"], mask: RecurrentMask = NO_DROPOUT
    ) -> tuple[Float[Tensor, "B G"], Float[Tensor, "B G"]]:
        """Return W x + b and U h + c of all gates, before the activations.

        Args:
            projected: W x + b, as `project` returns it.
            hidden: h.
            mask: Recurrent dropout; default none.
        """
        return projected, self.recurrent(hidden, mask, self.hidden_bias)

    def recurrent(
        self, hidden: Float[Tensor, "B H"], mask: RecurrentMask, bias: Float[Tensor, " G"] | None
    ) -> Float[Tensor, "B G"]:
        """Return U h + bias.

        Args:
            hidden: h.
            mask: Recurrent dropout of U or of h.
            bias: Bias of all gates; None if there is none.
        """
        masked_hidden = hidden if mask.state is None else hidden * mask.state
        return nn.functional.linear(masked_hidden, self.hidden_weight if mask.weight is None else mask.weight, bias)


class NormalizedCell(RecurrentCell):
    """A cell whose preactivations are normalized, LN(x; g) = g ⊙ (x − mean) / deviation, over a group of gates.

        GRU    W x and U h become LN(W x; g) and LN(U h; g'): over r and z together, and over n; then biases are added
        LSTM   the same over all four gates, and h' = o ⊙ tanh(LN(c'; g'') + b'')

    References:
        Ba et al. 2016, section 3.1 and the supplement's equations 20 to 22 and 25 to 28.
    """

    kind: ClassVar[str] = "normalized"

    def __init__(self, cell_type: CellName, input_size: int, hidden_size: int) -> None:
        """Initialize gains with one, and the other parameters as in `RecurrentCell`.

        Args:
            cell_type: Name of the equations.
            input_size: E; 0 for a cell without input.
            hidden_size: H.
        """
        super().__init__(cell_type, input_size, hidden_size)
        groups = self.spec.norm_groups or (len(self.spec.gates),)
        rows = len(self.spec.gates) * hidden_size
        self.groups = [gates * hidden_size for gates in groups]
        self.input_gain, self.hidden_gain = nn.Parameter(torch.ones(rows)), nn.Parameter(torch.ones(rows))
        # Normalizes c' where h is computed from it (Ba et al. 2016).
        self.leaving = nn.LayerNorm(hidden_size) if self.spec.has_cell_state else None

    def project(self, inputs: Float[Tensor, "*shape E"]) -> Float[Tensor, "*shape G"]:
        """Return W x; the bias is added after normalization.

        Args:
            inputs: x.
        """
        return nn.functional.linear(inputs, self.input_weight)

    def step(self, projected: Float[Tensor, "B G"], state: LayerState, mask: RecurrentMask = NO_DROPOUT) -> LayerState:
        """Return the state after a step.

        Args:
            projected: W x, as `project` returns it.
            state: State before the step.
            mask: Recurrent dropout; default none.
        """
        return self.spec.step(*self.preactivations(projected, state.hidden, mask), state, self.leaving)

    def preactivations(
        self, projected: Float[Tensor, "B G"], hidden: Float[Tensor, "B H"], mask: RecurrentMask = NO_DROPOUT
    ) -> tuple[Float[Tensor, "B G"], Float[Tensor, "B G"]]:
        """Return W x and U h of all gates, both normalized, scaled by their gains, and with their biases added.

        Args:
            projected: W x, as `project` returns it.
            hidden: h.
            mask: Recurrent dropout; default none.
        """
        from_input = self._normalized(projected) * self.input_gain + self.input_bias
        from_hidden = self._normalized(self.recurrent(hidden, mask, None)) * self.hidden_gain + self.hidden_bias
        return from_input, from_hidden

    def _normalized(self, preactivations: Float[Tensor, "B G"]) -> Float[Tensor, "B G"]:
        """Return the preactivations with mean 0 and variance 1 within each group of gates."""
        parts = torch.split(preactivations, self.groups, dim=-1)
        return torch.cat([nn.functional.layer_norm(part, part.shape[-1:]) for part in parts], dim=-1)


def cell_class(normalization: LayerNormalization) -> type[RecurrentCell]:
    """Return `NormalizedCell` for layer normalization within cells, else `RecurrentCell`.

    Args:
        normalization: Where layer normalization is applied: "none", "outputs" or "cells".
    """
    return NormalizedCell if normalization == "cells" else RecurrentCell


class StackedCells(nn.Module):
    """The cells of a stack of recurrent layers: a sequence of `RecurrentCell`, from the bottom to the top."""

    def __init__(
        self,
        cell_type: CellName,
        input_sizes: Sequence[int],
        hidden_size: int,
        kind: type[RecurrentCell] = RecurrentCell,
    ) -> None:
        """Build one cell for each input size.

        Args:
            cell_type: Name of the equations.
            input_sizes: E of each layer, from the bottom.
            hidden_size: H of all layers.
            kind: Class of the cells; default `RecurrentCell`.
        """
        super().__init__()
        self.layers = nn.ModuleList(kind(cell_type, size, hidden_size) for size in input_sizes)

    def __len__(self) -> int:
        """Return the number of layers."""
        return len(self.layers)

    def __getitem__(self, layer: int) -> RecurrentCell:
        """Return the cell of a layer.

        Args:
            layer: Index of the layer, from the bottom.
        """
        return cast(RecurrentCell, self.layers[layer])

    def __iter__(self) -> Iterator[RecurrentCell]:
        """Yield the cells from the bottom to the top."""
        return iter(cast(Iterable[RecurrentCell], self.layers))


class Peepholes(NamedTuple):
    """Peephole weights p of an LSTM whose gates read the cell state, in two versions that differ in the output gate.

        i = σ(a_i + p_i ⊙ c)    f = σ(a_f + p_f ⊙ c)    g = tanh(a_g)    c' = f ⊙ c + i ⊙ g
        o = σ(a_o + p_o ⊙ c')                      h' = o ⊙ tanh(c')       Gers et al. 2002, section 2.3
        o = σ(a_o) + p_o ⊙ c'                      h' = o ⊙ tanh(c')       Lasagne until 1 October 2015

    The second version adds the last peephole after the sigmoid. It was a mistake, but published weights were trained
    with it.
    """

    input: Float[Tensor, " H"]
    """p_i of the input gate."""
    forget: Float[Tensor, " H"]
    """p_f of the forget gate."""
    output: Float[Tensor, " H"]
    """p_o of the output gate."""


class PeepholeState(NamedTuple):
    """The state of a peephole LSTM."""

    hidden: Float[Tensor, "B H"]
    cell_state: Float[Tensor, "B H"]


PeepholeStep = Callable[[Float[Tensor, "B G"], PeepholeState, Peepholes], PeepholeState]


def peephole_step(preactivations: Float[Tensor, "B G"], state: PeepholeState, peepholes: Peepholes) -> PeepholeState:
    """Return the state after a step of the first version, by Gers et al. (see `Peepholes`).

    Args:
        preactivations: Preactivations of the gates i, f, g and o, in this order, without the peephole terms.
        state: State before the step.
        peepholes: Weights of c.
    """
    cell_state, output_gate = _new_cell_state(preactivations, state, peepholes)
    return PeepholeState(
        torch.sigmoid(output_gate + peepholes.output * cell_state) * torch.tanh(cell_state), cell_state
    )


def late_peephole_step(
    preactivations: Float[Tensor, "B G"], state: PeepholeState, peepholes: Peepholes
) -> PeepholeState:
    """Return the state after a step of the second version, with the output gate's peephole after the sigmoid.

    Args:
        preactivations: Preactivations of the gates i, f, g and o, in this order, without the peephole terms.
        state: State before the step.
        peepholes: Weights of c.
    """
    cell_state, output_gate = _new_cell_state(preactivations, state, peepholes)
    return PeepholeState(
        (torch.sigmoid(output_gate) + peepholes.output * cell_state) * torch.tanh(cell_state), cell_state
    )


def _new_cell_state(
    preactivations: Float[Tensor, "B G"], state: PeepholeState, peepholes: Peepholes
) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H"]]:
    """Return c', and the preactivation of the output gate."""
    input_gate, forget_gate, candidate, output_gate = preactivations.chunk(4, dim=-1)
    new_content = torch.sigmoid(input_gate + peepholes.input * state.cell_state) * torch.tanh(candidate)
    return torch.sigmoid(
        forget_gate + peepholes.forget * state.cell_state
    ) * state.cell_state + new_content, output_gate
