"""Equality of prediction without PyTorch: runtime and PyTorch on trained runs of every kind, beside double precision.

    python benchmarks/runtime_equality.py DATA --run FOLDER [--lines 1000] [--seeds 1 2 3] [--only KIND ...]

DATA is a folder with `inflection-sigmorphon2022` (Old English, for features) and `histnorm` (Slovene, for copying);
the other kinds are trained on examples/english. Every run is trained briefly (`--pairs`, `--epochs`), and decodes the
first lines of a test file that it was not trained on, with the search settings of `predict`. A finished training is not
repeated. One line of JSON is printed for each run:

lines, equal     number of sources, and of those for which both give the same output
lists            number of n-best lists (of the first sources) with the same outputs in the same order
log_probability  largest difference of the log-probability of an output, over equal outputs
given            the same for the targets of the file, as `score` computes it
attention, confidence, rank_score   largest differences of weights, confidences, and scores of rankings
runtime_error, torch_error          largest difference of each from PyTorch in float64, for the same outputs

`rank_score` is that of rankings by network and pair n-gram model. With --table, lines of JSON are read from standard
input, and the table of docs/guides/runtime.md is printed.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pellucid.data.examples import Example
from pellucid.decoding.base_predictor import BasePredictor
from pellucid.decoding.lexicon import Lexicon
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.trace import Trace

ENGLISH = Path(__file__).parents[1] / "examples" / "english"
SIZES = {"encoder": {"hidden_size": 16}, "decoder": {"hidden_size": 32}}
LUONG = {"decoder": {"order": "step-then-attend", "input_feeding": True}}
KINDS: dict[str, dict[str, Any]] = {
    "GRU, additive attention": {},
    "LSTM": {"encoder": {"cell": "lstm"}, "decoder": {"cell": "lstm"}},
    "four heads": {"attention": {"num_heads": 4}},
    "dot": {"attention": {"type": "dot"}, **SIZES},
    "scaled-dot": {"attention": {"type": "scaled-dot"}, **SIZES},
    "general": {"attention": {"type": "general"}},
    "location": {"attention": {"type": "location"}},
    "monotonic": {"attention": {"type": "monotonic"}},
    "no attention": {"attention": {"type": "none"}, "decoder": {"output_layer_inputs": "state"}},
    "step then attend": {"decoder": {"order": "step-then-attend"}, "attention": {"type": "general"}},
    "step then attend, input feeding": LUONG,
    "LSTM of two layers, residual": {
        part: {"cell": "lstm", "num_layers": 2, "residual": True} for part in ("encoder", "decoder")
    },
    "layer normalization in cells": {part: {"layer_normalization": "cells"} for part in ("encoder", "decoder")},
    "convolutions, tied embeddings": {
        "encoder": {"convolutions": [3, 5]},
        "decoder": {"tie_embeddings": True},
    },
    "pair n-gram model": {"training": {"pair_ngram": True}},
    "pointer-generator": {"decoder": {"pointer_generator": True}},
    "pointer-generator, step then attend": {"decoder": {**LUONG["decoder"], "pointer_generator": True}},
    "features as a prefix": {"encoder": {"feature_merge": "prefix"}},
    "features as a sum": {"encoder": {"feature_merge": "sum"}},
}
"""Settings of the trainings of each kind, in addition to size, seed and length."""
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy search": {"beam_size": 1},
    "GNMT length and coverage penalty": {"length_normalization": "gnmt", "coverage_penalty": 0.2},
    "average length normalization": {"length_normalization": "average"},
}
CONSTRAINTS = ("lexicon", "prefixes", "forbidden symbols")
"""Constraints, of the run of the first kind."""
ENSEMBLE = ("GRU, additive attention", "LSTM", "general")
"""Kinds of the members of the ensemble of three runs; the first two are the ensemble of two."""


class Files(NamedTuple):
    """Examples of a kind: for training, for validation, and those to decode; and the data settings."""

    train: list[Example]
    valid: list[Example]
    test: list[Example]
    settings: dict[str, Any]


class Case(NamedTuple):
    """What one line of the result compares: runs, search settings, options, and examples."""

    name: str
    folders: list[Path]
    examples: list[Example]
    search: Mapping[str, Any] = {}
    options: DecodingOptions = DecodingOptions()
    prefixes: list[str] | None = None


def read_rows(path: Path, columns: Sequence[int], separator: str = "\t", skip: int = 0) -> list[Example]:
    """Return the examples of a file without repeated sources, by the numbers of its columns."""
    rows = [line.split(separator) for line in path.read_text("utf-8").splitlines()[skip:] if line.strip()]
    examples = [Example(*(row[column] for column in columns)) for row in rows]
    return list({(example.source, example.features): example for example in examples}.values())


def read_files(kind: str, data: Path, pairs: int, lines: int) -> Files:
    """Return the examples of a kind."""
    if kind.startswith("features"):
        folder = data / "inflection-sigmorphon2022"
        train, test = (read_rows(folder / name, (0, 1, 2)) for name in ("ang_large.train", "ang.test"))
        settings = {"features_column": "features"}
    elif kind.startswith("pointer"):
        folder = data / "histnorm"
        names = [f"slovene-goo300k-bohoric.{split}.txt" for split in ("train", "test")]
        train, test = (read_rows(folder / name, (0, 1)) for name in names)
        settings = {}
    else:
        train = read_rows(ENGLISH / "lexicon.csv", (0, 1), ",", 1)
        test = [*read_rows(ENGLISH / "test.csv", (0, 1), ",", 1), *train[pairs + 200 :]]
        settings = {"target_symbols": "words"}
    return Files(train[:pairs], train[pairs : pairs + 200], test[:lines], settings)


def merge_settings(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with changes of their tables."""
    changed = {key: {**settings.get(key, {}), **value} for key, value in changes.items()}
    return {**settings, **changed}


