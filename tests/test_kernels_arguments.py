"""Kernels on NumPy arrays refuse other types, and shapes, lengths and ids by which they would read foreign memory.

The functions are called without the wrapper of the tests, which checks types and shapes first.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.errors import ArgumentError
from pellucid.kernels import decoder_step
from pellucid.kernels import search as search_kernels
from pellucid.kernels.cross_entropy import cross_entropy_and_gradient
from pellucid.kernels.decoder_step import prepare_decoder_numpy
from pellucid.kernels.search import (
    BeamSizes,
    beam_search_numpy,
    greedy_search_numpy,
    rank_extensions,
    rank_symbols,
)
from pellucid.kernels.types import (
    ADDITIVE,
    GRU,
    LOCATION_SENSITIVE,
    LSTM,
    AttentionInputs,
    DecoderParameters,
    KernelDecoderState,
    OutputLayerParameters,
    ScoreLayout,
    SearchLimits,
)
from pellucid.training.optimizer import compute_adam_changes_kernel

B, S, H, D, A, V = 3, 5, 2, 6, 7, 9


def ones(*shape: int) -> np.ndarray:
    """Return float32 numbers of this shape."""
    return np.full(shape, 0.1, np.float32)


LENGTHS = np.array([S, 1, 2])


def make_decoder(score: ScoreLayout = ADDITIVE) -> DecoderParameters:
    """Return the parameters of a GRU."""
    location = (ones(A, 2), ones(2, 3)) if score.reads_weights else (ones(0, 0), ones(0, 0))
    return DecoderParameters(
        GRU, score, ones(V, 3 * H), ones(H), ones(3 * H, H), ones(3 * H, D), ones(A, H), ones(A), *location
    )


INPUTS = AttentionInputs(ones(B, S, A), ones(B, S, D), LENGTHS)
OUTPUT_LAYER = OutputLayerParameters(ones(V, H), ones(0, D), ones(V))
LIMITS = SearchLimits(np.zeros(V, np.bool_), 0, 3, 4)
DECODER, LOCATED = make_decoder(), make_decoder(LOCATION_SENSITIVE)
HIDDEN = ones(B, 1, H)
DEEP = DECODER._replace(
    upper_inputs=ones(2, 3 * H, H),
    upper_biases=ones(2, 3 * H),
    upper_bias_n=ones(2, H),
    upper_recurrent=ones(2, 3 * H, H),
    norm_weights=ones(3, H),
    norm_biases=ones(3, H),
)
"""Parameters of three layers."""
DEEP_START = KernelDecoderState(ones(B, 3, H), None, None)
LOCATED_START = KernelDecoderState(HIDDEN, None, ones(B, S))
LOGITS, SCORES = ones(2 * B, V), ones(B, 2)
START, SIZES = KernelDecoderState(HIDDEN, None, None), BeamSizes(2, 2)


@pytest.fixture(autouse=True)
def unwrapped_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call the checks of arguments, too, without the wrapper of the tests."""
    for module in (decoder_step, search_kernels):
        for name, function in vars(module).items():
            if name.startswith(("check_", "_check_")):
                monkeypatch.setattr(module, name, inspect.unwrap(function))


def search(
    *,
    parameters: DecoderParameters = DECODER,
    output_layer: OutputLayerParameters = OUTPUT_LAYER,
    inputs: AttentionInputs = INPUTS,
    initial_state: KernelDecoderState = START,
    limits: SearchLimits = LIMITS,
    sizes: BeamSizes = SIZES,
) -> None:
    """Search greedily and with a beam."""
    decoder = inspect.unwrap(prepare_decoder_numpy)(parameters, output_layer, inputs)
    inspect.unwrap(beam_search_numpy)(decoder, initial_state, limits, sizes)
    inspect.unwrap(greedy_search_numpy)(decoder, initial_state, limits)


