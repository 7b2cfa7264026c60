"""Measure one case in this process: time, memory and lower bound of a step, or the stages of a training.

Measurements use the training loop and the decoding of the package, in the steady state. Each measurement runs in a
separate process, so peak memory and first call belong to it alone.

A profile uses hooks on the network's modules and on the gradients between them, which switch a clock from stage to
stage. The stages of an update follow each other without a gap, and their shares sum to one. Reading, encoding, and
writing, checking and mapping the corpus are measured on the same pairs, for a training that sees each pair once. Work
of other threads counts for the current stage: batches prepared by a prefetching thread count as waiting.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from numpy import ndarray
from torch import Tensor

from pellucid.bench.cases import BATCHES_PER_CALL, NUM_BATCHES, BenchRequest, batches_per_call, bench_config
from pellucid.bench.machine import peak_memory_mib
from pellucid.bench.machine_rates import measure_rates
from pellucid.bench.results import (
    NUM_WARMUP_STEPS,
    BenchResult,
    ClockReading,
    FirstCall,
    StageTime,
    StartupTime,
    StepTiming,
    read_clocks,
    time_steps,
)
from pellucid.bench.roofline import MILLI, StepShape, compute_floor, search_work, training_work
from pellucid.data.batch_loaders import LoadedBatch
from pellucid.data.corpus import EncodedCorpus, ReadingReport, map_corpus, write_corpus
from pellucid.data.encoding import EncodedExamples, encode_examples
from pellucid.data.examples import Example, read_examples
from pellucid.data.synthetic import spelled_digits, write_pairs
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import Vocabularies, learn_vocabularies
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.transducer import Transducer
from pellucid.kernels.compilation import cache_folder
from pellucid.kernels.dispatch import disable_kernels
from pellucid.kernels.kernel_loader import load_kernels
from pellucid.model.cells import CELLS
from pellucid.model.device import use_threads
from pellucid.model.memory import DecoderCache, Memory
from pellucid.model.network import parameter_count, require_encoder_decoder
from pellucid.tasks.registry import build_network
from pellucid.training.events import UpdateCompleted
from pellucid.training.loop import fit
from pellucid.training.optimizer import build_optimizer
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingFiles
from pellucid.training.training_state import TrainingState

STARTUP_PAIRS, STARTUP_VALIDATION_PAIRS = 2_000, 100
"""Number of training and of validation pairs for the startup measurement."""


class _TimedSteps(NamedTuple):
    """A step to time, with its model and data."""

    step: Callable[[], object]
    predictor: Predictor
    examples: EncodedExamples
    mean_target_length: Callable[[], float]
    """Function that returns T, which is known after a step."""


def measure_case(request: BenchRequest) -> BenchResult:
    """Measure the time, the peak memory and the lower bound of a step in this process.

    The number of threads is set for the whole process.

    Args:
        request: The measurement.

    Returns:
        The result, without the time to the first update (None).
    """
    use_threads(request.threads)
    with disable_kernels() if request.plain else nullcontext():
        num_cached = _count_cached_kernels()
        steps = _training_steps(request) if request.task == "train" else _decoding_steps(request)
        timing = time_steps(
            steps.step, request.seconds, request.repeats, NUM_WARMUP_STEPS if request.task == "train" else 1
        )
    peak = peak_memory_mib()
    first_call: FirstCall = "loaded" if _count_cached_kernels() == num_cached else "compiled"
    return _build_result(
        request,
        _step_shape(request, steps),
        timing,
        peak,
        "plain" if request.plain or not load_kernels() else first_call,
    )


def _count_cached_kernels() -> int:
    """Return the number of compiled functions on disk.

    Without a cache every kernel is compiled anew, so that the number differs at each call.
    """
    folder = cache_folder()
    return time.monotonic_ns() if folder is None else sum(1 for _ in folder.rglob("*.nbc"))


def measure_startup(request: BenchRequest, started: float) -> StartupTime:
    """Measure the time from the start of this process to the first update of a training from files.

    Imports, reading, vocabularies, network and kernels are included, as in `pellucid train`; generating the files is
    not. The files are temporary.

    Args:
        request: The measurement.
        started: Start of the process by `time.time()`, in seconds since 1970.

    Returns:
        Wall and CPU time.
    """
    with tempfile.TemporaryDirectory() as folder, disable_kernels() if request.plain else nullcontext():
        before = ClockReading(time.time(), time.process_time())
        examples = bench_examples(request, STARTUP_PAIRS + STARTUP_VALIDATION_PAIRS)
        train, valid = Path(folder) / "train.tsv", Path(folder) / "dev.tsv"
        write_pairs(train, examples[:STARTUP_PAIRS])
        write_pairs(valid, examples[STARTUP_PAIRS:])
        generation = ClockReading(time.time(), time.process_time()).since(before)
        with closing(train_run(TrainingFiles(train, valid), Path(folder) / "run", bench_config(request))) as events:
            next(event for event in events if isinstance(event, UpdateCompleted))
            return StartupTime(time.time() - started - generation.wall, time.process_time() - generation.cpu)


def bench_examples(request: BenchRequest, count: int) -> list[Example]:
    """Return random pairs of digits spelled in words (source) and the digits (target), with a fixed seed.

    Args:
        request: The measurement, for the number of digits of each pair.
        count: Number of pairs.
    """
    return spelled_digits(count, request.digits, request.digits, seed=1)


def encode_bench_examples(request: BenchRequest, examples: Sequence[Example]) -> tuple[Vocabularies, EncodedExamples]:
    """Return vocabularies learned from examples, and the examples as ids.

    Args:
        request: The measurement, for its data settings.
        examples: The examples.
    """
    data = bench_config(request).data
    vocabularies = learn_vocabularies(examples, build_tokenizers(data), data.min_count)
    return vocabularies, encode_examples(examples, build_tokenizers(data), vocabularies)


def build_training_state(
    request: BenchRequest, vocabularies: Vocabularies, encoded: EncodedExamples, examples: Sequence[Example]
) -> TrainingState:
    """Return the state of a new training with a new network.

    Args:
        request: The measurement.
        vocabularies: Vocabularies of the training set.
        encoded: Training set as ids.
        examples: Training set; its first example is the validation set.
    """
    config = bench_config(request)
    transducer = Transducer(config, vocabularies, build_network(config, vocabularies))
    optimizer = build_optimizer(transducer.network, config.training)
    return TrainingState(transducer, optimizer, encoded, examples[:1])


def iterate_updates(state: TrainingState) -> Iterator[UpdateCompleted]:
    """Return an iterator that does one update of a training at each step.

    Args:
        state: State of the training, which is changed.

    Yields:
        Each completed update; other events of the training are left out.
    """
    return (event for event in fit(state) if isinstance(event, UpdateCompleted))


def _training_steps(request: BenchRequest) -> _TimedSteps:
    """Return updates, one per call."""
    examples = bench_examples(request, NUM_BATCHES * request.case.batch)
    state = build_training_state(request, *encode_bench_examples(request, examples), examples)
    events = iterate_updates(state)
    target_length = state.encoded_training_examples.target.lengths.mean()
    return _TimedSteps(
        lambda: next(events), state.predictor, state.encoded_training_examples, lambda: float(target_length)
    )


def _decoding_steps(request: BenchRequest) -> _TimedSteps:
    """Return calls that decode a few batches each, never the same ones twice in a row."""
    count = BATCHES_PER_CALL * request.case.batch
    examples = bench_examples(request, 4 * count)
    state = build_training_state(request, *encode_bench_examples(request, examples), examples)
    calls = itertools.cycle([examples[first : first + count] for first in range(0, len(examples), count)])
    target_length: list[float] = [0.0]

    def decode() -> None:
        if not request.plain:
            load_kernels()  # which decoding of a few batches alone would not do
        traces = state.predictor.predict_examples(next(calls))
        target_length[0] = sum(len(trace.target) for trace in traces) / len(traces)

    return _TimedSteps(decode, state.predictor, state.encoded_training_examples, lambda: target_length[0])


def _step_shape(request: BenchRequest, steps: _TimedSteps) -> StepShape:
    """Return the sizes of a mean batch."""
    config, vocabularies = steps.predictor.config, steps.predictor.vocabularies
    return StepShape(
        rows=request.case.batch,
        positions=request.case.batch * float(steps.examples.source.lengths.mean()),
        steps=steps.mean_target_length(),
        embedding=config.encoder.embedding_size,
        hidden=config.decoder.hidden_size,
        direction=config.encoder.hidden_size,
        units=config.attention.size,
        gates=len(CELLS[request.cell].gates),
        states=1 + CELLS[request.cell].has_cell_state,
        source_symbols=len(vocabularies.source),
        target_symbols=len(vocabularies.target),
        parameters=parameter_count(steps.predictor.network),
        beam=config.search.beam_size,
    )


def _build_result(
    request: BenchRequest, shape: StepShape, timing: StepTiming, peak: float, first_call: FirstCall
) -> BenchResult:
    """Return times, memory and lower bound of a measurement."""
    work = training_work(shape) if request.task == "train" else search_work(shape)
    rates = measure_rates(shape, request.seconds, request.precision)
    floor = compute_floor(work, rates)
    batches = batches_per_call(request.task)
    samples = batches * shape.rows
    return BenchResult(
        task=request.task,
        case=request.name,
        cell=request.cell,
        threads=request.threads,
        plain=request.plain,
        precision=request.precision,
        samples_per_cpu_second=samples / timing.cpu,
        samples_per_second=samples / timing.wall,
        tokens_per_second=samples * shape.steps / timing.wall,
        peak_mib=peak,
        floor_ratio=MILLI * timing.cpu / batches / floor.total_ms,
        floor_ms=floor.total_ms,
        step_ms=MILLI * timing.wall / batches,
        step_cpu_ms=MILLI * timing.cpu / batches,
        fastest_cpu_ms=MILLI * timing.fastest / batches,
        slowest_cpu_ms=MILLI * timing.slowest / batches,
        steps=timing.steps * batches,
        first_call_seconds=max(0.0, timing.first - timing.wall),
        first_call=first_call,
        start_seconds=None,
        start_cpu_seconds=None,
        operations=work.operations,
        floor=floor,
        rates=rates,
        shape=shape,
    )


READING, ENCODING, CORPUS, BATCHING, WAITING = "reading", "encoding", "corpus", "batching", "waiting"
ENCODER, KEYS, DECODER, HEAD = "encoder forward", "attention keys", "decoder forward", "head and loss"
DECODER_BACKWARD, ENCODER_BACKWARD, UPDATE, OTHER = "decoder backward", "encoder backward", "clip and update", "other"
CORPUS_STAGES = (READING, ENCODING, CORPUS)
"""Stages before the first update."""
STAGES = (
    *CORPUS_STAGES,
    BATCHING,
    WAITING,
    ENCODER,
    KEYS,
    DECODER,
    HEAD,
    DECODER_BACKWARD,
    ENCODER_BACKWARD,
    UPDATE,
    OTHER,
)
"""Stages in the order of an update; the stages of keys and head include their backward pass."""

Result = TypeVar("Result")


class StageClock:
    """Clock that adds up the time spent in each stage of a training; exactly one stage is current at any time."""

    def __init__(self) -> None:
        """Start with the stage "other"."""
        self.restart()

    def restart(self) -> None:
        """Set all times to zero, and make "other" the current stage."""
        self.spent = dict.fromkeys(STAGES, ClockReading(0.0, 0.0))
        self.stage, self.since = OTHER, read_clocks()

    def enter(self, stage: str) -> None:
        """Make a stage the current one: time from now on counts for it.

        Args:
            stage: Stage that starts now.
        """
        now = read_clocks()
        elapsed, before = now.since(self.since), self.spent[self.stage]
        self.spent[self.stage] = ClockReading(before.wall + elapsed.wall, before.cpu + elapsed.cpu)
        self.stage, self.since = stage, now

    def time_function(self, stage: str, after: str, function: Callable[..., Result]) -> Callable[..., Result]:
        """Return a function that does the same, enters one stage when it is called and another when it returns.

        Args:
            stage: Stage during the call.
            after: Stage after the call, also after an exception.
            function: Function to wrap.
        """

        def timed(*arguments: Any) -> Result:  # noqa: ANN401
            self.enter(stage)
            try:
                return function(*arguments)
            finally:
                self.enter(after)

        return timed


def profile_training(request: BenchRequest) -> list[StageTime]:
    """Read and encode a temporary file of pairs, train for the requested time, and measure the time of every stage.

    Args:
        request: The measurement; its task and its repeats are not used.

    Returns:
        The time of each stage per batch, in the order of `STAGES`.
    """
    use_threads(request.threads)
    with tempfile.TemporaryDirectory() as folder, disable_kernels() if request.plain else nullcontext():
        path, pairs = Path(folder) / "train.tsv", bench_examples(request, NUM_BATCHES * request.case.batch)
        write_pairs(path, pairs)
        _map_corpus(
            Path(folder), *encode_bench_examples(request, pairs[:1])
        )  # modules are imported before the time is measured
        clock = StageClock()
        clock.enter(READING)
        examples = read_examples(path, bench_config(request).data).examples
        clock.enter(ENCODING)
        vocabularies, encoded = encode_bench_examples(request, examples)
        clock.enter(CORPUS)
        encoded = _map_corpus(Path(folder), vocabularies, encoded)
        clock.enter(OTHER)
        state = build_training_state(request, vocabularies, encoded, examples)
        corpus_times = {stage: (clock.spent[stage], NUM_BATCHES) for stage in CORPUS_STAGES}
        update_times, num_updates = _time_stages(state, request.seconds)
    return stage_shares({stage: (reading, num_updates) for stage, reading in update_times.items()} | corpus_times)


def _map_corpus(folder: Path, vocabularies: Vocabularies, encoded: EncodedExamples) -> EncodedExamples:
    """Write the examples as a corpus file and map it."""
    write_corpus(folder / "corpus.arrow", EncodedCorpus("", ReadingReport((), 0, 0), vocabularies, encoded))
    return map_corpus(folder / "corpus.arrow", "", has_features=False).encoded


def _time_stages(state: TrainingState, seconds: float) -> tuple[dict[str, ClockReading], int]:
    """Return the time of each stage over some updates, and their number."""
    clock, num_updates = StageClock(), 0
    attach_clock(state, clock)
    events = iterate_updates(state)
    for _ in range(NUM_WARMUP_STEPS):
        next(events)
    clock.restart()
    started = time.perf_counter()
    while not num_updates or time.perf_counter() - started < seconds:
        next(events)
        clock.enter(OTHER)
        num_updates += 1
    return clock.spent, num_updates


def attach_clock(state: TrainingState, clock: StageClock) -> None:
    """Attach hooks to a new training, which switch a clock between the stages of an update.

    In the forward pass the clock switches before and after modules and functions. In the backward pass it switches
    when a gradient is complete: of the head's inputs (the decoder starts), of the keys (after the decoder), of the
    memory (the encoder starts). The update starts when all gradients are complete.

    Args:
        state: State of a new training; its methods are replaced.
        clock: Clock that the hooks switch.
    """
    _attach_loader(state, clock)
    network = require_encoder_decoder(state.predictor.network)
    encoder, decoder = network.encoder, network.decoder
    encoder.register_forward_pre_hook(lambda module, inputs: clock.enter(ENCODER))
    encoder.register_forward_hook(lambda module, inputs, memory: _leave_encoder(clock, memory.states))
    build_cache = clock.time_function(KEYS, DECODER, decoder.build_cache)

    def _build_cache(memory: Memory) -> DecoderCache:
        cache = build_cache(memory)
        _on_gradient(cache.keys, lambda: clock.enter(KEYS))
        return cache

    setattr(decoder, "build_cache", _build_cache)  # noqa: B010 (replaces the method of this object only)
    decoder.head.register_forward_pre_hook(lambda module, inputs: _enter_head(clock, inputs))
    setattr(state.optimizer, "update", clock.time_function(UPDATE, OTHER, state.optimizer.update))  # noqa: B010


def _attach_loader(state: TrainingState, clock: StageClock) -> None:
    """Attribute planning and collating of batches to their stage, unless another thread does it."""
    if not state.prefetch:
        for name in ("plan_batches", "load_batch"):
            setattr(state, name, clock.time_function(BATCHING, WAITING, getattr(state, name)))
    build_loader = state.batch_loader

    def _time_batches(plan: list[ndarray]) -> Generator[LoadedBatch]:
        with closing(build_loader(plan)) as loader:
            load_next = clock.time_function(WAITING, OTHER, lambda: next(loader, None))
            while (batch := load_next()) is not None:
                yield batch

    setattr(state, "batch_loader", _time_batches)  # noqa: B010 (replaces the method of this object only)


def _leave_encoder(clock: StageClock, states: Tensor) -> None:
    """Start the decoder; in the backward pass the encoder starts when the gradient of its states is complete."""
    clock.enter(DECODER)
    _on_gradient(states, lambda: clock.enter(ENCODER_BACKWARD))


def _enter_head(clock: StageClock, inputs: tuple[Tensor, ...]) -> None:
    """Start the head; in the backward pass the head ends when the gradients of its inputs are complete."""
    clock.enter(HEAD)
    for tensor in inputs:
        _on_gradient(tensor, lambda: clock.enter(DECODER_BACKWARD))


def _on_gradient(tensor: Tensor, callback: Callable[[], None]) -> None:
    """Call a function when the gradient of a tensor is complete."""
    if tensor.requires_grad:
        tensor.register_hook(lambda gradient: callback())  # type: ignore[no-untyped-call]


def stage_shares(times: Mapping[str, tuple[ClockReading, int]]) -> list[StageTime]:
    """Return the time of each stage per batch and its share of the sum over all stages, in the order of `STAGES`.

    Args:
        times: For each stage in `STAGES`, its time and the number of batches in that time.
    """
    per_batch = {
        stage: ClockReading(reading.wall / batches, reading.cpu / batches)
        for stage, (reading, batches) in times.items()
    }
    wall, cpu = (sum(getattr(reading, clock) for reading in per_batch.values()) for clock in ("wall", "cpu"))
    return [
        StageTime(stage, MILLI * reading.wall, MILLI * reading.cpu, reading.wall / wall, reading.cpu / cpu)
        for stage, reading in ((stage, per_batch[stage]) for stage in STAGES)
    ]
