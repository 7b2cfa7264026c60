"""Proteins: families, splits, attention profiles."""

import gzip
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import few

from pellucid.errors import DataError
from pellucid.recipes.proteins.localization import (
    HELD_OUT_FRACTION,
    LOCATIONS,
    MAX_RESIDUES,
    MAX_STRETCH_PROTEINS,
    MIN_SHARED_STRETCHES,
    PROFILE_BINS,
    PROFILE_RESIDUES,
    START_LENGTH,
    START_RESIDUES,
    STRETCH_LENGTH,
    Protein,
    assign_families,
    build_profile,
    count_near_copies,
    family_split,
    near_copy_pairs,
    profile_figure,
    profile_table,
    random_split,
    read_fasta,
    read_proteins,
    truncate_middle,
)
from pellucid.reporting.figures import to_svg

LETTERS = "ACDEFGHIKLMNPQRSTVWY"


def protein(seed: int, length: int = 200) -> str:
    return "".join(random.Random(seed).choices(LETTERS, k=length))


def test_unrelated_proteins_are_families_of_one() -> None:
    assert assign_families([protein(seed) for seed in range(20)]).tolist() == list(range(20))


def test_a_copy_with_some_other_residues_is_of_the_family() -> None:
    text = protein(1)
    changed = "".join("W" if at % 15 == 7 else letter for at, letter in enumerate(text))
    assert assign_families([protein(2), text, protein(3), changed]).tolist() == [0, 1, 2, 1]


def test_near_copies_of_near_copies_are_of_one_family() -> None:
    one, two = protein(1, 60), protein(2, 60)
    middle = one + two
    assert set(near_copy_pairs([one + protein(3), middle, two + protein(4)])) == {(0, 1), (1, 2)}
    assert assign_families([one + protein(3), middle, two + protein(4)]).tolist() == [0, 0, 0]


def test_one_common_stretch_is_no_evidence() -> None:
    stretch = protein(1, STRETCH_LENGTH + MIN_SHARED_STRETCHES - 2)
    assert not list(near_copy_pairs([protein(2) + stretch, protein(3) + stretch]))
    longer = protein(1, STRETCH_LENGTH + 10)
    assert list(near_copy_pairs([protein(2) + longer, protein(3) + longer])) == [(0, 1)]


def test_the_same_beginning_is_enough() -> None:
    text = protein(1, START_LENGTH)
    others = [text + "A" * at for at in range(3)]
    assert assign_families(others).tolist() == [0, 0, 0]


def test_stretches_of_many_proteins_are_ignored() -> None:
    repeat = protein(1, 40)
    texts = [protein(seed, 60) + repeat for seed in range(10, 11 + MAX_STRETCH_PROTEINS)]
    assert set(assign_families(texts[:-1]).tolist()) == {0}
    assert (
        len(set(assign_families(texts).tolist())) > MAX_STRETCH_PROTEINS / 2
    )  # by chance some have the residues before it in common, too


@few
@given(st.lists(st.text("ACD", min_size=1, max_size=40), min_size=1, max_size=12), st.randoms())
def test_the_order_of_the_proteins_does_not_matter(texts: list[str], shuffler: random.Random) -> None:
    order = list(range(len(texts)))
    shuffler.shuffle(order)
    found, moved = assign_families(texts), assign_families([texts[at] for at in order])
    same = found[:, None] == found[None, :]
    moved_back = np.empty_like(moved)
    moved_back[order] = moved
    assert (same == (moved_back[:, None] == moved_back[None, :])).all()
    assert found[0] == 0 and set(found.tolist()) == set(range(found.max() + 1))


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
def test_invalid_fasta_raises_data_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.fasta.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.fasta\.gz is no FASTA file with gzip compression"):
        list(read_fasta(tmp_path / "x.fasta.gz"))


def test_missing_header_error_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 1: expected a header .*'MKL'"):
        list(read_fasta(fasta(tmp_path / "x.fasta.gz", "MKL\n>a\nM\n")))


def test_locations_are_files_and_duplicates_are_removed(tmp_path: Path) -> None:
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


def test_no_family_is_in_two_splits() -> None:
    given = proteins()
    pairs = family_split(given)
    of = dict(zip((p.example for p in given), assign_families([p.residues for p in given]).tolist(), strict=True))
    parts = [{of[example] for example in part} for part in pairs]
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]
    assert count_near_copies(given, pairs) == (len(pairs.test), 0)
    assert count_near_copies(given, random_split(given))[1] > 0


def test_equal_weights_are_the_measure() -> None:
    profile = build_profile([np.full(length, 1 / length) for length in (25, 150, 400)])
    assert profile.proteins == 3
    assert profile.beginning == pytest.approx([1.0] * PROFILE_RESIDUES)
    assert profile.along == pytest.approx([100 / PROFILE_BINS] * PROFILE_BINS)
    for share in profile.shares:
        assert share.attention == pytest.approx(share.uniform)
        assert share.interval.low <= share.attention <= share.interval.high


def test_shares_of_the_beginning_are_counted_protein_by_protein() -> None:
    first, last = np.zeros(100), np.zeros(100)
    first[START_RESIDUES[0] - 1], last[START_RESIDUES[0]] = 1.0, 1.0
    short, long = build_profile([first, last]).shares
    assert (short.residues, long.residues) == START_RESIDUES
    assert short.attention == pytest.approx(50) and short.uniform == pytest.approx(30)
    assert long.attention == pytest.approx(100) and long.uniform == pytest.approx(60)
    assert long.interval.low == long.interval.high == pytest.approx(100)


def test_parts_of_a_protein_shorter_than_the_parts_share_its_residues() -> None:
    profile = build_profile([np.array([0.25, 0.75])])
    assert profile.along == pytest.approx([2.5] * (PROFILE_BINS // 2) + [7.5] * (PROFILE_BINS // 2))
    assert profile.beginning[:2] == pytest.approx([0.5, 1.5]) and np.isnan(profile.beginning[2:]).all()


def test_the_table_and_the_picture_hold_every_place() -> None:
    generator = np.random.default_rng(1)
    rows = [generator.dirichlet(np.ones(length)) for length in (120, 300)]
    profiles = {place: build_profile(rows).to_json() for place in ("nucleus", "secreted")}
    table = profile_table(profiles)
    assert [row[0] for row in table.rows] == ["nucleus"] * 2 + ["secreted"] * 2
    assert all(len(row) == len(table.heads) for row in table.rows)
    drawing = to_svg(profile_figure(profiles))
    assert drawing.count("(2)") == 2 and "nucleus" in drawing and "secreted" in drawing
