"""Where the time of a training goes: the real loop, with a clock that always runs in one stage.

Nothing is estimated. Hooks on the network's parts and on the gradients that pass between them switch the clock, so the
stages of an update follow each other without a gap and their shares sum to one. Reading, encoding, and the corpus that
is written, checked and mapped are measured on the same pairs; all times are for a training that sees each pair once.
Work of other threads counts for the stage during which it happens: batches that are prepared ahead, for waiting.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

from numpy import ndarray
from torch import Tensor

from pellucid.bench.cases import BATCHES, Asked, config_of
from pellucid.bench.measuring import encoded_of, examples_of, session_of, updates
from pellucid.bench.results import SKIPPED, Stage, Tick, now
from pellucid.bench.roofline import MILLI
from pellucid.data.batch_loaders import BatchLoader
from pellucid.data.batches import EncodedExamples
from pellucid.data.corpus import EncodedCorpus, ReadingReport, map_corpus, write_corpus
from pellucid.data.examples import read_examples
from pellucid.data.synthetic import write_pairs
from pellucid.data.vocabulary import Vocabularies
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.device import use_threads
from pellucid.model.memory import Attendable, Memory
from pellucid.model.network import writing
from pellucid.training.loop import Session

READING, ENCODING, CORPUS, BATCHING, WAITING = "reading", "encoding", "corpus", "batching", "waiting"
ENCODER, KEYS, DECODER, HEAD = "encoder forward", "attention keys", "decoder forward", "head and loss"
DECODER_BACK, ENCODER_BACK, UPDATE, OTHER = "decoder backward", "encoder backward", "clip and update", "other"
ONCE = (READING, ENCODING, CORPUS)
STAGES = (*ONCE, BATCHING, WAITING, ENCODER, KEYS, DECODER, HEAD, DECODER_BACK, ENCODER_BACK, UPDATE, OTHER)
"""In the order of an update; the keys' and the head's stages include their way back."""

Result = TypeVar("Result")


class Clock:
    """Charges all time that passes to one stage or another."""

    def __init__(self) -> None:
        """Runs from now on, for nothing in particular."""
        self.restart()

    def restart(self) -> None:
        """Forget what has passed."""
        self.spent = dict.fromkeys(STAGES, Tick(0.0, 0.0))
        self.stage, self.since = OTHER, now()

    def enter(self, stage: str) -> None:
        """What passes from now on is this stage's."""
        moment = now()
        passed, before = moment.since(self.since), self.spent[self.stage]
        self.spent[self.stage] = Tick(before.wall + passed.wall, before.cpu + passed.cpu)
        self.stage, self.since = stage, moment

    def within(self, stage: str, after: str, function: Callable[..., Result]) -> Callable[..., Result]:
        """The function, with its time for one stage, and what follows for another."""

        def charged(*arguments: Any) -> Result:  # noqa: ANN401
            self.enter(stage)
            try:
                return function(*arguments)
            finally:
                self.enter(after)

        return charged


def profile(asked: Asked) -> list[Stage]:
    """Read and encode a file of pairs, then train on as many of its batches as fit into the time."""
    use_threads(asked.threads)
    with tempfile.TemporaryDirectory() as folder, disable_kernels() if asked.plain else nullcontext():
        path, pairs = Path(folder) / "train.tsv", examples_of(asked, BATCHES * asked.case.batch)
        write_pairs(path, pairs)
        _mapped(Path(folder), *encoded_of(asked, pairs[:1]))  # loads what is loaded once
        clock = Clock()
        clock.enter(READING)
        examples = read_examples(path, config_of(asked).data).examples
        clock.enter(ENCODING)
        vocabularies, encoded = encoded_of(asked, examples)
        clock.enter(CORPUS)
        encoded = _mapped(Path(folder), vocabularies, encoded)
        clock.enter(OTHER)
        session = session_of(asked, (vocabularies, encoded), examples)
        spent = {stage: (clock.spent[stage], BATCHES) for stage in ONCE}
        updated, count = _trained(session, asked.seconds)
    return shares({stage: (tick, count) for stage, tick in updated.items()} | spent)


