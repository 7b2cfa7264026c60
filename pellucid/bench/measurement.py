"""Measure one case in this process: time, memory and lower bound of a step, or the stages of a training.

The real training loop and the real decoding are measured in the steady state. A measurement runs in a process of its
own, so that peak memory and first call are its own.

A profile estimates nothing: hooks on the network's parts and on the gradients between them switch a clock, so the
stages of an update follow each other without a gap and their shares sum to one. Reading, encoding, and writing,
checking and mapping the corpus are measured on the same pairs, for a training that sees each pair once. Work of other
threads counts for the current stage: batches prepared ahead count as waiting.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from numpy import ndarray
from torch import Tensor

from pellucid.bench.cases import BATCHES_PER_CALL, NUM_BATCHES, BenchRequest, batches_per_call, bench_config
from pellucid.bench.machine import peak_memory_mib
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
from pellucid.bench.roofline import MILLI, StepShape, compute_floor, measure_rates, search_work, training_work
from pellucid.data.batch_loaders import BatchLoader
from pellucid.data.batches import EncodedExamples, encode_examples
from pellucid.data.corpus import EncodedCorpus, ReadingReport, map_corpus, write_corpus
from pellucid.data.examples import Example, read_examples
from pellucid.data.synthetic import spelled_digits, write_pairs
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import Vocabularies, learn_vocabularies
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.transducer import Transducer
from pellucid.kernels.cache import cache_folder
from pellucid.kernels.dispatch import disable_kernels
from pellucid.kernels.numba_backend import is_numba_available
from pellucid.model.cells import CELLS
from pellucid.model.device import use_threads
from pellucid.model.memory import AttentionCache, Memory
from pellucid.model.network import parameter_count, require_seq2seq
from pellucid.tasks.registry import build_network
from pellucid.training.loop import TrainingState, UpdateCompleted, build_optimizer, fit
from pellucid.training.session import TrainingFiles, train_run

START_PAIRS, START_DEVELOPMENT = 2_000, 100
"""Training and validation pairs of the files for the startup measurement."""


class _TimedSteps(NamedTuple):
    """A step to time, with its model and data."""

    advance: Callable[[], object]
    transducer: Predictor
    encoded: EncodedExamples
    written: Callable[[], float]
    """T, known after a step."""


def measure_case(request: BenchRequest) -> BenchResult:
    """Make one measurement in this process."""
    use_threads(request.threads)
    with disable_kernels() if request.plain else nullcontext():
        kept = _count_cached_kernels()
        steps = _training_steps(request) if request.task == "train" else _decoding_steps(request)
        timing = time_steps(
            steps.advance, request.seconds, request.repeats, NUM_WARMUP_STEPS if request.task == "train" else 1
        )
    peak = peak_memory_mib()
    first_call: FirstCall = "loaded" if _count_cached_kernels() == kept else "compiled"
    return _build_result(
        request,
        _step_shape(request, steps),
        timing,
        peak,
        "plain" if request.plain or not is_numba_available() else first_call,
    )


def _count_cached_kernels() -> int:
    """Return the number of compiled functions on disk.

    Without a cache every kernel is compiled anew, so that the number differs at each call.
    """
    folder = cache_folder()
    return time.monotonic_ns() if folder is None else sum(1 for _ in folder.rglob("*.nbc"))


def measure_startup(request: BenchRequest, began: float) -> StartupTime:
    """Measure from process start to the first update of a training from files, as in `pellucid train`.

    Imports, reading, vocabularies, network and kernels are included; generating the files is not.

    Args:
        request: The case.
        began: Start of the process, in seconds of the epoch.
    """
    with tempfile.TemporaryDirectory() as folder, disable_kernels() if request.plain else nullcontext():
        before = ClockReading(time.time(), time.process_time())
        examples = bench_examples(request, START_PAIRS + START_DEVELOPMENT)
        files = TrainingFiles(Path(folder) / "train.tsv", Path(folder) / "dev.tsv")
        write_pairs(files.train, examples[:START_PAIRS])
        write_pairs(files.valid, examples[START_PAIRS:])
        writing = ClockReading(time.time(), time.process_time()).since(before)
        with closing(train_run(files, Path(folder) / "run", bench_config(request))) as events:
            next(event for event in events if isinstance(event, UpdateCompleted))
            return StartupTime(time.time() - began - writing.wall, time.process_time() - writing.cpu)


def bench_examples(request: BenchRequest, count: int) -> list[Example]:
    """Return spelled digits, a function of the count alone."""
    return spelled_digits(count, request.digits, request.digits, seed=1)


def encode_pairs(request: BenchRequest, examples: Sequence[Example]) -> tuple[Vocabularies, EncodedExamples]:
    """Return the vocabularies of examples and the encoded examples."""
    data = bench_config(request).data
    vocabularies = learn_vocabularies(examples, build_tokenizers(data), data.min_count)
    return vocabularies, encode_examples(examples, build_tokenizers(data), vocabularies)


def build_session(
    request: BenchRequest, prepared: tuple[Vocabularies, EncodedExamples], examples: Sequence[Example]
) -> TrainingState:
    """Return a new training on these examples."""
    config, (vocabularies, encoded) = bench_config(request), prepared
    transducer = Transducer(config, vocabularies, build_network(config, vocabularies))
    optimizer = build_optimizer(transducer.network, config.training)
    return TrainingState(transducer, optimizer, encoded, examples[:1])


def iterate_updates(session: TrainingState) -> Iterator[UpdateCompleted]:
    """Yield the updates of a training."""
    return (event for event in fit(session) if isinstance(event, UpdateCompleted))


def _training_steps(request: BenchRequest) -> _TimedSteps:
    """Return updates, one per call."""
    examples = bench_examples(request, NUM_BATCHES * request.case.batch)
    session = build_session(request, encode_pairs(request, examples), examples)
    events = iterate_updates(session)
    target = session.training.target.lengths.mean()
    return _TimedSteps(lambda: next(events), session.transducer, session.training, lambda: float(target))


def _decoding_steps(request: BenchRequest) -> _TimedSteps:
    """Return calls that decode a few batches each, never the same ones twice in a row."""
    count = BATCHES_PER_CALL * request.case.batch
    examples = bench_examples(request, 4 * count)
    session = build_session(request, encode_pairs(request, examples), examples)
    calls = itertools.cycle([examples[at : at + count] for at in range(0, len(examples), count)])
    written: list[float] = [0.0]

    def call() -> None:
        if not request.plain:
            is_numba_available()  # a few batches alone would not be worth loading the kernels
        traces = session.transducer.trace(next(calls))
        written[0] = sum(len(trace.target) for trace in traces) / len(traces)

    return _TimedSteps(call, session.transducer, session.training, lambda: written[0])


def _step_shape(request: BenchRequest, steps: _TimedSteps) -> StepShape:
    """Return the sizes of a mean batch."""
    config, vocabularies = steps.transducer.config, steps.transducer.vocabularies
    return StepShape(
        rows=request.case.batch,
        positions=request.case.batch * float(steps.encoded.source.lengths.mean()),
        steps=steps.written(),
        embedding=config.encoder.embedding_size,
        hidden=config.decoder.hidden_size,
        direction=config.encoder.hidden_size,
        units=config.attention.size,
        gates=len(CELLS[request.cell].gates),
        states=1 + CELLS[request.cell].has_cell_state,
        source_symbols=len(vocabularies.source),
        target_symbols=len(vocabularies.target),
        parameters=parameter_count(steps.transducer.network),
        beam=config.search.beam_size,
    )


def _build_result(
    request: BenchRequest, shape: StepShape, timing: StepTiming, peak: float, first_call: FirstCall
) -> BenchResult:
    """Return times, memory and lower bound as a record."""
    work = training_work(shape) if request.task == "train" else search_work(shape)
    rates = measure_rates(shape, request.seconds)
    floor = compute_floor(work, rates)
    batches = batches_per_call(request.task)
    samples = batches * shape.rows
    return BenchResult(
        task=request.task,
        case=request.name,
        cell=request.cell,
        threads=request.threads,
        plain=request.plain,
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
DECODER_BACK, ENCODER_BACK, UPDATE, OTHER = "decoder backward", "encoder backward", "clip and update", "other"
ONCE = (READING, ENCODING, CORPUS)
STAGES = (*ONCE, BATCHING, WAITING, ENCODER, KEYS, DECODER, HEAD, DECODER_BACK, ENCODER_BACK, UPDATE, OTHER)
"""Stages in the order of an update; those of keys and head include their backward pass."""

Result = TypeVar("Result")


class StageClock:
    """A clock that charges all time to the current stage."""

    def __init__(self) -> None:
        """Start with the stage "other"."""
        self.restart()

    def restart(self) -> None:
        """Reset all times."""
        self.spent = dict.fromkeys(STAGES, ClockReading(0.0, 0.0))
        self.stage, self.since = OTHER, read_clocks()

    def enter(self, stage: str) -> None:
        """Charge the time from now on to this stage."""
        moment = read_clocks()
        passed, before = moment.since(self.since), self.spent[self.stage]
        self.spent[self.stage] = ClockReading(before.wall + passed.wall, before.cpu + passed.cpu)
        self.stage, self.since = stage, moment

    def within(self, stage: str, after: str, function: Callable[..., Result]) -> Callable[..., Result]:
        """Return the function with its time charged to one stage, and the time after it to another."""

        def charged(*arguments: Any) -> Result:  # noqa: ANN401
            self.enter(stage)
            try:
                return function(*arguments)
            finally:
                self.enter(after)

        return charged


def profile_training(request: BenchRequest) -> list[StageTime]:
    """Read and encode a file of pairs, then train for the given time; return all stages."""
    use_threads(request.threads)
    with tempfile.TemporaryDirectory() as folder, disable_kernels() if request.plain else nullcontext():
        path, pairs = Path(folder) / "train.tsv", bench_examples(request, NUM_BATCHES * request.case.batch)
        write_pairs(path, pairs)
        _map_corpus(Path(folder), *encode_pairs(request, pairs[:1]))  # loads what is loaded once
        clock = StageClock()
        clock.enter(READING)
        examples = read_examples(path, bench_config(request).data).examples
        clock.enter(ENCODING)
        vocabularies, encoded = encode_pairs(request, examples)
        clock.enter(CORPUS)
        encoded = _map_corpus(Path(folder), vocabularies, encoded)
        clock.enter(OTHER)
        session = build_session(request, (vocabularies, encoded), examples)
        spent = {stage: (clock.spent[stage], NUM_BATCHES) for stage in ONCE}
        updated, count = _time_stages(session, request.seconds)
    return stage_shares({stage: (tick, count) for stage, tick in updated.items()} | spent)


def _map_corpus(folder: Path, vocabularies: Vocabularies, encoded: EncodedExamples) -> EncodedExamples:
    """Write the examples as a corpus file and map it."""
    write_corpus(folder / "corpus.arrow", EncodedCorpus("", ReadingReport((), 0, 0), vocabularies, encoded))
    return map_corpus(folder / "corpus.arrow", "", tagged=False).encoded


def _time_stages(session: TrainingState, seconds: float) -> tuple[dict[str, ClockReading], int]:
    """Return the time of each stage over some updates, and their number."""
    clock, count = StageClock(), 0
    attach_clock(session, clock)
    events = iterate_updates(session)
    for _ in range(NUM_WARMUP_STEPS):
        next(events)
    clock.restart()
    began = time.perf_counter()
    while not count or time.perf_counter() - began < seconds:
        next(events)
        clock.enter(OTHER)
        count += 1
    return clock.spent, count


def attach_clock(session: TrainingState, clock: StageClock) -> None:
    """Attach a clock to a new session, which it switches between the stages of an update.

    Forward: before and after modules and functions. Backward: on gradients, of the head's inputs for the decoder, of
    the keys after the decoder, of the memory for the encoder. The update begins when all gradients are complete.
    """
    _attach_feed(session, clock)
    network = require_seq2seq(session.transducer.network)
    encoder, decoder = network.encoder, network.decoder
    encoder.register_forward_pre_hook(lambda module, given: clock.enter(ENCODER))
    encoder.register_forward_hook(lambda module, given, memory: _leave_encoder(clock, memory.states))
    prepare = clock.within(KEYS, DECODER, decoder.prepare)

    def prepared(memory: Memory) -> AttentionCache:
        attendable = prepare(memory)
        _on_gradient(attendable.keys, lambda: clock.enter(KEYS))
        return attendable

    setattr(decoder, "prepare", prepared)  # noqa: B010 (a method in another's place, on this object alone)
    decoder.head.register_forward_pre_hook(lambda module, given: _enter_head(clock, given))
    setattr(session.optimizer, "update", clock.within(UPDATE, OTHER, session.optimizer.update))  # noqa: B010


def _attach_feed(session: TrainingState, clock: StageClock) -> None:
    """Charge planning and assembling of batches to their stage, unless another thread does it."""
    if not session.prefetch:
        for name in ("plan", "prepare"):
            setattr(session, name, clock.within(BATCHING, WAITING, getattr(session, name)))
    feed_of = session.feed

    def watched(plan: list[ndarray]) -> BatchLoader:
        feed = feed_of(plan)
        setattr(feed, "next", clock.within(WAITING, OTHER, feed.next))  # noqa: B010 (of this object alone)
        return feed

    setattr(session, "feed", watched)  # noqa: B010 (as above)


def _leave_encoder(clock: StageClock, states: Tensor) -> None:
    """Begin the decoder; in the backward pass the encoder begins with the gradient of its states."""
    clock.enter(DECODER)
    _on_gradient(states, lambda: clock.enter(ENCODER_BACK))


def _enter_head(clock: StageClock, inputs: tuple[Tensor, ...]) -> None:
    """Begin the head; in the backward pass it ends with the gradients of its inputs."""
    clock.enter(HEAD)
    for tensor in inputs:
        _on_gradient(tensor, lambda: clock.enter(DECODER_BACK))


def _on_gradient(tensor: Tensor, tell: Callable[[], None]) -> None:
    """Call a function when the gradient of a tensor is complete."""
    if tensor.requires_grad:
        tensor.register_hook(lambda gradient: tell())  # type: ignore[no-untyped-call]


def stage_shares(spent: Mapping[str, tuple[ClockReading, int]]) -> list[StageTime]:
    """Return times per batch with their shares of the total, in the order of the stages."""
    each = {stage: ClockReading(tick.wall / batches, tick.cpu / batches) for stage, (tick, batches) in spent.items()}
    wall, cpu = sum(tick.wall for tick in each.values()), sum(tick.cpu for tick in each.values())
    return [
        StageTime(
            stage, MILLI * each[stage].wall, MILLI * each[stage].cpu, each[stage].wall / wall, each[stage].cpu / cpu
        )
        for stage in STAGES
    ]
