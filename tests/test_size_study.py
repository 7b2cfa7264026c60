"""The study of the default size: an interrupted training begins anew; results of other data or options are refused."""

from pathlib import Path

import pytest

from benchmarks import size_study
from benchmarks.size_study import Training, describe_question, measure, train_missing
from pellucid.files import write_json


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


def test_a_result_of_other_data_or_options_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: a study with other options printed the earlier results."""
    training, options = Training(1000, "small", 1), ["--target-symbols", "words"]
    (tmp_path / "results").mkdir()
    write_json(tmp_path / "results" / "1000-small-1.json", describe_question(training, tmp_path, options))
    monkeypatch.setattr(size_study, "measure", lambda *_: pytest.fail("it has a result"))
    train_missing([training], tmp_path, tmp_path, options)
    with pytest.raises(SystemExit, match=r"1000-small-1\.json is of other options: remove it"):
        train_missing([training], tmp_path, tmp_path, [*options, "--dropout", "0.2"])
    with pytest.raises(SystemExit, match="is of other data: remove it"):
        train_missing([training], tmp_path / "other", tmp_path, options)
