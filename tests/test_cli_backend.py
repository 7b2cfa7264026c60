"""Choice of NumPy or PyTorch by the number of sources."""

from pathlib import Path

import pytest
from trained_runs import digits_run

from pellucid.cli import backend
from pellucid.cli.backend import PredictionBackend, is_worth_loading
from pellucid.runtime.predictor import RuntimePredictor


def test_pytorch_is_loaded_for_many_sources_in_all_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    # As in a process that has not loaded PyTorch.
    monkeypatch.setattr(PredictionBackend, "_needs_pytorch", lambda *arguments: False)
    chosen = PredictionBackend([digits_run().run], "cpu", lambda predictor: predictor)
    monkeypatch.setattr(backend, "MIN_SOURCES_TO_LOAD", 5)
    assert isinstance(chosen.predictor, RuntimePredictor)
    predictors = [chosen.for_sources(count) for count in (2, 2, 1, 1)]
    assert [isinstance(predictor, RuntimePredictor) for predictor in predictors] == [True, True, False, False]
    assert predictors[2] is predictors[3]


def test_pytorch_is_loaded_for_long_files_of_text(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"a" * (backend.MIN_TEXT_SIZE - 1))
    assert not is_worth_loading(text) and not is_worth_loading(Path("-"))
    text.write_bytes(b"a" * backend.MIN_TEXT_SIZE)
    assert is_worth_loading(text)