def rank(
    *,
    logits: Any = LOGITS,  # noqa: ANN401
    suppressed: Any = LIMITS.suppressed,  # noqa: ANN401
    scores: Any = SCORES,  # noqa: ANN401
    counts: Any = (4, 3),  # noqa: ANN401
) -> None:
    """Rank symbols, and extensions of three sources with two hypotheses each."""
    inspect.unwrap(rank_extensions)(logits, suppressed, scores, counts, False)
    inspect.unwrap(rank_symbols)(logits, suppressed, counts[0])


def test_valid_arguments_are_accepted() -> None:
    rank()
    rank(counts=(V, 2 * V))
    search()
    search(parameters=LOCATED, initial_state=LOCATED_START)
    search(limits=LIMITS._replace(min_length=5))
    search(parameters=DEEP, initial_state=DEEP_START)


INVALID: list[tuple[Callable[..., None], dict[str, Any], str]] = [
    (rank, {"logits": ones(V)}, "logits: expected an array of float32 with 2 dimensions, got one of float32 of"),
    (rank, {"suppressed": np.zeros(V + 1, np.bool_)}, "suppressed: expected an array of shape (9,), got (10,)"),
    (rank, {"counts": (0, 1)}, "count: expected 1 to 9, the number of symbols, got 0"),
    (rank, {"counts": (V + 1, 1)}, "count: expected 1 to 9, the number of symbols, got 10"),
    (rank, {"counts": (1, 0)}, "counts: expected 1 to 18 extensions of a source, got 0"),
    (rank, {"counts": (1, 2 * V + 1)}, "counts: expected 1 to 18 extensions of a source, got 19"),
    (rank, {"scores": ones(B, 3)}, "cumulative_log_probs: expected an array b × k of 6 hypotheses, the rows of logits"),
    (rank, {"scores": ones(2 * B)}, "cumulative_log_probs: expected an array of float32 with 2 dimensions, got one"),
    *(
        (
            search,
            {"parameters": LOCATED._replace(filters=ones(*shape)), "initial_state": LOCATED_START},
            f"parameters.filters: expected at least one filter of an odd number of positions, got shape {shape}",
        )
        for shape in ((2, 0), (2, 4), (0, 3))
    ),
    *(
        (
            search,
            {"initial_state": KernelDecoderState(ones(*shape), None, None)},
            f"hidden: expected an array of shape (3, 1, 2), got {shape}",
        )
        for shape in ((B, 1, H + 1), (B, 2, H))
    ),
    *(
        (
            search,
            {
                "parameters": DEEP._replace(**dict[str, Any]({name: getattr(DEEP, name)[:, :1]})),
                "initial_state": DEEP_START,
            },
            f"parameters.{name}: expected an array of shape",
        )
        for name in ("upper_biases", "upper_bias_n", "upper_recurrent", "norm_weights", "norm_biases")
    ),
    (
        search,
        {"parameters": DEEP._replace(upper_inputs=ones(2, 3 * H, H + 1)), "initial_state": DEEP_START},
        "parameters.upper_inputs: expected an array of shape (2, 6, 2), got (2, 6, 3)",
    ),
    (search, {"parameters": DEEP}, "hidden: expected an array of shape (3, 3, 2), got (3, 1, 2)"),
    (search, {"inputs": INPUTS._replace(lengths=LENGTHS + 1)}, "lengths: expected whole numbers from 1 to 5, got 6"),
    (search, {"inputs": INPUTS._replace(memory=ones(B, S, D - 1))}, "parameters.context: expected an array of shape"),
    (search, {"inputs": INPUTS._replace(keys=ones(B, S, A + 1))}, "inputs.keys: expected an array of shape (3, 5, 7)"),
    (search, {"parameters": DECODER._replace(bias_n=ones(0))}, "parameters.bias_n: expected an array of shape"),
    (search, {"parameters": DECODER._replace(energy=ones(1))}, "parameters.energy: expected an array of shape"),
    (search, {"parameters": LOCATED}, "attention_state: expected an array of shape (3, 5), got None"),
    (
        search,
        {"parameters": LOCATED._replace(location=ones(A, 1)), "initial_state": LOCATED_START},
        "parameters.location: expected an array of shape (7, 2), got (7, 1)",
    ),
    (
        search,
        {
            "parameters": DECODER._replace(
                cell_layout=LSTM,
                bias_n=ones(0),
                projected_inputs=ones(V, 4 * H),
                recurrent=ones(4 * H, H),
                context=ones(4 * H, D),
            )
        },
        "cell_state: expected an array of shape (3, 1, 2), got None",
    ),
    (
        search,
        {"output_layer": OUTPUT_LAYER._replace(bias=ones(V - 1))},
        "output_layer.state: expected an array of shape (8, 2), got (9, 2)",
    ),
    (
        search,
        {"output_layer": OutputLayerParameters(ones(V + 1, H), ones(0, D), ones(V + 1))},
        "output_layer.bias: expected from 1 to 9 symbols, the rows of parameters.projected_inputs, got 10",
    ),
    (
        search,
        {"output_layer": OutputLayerParameters(ones(2, H), ones(0, D), ones(2))},
        "output_layer.bias: expected more than 2 symbols, of which 2 is",
    ),
    (search, {"inputs": INPUTS._replace(lengths=LENGTHS - 1)}, "lengths: expected whole numbers from 1 to 5, got 0"),
    (search, {"inputs": INPUTS._replace(memory=ones(0, S, D))}, "inputs.memory: expected an array B × S × D that is"),
    (
        search,
        {"initial_state": KernelDecoderState(ones(B - 1, 1, H), None, None)},
        "hidden: expected an array of shape (3, 1, 2), got (2,",
    ),
    (search, {"limits": LIMITS._replace(suppressed=np.zeros(2, np.bool_))}, "limits.suppressed: expected an array of"),
    (search, {"limits": LIMITS._replace(num_candidates=V + 1)}, "limits.num_candidates: expected 1 to 9, got 10"),
    (search, {"limits": LIMITS._replace(max_length=-1)}, "limits: expected lengths of at least 0, got 0 and -1"),
    (search, {"sizes": BeamSizes(0, 0)}, "sizes: expected 1 <= nbest <= beam_size, got 0 and 0"),
    (search, {"sizes": BeamSizes(2, 3)}, "sizes: expected 1 <= nbest <= beam_size, got 3 and 2"),
]


