"""One measurement: the real training loop, or the real decoding, in the steady state, beside its floor.

It is made in a process of its own, so that memory and first call are its own.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import NamedTuple

from pellucid.bench.cases import BATCHES, CALL, Asked, batches_a_call, config_of
from pellucid.bench.machine import peak_mib
from pellucid.bench.results import SKIPPED, FirstCall, Measured, Start, Tick, Timing, timed
from pellucid.bench.roofline import MILLI, Shape, floor_of, measure_rates, search_work, training_work
from pellucid.data.batches import EncodedExamples, encode_examples
from pellucid.data.examples import Example
from pellucid.data.synthetic import spelled_digits, write_pairs
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import Vocabularies, learn_vocabularies
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.transducer import Transducer
from pellucid.kernels.cache import cache_folder
from pellucid.kernels.dispatch import disable_kernels
from pellucid.kernels.numba_backend import is_numba_available
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.model.recurrence import GATES
from pellucid.tasks.registry import build_network
from pellucid.training.loop import Session, Stepped, build_optimizer, fit
from pellucid.training.session import Files, train_run

START_PAIRS, START_DEVELOPMENT = 2_000, 100
"""Pairs in the files that a training is started from."""


class _Steps(NamedTuple):
    """Something to time."""

    advance: Callable[[], object]
    transducer: Predictor
    encoded: EncodedExamples
    written: Callable[[], float]
    """T, known once a step was taken."""


def measure(asked: Asked) -> Measured:
    """Make one measurement in this process."""
    use_threads(asked.threads)
    with disable_kernels() if asked.plain else nullcontext():
        kept = _kernels_kept()
        steps = _training(asked) if asked.task == "train" else _decoding(asked)
        timing = timed(steps.advance, asked.seconds, asked.repeats, SKIPPED if asked.task == "train" else 1)
    peak = peak_mib()
    first_call: FirstCall = "loaded" if _kernels_kept() == kept else "compiled"
    return _measured(
        asked, _shape(asked, steps), timing, peak, "plain" if asked.plain or not is_numba_available() else first_call
    )


def _kernels_kept() -> int:
    """How many compiled functions are on the disk; where none can be kept, one more each time, for each is compiled."""
    folder = cache_folder()
    return time.monotonic_ns() if folder is None else sum(1 for _ in folder.rglob("*.nbc"))


def started(asked: Asked, began: float) -> Start:
    """From `began`, when this process was started, to the first update of a training from files.

    As in `pellucid train`: imports, reading, vocabularies, network, kernels. Making up the files is not counted.
    """
    with tempfile.TemporaryDirectory() as folder, disable_kernels() if asked.plain else nullcontext():
        before = Tick(time.time(), time.process_time())
        examples = examples_of(asked, START_PAIRS + START_DEVELOPMENT)
        files = Files(Path(folder) / "train.tsv", Path(folder) / "dev.tsv")
        write_pairs(files.train, examples[:START_PAIRS])
        write_pairs(files.valid, examples[START_PAIRS:])
        writing = Tick(time.time(), time.process_time()).since(before)
        with closing(train_run(files, Path(folder) / "run", config_of(asked))) as events:
            next(event for event in events if isinstance(event, Stepped))
            return Start(time.time() - began - writing.wall, time.process_time() - writing.cpu)


def examples_of(asked: Asked, count: int) -> list[Example]:
    """Numbers spelled out, a function of the count alone."""
    return spelled_digits(count, asked.digits, asked.digits, seed=1)


def encoded_of(asked: Asked, examples: Sequence[Example]) -> tuple[Vocabularies, EncodedExamples]:
    """The symbols of these examples, and the examples in ids."""
    data = config_of(asked).data
    vocabularies = learn_vocabularies(examples, build_tokenizers(data), data.min_count)
    return vocabularies, encode_examples(examples, build_tokenizers(data), vocabularies)


def session_of(asked: Asked, prepared: tuple[Vocabularies, EncodedExamples], examples: Sequence[Example]) -> Session:
    """A training on these examples, from its beginning."""
    config, (vocabularies, encoded) = config_of(asked), prepared
    transducer = Transducer(config, vocabularies, build_network(config, vocabularies))
    optimizer = build_optimizer(transducer.network, config.training)
    return Session(transducer, optimizer, encoded, examples[:1])


def updates(session: Session) -> Iterator[Stepped]:
    """The updates of a training."""
    return (event for event in fit(session) if isinstance(event, Stepped))


def _training(asked: Asked) -> _Steps:
    """Updates, one a call."""
    examples = examples_of(asked, BATCHES * asked.case.batch)
    session = session_of(asked, encoded_of(asked, examples), examples)
    events = updates(session)
    target = session.training.target.lengths.mean()
    return _Steps(lambda: next(events), session.transducer, session.training, lambda: float(target))


def _decoding(asked: Asked) -> _Steps:
    """Calls that decode a few batches each, never the same twice in a row."""
    count = CALL * asked.case.batch
    examples = examples_of(asked, 4 * count)
    session = session_of(asked, encoded_of(asked, examples), examples)
    calls = itertools.cycle([examples[at : at + count] for at in range(0, len(examples), count)])
    written: list[float] = [0.0]

    def call() -> None:
        if not asked.plain:
            is_numba_available()  # a few batches alone would not be worth loading the kernels
        traces = session.transducer.trace(next(calls))
        written[0] = sum(len(trace.target) for trace in traces) / len(traces)

    return _Steps(call, session.transducer, session.training, lambda: written[0])


def _shape(asked: Asked, steps: _Steps) -> Shape:
    """The sizes of a mean batch."""
    config, vocabularies = steps.transducer.config, steps.transducer.vocabularies
    return Shape(
        rows=asked.case.batch,
        positions=asked.case.batch * float(steps.encoded.source.lengths.mean()),
        steps=steps.written(),
        embedding=config.encoder.embedding_size,
        hidden=config.decoder.hidden_size,
        direction=config.encoder.hidden_size,
        units=config.attention.size,
        gates=GATES[asked.cell],
        source_symbols=len(vocabularies.source),
        target_symbols=len(vocabularies.target),
        parameters=parameter_count(steps.transducer.network),
        beam=config.search.beam_size,
    )


def _measured(asked: Asked, shape: Shape, timing: Timing, peak: float, first_call: FirstCall) -> Measured:
    """Times and memory beside the floor, as one record."""
    work = training_work(shape) if asked.task == "train" else search_work(shape)
    rates = measure_rates(shape, asked.seconds)
    floor = floor_of(work, rates)
    batches = batches_a_call(asked.task)
    samples = batches * shape.rows
    return Measured(
        task=asked.task,
        case=asked.name,
        cell=asked.cell,
        threads=asked.threads,
        plain=asked.plain,
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
