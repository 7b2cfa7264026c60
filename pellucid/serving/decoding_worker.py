"""The worker process of a model: it loads the run folder and decodes batches of rows.

Results leave the process as JSON, one text per row, so that the process of the server encodes nothing. A row that
cannot be decoded has an error in place of its result: its batch is halved until the row is alone, so that one bad row
costs the others a few further batches.
"""

import math
import re
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pellucid.alignment.types import ChunkLimits
from pellucid.data.examples import Example
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import encode_json, finite_log_probability
from pellucid.errors import DataError, InputError
from pellucid.serving.schema import (
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
SOURCE_NUMBER = re.compile(r"\bsource 1\b")
"""Name of the only source in messages about it."""


@dataclass(frozen=True)
class LoadJob:
    """Job that loads a run folder, the first of a worker."""

    folder: Path
    threads: int
    max_symbols: int


@dataclass(frozen=True)
class BatchJob:
    """Job that decodes rows of one operation with one set of options."""

    operation: OperationName
    options: DecodingRequest
    """A request without rows: its options."""
    rows: Sequence[Row]
    numbers: Sequence[int]
    """Number of each row in its request, from 0."""


@dataclass
class WorkerState:
    """State of a worker process, and the function that runs its jobs."""

    predictor: "Predictor | None" = None
    max_symbols: int = 0

    def __call__(self, job: LoadJob | BatchJob, channel: WorkerChannel) -> Any:  # noqa: ANN401 (differs by job)
        """Run a job: return the task of a loaded model, or the results of a batch as JSON.

        Args:
            job: Job.
            channel: Connection to the process of the server; unused.

        Raises:
            InputError: The run folder cannot be loaded.
        """
        if isinstance(job, LoadJob):
            return self._load(job)
        return self._decode(job)

    def _load(self, job: LoadJob) -> str:
        """Load a run folder and the kernels, and return the task. Signals that end the server do not end the worker."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        from pellucid.kernels.dispatch import will_compile
        from pellucid.kernels.kernel_loader import load_kernels
        from pellucid.model.device import use_threads
        from pellucid.run_folder.predictor_loader import load_unwarned

        use_threads(job.threads)
        self.predictor, self.max_symbols = load_unwarned(job.folder), job.max_symbols
        if not will_compile():
            load_kernels()
        self._warm_up()
        return self.predictor.config.task

    def _warm_up(self) -> None:
        """Decode the first symbol of the vocabulary, so that the first request does not wait for compiled functions."""
        assert self.predictor is not None
        with suppress(InputError):
            self.predictor.predict(self.predictor.vocabularies.source.symbols[-1:])

    def _decode(self, job: BatchJob) -> list[bytes]:
        """Return the result of each row as JSON. Rows with a bad one among them are halved until it is alone."""
        try:
            return self._decode_rows(job, job.rows)
        except InputError as error:
            if len(job.rows) == 1:
                return [_row_error(error, job.numbers[0])]
        middle = len(job.rows) // 2
        halves = (slice(middle), slice(middle, None))
        parts = [replace(job, rows=job.rows[half], numbers=job.numbers[half]) for half in halves]
        return [result for part in parts for result in self._decode(part)]

    def _decode_rows(self, job: BatchJob, rows: Sequence[Row]) -> list[bytes]:
        """Return the results of rows; `InputError` if one of them cannot be decoded."""
        assert self.predictor is not None, "the first job loads the model"
        for row in rows:
            self._check_length(row)
        results = decode_rows(self.predictor, job.operation, job.options, rows)
        return [encode_json(result) for result in results]

    def _check_length(self, row: Row) -> None:
        """Raise `DataError` if the source or the target of a row has too many symbols."""
        assert self.predictor is not None
        tokenizers = self.predictor.tokenizers
        sides = {"source": (row.source, tokenizers.source)}
        if isinstance(row, PairRow):
            sides["target"] = (row.target, tokenizers.target)
        for name, (text, tokenizer) in sides.items():
            if len(text) > self.max_symbols and (length := len(tokenizer.split(text))) > self.max_symbols:
                limit = f"expected at most {self.max_symbols:,} symbols"
                raise DataError(f"{name}: {limit}, got {length:,}; divide the row")


def _row_error(error: InputError, number: int) -> bytes:
    """Return the error of a row as JSON."""
    message = f"rows[{number}]: {SOURCE_NUMBER.sub('the source', str(error))}"
    return encode_json(RowError(error=ServiceError(status=422, code="invalid_row", message=message)))


def decode_rows(
    predictor: "Predictor", operation: OperationName, options: DecodingRequest, rows: Sequence[Row]
) -> list[msgspec.Struct]:
    """Return the results of rows in order, as `pellucid predict`, `score` and `align` compute them.

    Args:
        predictor: Model.
        operation: Operation.
        options: Request that holds the options.
        rows: Rows; those with a prefix are decoded apart from the others.

    Raises:
        InputError: The model does not support an option, or cannot decode a row.
    """
    if isinstance(options, PredictRequest | NBestRequest) and options.beam_size is not None:
        predictor = predictor.with_beam(options.beam_size)
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
        score=finite_log_probability(trace.score),
        finished=trace.finished,
        probability=trace.probability,
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
        symbols=list(trace.source[trace.features :]),
        tags=list(trace.target),
        probabilities=[math.exp(value) for value in trace.log_probabilities.tolist()],
    )


def _class_result(trace: Trace) -> ClassResult:
    """Return the class of a source; an empty source has none."""
    if not trace.target:
        raise DataError("source: expected at least one symbol, got an empty source; give a text")
    top = zip(trace.top_symbols[0], trace.top_log_probabilities[0].tolist(), strict=True)
    return ClassResult(
        label=trace.output,
        probability=math.exp(trace.score),
        top=[(symbol, math.exp(value)) for symbol, value in top],
    )
