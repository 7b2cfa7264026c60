"""auditing/label_proposals.py: the least certain sources, without near duplicates."""

from pathlib import Path

import msgspec
import pytest
from audited_pairs import make_entries, spelled_pairs, word_config
from rapidfuzz.distance import Levenshtein

from pellucid.auditing.label_proposals import (
    MIN_DISTANCE,
    LabelProposal,
    count_labeled,
    proposals_csv,
    propose_sources,
    read_unlabeled,
)
from pellucid.auditing.types import AuditEntry, AuditOptions
from pellucid.config.settings import DataConfig
from pellucid.data.examples import Example
from pellucid.errors import DataError

LABELED = make_entries(spelled_pairs(200))
UNLABELED = [
    AuditEntry(line, Example(word, "")) for line, word in enumerate(["bbg", "xyzxy", "xyzxyz", "wvu", "aab"], 1)
]


def propose(count: int, options: AuditOptions | None = None) -> list[LabelProposal]:
    config = word_config()
    config = msgspec.structs.replace(config, training=msgspec.structs.replace(config.training, epochs=1.0))
    return propose_sources(LABELED, UNLABELED, count, config, options or AuditOptions())


def test_uncertain_sources_come_first_and_near_duplicates_and_labeled_sources_are_left_out() -> None:
    labeled = {entry.example.source for entry in LABELED}
    proposals = propose(5)
    sources = [proposal.entry.example.source for proposal in proposals]
    assert {*sources[:2]} <= {"xyzxy", "xyzxyz", "wvu"} and not labeled & {*sources}
    assert len(sources) == len(set(sources)) and not {"xyzxy", "xyzxyz"} <= {*sources}
    pairs = [(first, second) for first in sources for second in sources if first < second]
    assert all(Levenshtein.normalized_distance(*pair) >= MIN_DISTANCE for pair in pairs)
    uncertainties = [proposal.uncertainty for proposal in proposals]
    assert uncertainties == sorted(uncertainties, reverse=True)
    assert propose(1) == proposals[:1]


def test_networks_propose_as_well() -> None:
    assert len(propose(2, AuditOptions(models="both"))) == 2


def test_models_that_cannot_be_fitted_are_an_error() -> None:
    labeled = make_entries([Example("a", "x " * 50), Example("b", "x " * 50)])
    with pytest.raises(DataError, match=r'use models = "network" \(--models network\)'):
        propose_sources(labeled, UNLABELED, 1, word_config(), AuditOptions())


def test_proposals_are_written_as_csv() -> None:
    rows = proposals_csv([LabelProposal(AuditEntry(7, Example("a,b", "")), "A", 1.5)]).splitlines()
    assert rows == ["rank,source,features,output,uncertainty", '1,"a,b",,A,1.500']


def test_unlabeled_sources_are_lines_or_the_source_column(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("ab\n\ncd\n")
    (tmp_path / "words.csv").write_text("id,word\n1,ab\n2,cd\n")
    plain = read_unlabeled(tmp_path / "words.txt", DataConfig(header=False))
    assert [(entry.line, entry.example.source) for entry in plain.entries] == [(1, "ab"), (3, "cd")]
    table = read_unlabeled(tmp_path / "words.csv", DataConfig(header=True, source_column="word", target_column="ipa"))
    assert [(entry.line, entry.example.source) for entry in table.entries] == [(1, "ab"), (2, "cd")]


def test_a_first_line_that_may_be_a_header_is_reported(tmp_path: Path) -> None:
    """Regression test: the name of the column was proposed for labeling."""
    (tmp_path / "words.txt").write_text("word\nab\ncd\n")
    (note,) = read_unlabeled(tmp_path / "words.txt", DataConfig()).notes
    assert note.startswith(f"{tmp_path / 'words.txt'}:1: the first line may be a header")


def test_a_source_with_other_features_is_another_source() -> None:
    """Regression test: of a lemma, one set of features was proposed, and none if it had a target with another."""
    forms = ["SG", "PL"]
    labeled = make_entries([pair._replace(features=form) for pair in spelled_pairs(60) for form in forms])
    words = [LABELED[0].example.source, "xyzxy", "wvuwv"]
    unlabeled = make_entries([Example(word, "", form) for word in words for form in ("SG", "DU")])
    config = word_config()
    data = msgspec.structs.replace(config.data, features_column="3")
    config = msgspec.structs.replace(config, data=data)
    proposals = propose_sources(labeled, unlabeled, 9, config, AuditOptions())
    proposed = {(proposal.entry.example.source, proposal.entry.example.features) for proposal in proposals}
    assert proposed == {(words[0], "DU"), *((word, form) for word in words[1:] for form in ("SG", "DU"))}
    assert count_labeled(labeled, unlabeled, data) == 1
    # A list without features names sources, which are labeled with any features.
    plain = make_entries([Example(word, "") for word in words])
    assert count_labeled(labeled, plain, data) == 1
    # Contexts are no features: the same word in another sentence is the same source.
    contexts = msgspec.structs.replace(config.data, context_words=1)
    assert count_labeled(labeled, unlabeled, contexts) == 1
