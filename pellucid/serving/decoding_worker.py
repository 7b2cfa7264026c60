"""The worker process of a model: it loads the run folder and decodes batches of rows.

Results leave the process as JSON, one text per row, so that the process of the server encodes nothing. A row that
cannot be decoded has an error in place of its result. Most such rows are found before their batch is decoded; otherwise
the batch is halved until the row is alone, so that one bad row costs the others a few further batches.
"""

import math
import re
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pellucid.alignment.types import ChunkLimits
from pellucid.data.examples import Example, pair_error
from pellucid.data.tokenizers import Tokenizer
from pellucid.decoding.base_transducer import BaseTransducer
from pellucid.decoding.preprocessing import tokenize_source
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import encode_json, finite_log_probability
from pellucid.errors import DataError, InputError, RunError
from pellucid.serving.schema import (
    OPERATIONS,
    AlignmentResult,
    AlignRequest,
    ClassResult,
    DecodingRequest,
    NBestList,
    NBestRequest,
    OperationName,
    PairRow,
    Prediction,
    PredictRequest,
    RowError,
    Score,
    ServiceError,
    SourceRow,
    TagResult,
)
from pellucid.worker_pool import WorkerChannel

if TYPE_CHECKING:
    from pellucid.decoding.predictor import Predictor

Row = SourceRow | PairRow
ROW_NUMBER = re.compile(r"\b(source|target|pair) 1\b")
"""Name of the only row in messages about it."""
NETWORK_OPERATIONS = ("score", "attention", "align")
"""Operations that need a trained network, also if a pair n-gram model ranks the outputs."""
NONEMPTY_SOURCE_OPERATIONS = ("score", "align", "classify")
"""Operations that have no result for an empty source."""


class OptionsError(InputError):
    """An option of a request that its model does not support."""


class OperationError(OptionsError):
    """An operation that its model does not support, because it needs the network before its first validation."""


@dataclass(frozen=True)
class LoadJob:
    """Job that loads a run folder, the first of a worker."""

    folder: Path
    threads: int
    max_symbols: int


class LoadedModel(NamedTuple):
    """A model that a worker has loaded."""

    task: str
    operations: list[OperationName]
    """Operations that it answers; before the first validation of its network, those of its pair n-gram model."""


@dataclass(frozen=True)
class BatchJob:
    """Job that decodes rows of one operation with one set of options."""

    operation: OperationName
    options: DecodingRequest
    """A request without rows: its options."""
    rows: Sequence[Row]
    numbers: Sequence[int]
    """Index of each row in its request, from 0."""


