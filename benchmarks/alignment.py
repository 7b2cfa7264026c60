"""Alignment by expectation-maximization and by attention, compared with the truth and with each other.

    python benchmarks/alignment.py DATA --run FOLDER [--phonetisaurus PROGRAM]

Three sets of pairs: spelled digits, whose words are known; typos with one wrong letter, whose letters are aligned one
by one; and a language of SIGMORPHON 2020 task 1 (DATA is its folder, with train/, dev/ and test/), whose alignment
nobody has written. For each, a model is trained in FOLDER, unless it is finished. The training pairs and the test pairs
together are aligned by expectation-maximization; the test pairs are aligned by the attention of the model, and scored.
One line of JSON is printed per comparison: precision, recall and F1 of the links (pairs of positions in one chunk) in
percent, and the percentage of pairs whose links are all equal. Links of the spaces between digits are not counted.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pellucid
from pellucid import Alignment, ChunkLimits
from pellucid.data.examples import Example
from pellucid.data.synthetic import digit_spans, make_typos, read_words, spelled_digits, split_words, write_pairs

Links = frozenset[tuple[int, int]]


class PairSet(NamedTuple):
    """Pairs with their settings."""

    name: str
    train: list[Example]
    valid: list[Example]
    test: list[Example]
    truth: list[Links] | None
    """Links of each test pair; None if they are unknown."""
    target_symbols: str
    limits: dict[str, ChunkLimits]
    """Limits of the chunks, by their name."""


def digits(seed: int) -> PairSet:
    """Return spelled digits: "nine two" and "92"."""
    train, valid, test = (spelled_digits(count, 1, 8, seed + part) for part, count in enumerate((8000, 500, 500)))
    spans = [digit_spans(list(pair.source), pair.target) or [] for pair in test]
    truth = [frozenset((s, t) for t, span in enumerate(each) for s in range(*span)) for each in spans]
    limits = {
        "words (6-2, no insertions, no deletions)": ChunkLimits(6, 1, insertions=False, deletions=False),
        "default (2-2)": ChunkLimits(),
    }
    return PairSet("digits", train, valid, test, truth, "characters", limits)


def typos(words: Path, seed: int) -> PairSet:
    """Return words with one wrong letter, and the correct words."""
    known = read_words(words, min_length=4)
    split = split_words(known.words, 500, 500, seed)
    parts = [split.train[:4000], split.validation, split.test]
    train, valid, test = (
        [Example(typo.wrong, typo.right) for typo in make_typos(part, 2 if part is parts[0] else 1, known.known, seed)]
        for part in parts
    )
    truth = [frozenset((position, position) for position in range(len(pair.target))) for pair in test]
    limits = {"default (2-2)": ChunkLimits(), "one symbol each (1-1)": ChunkLimits(1, 1)}
    return PairSet("typos", train, valid, test, truth, "characters", limits)


def pronunciations(data: Path, language: str) -> PairSet:
    """Return words and pronunciations of a language."""
    parts = list[list[Example]]()
    for split in ("train", "dev", "test"):
        lines = (data / split / f"{language}_{split}.tsv").read_text("utf-8").splitlines()
        parts.append([Example(*line.split("\t")) for line in lines])
    limits = {"default (2-2)": ChunkLimits(), "no insertions": ChunkLimits(insertions=False)}
    return PairSet(f"g2p {language}", parts[0], parts[1], parts[2], None, "words", limits)


def links_of(alignments: Sequence[Alignment | None]) -> list[Links]:
    """Return the links of alignments; none for a pair without an alignment."""
    return [frozenset() if alignment is None else frozenset(alignment.links) for alignment in alignments]


def compare(pairs: Sequence[Example], found: Sequence[Links], expected: Sequence[Links]) -> dict[str, float]:
    """Return precision, recall and F1 of links, and the share of pairs with equal links; spaces are left out."""
    common = num_found = num_expected = equal = 0
    for pair, found_links, expected_links in zip(pairs, found, expected, strict=True):
        kept = frozenset(link for link in found_links if pair.source[link[0]] != " ")
        wanted = frozenset(link for link in expected_links if pair.source[link[0]] != " ")
        common += len(kept & wanted)
        num_found, num_expected, equal = num_found + len(kept), num_expected + len(wanted), equal + (kept == wanted)
    precision, recall = common / max(1, num_found), common / max(1, num_expected)
    f1 = 2 * common / max(1, num_found + num_expected)
    values = {"precision": precision, "recall": recall, "f1": f1, "equal": equal / len(pairs)}
    return {name: round(100 * value, 1) for name, value in values.items()}


def symbols(pairs: PairSet, text: str, is_target: bool) -> list[str]:
    """Return the symbols of a text."""
    return text.split() if is_target and pairs.target_symbols == "words" else list(text)


def align_by_phonetisaurus(program: Path, folder: Path, pairs: PairSet, limits: ChunkLimits) -> list[Links]:
    """Return the links that phonetisaurus-align gives to the test pairs, aligned together with the training pairs."""
    dictionary, corpus = folder / f"{pairs.name}.dict", folder / f"{pairs.name}.corpus"
    examples = [*pairs.train, *pairs.test]
    lines = [
        " ".join(symbols(pairs, pair.source.replace(" ", "#"), False))
        + "\t"
        + " ".join(symbols(pairs, pair.target, True))
        for pair in examples
    ]
    dictionary.write_text("\n".join(lines) + "\n", "utf-8")
    flags = {
        "input": dictionary,
        "ofile": corpus,
        "s1_char_delim": " ",
        "seq1_max": limits.max_source,
        "seq2_max": limits.max_target,
        "seq1_del": str(limits.insertions).lower(),
        "seq2_del": str(limits.deletions).lower(),
        "restrict": str(not limits.many_to_many).lower(),
    }
    command = [str(program), *(f"--{name}={value}" for name, value in flags.items())]
    subprocess.run(command, check=True, capture_output=True)
    found = list[Links]()
    for line in corpus.read_text("utf-8").splitlines():
        row = column = 0
        links = set[tuple[int, int]]()
        for chunk in line.split():
            height, width = (0 if side == "_" else side.count("|") + 1 for side in chunk.split("}"))
            links |= {(row + s, column + t) for s in range(height) for t in range(width)}
            row, column = row + height, column + width
        found.append(frozenset(links))
    assert len(found) == len(examples), "phonetisaurus-align leaves out pairs that it cannot align"
    return found[len(pairs.train) :]


def comparisons(args: argparse.Namespace, pairs: PairSet) -> Iterator[dict[str, object]]:
    """Align the test pairs by each method, and yield the comparisons."""
    folder: Path = args.run
    data = {"target_symbols": pairs.target_symbols}
    training = {"snapshots": False, **({"epochs": args.epochs} if args.epochs else {})}
    settings = {"size": args.size, "seed": args.seed, "data": data, "training": training}
    for name, examples in (("train", pairs.train), ("valid", pairs.valid)):
        write_pairs(folder / f"{pairs.name}.{name}.tsv", examples)
    files = [folder / f"{pairs.name}.{name}.tsv" for name in ("train", "valid")]
    model = pellucid.train(*files, folder / pairs.name.replace(" ", "-"), settings)
    traces = model.predict([pair.source for pair in pairs.test])
    right = sum(trace.output == pair.target for trace, pair in zip(traces, pairs.test, strict=True))
    yield {"pairs": pairs.name, "test pairs": len(pairs.test), "correct outputs": round(100 * right / len(traces), 1)}
    for name, limits in pairs.limits.items():
        started = time.perf_counter()
        aligned = pellucid.align([*pairs.train, *pairs.test], limits=limits, data=data)
        seconds = {"em": time.perf_counter() - started}
        found = {"em": links_of(aligned[len(pairs.train) :])}
        started = time.perf_counter()
        found["attention"] = links_of(pellucid.align(pairs.test, model, limits))
        seconds["attention"] = time.perf_counter() - started
        if args.phonetisaurus is not None:
            started = time.perf_counter()
            found["phonetisaurus"] = align_by_phonetisaurus(args.phonetisaurus, folder, pairs, limits)
            seconds["phonetisaurus"] = time.perf_counter() - started
        methods = list(found)
        for index, method in enumerate(methods):
            others = {"truth": pairs.truth} if pairs.truth else {other: found[other] for other in methods[:index]}
            for other, links in others.items():
                scores = compare(pairs.test, found[method], links)
                row = {"pairs": pairs.name, "limits": name, "method": method, "compared with": other, **scores}
                yield {**row, "seconds": round(seconds[method], 1)}


def main() -> None:
    """Parse the arguments, and print a line for each comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--language", default="fre")
    parser.add_argument("--words", type=Path, default=Path("/usr/share/dict/words"))
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--epochs", type=float, default=0)
    parser.add_argument("--only", nargs="+", default=["digits", "typos", "g2p"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phonetisaurus", type=Path, help="program phonetisaurus-align, to compare with")
    args = parser.parse_args()
    args.run.mkdir(parents=True, exist_ok=True)
    makers = {
        "digits": lambda: digits(args.seed),
        "typos": lambda: typos(args.words, args.seed),
        "g2p": lambda: pronunciations(args.data, args.language),
    }
    for name in args.only:
        for result in comparisons(args, makers[name]()):
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
