"""The study of the default size: an interrupted training begins anew."""

from pathlib import Path

import pytest

from benchmarks import size_study
from benchmarks.size_study import Training, measure


def test_an_interrupted_training_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: it was resumed, and the seconds were those of its last process."""
    run = tmp_path / "out" / "runs" / "1000-small-1"
    run.mkdir(parents=True)
    (run / "training.safetensors").touch()

    def run_pellucid(command: str, *arguments: str | Path) -> float:
        """Check that a training finds an empty folder, and write the errors of an evaluation."""
        assert not (run / "training.safetensors").exists()
        run.mkdir(exist_ok=True)
        (run / "errors.csv").write_text("source,target\nab,x\n")
        return 3.0 if command == "train" else 0.0

    monkeypatch.setattr(size_study, "run_pellucid", run_pellucid)
    result = measure(Training(1000, "small", 1), tmp_path, tmp_path / "out", [])
    assert result["seconds"] == 3 and [*result["wrong"].values()] == [["ab"], ["ab"]]
