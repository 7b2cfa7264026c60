"""Recipes of string transduction: reading of the data sets."""

from pathlib import Path

import pytest
from recipe_data import SPLIT_SIZES, make_pairs, write_histnorm, write_lines

from pellucid.data.examples import Example
from pellucid.errors import DataError
from pellucid.recipes import transduction


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Auff", "auf", Example("auff", "auf")),
        ("Kra\u0308uter", "Kräuter", Example("kräuter", "kräuter")),
        (".", ".", None),
        ("vnd", ",", None),
        ("", "", None),
        ("Nr.", "Nr.", Example("nr.", "nr.")),
        ("1482.", "1482.", Example("0000.", "0000.")),
        ("12", "zwölf", Example("12", "zwölf")),
        ("zu gleich", "zugleich", Example("zu gleich", "zugleich")),
    ],
)
def test_tokens_are_preprocessed_as_for_the_published_numbers(
    source: str, target: str, expected: Example | None
) -> None:
    assert transduction.normalize_pair(source, target) == expected


def test_histnorm_sizes_take_the_first_tokens_of_the_training_file(tmp_path: Path) -> None:
    write_histnorm(tmp_path)
    (experiment,) = (each for each in transduction.histnorm_suite().experiments if each.name == "ridges-1k")
    splits = experiment.read_splits(tmp_path)
    assert [pair.target for pair in splits.train] == [pair.target for pair in make_pairs("train")]
    for part, code in (("train", "train"), ("dev", "dev"), ("test", "test")):
        assert len(getattr(splits, part)) == SPLIT_SIZES[code]
    write_lines(tmp_path / "german-ridges.train.txt", ["a\tb"] * 1500)
    assert len(experiment.read_splits(tmp_path).train) == 1000


def test_scan_validation_pairs_are_not_trained_on(tmp_path: Path) -> None:
    lines = [f"IN: run{number} OUT: I_RUN" for number in range(40)]
    for part in ("train", "test"):
        write_lines(tmp_path / f"tasks_{part}_simple.txt", lines)
    splits = transduction.scan_suite().experiments[0].read_splits(tmp_path)
    assert len(splits.dev) == 10 and not set(splits.dev) & set(splits.train)
    assert len(splits.train) == 30 and len(splits.test) == 40
    write_lines(tmp_path / "tasks_test_simple.txt", ["IN: run"])
    with pytest.raises(DataError, match="line 1: expected 'IN: command OUT: actions'"):
        transduction.scan_suite().experiments[0].read_splits(tmp_path)


def test_published_macro_average_of_g2p() -> None:
    published = [next(iter(each.published.values())) for each in transduction.g2p_suite().experiments if each.published]
    assert len(published) == 8 and sum(published) / 8 == pytest.approx(14.92, abs=0.005)
    assert len(transduction.g2p_suite().experiments) == 15
