"""The report of the typo recipes has accuracy tables, an animation and highlights."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from pellucid.data.synthetic import Typo, WordList
from pellucid.recipes.typos.report import (
    POST_BLUES,
    build_typo_cases,
    embedding_animation_svg,
    rows_by_ambiguity,
    rows_by_length,
    rows_by_letter,
)
from pellucid.recipes.typos.training import (
    POST_WORDS,
)


def test_accuracy_by_length_letter_and_ambiguity() -> None:
    words = WordList(["bank", "bark", "tables", "table", "tally"])
    typos = [Typo("bapk", 3, "bank"), Typo("tably", 5, "table"), Typo("tabies", 4, "tables")]
    cases = build_typo_cases(words, typos, np.array([1, 3, 4]))
    assert [(case.num_words, case.num_positions, case.best_accuracy) for case in cases] == [
        (2, 1, 1.0),
        (2, 2, 0.5),
        (1, 1, 1.0),
    ]
    rows = {row.label: row for row in [*rows_by_length(cases), *rows_by_letter(cases), *rows_by_ambiguity(cases)]}
    assert rows["all"][1:] == pytest.approx((3, 1 / 3, 2 / 3, 2 / 3, 1 / 3, 5 / 6))
    assert rows["up to 5 letters"].total == 2 and rows["8 letters or more"].total == 0 and rows["6"].top_3 == 0
    assert rows["right letter a vowel"].total == 1 and rows["wrong letter a vowel"].total == 1
    assert rows["right letter a consonant, wrong letter a vowel"].total == 1
    assert rows["several words, one position"].total == 1 and rows["short: one word fits"].total == 0


def test_animation_points_are_inside_the_picture() -> None:
    embeddings = np.random.default_rng(1).normal(size=(5, 28, 2)) * 9
    root = ET.fromstring(embedding_animation_svg(embeddings, "a < b"))
    points = [
        float(value)
        for each in root.iter()
        if each.tag.endswith("animateTransform")
        for pair in each.attrib["values"].split(";")
        for value in pair.split()
    ]
    assert min(points) > 0 and max(points) < 560


def test_post_figure_positions_exist() -> None:
    assert list(POST_BLUES) == list(POST_WORDS)
    assert all(1 <= position <= len(word) for word, blues in POST_BLUES.items() for position in blues)