def wrong_arrays(array: np.ndarray) -> Iterator[object]:
    """Yield values that are not arrays of the same type and number of dimensions."""
    yield from (None, 1.5, "x", array.tolist(), torch.from_numpy(array), np.ma.masked_array(array), array[..., None])
    yield array.astype(array.dtype.newbyteorder(">")) if array.dtype != np.bool_ else array.astype(np.int8)
    for dtype in (
        np.float16,
        np.float32,
        np.float64,
        np.int32,
        np.int64,
        np.uint8,
        np.bool_,
        np.complex64,
        object,
        str,
    ):
        if array.dtype != dtype:
            yield array.astype(dtype)


def with_wrong_field(struct: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Yield the struct with each field in turn of a wrong type, and the name of that field."""
    for name, value in struct._asdict().items():
        if isinstance(value, np.ndarray):
            wrong = wrong_arrays(value)
        elif isinstance(value, tuple):
            layout: Any = value
            retyped = layout._replace(**{layout._fields[0]: np.int32(layout[0])})
            wrong = iter((None, tuple(value), layout._replace(**{layout._fields[1]: None}), retyped))
        else:
            wrong = iter((None, "x", 1.5, np.int32(1), ones(1), 2**63, 1 if isinstance(value, bool) else True))
        for each in wrong:
            if each is not None or name not in ("cell_state", "attention_state"):
                yield name, struct._replace(**{name: each})


LSTM_START = KernelDecoderState(HIDDEN, HIDDEN, ones(B, S))
STRUCTS: list[tuple[Callable[..., None], str, Any, str]] = [
    (search, "parameters", DEEP, "parameters."),
    (search, "parameters", LOCATED, "parameters."),
    (search, "output_layer", OUTPUT_LAYER, "output_layer."),
    (search, "inputs", INPUTS, "inputs."),
    (search, "initial_state", LSTM_START, ""),
    (search, "limits", LIMITS, "limits."),
    (search, "sizes", SIZES, "sizes."),
]


@pytest.mark.parametrize(("function", "argument", "struct", "prefix"), STRUCTS)
def test_a_field_of_a_wrong_type_is_one_error_that_names_it(
    function: Callable[..., None], argument: str, struct: tuple[object, ...], prefix: str
) -> None:
    """Regression test: they raised errors of Python or Numba, or compiled the kernels anew for seconds."""
    for name, wrong in with_wrong_field(struct):
        with pytest.raises(ArgumentError, match=rf"^{prefix}{name}: expected "):
            function(**{argument: wrong})
    for value in (None, 1.5, "x", tuple(struct), [*struct]):
        with pytest.raises(
            ArgumentError, match=rf"^{argument}: expected an object of the class {type(struct).__name__}"
        ):
            function(**{argument: value})


ARRAYS: list[tuple[Callable[..., None], str, np.ndarray, str]] = [
    (rank, "logits", LOGITS, "logits"),
    (rank, "suppressed", LIMITS.suppressed, "suppressed"),
    (rank, "scores", SCORES, "cumulative_log_probs"),
]


@pytest.mark.parametrize(("function", "argument", "array", "name"), ARRAYS)
def test_an_array_of_a_wrong_type_is_one_error_that_names_it(
    function: Callable[..., None], argument: str, array: np.ndarray, name: str
) -> None:
    for value in wrong_arrays(array):
        with pytest.raises(ArgumentError, match=rf"^{name}: expected an array of {array.dtype} with "):
            function(**{argument: value})


def test_search_refuses_a_decoder_that_is_not_prepared() -> None:
    for function, options in ((greedy_search_numpy, ()), (beam_search_numpy, (SIZES,))):
        for value in (None, DECODER, (1, 2, 3)):
            with pytest.raises(ArgumentError, match=r"^decoder: expected an object of the class PreparedDecoder, got "):
                inspect.unwrap(function)(value, START, LIMITS, *options)


@pytest.mark.parametrize("counts", [None, 4, [4, 3], (4,), (4.0, 3), (4, None), (True, 3)])
def test_counts_of_a_wrong_type_are_refused(counts: object) -> None:
    with pytest.raises(ArgumentError, match=r"^counts?: expected (two )?(a )?whole number"):
        rank(counts=counts)


@pytest.mark.parametrize("function", [rank_symbols, rank_extensions])
def test_ranking_symbols_is_checked_before_compiled_code_reads_memory(function: Callable[..., Any]) -> None:
    """Regression test: more candidates than symbols gave ids and log-probabilities of foreign memory."""
    arguments = (10,) if function is rank_symbols else (SCORES, (10, 1), False)
    with pytest.raises(ArgumentError, match=r"^count: expected 1 to 9, the number of symbols, got 10$"):
        inspect.unwrap(function)(LOGITS, LIMITS.suppressed, *arguments)


@pytest.mark.parametrize(("function", "arguments", "message"), INVALID)
def test_an_invalid_argument_is_refused(function: Callable[..., None], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        function(**arguments)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("targets", [[1, V], [1, -1], [1], [1, 2, 3]])
def test_cross_entropy_refuses_targets_outside_the_vocabulary(targets: list[int]) -> None:
    with pytest.raises(ArgumentError, match=r"^targets: expected "):
        cross_entropy_and_gradient(ones(2, V), np.array(targets), 0, np.float32(0))


def test_cross_entropy_accepts_any_ignored_target() -> None:
    loss, _ = cross_entropy_and_gradient(ones(2, V), np.array([1, -100]), -100, np.float32(0))
    assert loss == pytest.approx(np.log(V))


@pytest.mark.parametrize("name", ["mean", "square"])
def test_adam_refuses_a_moment_of_another_length(name: str) -> None:
    tensors = {key: torch.ones(2 if key == name else 3) for key in ("gradient", "mean", "square")}
    with pytest.raises(ArgumentError, match=rf"^{name}: expected shape \(3,\), got \(2,\)"):
        inspect.unwrap(compute_adam_changes_kernel)(**tensors, coefficients=(0.1, 0.1, 0.1, 0.1))
