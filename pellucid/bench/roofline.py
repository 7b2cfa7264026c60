"""Lower bound of the time of a step: its operations divided by the measured rates of the machine.

B rows, N source positions of all rows, T target steps, E embedding, H hidden units, h hidden units of an encoder
direction, D memory, A attention size, G gates, V source symbols, W target symbols, K beam size.
"""

from typing import NamedTuple

import msgspec

FLOAT_BYTES = 4
"""Bytes of a float32 number."""
ADAM_TRAFFIC = 7
"""Numbers read or written to update one parameter: the gradient is read; the parameter and two moments are read and
written."""


class StepShape(msgspec.Struct, frozen=True):
    """Sizes of network and batch that determine the work of a step: one update, or the decoding of one batch."""

    rows: int
    """B, pairs of the batch."""
    positions: float
    """N, source positions of all rows without padding; a mean over batches."""
    steps: float
    """T, target symbols of a row, including EOS where it is written; a mean over rows."""
    embedding: int
    """E, size of an embedding."""
    hidden: int
    """H, hidden units of the decoder."""
    direction: int
    """h, hidden units of one of the two encoder directions."""
    units: int
    """A, attention units."""
    gates: int
    """G, gates of the cell: 3 for a GRU, 4 for an LSTM."""
    source_symbols: int
    """V, ids of the source vocabulary."""
    target_symbols: int
    """W, ids of the target vocabulary."""
    parameters: int
    """Number of parameters."""
    beam: int = 1
    """K, beam size; 1 for greedy search."""
    states: int = 1
    """State tensors of the cell: 1 for a GRU (hidden state), 2 for an LSTM (hidden state and cell state)."""

    @property
    def memory(self) -> int:
        """D, the size of an encoder state: both directions."""
        return 2 * self.direction

    @property
    def activations(self) -> int:
        """Number of tanh and σ evaluations per hidden unit of a cell: one per gate, and one for a new cell state."""
        return self.gates + self.states - 1


class StepWork(NamedTuple):
    """Number of operations and of bytes of one step."""

    multiply_adds: float
    """Multiply-adds of matrix products, without those of attention."""
    activations: float
    """Evaluations of tanh and σ in the cells and for the initial decoder state."""
    energies: float
    """Evaluations of tanh in additive attention."""
    exponentials: float
    """Evaluations of exp in the softmax of attention and of the output layer."""
    attention_multiply_adds: float
    """Multiply-adds of vᵀ tanh(…) and Σ α h, one query per product."""
    attention_bytes: float
    """Bytes of keys and memory, read at every step."""
    update_bytes: float
    """Bytes of parameters, gradients and moments."""

    @property
    def operations(self) -> float:
        """Number of multiplications, additions and function evaluations; a multiply-add counts as two."""
        product_operations = 2 * (self.multiply_adds + self.attention_multiply_adds)
        return product_operations + self.activations + self.energies + self.exponentials


def training_work(shape: StepShape) -> StepWork:
    """Return the work of one training update: forward pass, backward pass and Adam's update of the parameters.

    Each product of the forward pass has two in the backward pass, one per factor. Energies are computed twice; the
    backward pass of vᵀ tanh(…) has two products per unit, for v and for the argument. Keys and memory are read in both
    passes; the gradient of the keys is read and written in the second, that of the memory is one product after all
    steps.

    Args:
        shape: Sizes of the step.
    """
    attention_rows, decoder_rows = shape.steps * shape.positions, shape.rows * shape.steps
    return StepWork(
        multiply_adds=3 * (_encoder_products(shape) + decoder_rows * _step_products(shape)),
        activations=_encoder_activations(shape) + decoder_rows * shape.hidden * shape.activations,
        energies=2 * attention_rows * shape.units,
        exponentials=attention_rows + decoder_rows * shape.target_symbols,
        attention_multiply_adds=3 * attention_rows * (shape.units + shape.memory),
        attention_bytes=FLOAT_BYTES * attention_rows * (2 * (shape.units + shape.memory) + 2 * shape.units),
        update_bytes=FLOAT_BYTES * ADAM_TRAFFIC * shape.parameters,
    )


