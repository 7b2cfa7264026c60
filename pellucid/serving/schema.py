"""Requests and responses of the service as structs. The OpenAPI document is generated from them."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pellucid.decoding.trace_schema import TraceRecord
from pellucid.serving.options import MAX_OUTPUTS

OperationName = Literal["predict", "nbest", "score", "attention", "align", "tag", "classify"]
NumOutputs = Annotated[int, Meta(ge=1, le=MAX_OUTPUTS)]
ChunkSize = Annotated[int, Meta(ge=1, le=16)]


class RequestStruct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all requests: unknown fields are refused."""


class SourceRow(RequestStruct, frozen=True):
    """A source to decode."""

    source: str
    features: str = ""
    """Features as in the training file; for models that read features."""
    prefix: str = ""
    """Text with which the output must begin; for sequences only."""


class PairRow(RequestStruct, frozen=True):
    """A source with a given target."""

    source: str
    target: str
    features: str = ""


class PredictRequest(RequestStruct, frozen=True):
    """Sources to decode, one output each."""

    rows: Annotated[list[SourceRow], Meta(min_length=1)]
    model: str = ""
    """Name of a model; the first model by default."""
    beam_size: NumOutputs | None = None
    """Beam size; that of the run by default."""


class NBestRequest(RequestStruct, frozen=True):
    """Sources to decode, several outputs each."""

    rows: Annotated[list[SourceRow], Meta(min_length=1)]
    model: str = ""
    count: NumOutputs = 5
    """Maximum number of outputs of a source."""
    beam_size: NumOutputs | None = None


class ScoreRequest(RequestStruct, frozen=True):
    """Pairs whose targets are scored."""

    rows: Annotated[list[PairRow], Meta(min_length=1)]
    model: str = ""


class AlignRequest(RequestStruct, frozen=True):
    """Pairs whose symbols are aligned by the attention of the model, with limits of the chunks."""

    rows: Annotated[list[PairRow], Meta(min_length=1)]
    model: str = ""
    max_source: ChunkSize = 2
    """Maximum number of source symbols of a chunk."""
    max_target: ChunkSize = 2
    """Maximum number of target symbols of a chunk."""
    insertions: bool = True
    """Whether chunks without source symbols are allowed."""
    deletions: bool = True
    """Whether chunks without target symbols are allowed."""


DecodingRequest = PredictRequest | NBestRequest | ScoreRequest | AlignRequest


class ServiceError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error of a request or of one row."""

    status: int
    """HTTP status; of a row, the status of a request with this row alone."""
    code: str
    """Error code, such as "invalid_request"."""
    message: str
    request_id: str = ""


class ErrorResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An error of a request."""

    error: ServiceError


class RowError(msgspec.Struct, frozen=True, kw_only=True):
    """An error of one row; the other rows have results."""

    error: ServiceError


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """An output, with the log-probability that the network gives to it."""

    output: str
    score: float | None
    """Log-probability of the output by the network; null before the first validation of its training, when the pair
    n-gram model ranks the outputs alone."""
    finished: bool
    """False if the output was cut at the maximum length."""
    nbest_probability: float | None = None
    """Probability of the output, renormalized over the n-best list."""
    confidence: float | None = None
    """Estimated probability that the output is correct, if the run has a fitted confidence."""


class NBestList(msgspec.Struct, frozen=True, kw_only=True):
    """Outputs of a source, the best first."""

    outputs: list[Prediction]


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Log-probability of a given target."""

    score: float
    """Log-probability of the whole target."""
    symbols: list[str]
    """Target symbols, with the end symbol."""
    log_probabilities: list[float]
    """Log-probability of each symbol; -1e9 stands for −∞."""
    unknown_target: list[int]
    """Positions of target symbols that the model cannot write."""


class AlignmentResult(msgspec.Struct, frozen=True, kw_only=True):
    """Alignment of a pair; without chunks if no alignment is within the limits."""

    source: list[str]
    target: list[str]
    chunks: list[tuple[int, int, int, int]] | None
    """Source start and stop, target start and stop of each chunk, from 0."""
    score: float | None
    """Score of the alignment (alignment/attention_path.py); null without one."""


class TagResult(msgspec.Struct, frozen=True, kw_only=True):
    """The tag of each source symbol."""

    symbols: list[str]
    tags: list[str]
    probabilities: list[float]


class ClassResult(msgspec.Struct, frozen=True, kw_only=True):
    """The class of a source, and the most probable classes."""

    label: str
    probability: float
    top: list[tuple[str, float]]
    """Most probable classes with their probabilities, in descending order."""


class Operation(msgspec.Struct, frozen=True):
    """An operation of the service: its request, and the result of each row."""

    summary: str
    request: type[msgspec.Struct]
    result: type[msgspec.Struct]
    task: str | None = None
    """Task whose models support the operation; None for all tasks."""


OPERATIONS: dict[OperationName, Operation] = {
    "predict": Operation("Decode sources, one output each", PredictRequest, Prediction),
    "nbest": Operation("Decode sources, the best outputs of each", NBestRequest, NBestList),
    "score": Operation("Compute the log-probabilities of given targets", ScoreRequest, Score),
    "attention": Operation("Decode sources; return traces with attention weights", PredictRequest, TraceRecord),
    "align": Operation("Align source and target symbols by attention", AlignRequest, AlignmentResult, "transduce"),
    "tag": Operation("Predict a tag of each source symbol", PredictRequest, TagResult, "tag"),
    "classify": Operation("Predict the class of each source", PredictRequest, ClassResult, "classify"),
}


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the service."""

    name: str
    task: str
    operations: list[OperationName]
    """Operations that the model answers; more of them after the first validation of its network."""
    ready: bool
    """Whether a worker process answers now."""
    loaded_at: str
    """Time at which the model was loaded, in UTC; empty before."""
    reload_error: str
    """Why a change of the run folder could not be loaded; the earlier model answers. Empty without an error."""


class ModelsResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The models of the service, the default one first."""

    models: list[ModelInfo]


class HealthResponse(msgspec.Struct, frozen=True, kw_only=True):
    """State of the service."""

    status: Literal["ok", "starting", "stopping"]
