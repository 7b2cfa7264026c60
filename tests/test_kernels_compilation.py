"""The folder of compiled kernels: its name, its completeness and damage, and the message before a compilation."""

import os
from pathlib import Path
from typing import Any

import pytest
from unprivileged import ordinary_permissions

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


def test_the_cache_of_the_user_is_that_of_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A complete cache in ~/.cache is used, too, if XDG_CACHE_HOME names another folder."""
    monkeypatch.delenv("PELLUCID_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    default = Path.home() / ".cache" / "pellucid"
    assert compilation._candidate_folders()[1:] == [tmp_path / "pellucid", default]
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert compilation._candidate_folders()[1:] == [default]


def add_one(number: float) -> float:
    return number + 1


@pytest.mark.skipif(os.name == "nt", reason="file permissions of POSIX")
def test_a_complete_cache_that_cannot_be_written_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Regression test: each process compiled the kernels of a package that another user had installed."""
    monkeypatch.setenv("PELLUCID_CACHE", str(tmp_path / "mine"))
    folder = compilation.cache_folder.__wrapped__()
    assert folder is not None
    monkeypatch.setattr(compilation, "cache_folder", lambda: folder)
    dispatcher: Any = compilation.njit(add_one)
    assert dispatcher(1) == 2 and dispatcher.stats.cache_misses
    compilation.mark_cache_complete()
    folders = [folder.parent, folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for each in folders:
        each.chmod(0o555)
    with ordinary_permissions():
        assert compilation._usable_folder(folder.name) == folder
        assert compilation.is_cache_complete() and not compilation.is_cache_damaged()
        dispatcher = compilation.njit(add_one)
        assert dispatcher(1) == 2 and dispatcher.stats.cache_hits and not dispatcher.stats.cache_misses
        assert dispatcher(1.5) == 2.5 and dispatcher.stats.cache_misses  # compiled in this process, and not stored
        with pytest.raises(RunError, match="are damaged, and the folder cannot be written: remove it"):
            compilation.clear_cache()
    for each in folders:
        each.chmod(0o755)


@pytest.mark.parametrize("compiles", [True, False])
def test_the_progress_reports_the_compilation(tmp_path: Path, compiles: bool) -> None:
    empty = Vocabulary((), ())
    with open(tmp_path / "progress", "w", encoding="utf-8") as stream, training_progress(stream) as reporter:
        reporter.report(ModelBuilt(Path("run"), "base", 1, Vocabularies(empty, empty, empty, 1, 1), False, compiles))
    assert ("compiling kernels once, for this machine" in (tmp_path / "progress").read_text("utf-8")) == compiles
