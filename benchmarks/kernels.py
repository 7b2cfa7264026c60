"""Milliseconds of an update with kernels and in plain PyTorch: python benchmarks/kernels.py [case …] [gru|lstm …].

Spelled digits at the character level: 20 digits, about 99 characters in, 21 symbols out; an encoder of both ways with
half the decoder's units each way. Processor time of one thread, the best of several runs, both ways in turn.
"""

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch

from pellucid.data.batches import Batch, assemble, encode, plan_batches
from pellucid.data.symbols import segmenters
from pellucid.data.synthetic import spelled_digits
from pellucid.data.vocabulary import learn_vocabularies
from pellucid.kernels.choice import available, plain
from pellucid.model.network import build_network
from pellucid.search.transducer import Transducer
from pellucid.toml import from_settings
from pellucid.training import loop
from pellucid.training.loop import Session, build_optimizer

SECONDS = 4.0
"""How long each pair is measured."""


class Case(NamedTuple):
    """Sizes of a network and its batch."""

    hidden: int
    embedding: int
    units: int
    batch: int


CASES = {
    "tiny": Case(10, 10, 20, 100),
    "small": Case(128, 64, 128, 64),
    "medium": Case(256, 64, 256, 64),
    "large": Case(512, 256, 512, 32),
}


def session_of(case: Case, cell: str) -> tuple[Session, Batch]:
    """A training of the case, and a batch of it."""
    sizes: dict[str, Any] = {"cell": cell, "embedding_size": case.embedding, "dropout": 0.0}
    settings = {
        "encoder": {**sizes, "hidden_size": case.hidden // 2},
        "decoder": {**sizes, "hidden_size": case.hidden},
        "attention": {"units": case.units},
        "training": {"batch_size": case.batch},
    }
    config = from_settings(settings, origin="benchmark")
    examples = list(spelled_digits(20 * case.batch, 20, 20, seed=1))
    cut = segmenters(config.data)
    vocabularies = learn_vocabularies(examples, cut, 1)
    network = build_network(config, vocabularies)
    encoded = encode(examples, cut, vocabularies)
    transducer = Transducer(config, vocabularies, network)
    session = Session(transducer, build_optimizer(network, config.training), encoded, examples[:1])
    rows = plan_batches(encoded, case.batch, "examples", seed=1, epoch=0)[0]
    return session, assemble(encoded, rows)


def parts_of(session: Session, batch: Batch) -> dict[str, Callable[[], object]]:
    """The encoder there and back, the decoder there and back, and a whole update."""
    encoder, decoder = session.transducer.network.encoder, session.transducer.network.decoder

    def encode_batch() -> None:
        torch.autograd.backward(encoder(batch.source, batch.source_lengths).states.sum())

    with torch.no_grad():
        memory = encoder(batch.source, batch.source_lengths)
    memory.states.requires_grad_()

    def decode_batch() -> None:
        unrolled = decoder.unroll(batch.target, decoder.start(memory), decoder.prepare(memory))
        torch.autograd.backward(unrolled.logits.sum())

    return {"encoder": encode_batch, "decoder": decode_batch, "update": lambda: loop._update(session, batch, 1e-4)}


def milliseconds(run: Callable[[], object]) -> tuple[float, float]:
    """The best time of a part in plain PyTorch and with kernels."""
    best, began = {"plain": float("inf"), "kernels": float("inf")}, time.process_time()
    while time.process_time() - began < SECONDS:
        for name, context in (("plain", plain()), ("kernels", nullcontext())):
            with context:
                start = time.process_time()
                run()
                best[name] = min(best[name], time.process_time() - start)
    return 1000 * best["plain"], 1000 * best["kernels"]


def main(names: list[str]) -> None:
    """Measure the cases and cells named, or all."""
    torch.set_num_threads(1)
    start = time.process_time()
    available()
    print(f"compiling, or loading what was compiled: {time.process_time() - start:.1f} s")
    print("| case | cell | part | plain | kernels | times |\n|---|---|---|--:|--:|--:|")
    for case in [name for name in names if name in CASES] or CASES:
        for cell in [name for name in names if name in ("gru", "lstm")] or ("gru", "lstm"):
            for part, run in parts_of(*session_of(CASES[case], cell)).items():
                slow, fast = milliseconds(run)
                print(f"| {case} | {cell} | {part} | {slow:.1f} | {fast:.1f} | {slow / fast:.1f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