def train_kind(kind: str, seed: int, files: Files, folder: Path, epochs: int) -> Path:
    """Train a run of a kind, unless it is finished, and return its folder."""
    import pellucid

    settings = {"size": "tiny", "seed": seed, "data": files.settings}
    training = {"epochs": epochs, "eval_interval": 3.0, "snapshots": False, "pair_ngram": False}
    settings = merge_settings({**settings, "training": training}, KINDS[kind])
    run = folder / f"{kind.replace(',', '').replace(' ', '-')}-{seed}"
    rows = [[dict(zip(("source", "target", "features"), pair, strict=True)) for pair in part] for part in files[:2]]
    pellucid.train(rows[0], rows[1], run, settings, progress=False)
    return run


def make_cases(args: argparse.Namespace, seed: int) -> Iterator[Case]:
    """Train the runs of a seed, and yield the comparisons."""
    runs = {}
    for kind in KINDS:
        if args.only and kind not in args.only:
            continue
        files = read_files(kind, args.data, args.pairs, args.lines)
        runs[kind] = train_kind(kind, seed, files, args.run, args.epochs)
        yield Case(kind, [runs[kind]], files.test)
    if args.only:
        return
    examples, first = read_files("", args.data, args.pairs, args.lines).test, runs[ENSEMBLE[0]]
    members = [runs[kind] for kind in ENSEMBLE]
    yield Case("ensemble of two", members[:2], examples)
    yield Case("ensemble of three", members, examples)
    yield Case("ensemble of two, pair n-gram model", [runs["pair n-gram model"], members[1]], examples)
    for name, search in SEARCHES.items():
        yield Case(name, [first], examples, search)
    lexicon = Lexicon({example.source: (example.target, "AH") for example in examples[::2]})
    prefixes = [" ".join(example.target.split()[: number % 3]) for number, example in enumerate(examples)]
    options = (DecodingOptions(lexicon=lexicon), DecodingOptions(), DecodingOptions(forbidden=("AH", "T")))
    for name, option in zip(CONSTRAINTS, options, strict=True):
        yield Case(name, [first], examples, options=option, prefixes=prefixes if name == "prefixes" else None)


def load_predictors(case: Case) -> tuple[BasePredictor, BasePredictor, BasePredictor]:
    """Return the predictors of the runtime, of PyTorch, and of PyTorch in float64."""
    from pellucid.run_folder.predictor_loader import load as load_torch
    from pellucid.runtime.loader import load as load_runtime

    run: Any = case.folders if len(case.folders) > 1 else case.folders[0]
    exact = load_torch(run)
    for network in exact.members.networks if exact.is_ensemble else [exact.network]:
        network.double()
    predictors: list[BasePredictor] = [load_runtime(run), load_torch(run), exact]
    runtime, torch, double = (each.with_search(case.search).with_options(case.options) for each in predictors)
    return runtime, torch, double


def max_magnitude(differences: Iterable[float | np.ndarray]) -> float:
    """Return the largest absolute number of some arrays; 0 if there is none."""
    return max((float(np.max(np.abs(each))) for each in differences if np.size(each)), default=0.0)