def _mapped(folder: Path, vocabularies: Vocabularies, encoded: EncodedExamples) -> EncodedExamples:
    """The same examples, in a file."""
    write_corpus(folder / "corpus.arrow", EncodedCorpus("", ReadingReport((), 0, 0), vocabularies, encoded))
    return map_corpus(folder / "corpus.arrow", "", tagged=False).encoded


def _trained(session: Session, seconds: float) -> tuple[dict[str, Tick], int]:
    """The time of each stage over some updates, and how many they were."""
    clock, count = Clock(), 0
    watch(session, clock)
    events = updates(session)
    for _ in range(SKIPPED):
        next(events)
    clock.restart()
    began = time.perf_counter()
    while not count or time.perf_counter() - began < seconds:
        next(events)
        clock.enter(OTHER)
        count += 1
    return clock.spent, count


def watch(session: Session, clock: Clock) -> None:
    """Switch the clock wherever an update of a session that has not begun passes from one stage to the next.

    Forward: modules and functions as they begin and end. Backward: gradients as they arrive, that of the head's inputs
    when the decoder's turn comes, that of the keys when it has ended, that of the memory when the encoder's comes. The
    update begins when all is done.
    """
    _watch_feed(session, clock)
    network = writing(session.transducer.network)
    encoder, decoder = network.encoder, network.decoder
    encoder.register_forward_pre_hook(lambda module, given: clock.enter(ENCODER))
    encoder.register_forward_hook(lambda module, given, memory: _encoded(clock, memory.states))
    prepare = clock.within(KEYS, DECODER, decoder.prepare)

    def prepared(memory: Memory) -> Attendable:
        attendable = prepare(memory)
        _when_gradient(attendable.keys, lambda: clock.enter(KEYS))
        return attendable

    setattr(decoder, "prepare", prepared)  # noqa: B010 (a method in another's place, on this object alone)
    decoder.head.register_forward_pre_hook(lambda module, given: _decoded(clock, given))
    setattr(session.optimizer, "update", clock.within(UPDATE, OTHER, session.optimizer.update))  # noqa: B010


def _watch_feed(session: Session, clock: Clock) -> None:
    """Batches are planned and assembled within the waiting for them, unless another thread does it meanwhile."""
    if not session.ahead:
        for name in ("plan", "prepare"):
            setattr(session, name, clock.within(BATCHING, WAITING, getattr(session, name)))
    feed_of = session.feed

    def watched(plan: list[ndarray]) -> BatchLoader:
        feed = feed_of(plan)
        setattr(feed, "next", clock.within(WAITING, OTHER, feed.next))  # noqa: B010 (of this object alone)
        return feed

    setattr(session, "feed", watched)  # noqa: B010 (as above)


def _encoded(clock: Clock, states: Tensor) -> None:
    """The encoder has ended; on the way back its turn comes when its states have their gradient."""
    clock.enter(DECODER)
    _when_gradient(states, lambda: clock.enter(ENCODER_BACK))


def _decoded(clock: Clock, inputs: tuple[Tensor, ...]) -> None:
    """The head begins; on the way back it has ended when its inputs have their gradients."""
    clock.enter(HEAD)
    for tensor in inputs:
        _when_gradient(tensor, lambda: clock.enter(DECODER_BACK))


def _when_gradient(tensor: Tensor, tell: Callable[[], None]) -> None:
    """Call when the tensor's gradient is whole."""
    if tensor.requires_grad:
        tensor.register_hook(lambda gradient: tell())  # type: ignore[no-untyped-call]


def shares(spent: Mapping[str, tuple[Tick, int]]) -> list[Stage]:
    """Times of so many batches as times of one, with their shares of all, in the order of the stages."""
    each = {stage: Tick(tick.wall / batches, tick.cpu / batches) for stage, (tick, batches) in spent.items()}
    wall, cpu = sum(tick.wall for tick in each.values()), sum(tick.cpu for tick in each.values())
    return [
        Stage(stage, MILLI * each[stage].wall, MILLI * each[stage].cpu, each[stage].wall / wall, each[stage].cpu / cpu)
        for stage in STAGES
    ]
