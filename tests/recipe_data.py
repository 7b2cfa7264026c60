"""Generated files in the formats of the data sets of the recipes."""

import gzip
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trained_runs import make_copy_examples

from pellucid.data.examples import Example
from pellucid.recipes import sequence_tagging as tagging
from pellucid.recipes import transduction
from pellucid.recipes.proteins.localization import LOCATIONS
from pellucid.recipes.recipe import RecipeRequest

SPLIT_SIZES = {"train": 24, "dev": 8, "test": 12}


class RecipeRun(NamedTuple):
    """Output lines and report of a recipe that ran on generated data."""

    name: str
    request: RecipeRequest
    lines: list[str]
    report: dict[str, Any]


def write_lines(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def make_pairs(split: str) -> list[Example]:
    return make_copy_examples(SPLIT_SIZES[split], seed=list(SPLIT_SIZES).index(split) + 1)


def write_g2p(folder: Path) -> None:
    for split in SPLIT_SIZES:
        for language in ("arm", "ady", "bul"):
            if split != "test" or language != "ady":
                lines = [f"{example.source}\t{' '.join(example.target)}" for example in make_pairs(split)]
                write_lines(folder / split / f"{language}_{split}.tsv", lines)


def write_histnorm(folder: Path) -> None:
    for name in transduction.HISTNORM_FILES.values():
        for split in SPLIT_SIZES:
            lines = [f"{example.source.upper()}\t{example.target}" for example in make_pairs(split)]
            write_lines(folder / f"{name}.{split}.txt", [*lines[:5], "", ".\t.", "\t", *lines[5:], "alone"])


def write_translit(folder: Path) -> None:
    for name in ("hebrew", "arabic"):
        for split, suffix in zip(SPLIT_SIZES, ("64", "16", "20"), strict=True):
            lines = [f"{example.source}\t{' '.join(example.target)}\t3" for example in make_pairs(split)]
            write_lines(folder / f"wd_{name}_{suffix}", lines)


def write_codespell(folder: Path) -> None:
    for split in SPLIT_SIZES:
        write_lines(folder / f"{split}.tsv", [f"{example.source}\t{example.target}" for example in make_pairs(split)])


def write_scan(folder: Path) -> None:
    for split in ("train", "test"):
        for experiment in ("simple", "length"):
            lines = [f"IN: {' '.join(example.source)} OUT: {' '.join(example.target)}" for example in make_pairs(split)]
            write_lines(folder / f"tasks_{split}_{experiment}.txt{'.gz' if experiment == 'simple' else ''}", lines)


def write_snips(folder: Path) -> None:
    generator = random.Random(1)
    for split, count in zip(tagging.SNIPS_SPLITS, SPLIT_SIZES.values(), strict=True):
        sentences = [generator.choices(["play", "rain", "in", "paris", "berlin", "7"], k=4) for _ in range(count)]
        tags = [["B-city" if word in ("paris", "berlin") else "O" for word in sentence] for sentence in sentences]
        write_lines(folder / split / "seq.in", [" ".join(sentence) for sentence in sentences])
        write_lines(folder / split / "seq.out", [f"{' '.join(sentence)} " for sentence in tags])
        labels = ["Play" if "play" in sentence else "Rain" for sentence in sentences]
        if split == "test":  # so that an output is wrong
            labels[0] = "Rain" if labels[0] == "Play" else "Play"
        write_lines(folder / split / "label", labels)


def write_structure(folder: Path) -> None:
    generator = random.Random(2)
    for split, count in SPLIT_SIZES.items():
        rows = []
        for number in range(count):
            residues = "".join(generator.choices("AGV", k=generator.randint(4, 9)))
            structure = "".join({"A": "H", "G": "C", "V": "E"}[residue] for residue in residues)
            rows.append(f"id{number}\t{residues}\t{structure}\t0{'1' * (len(residues) - 1)}")
        write_lines(folder / "derived-tsv" / f"{split}.tsv.gz", [*rows, "nowhere\tAG\tHC\t00"])


def write_locations(folder: Path) -> None:
    generator = random.Random(3)
    for name, letters in zip(LOCATIONS, ("AC", "DE", "KR", "LV"), strict=True):
        texts = ["".join(generator.choices(letters, k=generator.randint(5, 40))) for _ in range(15)]
        write_lines(folder / f"{name}.fasta.gz", [line for text in texts for line in (">a protein", text)])
