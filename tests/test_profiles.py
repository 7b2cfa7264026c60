"""Attention along proteins: shares, profiles, tables and pictures, from weights whose answer is known."""

import numpy as np
import pytest

from pellucid.recipes.proteins.profiles import (
    BINS,
    SHOWN,
    STARTS,
    profile_figure,
    profile_of,
    profile_table,
)
from pellucid.reporting.figures import to_svg


def test_equal_weights_are_the_measure() -> None:
    profile = profile_of([np.full(length, 1 / length) for length in (25, 150, 400)])
    assert profile.proteins == 3
    assert profile.beginning == pytest.approx([1.0] * SHOWN)
    assert profile.along == pytest.approx([100 / BINS] * BINS)
    for share in profile.shares:
        assert share.attention == pytest.approx(share.uniform)
        assert share.interval.low <= share.attention <= share.interval.high


def test_shares_of_the_beginning_are_counted_protein_by_protein() -> None:
    first, last = np.zeros(100), np.zeros(100)
    first[STARTS[0] - 1], last[STARTS[0]] = 1.0, 1.0
    short, long = profile_of([first, last]).shares
    assert (short.residues, long.residues) == STARTS
    assert short.attention == pytest.approx(50) and short.uniform == pytest.approx(30)
    assert long.attention == pytest.approx(100) and long.uniform == pytest.approx(60)
    assert long.interval.low == long.interval.high == pytest.approx(100)


def test_parts_of_a_protein_shorter_than_the_parts_share_its_residues() -> None:
    profile = profile_of([np.array([0.25, 0.75])])
    assert profile.along == pytest.approx([2.5] * (BINS // 2) + [7.5] * (BINS // 2))
    assert profile.beginning[:2] == pytest.approx([0.5, 1.5]) and np.isnan(profile.beginning[2:]).all()


def test_the_table_and_the_picture_hold_every_place() -> None:
    generator = np.random.default_rng(1)
    rows = [generator.dirichlet(np.ones(length)) for length in (120, 300)]
    profiles = {place: profile_of(rows).told() for place in ("nucleus", "secreted")}
    table = profile_table(profiles)
    assert [row[0] for row in table.rows] == ["nucleus"] * 2 + ["secreted"] * 2
    assert all(len(row) == len(table.heads) for row in table.rows)
    drawing = to_svg(profile_figure(profiles))
    assert drawing.count("(2)") == 2 and "nucleus" in drawing and "secreted" in drawing
