"""The folder of compiled kernels: its name, its completeness and damage, and the message before a compilation."""

from pathlib import Path

import pytest

from pellucid.data.vocabulary import Vocabularies, Vocabulary
from pellucid.errors import RunError
from pellucid.kernels import compilation
from pellucid.reporting.progress import training_progress
from pellucid.training.events import ModelBuilt


def test_the_folder_name_depends_on_the_sources_only() -> None:
    folder = compilation.cache_folder()
    assert folder is not None and folder.is_dir()
    assert folder.name.startswith("kernels-") and len(folder.name) == len("kernels-") + 16


def test_a_folder_is_complete_once_all_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compilation, "cache_folder", lambda: tmp_path)
    (tmp_path / "a.nbc").write_bytes(b"")
    assert not compilation.is_cache_complete()
    compilation.mark_cache_complete()
    assert compilation.is_cache_complete()
    compilation.clear_cache()
    assert not compilation.is_cache_complete() and list(tmp_path.iterdir()) == []


def test_a_list_whose_writing_failed_counts_as_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A full disk left an empty list, with which no damage was found: damaged machine code crashed the process."""
    monkeypatch.setattr(compilation, "cache_folder", lambda: tmp_path)
    (tmp_path / "a.nbc").write_bytes(b"machine code")
    (tmp_path / compilation.COMPLETE).write_bytes(b"")
    assert not compilation.is_cache_complete()

    def fail(path: Path, content: bytes) -> None:
        raise RunError("the disk is full")

    (tmp_path / compilation.COMPLETE).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(compilation, "write_atomic", fail)
        compilation.mark_cache_complete()
    assert not compilation.is_cache_complete() and [path.name for path in tmp_path.iterdir()] == ["a.nbc"]
    compilation.mark_cache_complete()
    assert compilation.is_cache_complete()


def test_no_process_waits_without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "cache_folder", lambda: None)
    with compilation.compile_lock(), compilation.compile_lock():
        assert not compilation.is_cache_complete()


def test_a_changed_kernel_is_detected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compilation, "cache_folder", lambda: tmp_path)
    (tmp_path / "inner").mkdir()
    kernel = tmp_path / "inner" / "a.nbc"
    kernel.write_bytes(b"machine code")
    compilation.mark_cache_complete()
    assert not compilation.is_cache_damaged()
    (tmp_path / "inner" / "later.nbc").write_bytes(b"added by Numba")
    assert not compilation.is_cache_damaged()
    kernel.write_bytes(b"machine kode")
    assert compilation.is_cache_damaged()
    kernel.unlink()
    assert compilation.is_cache_damaged()


def test_the_name_depends_on_paths_times_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = list(compilation._fingerprint_parts())
    assert any(isinstance(part, tuple) and part[0].endswith("vocabulary.py") for part in parts)
    before = compilation.cache_folder.__wrapped__()
    monkeypatch.setattr(compilation, "version", lambda name: "0.0")
    assert compilation.cache_folder.__wrapped__() != before


@pytest.mark.parametrize("name", ["NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX"])
def test_the_name_depends_on_the_processor_that_numba_is_told(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Kernels for another processor would count as complete, and be compiled again in every process."""
    monkeypatch.delenv(name, raising=False)
    before = compilation.cache_folder.__wrapped__()
    for value in ("", "0"):
        monkeypatch.setenv(name, value)
        assert compilation.cache_folder.__wrapped__() != before


def test_an_environment_variable_sets_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PELLUCID_CACHE", str(tmp_path / "mine"))
    folder = compilation.cache_folder.__wrapped__()
    assert folder is not None and folder.parent == tmp_path / "mine" and folder.is_dir()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PELLUCID_CACHE", str(tmp_path / "file"))
    assert compilation.cache_folder.__wrapped__() is None


@pytest.mark.parametrize("compiles", [True, False])
def test_the_progress_reports_the_compilation(tmp_path: Path, compiles: bool) -> None:
    empty = Vocabulary((), ())
    with open(tmp_path / "progress", "w", encoding="utf-8") as stream, training_progress(stream) as reporter:
        reporter.report(ModelBuilt(Path("run"), "base", 1, Vocabularies(empty, empty, empty, 1, 1), False, compiles))
    assert ("compiling kernels once, for this machine" in (tmp_path / "progress").read_text("utf-8")) == compiles