def search_work(shape: StepShape) -> StepWork:
    """Return the work of decoding one batch, greedily (K = 1) or with beam search.

    The first step has one hypothesis per row, later steps have K. Hypotheses of a row share keys and memory, which are
    read once per step.

    Args:
        shape: Sizes of the step.
    """
    hypotheses = 1 + shape.beam * (shape.steps - 1)
    attention_rows, decoder_rows = hypotheses * shape.positions, hypotheses * shape.rows
    return StepWork(
        multiply_adds=_encoder_products(shape) + decoder_rows * _step_products(shape),
        activations=_encoder_activations(shape) + decoder_rows * shape.hidden * shape.activations,
        energies=attention_rows * shape.units,
        exponentials=attention_rows + decoder_rows * shape.target_symbols,
        attention_multiply_adds=attention_rows * (shape.units + shape.memory),
        attention_bytes=FLOAT_BYTES * shape.steps * shape.positions * (shape.units + shape.memory),
        update_bytes=0.0,
    )


def _encoder_products(shape: StepShape) -> float:
    """Return the multiply-adds per source: projected embeddings, both directions, initial decoder state, keys.

    Embeddings are projected as a table, V E G h, since there are fewer symbols than positions. The first position of a
    row has no previous state, hence N − B.
    """
    cell = shape.gates * shape.direction
    directions = 2 * cell * (shape.source_symbols * shape.embedding + (shape.positions - shape.rows) * shape.direction)
    initial_state = shape.rows * shape.memory * shape.states * shape.hidden
    embedding_table = shape.target_symbols * shape.embedding * shape.gates * shape.hidden
    return directions + initial_state + embedding_table + shape.positions * shape.memory * shape.units


def _step_products(shape: StepShape) -> int:
    """Return the multiply-adds of a step of one row: query A H, gates G H (H + D), logits W (H + D)."""
    input_size = shape.hidden + shape.memory
    return shape.units * shape.hidden + shape.gates * shape.hidden * input_size + shape.target_symbols * input_size


def _encoder_activations(shape: StepShape) -> float:
    """Return the tanh and σ evaluations of both directions and of the initial decoder state."""
    return shape.positions * 2 * shape.direction * shape.activations + shape.rows * shape.hidden


MILLI = 1e3


class MachineRates(msgspec.Struct, frozen=True):
    """Measured rates of one thread: operations and bytes per second, seconds per function evaluation."""

    operations: float
    """Multiplications and additions per second in matrix products of the measured precision."""
    activation_seconds: float
    """Seconds of a tanh, also used for a σ, which a tanh computes."""
    energy_seconds: float
    """Seconds of a tanh of a sum with known exponentials of its summands, as in attention."""
    exponential_seconds: float
    """Seconds of an exp."""
    row_bytes: float
    """Bytes per second of repeated reads of the keys and memory of one row."""
    update_bytes: float
    """Bytes per second of repeated reads of parameters, gradients and moments."""


class TimeFloor(msgspec.Struct, frozen=True):
    """Lower bound of the CPU time of one step in milliseconds, by kind of operation."""

    products_ms: float
    """Matrix products, without those of attention."""
    activations_ms: float
    """Tanh and σ of the cells."""
    attention_ms: float
    """Energies and weighted sums of attention: the greater of computing them and of reading keys and memory."""
    softmax_ms: float
    """Exponentials of attention weights and of the output layer."""
    update_ms: float
    """Memory traffic of Adam."""

    @property
    def total_ms(self) -> float:
        """Sum of all kinds, in milliseconds."""
        return self.products_ms + self.activations_ms + self.attention_ms + self.softmax_ms + self.update_ms


def compute_floor(work: StepWork, rates: MachineRates) -> TimeFloor:
    """Return the lower bound of the time of a step: its numbers of operations divided by the rates of the machine.

    Args:
        work: Operations and bytes of the step.
        rates: Rates of one thread of the machine.
    """
    compute_seconds = work.energies * rates.energy_seconds + 2 * work.attention_multiply_adds / rates.operations
    return TimeFloor(
        products_ms=MILLI * 2 * work.multiply_adds / rates.operations,
        activations_ms=MILLI * work.activations * rates.activation_seconds,
        attention_ms=MILLI * max(compute_seconds, work.attention_bytes / rates.row_bytes),
        softmax_ms=MILLI * work.exponentials * rates.exponential_seconds,
        update_ms=MILLI * work.update_bytes / rates.update_bytes,
    )
