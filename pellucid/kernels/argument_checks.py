"""Checks of the arguments of kernels that take NumPy arrays: types, shapes and lengths.

Compiled code reads memory by these numbers and does not check them itself. Numba compiles every kernel again for each
type of array, which takes seconds: kernels accept one type for each kind of number (`KERNEL_TYPES`).
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, cast, get_args, get_type_hints

import numpy as np
from numpy.typing import DTypeLike

from pellucid.data.vocabulary import EOS
from pellucid.error_messages import describe_value, is_array_kind
from pellucid.errors import ArgumentError
from pellucid.kernels.types import (
    CELL_LAYOUTS,
    SCORES,
    AttentionInputs,
    CellLayout,
    DecoderParameters,
    KernelDecoderState,
    OutputLayerParameters,
    ScoreLayout,
    SearchLimits,
)

KERNEL_TYPES = ("float32", "int64", "bool")
"""Types of the arrays of kernels: numbers, ids and lengths, and masks."""
ARRAY_CLASSES = (np.ndarray, np.memmap)
"""Classes of arrays that Numba reads; other subclasses, such as masked arrays, are refused."""
INTEGER_CLASSES = (int, np.int64)
"""Classes of whole numbers that Numba reads as one type; bool and other subclasses of int are refused."""
LAYOUTS: Mapping[object, Mapping[str, tuple[object, ...]]] = {CellLayout: CELL_LAYOUTS, ScoreLayout: SCORES}
"""The layouts that kernels compute, by their class."""


def check_array(name: str, array: object, dtype: DTypeLike, num_dims: int) -> None:
    """Raise `ArgumentError` for a value that is not an array of this type and number of dimensions.

    Args:
        name: Name of the array, for the message.
        array: The value.
        dtype: Expected type.
        num_dims: Expected number of dimensions.
    """
    if isinstance(array, np.ndarray) and type(array) in ARRAY_CLASSES:
        if array.dtype == dtype and array.ndim == num_dims:
            return
        found = f"one of {array.dtype} of shape {array.shape}"
    else:
        found = describe_value(array)
    dimensions = "one dimension" if num_dims == 1 else f"{num_dims} dimensions"
    raise ArgumentError(f"{name}: expected an array of {np.dtype(dtype)} with {dimensions}, got {found}")


def check_number(name: str, value: object) -> None:
    """Raise `ArgumentError` for a value that is not a whole number of 64 bits.

    Args:
        name: Name of the number, for the message.
        value: The value.
    """
    if not isinstance(value, int | np.int64) or type(value) not in INTEGER_CLASSES or not -(2**63) <= value < 2**63:
        raise ArgumentError(f"{name}: expected a whole number, an int of at most 64 bits, got {describe_value(value)}")


def check_boolean(name: str, value: object) -> None:
    """Raise `ArgumentError` for a value that is neither True nor False.

    Args:
        name: Name of the value, for the message.
        value: The value.
    """
    if type(value) is not bool:
        raise ArgumentError(f"{name}: expected True or False, got {describe_value(value)}")


def check_class(name: str, value: object, kind: type) -> None:
    """Raise `ArgumentError` for a value of another class.

    Args:
        name: Name of the argument, for the message.
        value: The value.
        kind: Expected class.
    """
    if type(value) is not kind:
        raise ArgumentError(f"{name}: expected an object of the class {kind.__name__}, got {describe_value(value)}")


def check_fields(name: str, value: object, kind: type, prefix: str | None = None) -> None:
    """Raise `ArgumentError` for a value that is not a named tuple whose fields have their annotated types.

    Args:
        name: Name of the argument, for the message.
        value: The value.
        kind: Class of the named tuple.
        prefix: Text before the names of fields in messages; None for the name of the argument and a period.
    """
    check_class(name, value, kind)
    for field, annotation in _annotations(kind).items():
        _check_field(f"{name}.{field}" if prefix is None else prefix + field, getattr(value, field), annotation)


@cache
def _annotations(kind: type) -> dict[str, Any]:
    """Return the annotation of each field of a named tuple."""
    return get_type_hints(kind)


def _check_field(name: str, value: object, annotation: Any) -> None:  # noqa: ANN401
    """Raise `ArgumentError` for a value of another type than its annotation."""
    if type(None) in get_args(annotation):
        if value is None:
            return
        annotation = get_args(annotation)[0]
    if is_array_kind(annotation):
        dtype = next(dtype for dtype in KERNEL_TYPES if dtype in annotation.dtypes)
        check_array(name, value, dtype, len(annotation.dim_str.split()))
    elif annotation in LAYOUTS:
        _check_layout(name, value, annotation)
    elif annotation is bool:
        check_boolean(name, value)
    else:
        check_number(name, value)


def _check_layout(name: str, value: object, kind: Any) -> None:  # noqa: ANN401
    """Raise `ArgumentError` for a layout that kernels do not compute, or that has fields of other types."""
    check_class(name, value, kind)
    types = [*map(type, cast(tuple[object, ...], value))]
    known = LAYOUTS[kind].values()
    if not any(types == [*map(type, layout)] and value == layout for layout in known):
        raise ArgumentError(
            f"{name}: expected a layout of kernels.types ({', '.join(LAYOUTS[kind])}), got {describe_value(value)}"
        )


def check_shape(name: str, array: np.ndarray | None, shape: Iterable[int]) -> None:
    """Raise `ArgumentError` for an array of another shape.

    Args:
        name: Name of the array, for the message.
        array: The array; None, which is always refused, where it is missing.
        shape: Expected size of each dimension.
    """
    expected = tuple(shape)
    if array is None or array.shape != expected:
        raise ArgumentError(
            f"{name}: expected an array of shape {expected}, got {'None' if array is None else array.shape}"
        )


def check_lengths(lengths: np.ndarray, rows: int, positions: int) -> None:
    """Raise `ArgumentError` unless there is one length from 1 to S for each row.

    Args:
        lengths: Number of real positions of each row.
        rows: B.
        positions: S.
    """
    check_shape("lengths", lengths, (rows,))
    if not lengths.size:
        return
    least, greatest = int(lengths.min()), int(lengths.max())
    if least < 1 or greatest > positions:
        wrong = least if least < 1 else greatest
        raise ArgumentError(f"lengths: expected whole numbers from 1 to {positions}, got {wrong}")


def _bias_size(layout: CellLayout, size: int) -> int:
    """Return the number of hidden biases of a cell of `size` units: those of the gate `gated`, if any."""
    return size if layout.gated >= 0 else 0


def check_decoder(parameters: DecoderParameters, inputs: AttentionInputs) -> None:
    """Raise `ArgumentError` unless the parameters of a decoder fit each other and its sources.

    Args:
        parameters: Parameters of a decoder step.
        inputs: Keys, memory and lengths of the sources.
    """
    check_fields("parameters", parameters, DecoderParameters)
    check_fields("inputs", inputs, AttentionInputs)
    layout = parameters.cell_layout
    score = parameters.score_layout
    size = parameters.recurrent.shape[-1]
    gates = layout.gates * size
    rows, positions, memory_size = _source_shape(inputs.memory)
    units = len(parameters.query) if score.projects_query else size
    check_shape("parameters.projected_inputs", parameters.projected_inputs, (len(parameters.projected_inputs), gates))
    check_shape("parameters.recurrent", parameters.recurrent, (gates, size))
    check_shape("parameters.bias_n", parameters.bias_n, (_bias_size(layout, size),))
    check_shape("parameters.context", parameters.context, (gates, memory_size))
    if score.projects_query:
        check_shape("parameters.query", parameters.query, (units, size))
        check_shape("parameters.energy", parameters.energy, (units,))
    if score.reads_weights:
        _check_filters(parameters.filters)
        check_shape("parameters.location", parameters.location, (units, len(parameters.filters)))
    _check_upper_layers(parameters, gates, size)
    check_shape("inputs.keys", inputs.keys, (rows, positions, units))
    check_lengths(inputs.lengths, rows, positions)


def _check_filters(filters: np.ndarray) -> None:
    """Raise `ArgumentError` unless each location filter covers an odd number of positions, with one in the middle."""
    if not len(filters) or filters.shape[1] % 2 == 0:
        raise ArgumentError(
            f"parameters.filters: expected at least one filter of an odd number of positions, got shape {filters.shape}"
        )


def _check_upper_layers(parameters: DecoderParameters, gates: int, size: int) -> None:
    """Raise `ArgumentError` unless the parameters of the layers above the first fit those of the first."""
    num_upper = len(parameters.upper_inputs)
    if num_upper:
        bias_size = _bias_size(parameters.cell_layout, size)
        check_shape("parameters.upper_inputs", parameters.upper_inputs, (num_upper, gates, size))
        check_shape("parameters.upper_biases", parameters.upper_biases, (num_upper, gates))
        check_shape("parameters.upper_bias_n", parameters.upper_bias_n, (num_upper, bias_size))
        check_shape("parameters.upper_recurrent", parameters.upper_recurrent, (num_upper, gates, size))
    if len(parameters.norm_weights):
        check_shape("parameters.norm_weights", parameters.norm_weights, (num_upper + 1, size))
        check_shape("parameters.norm_biases", parameters.norm_biases, (num_upper + 1, size))


def _source_shape(memory: np.ndarray) -> tuple[int, int, int]:
    """Return B, S and D; raise `ArgumentError` for a memory that has no position."""
    if not memory.size:
        raise ArgumentError(f"inputs.memory: expected an array B × S × D that is not empty, got shape {memory.shape}")
    rows, positions, size = memory.shape
    return rows, positions, size


def check_initial_state(
    layout: CellLayout, positions: int | None, initial_state: KernelDecoderState, shape: tuple[int, int, int]
) -> None:
    """Raise `ArgumentError` unless the state before the first step has one row per source.

    Args:
        layout: Layout of the cell.
        positions: S if the attention score reads the weights of the previous step; None if it does not.
        initial_state: The state.
        shape: B, L and H.
    """
    check_fields("initial_state", initial_state, KernelDecoderState, prefix="")
    check_shape("hidden", initial_state.hidden, shape)
    if layout.states == 2:
        check_shape("cell_state", initial_state.cell_state, shape)
    if positions is not None:
        check_shape("attention_state", initial_state.attention_state, (shape[0], positions))


def check_output_layer(parameters: DecoderParameters, output_layer: OutputLayerParameters, memory_size: int) -> None:
    """Raise `ArgumentError` unless the output layer fits the decoder, which reads each symbol that it writes.

    Args:
        parameters: Parameters of a decoder step.
        output_layer: Parameters of the output layer.
        memory_size: D.
    """
    check_fields("output_layer", output_layer, OutputLayerParameters)
    size = parameters.recurrent.shape[-1]
    symbols = len(output_layer.bias)
    check_shape("output_layer.bias", output_layer.bias, (symbols,))
    for name, matrix, columns in (("state", output_layer.state, size), ("context", output_layer.context, memory_size)):
        if matrix.size:  # a part that the layer does not read is empty
            check_shape(f"output_layer.{name}", matrix, (symbols, columns))
    if not 1 <= symbols <= len(parameters.projected_inputs):
        expected = f"from 1 to {len(parameters.projected_inputs)} symbols, the rows of parameters.projected_inputs"
        raise ArgumentError(f"output_layer.bias: expected {expected}, got {symbols}")


def check_limits(limits: SearchLimits, symbols: int) -> None:
    """Raise `ArgumentError` for limits of a search that do not fit the vocabulary.

    Args:
        limits: Suppressed symbols, length limits and number of recorded candidates.
        symbols: V.
    """
    check_fields("limits", limits, SearchLimits)
    if symbols <= EOS:
        raise ArgumentError(
            f"output_layer.bias: expected more than {EOS} symbols, of which {EOS} is EOS, got {symbols}"
        )
    check_shape("limits.suppressed", limits.suppressed, (symbols,))
    if min(limits.min_length, limits.max_length) < 0:
        raise ArgumentError(f"limits: expected lengths of at least 0, got {limits.min_length} and {limits.max_length}")
    if not 1 <= limits.num_candidates <= symbols:
        raise ArgumentError(f"limits.num_candidates: expected 1 to {symbols}, got {limits.num_candidates}")


def check_ranking(logits: np.ndarray, suppressed: np.ndarray, num_recorded: int) -> None:
    """Raise `ArgumentError` for logits whose symbols cannot be ranked, or for too many candidates.

    Args:
        logits: Logits of each hypothesis.
        suppressed: Suppressed symbols.
        num_recorded: C, the number of recorded candidates.
    """
    check_array("logits", logits, np.float32, 2)
    check_array("suppressed", suppressed, np.bool_, 1)
    check_number("count", num_recorded)
    symbols = logits.shape[1]
    check_shape("suppressed", suppressed, (symbols,))
    if not 1 <= num_recorded <= symbols:
        raise ArgumentError(f"count: expected 1 to {symbols}, the number of symbols, got {num_recorded}")


def check_extensions(logits: np.ndarray, cumulative_log_probs: np.ndarray, num_extensions: int) -> None:
    """Raise `ArgumentError` for hypotheses that do not fit their logits, or for too many extensions.

    Args:
        logits: Logits of each hypothesis, R × V.
        cumulative_log_probs: Sum of the log-probabilities of each hypothesis.
        num_extensions: K, the number of extensions of each source.
    """
    check_array("cumulative_log_probs", cumulative_log_probs, np.float32, 2)
    check_number("counts", num_extensions)
    shape = cumulative_log_probs.shape
    if shape[0] * shape[1] != len(logits) or not shape[1]:
        expected = f"an array b × k of {len(logits)} hypotheses, the rows of logits"
        raise ArgumentError(f"cumulative_log_probs: expected {expected}, got shape {shape}")
    if not 1 <= num_extensions <= shape[1] * logits.shape[1]:
        expected = f"1 to {shape[1] * logits.shape[1]} extensions of a source"
        raise ArgumentError(f"counts: expected {expected}, got {num_extensions}")
