"""Replay of traces: the decoder steps of given outputs, batch by batch.

B traces of a batch, S source positions, T target positions, H hidden.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from pellucid.argument_checks import argument_error
from pellucid.config.settings import reads_features
from pellucid.data.batches import collate
from pellucid.data.encoding import EncodedExamples, to_ragged
from pellucid.data.examples import Example
from pellucid.data.vocabulary import BOS, EOS, UNK
from pellucid.decoding.forced_attention import ForcedAttentionInference
from pellucid.decoding.hypothesis import not_finite_error
from pellucid.decoding.inference import SingleModelInference
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import SourceBatch, encode_source_characters, encode_source_ids
from pellucid.decoding.trace import UNKNOWN, Trace, checked_fields
from pellucid.decoding.transducer import require_transducer
from pellucid.errors import ArgumentError, quote
from pellucid.kernels.dispatch import disable_kernels_unless_worth_loading
from pellucid.model.device import check_process, disable_autocast
from pellucid.model.memory import DecoderState, DecoderStepOutput
from pellucid.shapes import Int

MAX_REPLAY_POSITIONS = 2**15
"""Maximum number of padded source positions in a batch, which bounds the memory of keys and states."""
Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
Inspection = Callable[Concatenate[Predictor, Parameters], Returned]
"""Function that computes with the networks of its first argument."""


def check_finite(function: Inspection[Parameters, Returned]) -> Inspection[Parameters, Returned]:
    """Return a function that raises `NotFiniteError`, with the run folder, if a number of its result is not finite.

    Args:
        function: A function whose first argument is the model that it computes with.
    """
    return _check_numbers(function, np.isfinite)


def check_log_probabilities(function: Inspection[Parameters, Returned]) -> Inspection[Parameters, Returned]:
    """Return a function as `check_finite` does, for a result of log-probabilities, which may be −∞.

    Args:
        function: A function whose first argument is the model that it computes with.
    """
    return _check_numbers(function, lambda numbers: numbers < np.inf)  # false for NaN


def _check_numbers(
    function: Inspection[Parameters, Returned], is_valid: Callable[[np.ndarray], np.ndarray]
) -> Inspection[Parameters, Returned]:
    """Return a function that raises `NotFiniteError` if its result holds a number that is not valid."""

    @wraps(function)
    def checked(predictor: Predictor, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        result = function(predictor, *args, **kwargs)
        if not all(is_valid(numbers).all() for numbers in _float_arrays(result)):
            raise not_finite_error(predictor.name, predictor.config)
        return result

    return cast(Inspection[Parameters, Returned], checked)


def _float_arrays(value: object) -> Iterator[np.ndarray]:
    """Yield all floating-point numbers and arrays of a result."""
    if isinstance(value, float | np.ndarray | Tensor):
        numbers = np.asarray(value)
        if numbers.dtype.kind == "f":
            yield numbers
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _float_arrays(item)


class ReplaySize(NamedTuple):
    """Index of one trace of a batch, and its lengths without padding."""

    row: int
    """Index of the trace among those given to `build_replays`."""
    positions: int
    """Number of source positions, without added features."""
    steps: int
    """Number of steps, EOS included."""


class Replay(NamedTuple):
    """Batch of traces in ids, whose outputs are decoded again."""

    batch: SourceBatch
    """Sources; `batch.rows` are the indices of the traces among those given to `build_replays`."""
    target: Int[Tensor, "B T"]
    """Ids of the outputs, with EOS where it was written, padded."""
    steps: list[int]
    """Number of steps of each trace."""

    @property
    def sizes(self) -> list[ReplaySize]:
        """Index and lengths of each trace, in the order of the batch."""
        rows, positions = self.batch.rows.tolist(), self.batch.positions.tolist()
        return [ReplaySize(*size) for size in zip(rows, positions, self.steps, strict=True)]


def build_replays(
    predictor: Predictor, traces: Sequence[Trace], name: str = "traces[{}]", *, padded: bool = True
) -> Iterator[Replay]:
    """Yield the traces in batches of similar source length; traces without source or output are left out.

    Args:
        predictor: The model.
        traces: Traces of the model, in any order.
        name: Name of a trace in error messages; "{}" is its index.
        padded: False for batches of equal source length, without padding.

    Yields:
        Batches of at most `MAX_REPLAY_POSITIONS` padded source positions, or of one longer source.

    Raises:
        ArgumentError: A field of a trace is wrong, the trace is of another task, the model reads its source as other
            symbols, or the model cannot write a symbol of its output.
    """
    traces = checked_traces(predictor, traces, name)
    examples = [example_of(predictor, trace) for trace in traces]
    vocabularies, tokenizers = predictor.vocabularies, predictor.tokenizers
    _, sources = encode_source_ids(examples, vocabularies, tokenizers, predictor.config)
    ids = [target_ids(predictor, trace) for trace in traces]
    for index, (trace, target_ids_of_trace) in enumerate(zip(traces, ids, strict=True)):
        if UNK in target_ids_of_trace:
            _check_unknown(trace, target_ids_of_trace, name.format(index))
    characters = encode_source_characters(examples, vocabularies, tokenizers, predictor.config)
    encoded = EncodedExamples(sources, to_ragged(ids), characters)
    order = [
        row for row in np.argsort(sources.lengths, kind="stable").tolist() if traces[row].source and traces[row].target
    ]
    sizes = [(int(sources.lengths[row]), len(traces[row].summed_features)) for row in order]
    if not padded:
        order, sizes = [order[index] for index in sorted(range(len(order)), key=sizes.__getitem__)], sorted(sizes)
    start = 0
    while start < len(order):
        stop = start + 1
        while (
            stop < len(order)
            and (stop + 1 - start) * sizes[stop][0] <= MAX_REPLAY_POSITIONS
            and (padded or sizes[stop] == sizes[start])
        ):
            stop += 1
        added = [len(traces[row].summed_features) for row in order[start:stop]]
        yield _replay(predictor, np.array(order[start:stop]), added, encoded)
        start = stop


def _replay(
    predictor: Predictor, rows: Int[np.ndarray, " B"], added: Sequence[int], encoded: EncodedExamples
) -> Replay:
    """Return one batch on the device of the network."""
    device = next(predictor.network.parameters()).device
    padded = collate(encoded, rows)
    positions, steps = padded.source_lengths - torch.tensor(added), padded.target_lengths
    source, lengths, target, _, characters = padded.to(device)
    batch = SourceBatch(rows, source, lengths, positions.to(device), characters=characters)
    return Replay(batch, target, steps.tolist())


def examples_of(predictor: Predictor, traces: Sequence[Trace], name: str = "traces[{}]") -> list[Example]:
    """Return the sources of traces with their features as examples, whose targets are empty.

    Args:
        predictor: The model.
        traces: Traces of the model.
        name: Name of a trace in error messages; "{}" is its index.

    Raises:
        ArgumentError: A field of a trace is wrong, the trace is of another task, or the model reads its source as other
            symbols.
    """
    return [example_of(predictor, trace) for trace in checked_traces(predictor, traces, name)]


def checked_traces(predictor: Predictor, traces: Sequence[Trace], name: str = "traces[{}]") -> list[Trace]:
    """Return the traces after checking that their fields are valid and that the model can read their sources.

    Args:
        predictor: The model.
        traces: Traces of the model, whose fields a program may have changed.
        name: Name of a trace in error messages; "{}" is its index.

    Raises:
        ArgumentError: A field of a trace is wrong, the trace is of another task, or the model reads its source as other
            symbols.
    """
    checked = [checked_fields(trace, name.format(index)) for index, trace in enumerate(traces)]
    for index, trace in enumerate(checked):
        if error := _source_error(predictor, trace):
            raise argument_error(name.format(index), f"a trace that this model can read again, {error}", trace)
    return checked


def _source_error(predictor: Predictor, trace: Trace) -> str:
    """Return the property that a trace lacks to be read by a model; "" if there is none."""
    config = predictor.config
    if trace.task != config.task:
        return f"of the task {quote(config.task)}, not {quote(trace.task)}"
    if not trace.source or not trace.target:
        return ""
    added, positions = len(trace.summed_features), len(trace.source) - trace.num_features
    summed = config.encoder.feature_merge == "sum"
    if (trace.num_features or added) and not reads_features(config.data):
        return "without features"
    if trace.num_features if summed else added:
        return "with features " + ("added to its symbols" if summed else "before its symbols")
    num_symbols = predictor.tokenizers.source.count(trace.text)
    if num_symbols != positions:
        return f"of {num_symbols} source symbols, not {positions}"
    return ""


def _check_unknown(trace: Trace, ids: Sequence[int], name: str) -> None:
    """Raise `ArgumentError` if a target symbol is outside the vocabulary, although the trace claims to be decoded."""
    for step, (symbol, target_id) in enumerate(zip(trace.target, ids, strict=True)):
        if target_id == UNK and symbol != UNKNOWN and step not in trace.unknown_target and trace.origin != "lexicon":
            raise argument_error(name, f"a trace of symbols that this model writes, not {quote(symbol)}", trace)


def example_of(predictor: Predictor, trace: Trace) -> Example:
    """Return the source of a trace with its features as an example, whose target is empty.

    Args:
        predictor: The model, for its tokenizer of features.
        trace: Trace of the model; it is not checked.
    """
    return Example(
        trace.text, "", predictor.tokenizers.features.join(trace.summed_features or trace.source[: trace.num_features])
    )


def target_ids(predictor: Predictor, trace: Trace) -> list[int]:
    """Return the output of a trace in ids, with EOS if the trace is finished.

    A symbol outside the vocabulary has the id V + p if the model copies and p is the first source position with this
    symbol, and else UNK.

    Args:
        predictor: The model.
        trace: Trace of the model.
    """
    ids, copying = predictor.vocabularies.target.ids, predictor.config.decoder.pointer_generator
    result = []
    for symbol in trace.target[:-1] if trace.finished else trace.target:
        if symbol not in ids and copying and symbol in trace.source[trace.num_features :]:
            result.append(len(predictor.vocabularies.target) + trace.source.index(symbol, trace.num_features))
        else:
            result.append(ids.get(symbol, UNK))
    return [*result, EOS] if trace.finished else result


@contextmanager
def evaluation_context(predictor: Predictor, hypotheses: int) -> Iterator[None]:
    """Disable dropout of a model within the block, and use compiled CPU kernels only where they are faster.

    A surrounding `torch.autocast` has no effect on the block. Gradients are not disabled; `torch.inference_mode` does
    this.

    Args:
        predictor: The model.
        hypotheses: Number of hypotheses that are decoded within the block, which decides whether to load kernels.

    Raises:
        RunError: A forked process cannot use the GPU of the model, or torch's default device is "meta".
    """
    device = next(predictor.network.parameters()).device
    check_process(device)
    with (
        disable_autocast(device),
        predictor.evaluation_mode(),
        disable_kernels_unless_worth_loading(hypotheses, device.type),
    ):
        yield


class ReplayStep(NamedTuple):
    """One decoder step of a batch of traces."""

    symbols: Int[Tensor, " B"]
    """Previous symbols, the decoder inputs."""
    before: DecoderState
    """Decoder state before the step."""
    step: DecoderStepOutput
    """Results of the step, with the state after it."""


def start_replay(predictor: Predictor, replay: Replay) -> tuple[SingleModelInference, ForcedAttentionInference | None]:
    """Encode the sources of a batch; return the network before its first decoder step, for `replay_steps`.

    Args:
        predictor: A single model.
        replay: Batch of traces.

    Returns:
        The network with its decoder state, and the forced attention of the predictor's options; None without any.

    Raises:
        ArgumentError: The model is an ensemble.
        ConfigError: The model does not decode symbol by symbol.
    """
    inference = require_transducer(predictor, "predictor").initialize(replay.batch)
    single = inference.inference if isinstance(inference, ForcedAttentionInference) else inference
    if not isinstance(single, SingleModelInference):
        raise ArgumentError(
            "predictor: expected a single model, got an ensemble, which has no states of its own; use one of its models"
        )
    return single, inference if isinstance(inference, ForcedAttentionInference) else None


def replay_steps(
    inference: SingleModelInference, forced: ForcedAttentionInference | None, target: Int[Tensor, "B T"]
) -> Iterator[ReplayStep]:
    """Yield the decoder steps with given outputs (teacher forcing): step t reads symbol t − 1, the first one BOS.

    Args:
        inference: Network before its first step, from `start_replay`.
        forced: Forced attention, from `start_replay`; None for the model's own weights.
        target: Ids of the outputs, padded.

    Yields:
        T steps; those after the end of a shorter output have no meaning for its row.
    """
    symbols, state = torch.full_like(target[:, 0], BOS), inference.state
    for index, targets in enumerate(target.unbind(dim=1)):
        row = None if forced is None else forced.weights.get(index)
        forced_weights = None if row is None else row.repeat(len(symbols), 1)
        step = inference.decoder.step(symbols, state, inference.cache, forced_weights)
        yield ReplayStep(symbols, state, step)
        symbols, state = targets, step.state