@dataclass
class ModelRunner:
    """Loaded model of a worker process, and the function that runs its jobs."""

    predictor: "Predictor | None" = None
    max_symbols: int = 0

    def __call__(self, job: LoadJob | BatchJob, channel: WorkerChannel) -> Any:  # noqa: ANN401 (differs by job)
        """Run a job: return the description of a loaded model, or the results of a batch as JSON.

        Args:
            job: Job.
            channel: Connection to the process of the server; unused.

        Raises:
            InputError: The run folder cannot be loaded.
            OptionsError: The model does not support the options of a batch.
        """
        if isinstance(job, LoadJob):
            return self._load(job)
        return self._run_batch(job)

    def _load(self, job: LoadJob) -> LoadedModel:
        """Load a run folder and the kernels. Signals that end the server do not end the worker."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        from pellucid.kernels.dispatch import load_enabled_kernels, will_compile
        from pellucid.model.device import use_threads
        from pellucid.run_folder.predictor_loader import load_without_warnings

        use_threads(job.threads)
        self.predictor, self.max_symbols = load_without_warnings(job.folder), job.max_symbols
        if not will_compile():
            load_enabled_kernels()
        self._warm_up()
        return LoadedModel(self.predictor.config.task, supported_operations(self.predictor))

    def _warm_up(self) -> None:
        """Decode one symbol of the vocabulary, so that the first request does not wait for compiled functions."""
        assert self.predictor is not None
        with suppress(InputError):
            self.predictor.predict(self.predictor.vocabularies.source.symbols[-1:])

    def _run_batch(self, job: BatchJob) -> list[bytes]:
        """Return the result of each row as JSON. Rows that are wrong by themselves are not decoded with the others."""
        assert self.predictor is not None, "the first job loads the model"
        predictor = apply_options(self.predictor, job.operation, job.options)
        errors = {index: error for index, row in enumerate(job.rows) if (error := self._row_error(job.operation, row))}
        good = [index for index in range(len(job.rows)) if index not in errors]
        rows, numbers = [job.rows[index] for index in good], [job.numbers[index] for index in good]
        results = dict(zip(good, _decode(predictor, replace(job, rows=rows, numbers=numbers)), strict=True))
        results |= {index: _encode_error(error, job.numbers[index]) for index, error in errors.items()}
        return [results[index] for index in range(len(job.rows))]

    def _row_error(self, operation: OperationName, row: Row) -> InputError | None:
        """Return why a row cannot be decoded, as far as this is known without the network; None if it can."""
        try:
            self._check_row(operation, row)
        except InputError as error:
            return error
        return None

    def _check_row(self, operation: OperationName, row: Row) -> None:
        """Raise `InputError` for a row that has too many symbols, or parts that the model does not support."""
        assert self.predictor is not None
        tokenizers, config = self.predictor.tokenizers, self.predictor.config.data
        num_symbols = self._check_length("source", row.source, tokenizers.source)
        if not num_symbols and operation in NONEMPTY_SOURCE_OPERATIONS:
            raise DataError("source: expected at least one symbol, got an empty source; give a text")
        tokenize_source(Example(row.source, "", row.features), 1, tokenizers, config)
        if isinstance(row, SourceRow):
            if row.prefix and not self.predictor.autoregressive:
                raise self.predictor.unsupported_error("prefix")
            self._check_length("prefix", row.prefix, tokenizers.target)
            return
        self._check_length("target", row.target, tokenizers.target)
        if not self.predictor.autoregressive and (reason := pair_error(row.source, row.target, tokenizers, config)):
            raise DataError(reason)

    def _check_length(self, name: str, text: str, tokenizer: Tokenizer) -> int:
        """Return the number of symbols of a text; `DataError` if there are too many."""
        length = tokenizer.count(text)
        if length > self.max_symbols:
            limit = f"expected at most {self.max_symbols:,} symbols"
            raise DataError(f"{name}: {limit}, got {length:,}; divide the row")
        return length


def _decode(predictor: "Predictor", job: BatchJob) -> list[bytes]:
    """Return the result of each row as JSON. Rows with a bad one among them are halved until it is alone."""
    if not job.rows:
        return []
    try:
        return [encode_json(result) for result in decode_rows(predictor, job.operation, job.options, job.rows)]
    except InputError as error:
        if len(job.rows) == 1:
            return [_encode_error(error, job.numbers[0])]
    middle = len(job.rows) // 2
    halves = (slice(middle), slice(middle, None))
    parts = [replace(job, rows=job.rows[half], numbers=job.numbers[half]) for half in halves]
    return [result for part in parts for result in _decode(predictor, part)]


def _encode_error(error: InputError, number: int) -> bytes:
    """Return the error of a row as JSON."""
    message = f"rows[{number}]: {ROW_NUMBER.sub(_name_row, str(error))}"
    return encode_json(RowError(error=ServiceError(status=422, code="invalid_row", message=message)))


def _name_row(match: re.Match[str]) -> str:
    """Return the name of the only row in a message."""
    return f"the {match[1]}"


def supported_operations(predictor: "Predictor") -> list[OperationName]:
    """Return the operations that a model answers.

    Args:
        predictor: Model.
    """
    names: list[OperationName] = [
        name for name, operation in OPERATIONS.items() if operation.task in (None, predictor.config.task)
    ]
    return [name for name in names if _network_error(predictor, name) is None]


def _network_error(predictor: "Predictor", operation: OperationName) -> RunError | None:
    """Return why an operation that needs a trained network has no result yet; None if it has."""
    if operation in NETWORK_OPERATIONS and isinstance(predictor, BaseTransducer):
        try:
            predictor.require_trained_network()
        except RunError as error:
            return error
    return None


def apply_options(predictor: "Predictor", operation: OperationName, options: DecodingRequest) -> "Predictor":
    """Return the predictor with the options of a request.

    Args:
        predictor: Model.
        operation: Operation.
        options: Request that holds the options.

    Raises:
        OptionsError: The model does not support an option.
        OperationError: The operation needs a network whose training has not reached its first validation.
    """
    name: str = operation
    if (reason := _network_error(predictor, operation)) is not None:
        raise OperationError(f"{operation}: {reason}") from reason
    try:
        if isinstance(options, PredictRequest | NBestRequest) and options.beam_size is not None:
            name = "beam_size"
            predictor = predictor.with_beam(options.beam_size)
        if isinstance(options, NBestRequest):
            name = "count"
            predictor.check_search(options.count, has_example_prefixes=False)
        if operation == "align":
            predictor.check_alignment()
    except InputError as error:
        raise OptionsError(f"{name}: {str(error).removeprefix(f'{name}: ')}") from error
    return predictor


def decode_rows(
    predictor: "Predictor", operation: OperationName, options: DecodingRequest, rows: Sequence[Row]
) -> list[msgspec.Struct]:
    """Return the results of rows in order, as `pellucid predict`, `score` and `align` compute them.

    Args:
        predictor: Model with the options (`apply_options`).
        operation: Operation.
        options: Request that holds the options.
        rows: Rows; those with a prefix are decoded apart from the others.

    Raises:
        InputError: The model cannot decode a row.
    """
    examples = [Example(row.source, row.target if isinstance(row, PairRow) else "", row.features) for row in rows]
    match operation, options:
        case "score", _:
            return [_score(trace) for trace in predictor.score_examples(examples)]
        case "align", AlignRequest():
            return _align(predictor, examples, options)
        case "nbest", NBestRequest(count=count):
            return [
                NBestList(outputs=[_prediction(trace) for trace in outputs])
                for outputs in _search(predictor, rows, examples, count)
            ]
        case "classify", _:
            return [_class_result(traces[0]) for traces in _search(predictor, rows, examples, 1)]
    converters: dict[str, Callable[[Trace], msgspec.Struct]] = {
        "predict": _prediction,
        "attention": lambda trace: trace.to_record(),
        "tag": _tag_result,
    }
    convert = converters[operation]
    return [convert(traces[0]) for traces in _search(predictor, rows, examples, None)]


def _search(
    predictor: "Predictor", rows: Sequence[Row], examples: Sequence[Example], count: int | None
) -> list[list[Trace]]:
    """Return the best outputs of each row; None for the one output of `Predictor.predict_examples`."""
    outputs = dict[int, list[Trace]]()
    prefixes = [row.prefix if isinstance(row, SourceRow) else "" for row in rows]
    for has_prefix in (False, True):
        indices = [index for index, prefix in enumerate(prefixes) if bool(prefix) is has_prefix]
        if indices:
            group = [examples[index] for index in indices]
            given = [prefixes[index] for index in indices] if has_prefix else None
            if count is None:
                decoded = [[trace] for trace in predictor.predict_examples(group, given)]
            else:
                decoded = list(predictor.nbest_examples(group, count, prefixes=given))
            outputs |= zip(indices, decoded, strict=True)
    return [outputs[index] for index in range(len(rows))]


def _prediction(trace: Trace) -> Prediction:
    """Return an output."""
    return Prediction(
        output=trace.output,
        score=finite_log_probability(trace.score) if trace.has_trained_network else None,
        finished=trace.finished,
        nbest_probability=trace.nbest_probability,
        confidence=trace.confidence,
    )


def _score(trace: Trace) -> Score:
    """Return the score of a target."""
    return Score(
        score=finite_log_probability(trace.score),
        symbols=list(trace.target),
        log_probabilities=[finite_log_probability(value) for value in trace.log_probabilities.tolist()],
        unknown_target=list(trace.unknown_target),
    )


def _align(predictor: "Predictor", examples: Sequence[Example], options: AlignRequest) -> list[msgspec.Struct]:
    """Return the alignments of pairs."""
    limits = ChunkLimits(options.max_source, options.max_target, options.insertions, options.deletions)
    results = list[msgspec.Struct]()
    for example, alignment in zip(examples, predictor.align(examples, limits), strict=True):
        sides = [predictor.tokenizers.source.split(example.source), predictor.tokenizers.target.split(example.target)]
        source, target = sides if alignment is None else (alignment.source, alignment.target)
        chunks = None if alignment is None else [(*chunk,) for chunk in alignment.chunks]
        score = None if alignment is None else alignment.score
        results.append(AlignmentResult(source=list(source), target=list(target), chunks=chunks, score=score))
    return results


def _tag_result(trace: Trace) -> TagResult:
    """Return the tags of a source."""
    return TagResult(
        symbols=list(trace.source[trace.num_features :]),
        tags=list(trace.target),
        probabilities=[math.exp(value) for value in trace.log_probabilities.tolist()],
    )


def _class_result(trace: Trace) -> ClassResult:
    """Return the class of a source."""
    top = zip(trace.top_symbols[0], trace.top_log_probabilities[0].tolist(), strict=True)
    return ClassResult(
        label=trace.output,
        probability=trace.probability,
        top=[(symbol, math.exp(value)) for symbol, value in top],
    )