def optional_difference(pairs: Iterable[tuple[Trace, Trace]], name: str) -> float | None:
    """Return the largest difference of a number that not all traces have; None if no trace has it.

    Raises:
        AssertionError: Only one trace of a pair has it.
    """
    values = [(getattr(one, name), getattr(other, name)) for one, other in pairs]
    assert all((one is None) == (other is None) for one, other in values), name
    present = [one - other for one, other in values if one is not None]
    return max_magnitude(present) if present else None


def compare_case(case: Case, num_lists: int, nbest: int = 5) -> dict[str, Any]:
    """Compare the predictions of the runtime and of PyTorch; see the top of this file for the numbers."""
    runtime, torch, double = load_predictors(case)
    predictions = [each.predict_examples(case.examples, case.prefixes) for each in (runtime, torch)]
    pairs = [(one, other) for one, other in zip(*predictions, strict=True) if one.target == other.target]
    prefixes = None if case.prefixes is None else case.prefixes[:num_lists]
    lists = [each.nbest_examples(case.examples[:num_lists], nbest, prefixes=prefixes) for each in (runtime, torch)]
    same = [
        one for one in zip(*lists, strict=True) if len({tuple(trace.target for trace in each) for each in one}) == 1
    ]
    listed = [pair for one in same for pair in zip(*one, strict=True)]
    given = [example for example in case.examples if example.target and example.source]
    scored = list(zip(*(each.score_examples(given) for each in (runtime, torch)), strict=True))
    decoded = [pair for pair in (*pairs, *listed) if pair[0].origin == "search" and pair[0].finished]
    triples = list(zip(case.examples, *predictions, strict=True))
    compared = [(example, one, other) for example, one, other in triples if is_comparable(one, other)]
    exact = double.score_examples([example._replace(target=one.output) for example, one, _ in compared])
    errors = [
        max_magnitude(pair[number].score - reference.score for pair, reference in zip(compared, exact, strict=True))
        for number in (1, 2)
    ]
    every = [*pairs, *listed, *scored]
    return {
        "kind": case.name,
        "lines": len(case.examples),
        "equal": len(pairs),
        "lists": len(lists[0]),
        "equal_lists": len(same),
        "log_probability": max_magnitude(one.score - other.score for one, other in (*pairs, *listed)),
        "given": max_magnitude(one.score - other.score for one, other in scored),
        "attention": max_magnitude(one.attention - other.attention for one, other in every),
        "confidence": optional_difference(pairs, "confidence"),
        "rank_score": optional_difference(decoded, "search_score"),
        "compared": len(compared),
        "runtime_error": errors[0],
        "torch_error": errors[1],
    }


def is_comparable(one: Trace, other: Trace) -> bool:
    """Return whether both decoded one output that `score_examples` can score: finished, without unknown symbols."""
    return one.target == other.target and one.finished and one.origin == "search" and bool(one.output)


def format_table(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table of docs/guides/runtime.md, one kind a line, over all its runs."""
    columns = ("log_probability", "given", "attention", "confidence", "runtime_error", "torch_error")
    counted, errors = ("kind", "runs", "outputs equal", "lists equal"), ("NumPy", "PyTorch")
    titles = (*counted, "output", "given target", "attention", "confidence", *errors)
    yield f"| {' | '.join(titles)} |"
    yield "|---|" + "--:|" * (len(titles) - 1)
    for kind in dict.fromkeys(record["kind"] for record in records):
        chosen = [record for record in records if record["kind"] == kind]
        counts = [sum(record[name] for record in chosen) for name in ("equal", "lines", "equal_lists", "lists")]
        numbers = [max((r[name] for r in chosen if r[name] is not None), default=None) for name in columns]
        cells = ["–" if number is None else f"{1e6 * number:.1f}" for number in numbers]
        outputs = [f"{counts[i]:,} of {counts[i + 1]:,}" for i in (0, 2)]
        yield f"| {' | '.join([kind, str(len(chosen)), *outputs, *cells])} |"


def main() -> None:
    """Parse the arguments, and print a line for each run, or the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--lists", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", nargs="+", choices=KINDS, default=[])
    args = parser.parse_args()
    for case in itertools.chain.from_iterable(make_cases(args, seed) for seed in args.seeds):
        print(json.dumps(compare_case(case, args.lists)), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        print("\n".join(format_table([json.loads(line) for line in sys.stdin])))
    else:
        main()
