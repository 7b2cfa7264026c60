"""Proteins from FASTA files, cut and split."""

import gzip
import random
from pathlib import Path

import pytest

from pellucid.errors import DataError
from pellucid.recipes.proteins.localization import (
    HELD_OUT_FRACTION,
    LOCATIONS,
    MAX_RESIDUES,
    Protein,
    assign_families,
    count_near_copies,
    family_split,
    random_split,
    read_fasta,
    read_proteins,
    truncate_middle,
)


def fasta(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()))
    return path


def proteins(count: int = 120) -> list[Protein]:
    """A third of them near-copies of another third."""
    generator = random.Random(1)
    made = [Protein("".join(generator.choices("ACDEFGHIKLMNPQRSTVWY", k=60)), "nucleus") for _ in range(2 * count // 3)]
    return made + [Protein("M" + protein.residues[:50], protein.place) for protein in made[: count // 3]]


def test_sequences_are_joined_from_their_lines(tmp_path: Path) -> None:
    path = fasta(tmp_path / "x.fasta.gz", ">sp|1 a > b\nMKL\nAC*\n\n>empty\n>two\nMW\n")
    assert list(read_fasta(path)) == ["MKLAC", "MW"]


@pytest.mark.parametrize("content", [b"not packed", gzip.compress("é".encode(), mtime=0)], ids=["plain", "packed"])
def test_what_is_no_packed_fasta_is_told(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.fasta.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.fasta\.gz is no FASTA file with gzip compression"):
        list(read_fasta(tmp_path / "x.fasta.gz"))


def test_a_sequence_without_a_header_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 1: expected a header .*'MKL'"):
        list(read_fasta(fasta(tmp_path / "x.fasta.gz", "MKL\n>a\nM\n")))


def test_places_are_the_files_and_the_same_protein_stands_once(tmp_path: Path) -> None:
    for name in LOCATIONS:
        fasta(tmp_path / f"{name}.fasta.gz", f">a\nM{name.upper()}\n>b\nMK\n>c\nMK\n")
    found = read_proteins(tmp_path)
    assert [protein.place for protein in found] == [place for place in LOCATIONS.values() for _ in range(2)]
    assert found[1] == Protein("MK", "cytosol")


def test_a_long_protein_keeps_both_ends() -> None:
    text = "".join(random.Random(1).choices("ACDE", k=MAX_RESIDUES + 7))
    assert truncate_middle(text[:MAX_RESIDUES]) == text[:MAX_RESIDUES]
    assert (
        truncate_middle(text) == text[: MAX_RESIDUES // 2] + text[-MAX_RESIDUES // 2 :]
        and len(truncate_middle(text)) == MAX_RESIDUES
    )


@pytest.mark.parametrize("split", [random_split, family_split])
def test_splits_hold_every_protein_once_and_do_not_change(split: type) -> None:
    given = proteins()
    pairs = split(given)
    assert sorted([*pairs.train, *pairs.dev, *pairs.test]) == sorted(protein.example for protein in given)
    held = round(HELD_OUT_FRACTION * len(given))
    assert len(pairs.test) == held and held - 1 <= len(pairs.dev) <= held
    assert split(given) == pairs


def test_no_family_stands_on_both_sides() -> None:
    given = proteins()
    pairs = family_split(given)
    of = dict(zip((p.example for p in given), assign_families([p.residues for p in given]).tolist(), strict=True))
    parts = [{of[example] for example in part} for part in pairs]
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]
    assert count_near_copies(given, pairs) == (len(pairs.test), 0)
    assert count_near_copies(given, random_split(given))[1] > 0
