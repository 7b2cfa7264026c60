"""Localization of proteins: families, splits, and attention profiles."""

import gzip
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_networks import few_examples

from pellucid.errors import DataError
from pellucid.recipes.proteins.localization import (
    HELD_OUT_FRACTION,
    KMER_LENGTH,
    LOCATIONS,
    MAX_KMER_PROTEINS,
    MAX_RESIDUES,
    MIN_SHARED_KMERS,
    PROFILE_BINS,
    PROFILE_RESIDUES,
    START_LENGTH,
    START_RESIDUES,
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


def random_residues(seed: int, length: int = 200) -> str:
    return "".join(random.Random(seed).choices(LETTERS, k=length))


def test_unrelated_proteins_are_families_of_one() -> None:
    assert assign_families([random_residues(seed) for seed in range(20)]).tolist() == list(range(20))


def test_copy_with_some_other_residues_is_in_the_family() -> None:
    text = random_residues(1)
    changed = "".join("W" if position % 15 == 7 else letter for position, letter in enumerate(text))
    assert assign_families([random_residues(2), text, random_residues(3), changed]).tolist() == [0, 1, 2, 1]


def test_near_copies_of_near_copies_are_in_one_family() -> None:
    one, two = random_residues(1, 60), random_residues(2, 60)
    middle = one + two
    assert set(near_copy_pairs([one + random_residues(3), middle, two + random_residues(4)])) == {(0, 1), (1, 2)}
    assert assign_families([one + random_residues(3), middle, two + random_residues(4)]).tolist() == [0, 0, 0]


def test_proteins_with_too_few_common_kmers_are_no_near_copies() -> None:
    common = random_residues(1, KMER_LENGTH + MIN_SHARED_KMERS - 2)
    assert not list(near_copy_pairs([random_residues(2) + common, random_residues(3) + common]))
    longer = random_residues(1, KMER_LENGTH + 10)
    assert list(near_copy_pairs([random_residues(2) + longer, random_residues(3) + longer])) == [(0, 1)]


def test_proteins_with_the_same_first_residues_are_one_family() -> None:
    text = random_residues(1, START_LENGTH)
    texts = [text + "A" * count for count in range(3)]
    assert assign_families(texts).tolist() == [0, 0, 0]


def test_kmers_of_many_proteins_are_ignored() -> None:
    repeat = random_residues(1, 40)
    texts = [random_residues(seed, 60) + repeat for seed in range(10, 11 + MAX_KMER_PROTEINS)]
    assert set(assign_families(texts[:-1]).tolist()) == {0}
    # By chance, some proteins also share residues before the repeat.
    assert len(set(assign_families(texts).tolist())) > MAX_KMER_PROTEINS / 2


@few_examples
@given(st.lists(st.text("ACD", min_size=1, max_size=40), min_size=1, max_size=12), st.randoms())
def test_the_order_of_the_proteins_does_not_matter(texts: list[str], shuffler: random.Random) -> None:
    order = list(range(len(texts)))
    shuffler.shuffle(order)
    families, shuffled = assign_families(texts), assign_families([texts[index] for index in order])
    same_family = families[:, None] == families[None, :]
    restored = np.empty_like(shuffled)
    restored[order] = shuffled
    assert (same_family == (restored[:, None] == restored[None, :])).all()
    assert families[0] == 0 and set(families.tolist()) == set(range(families.max() + 1))


def write_fasta(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()))
    return path


