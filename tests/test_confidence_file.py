"""run_folder/confidence_file.py: the file is restored exactly; a damaged one is refused, and the field is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from pellucid.config.settings import SearchConfig
from pellucid.decoding.confidence import ConfidenceModel
from pellucid.errors import RunError
from pellucid.run_folder import confidence_file
from pellucid.run_folder.confidence_file import SavedConfidence, load_confidence, save_confidence

SAVED = SavedConfidence(
    ConfidenceModel(0.1234, 1.5, 450, (0.98765, 0.5), SearchConfig(beam_size=3), pair_ngram_weight=0.35), "fingerprint"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_confidence(tmp_path / "confidence.json", SAVED)
    return tmp_path / "confidence.json"


def test_the_file_is_restored_exactly(path: Path) -> None:
    assert load_confidence(path) == SAVED
    content = path.read_bytes()
    save_confidence(path, load_confidence(path))
    assert path.read_bytes() == content
    assert json.loads(content)["version"] == 1


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "other version": ({"version": 0}, "version"),
    "unknown field": ({"more": 1}, "more"),
    "missing field": ({"slope": ...}, "slope"),
    "not a number": ({"slope": "1"}, "slope"),
    "negative slope": ({"slope": -0.5}, "slope"),
    "no examples": ({"examples": 0}, "examples"),
    "fraction": ({"examples": 1.5}, "examples"),
    "too many": ({"examples": 10**9}, "examples"),
    "above one": ({"wrong": [1.5]}, "wrong"),
    "more wrong than examples": ({"wrong": [0.5] * 451}, "wrong"),
    "weight": ({"pair_ngram_weight": 1.5}, "pair_ngram_weight"),
    "search": ({"search": {"beam_size": 0}}, "beam_size"),
    "unknown setting": ({"search": {"beams": 1}}, "beams"),
    "fingerprint": ({"fingerprint": None}, "fingerprint"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_field_is_named(path: Path, change: str) -> None:
    values, field = CHANGES[change]
    content = {**json.loads(path.read_text("utf-8")), **values}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}), "utf-8")
    with pytest.raises(RunError) as caught:
        load_confidence(path)
    message = str(caught.value)
    assert message.startswith(f"{path} is damaged: ") and field in message
    assert "run the training command again, which writes it anew" in message


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"version": 1, "version": 1}',
        b'{"slope": NaN}',
        b'{"slope": 1e999}',
        b"[" * 100_000,
    ],
    ids=repr,
)
def test_other_content_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"is damaged: .*run the training command again"):
        load_confidence(path)


def test_numbers_that_are_not_finite_are_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"slope": 1.5', b'"slope": 1e999'))
    with pytest.raises(RunError, match=r"is damaged: .*slope"):
        load_confidence(path)


def test_the_size_is_limited(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confidence_file, "MAX_SIZE", 100)
    with pytest.raises(RunError, match="is too large: it has more than 100 bytes"):
        load_confidence(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"confidence\.json"):
        load_confidence(tmp_path / "confidence.json")
