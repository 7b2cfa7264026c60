"""Near-copies found, families of them, and nothing else."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from small import few

from pellucid.recipes.proteins.localization import (
    MAX_STRETCH_PROTEINS,
    MIN_SHARED_STRETCHES,
    START_LENGTH,
    STRETCH_LENGTH,
    assign_families,
    near_copy_pairs,
)

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


def test_one_stretch_in_common_is_too_little() -> None:
    stretch = protein(1, STRETCH_LENGTH + MIN_SHARED_STRETCHES - 2)
    assert not list(near_copy_pairs([protein(2) + stretch, protein(3) + stretch]))
    longer = protein(1, STRETCH_LENGTH + 10)
    assert list(near_copy_pairs([protein(2) + longer, protein(3) + longer])) == [(0, 1)]


def test_the_same_beginning_is_enough() -> None:
    text = protein(1, START_LENGTH)
    others = [text + "A" * at for at in range(3)]
    assert assign_families(others).tolist() == [0, 0, 0]


def test_stretches_of_very_many_proteins_tell_nothing() -> None:
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