def make_proteins(count: int = 120) -> list[Protein]:
    """Return proteins; one third of them are near-copies of another third."""
    generator = random.Random(1)
    originals = [
        Protein("".join(generator.choices("ACDEFGHIKLMNPQRSTVWY", k=60)), "nucleus") for _ in range(2 * count // 3)
    ]
    return originals + [Protein("M" + each.residues[:50], each.location) for each in originals[: count // 3]]


def test_sequences_are_joined_from_their_lines(tmp_path: Path) -> None:
    path = write_fasta(tmp_path / "x.fasta.gz", ">sp|1 a > b\nMKL\nAC*\n\n>empty\n>two\nMW\n")
    assert list(read_fasta(path)) == list(read_fasta(tmp_path / "x.fasta")) == ["MKLAC", "MW"]
    (tmp_path / "y.fasta").write_text(">a\nMKL\n")
    assert list(read_fasta(tmp_path / "y.fasta")) == ["MKL"]


@pytest.mark.parametrize(
    "content", [b"not packed", gzip.compress("é".encode(), mtime=0)], ids=["uncompressed", "compressed"]
)
def test_invalid_fasta_raises_data_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.fasta.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.fasta\.gz is not a FASTA file with gzip compression"):
        list(read_fasta(tmp_path / "x.fasta.gz"))


def test_missing_header_error_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 1: expected a header .*'MKL'"):
        list(read_fasta(write_fasta(tmp_path / "x.fasta.gz", "MKL\n>a\nM\n")))


def test_locations_are_files_and_duplicates_are_removed(tmp_path: Path) -> None:
    for name in LOCATIONS:
        write_fasta(tmp_path / f"{name}.fasta.gz", f">a\nM{name.upper()}\n>b\nMK\n>c\nMK\n")
    proteins_ = read_proteins(tmp_path)
    assert [each.location for each in proteins_] == [location for location in LOCATIONS.values() for _ in range(2)]
    assert proteins_[1] == Protein("MK", "cytosol")


def test_a_long_protein_keeps_both_ends() -> None:
    text = "".join(random.Random(1).choices("ACDE", k=MAX_RESIDUES + 7))
    assert truncate_middle(text[:MAX_RESIDUES]) == text[:MAX_RESIDUES]
    assert (
        truncate_middle(text) == text[: MAX_RESIDUES // 2] + text[-MAX_RESIDUES // 2 :]
        and len(truncate_middle(text)) == MAX_RESIDUES
    )


@pytest.mark.parametrize("split", [random_split, family_split])
def test_splits_contain_every_protein_once_and_are_deterministic(split: type) -> None:
    all_proteins = make_proteins()
    splits = split(all_proteins)
    assert sorted([*splits.train, *splits.dev, *splits.test]) == sorted(each.example for each in all_proteins)
    held_out = round(HELD_OUT_FRACTION * len(all_proteins))
    assert len(splits.test) == held_out and held_out - 1 <= len(splits.dev) <= held_out
    assert split(all_proteins) == splits


def test_no_family_is_in_two_splits() -> None:
    all_proteins = make_proteins()
    splits = family_split(all_proteins)
    families = assign_families([each.residues for each in all_proteins]).tolist()
    family_of = dict(zip((each.example for each in all_proteins), families, strict=True))
    train, dev, test = ({family_of[example] for example in split} for split in splits)
    assert not train & dev and not train & test and not dev & test
    assert count_near_copies(all_proteins, splits) == (len(splits.test), 0)
    assert count_near_copies(all_proteins, random_split(all_proteins))[1] > 0


def test_uniform_attention_has_uniform_shares() -> None:
    profile = build_profile([np.full(length, 1 / length) for length in (25, 150, 400)])
    assert profile.proteins == 3
    assert profile.beginning == pytest.approx([1.0] * PROFILE_RESIDUES)
    assert profile.by_bin == pytest.approx([100 / PROFILE_BINS] * PROFILE_BINS)
    for share in profile.shares:
        assert share.attention == pytest.approx(share.uniform)
        assert share.interval.low <= share.attention <= share.interval.high


def test_shares_of_the_first_residues_are_means_over_proteins() -> None:
    first, last = np.zeros(100), np.zeros(100)
    first[START_RESIDUES[0] - 1], last[START_RESIDUES[0]] = 1.0, 1.0
    short, long = build_profile([first, last]).shares
    assert (short.residues, long.residues) == START_RESIDUES
    assert short.attention == pytest.approx(50) and short.uniform == pytest.approx(30)
    assert long.attention == pytest.approx(100) and long.uniform == pytest.approx(60)
    assert long.interval.low == long.interval.high == pytest.approx(100)


def test_residues_are_divided_between_bins_of_a_short_protein() -> None:
    profile = build_profile([np.array([0.25, 0.75])])
    assert profile.by_bin == pytest.approx([2.5] * (PROFILE_BINS // 2) + [7.5] * (PROFILE_BINS // 2))
    assert profile.beginning[:2] == pytest.approx([0.5, 1.5]) and np.isnan(profile.beginning[2:]).all()


def test_table_and_figure_have_every_location() -> None:
    generator = np.random.default_rng(1)
    rows = [generator.dirichlet(np.ones(length)) for length in (120, 300)]
    profiles = {location: build_profile(rows).to_json() for location in ("nucleus", "secreted")}
    table = profile_table(profiles)
    assert [row[0] for row in table.rows] == ["nucleus"] * 2 + ["secreted"] * 2
    assert all(len(row) == len(table.heads) for row in table.rows)
    svg = to_svg(profile_figure(profiles))
    assert svg.count("(2)") == 2 and "nucleus" in svg and "secreted" in svg
