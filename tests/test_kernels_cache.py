"""The folder of compiled kernels: its name, its completeness and damage, and the message before a compilation."""

import sys
from pathlib import Path
from threading import Thread
from time import sleep

import pytest

from pellucid.data.vocabulary import Vocabularies, Vocabulary
from pellucid.kernels import cache, dispatch, numba_backend
from pellucid.reporting.progress import training_progress
from pellucid.training.session import ModelBuilt


def test_the_folder_name_depends_on_the_sources_only() -> None:
    folder = cache.cache_folder()
    assert folder is not None and folder.is_dir()
    assert folder.name.startswith("kernels-") and len(folder.name) == len("kernels-") + 16


def test_a_folder_is_complete_once_all_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    (tmp_path / "a.nbc").write_bytes(b"")
    assert not cache.is_filled()
    cache.mark_filled()
    assert cache.is_filled()
    cache.clear()
    assert not cache.is_filled() and list(tmp_path.iterdir()) == []


def test_two_processes_compile_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The second process waits for the first, and then finds all kernels."""
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    compiled = list[bool]()

    def compile_kernels() -> None:
        compiled.append(not cache.is_filled())
        sleep(0.3)

    monkeypatch.setattr(numba_backend, "_compile_in_child", compile_kernels)
    monkeypatch.setattr(numba_backend, "_warm_up", lambda: None)
    threads = [Thread(target=numba_backend._warm_up_once) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compiled == [True]


def test_no_process_waits_without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "cache_folder", lambda: None)
    with cache.compile_lock(), cache.compile_lock():
        assert not cache.is_filled()


def test_a_changed_kernel_is_detected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    (tmp_path / "inner").mkdir()
    kernel = tmp_path / "inner" / "a.nbc"
    kernel.write_bytes(b"machine code")
    cache.mark_filled()
    assert not cache.is_damaged()
    (tmp_path / "inner" / "later.nbc").write_bytes(b"added by Numba")
    assert not cache.is_damaged()
    kernel.write_bytes(b"machine kode")
    assert cache.is_damaged()
    kernel.unlink()
    assert cache.is_damaged()


def test_a_changed_kernel_is_compiled_again_with_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    kernel = tmp_path / "a.nbc"
    monkeypatch.setattr(numba_backend, "_compile_in_child", lambda: kernel.write_bytes(b"right"))
    monkeypatch.setattr(numba_backend, "_warm_up", lambda: None)
    assert numba_backend.is_numba_available.__wrapped__()
    kernel.write_bytes(b"wrong")
    with pytest.warns(UserWarning, match="were damaged; they are compiled again"):
        assert numba_backend.is_numba_available.__wrapped__()
    assert kernel.read_bytes() == b"right" and not cache.is_damaged()


def test_the_name_depends_on_paths_times_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = list(cache._fingerprint_parts())
    assert any(isinstance(each, tuple) and each[0].endswith("vocabulary.py") for each in facts)
    before = cache.cache_folder.__wrapped__()
    monkeypatch.setattr(cache, "version", lambda name: "0.0")
    assert cache.cache_folder.__wrapped__() != before


def test_an_environment_variable_sets_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PELLUCID_CACHE", str(tmp_path / "mine"))
    folder = cache.cache_folder.__wrapped__()
    assert folder is not None and folder.parent == tmp_path / "mine" and folder.is_dir()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PELLUCID_CACHE", str(tmp_path / "file"))
    assert cache.cache_folder.__wrapped__() is None


def test_damaged_kernels_are_compiled_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    (tmp_path / "damaged.nbi").write_bytes(b"")
    cache.mark_filled()

    def warm_up() -> None:
        if (tmp_path / "damaged.nbi").exists():
            raise EOFError("Ran out of input")

    monkeypatch.setattr(numba_backend, "_warm_up", warm_up)
    monkeypatch.setattr(numba_backend, "_compile_in_child", lambda: None)
    with pytest.warns(UserWarning, match="were damaged; they are compiled again"):
        assert numba_backend.is_numba_available.__wrapped__()
    assert cache.is_filled()


def test_a_process_loads_kernels_that_a_child_process_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Compiled in this process, LSTM kernels round differently than loaded ones, and resuming would change the bits."""
    steps = list[str]()
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(numba_backend, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(numba_backend, "_compile_in_child", lambda: steps.append("compiled by another process"))
    monkeypatch.setattr(numba_backend, "_warm_up", lambda: steps.append("loaded"))
    assert numba_backend.is_numba_available.__wrapped__() and numba_backend.is_numba_available.__wrapped__()
    assert steps == ["compiled by another process", "loaded", "loaded"]


def test_a_failure_of_the_child_process_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(numba_backend, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(numba_backend, "is_filled", lambda: False)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.warns(UserWarning, match="everything runs without compiled kernels, slower: exit code 1"):
        assert not numba_backend.is_numba_available.__wrapped__()


def test_disabled_kernels_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "is_filled", lambda: False)
    numba_backend.is_numba_available.cache_clear()
    monkeypatch.delenv("PELLUCID_PLAIN", raising=False)
    assert dispatch.will_compile()
    with dispatch.disable_kernels():
        assert not dispatch.will_compile()
    monkeypatch.setenv("PELLUCID_PLAIN", "1")
    assert not dispatch.will_compile()


@pytest.mark.parametrize("compiles", [True, False])
def test_the_progress_reports_the_compilation(tmp_path: Path, compiles: bool) -> None:
    empty = Vocabulary((), ())
    with open(tmp_path / "told", "w", encoding="utf-8") as stream, training_progress(stream) as reporter:
        reporter.report(ModelBuilt(Path("run"), 1, Vocabularies(empty, empty, empty, 1, 1), False, compiles))
    assert ("compiling kernels once, for this machine" in (tmp_path / "told").read_text("utf-8")) == compiles


@pytest.mark.parametrize("error", [MemoryError(), OSError("cannot allocate memory")])
def test_other_errors_than_damage_keep_the_kernels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    kernel = tmp_path / "a.nbc"
    kernel.write_bytes(b"machine code")
    cache.mark_filled()

    def rehearse() -> None:
        raise error

    monkeypatch.setattr(numba_backend, "_warm_up", rehearse)
    monkeypatch.setattr(numba_backend, "_compile_in_child", lambda: None)
    with pytest.warns(UserWarning, match="everything runs without compiled kernels"):
        assert not numba_backend.is_numba_available.__wrapped__()
    assert kernel.exists() and cache.is_filled()
