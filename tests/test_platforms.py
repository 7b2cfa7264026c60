"""The package runs without fcntl, fork and POSIX signals, and where an open file cannot be replaced."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import build_environment

from pellucid import file_lock, files
from pellucid.errors import RunError
from pellucid.files import open_regular, write_text
from pellucid.run_folder.lock import in_use, lock_run_folder
from pellucid.run_folder.run_files import ENSEMBLE, member_folders

TESTS = Path(__file__).parent
IS_LINUX = sys.platform.startswith("linux")


@pytest.mark.slow
def test_the_program_runs_without_posix(tmp_path: Path) -> None:
    """Linux imitates another platform (windows_emulation.py); other systems run the program directly."""
    site, folder = tmp_path / "site", tmp_path / "work"
    folder.mkdir()
    site.mkdir()
    if IS_LINUX:
        shutil.copy(TESTS / "windows_emulation.py", site / "sitecustomize.py")
    paths = [str(site), str(TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    process = subprocess.run(
        [sys.executable, str(TESTS / "platform_program.py"), str(TESTS.parent / "examples" / "roman")],
        cwd=folder,
        env=build_environment({**ascii_only, "PYTHONPATH": os.pathsep.join(paths)}),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
        check=False,
    )
    expected = "msvcrt" if IS_LINUX or os.name == "nt" else "fcntl"
    assert process.stdout.decode().splitlines()[-1:] == [f"done {expected}"], process.stderr.decode()


class SharingViolationError(PermissionError):
    """The error of Windows for a file that another process has open."""

    winerror = 32


def raise_sharing_violation(*_: object) -> None:
    """Fail like a change of a file that another process has open."""
    raise SharingViolationError(13, "permission denied")


def raise_permission_error(*_: object) -> None:
    """Fail like a change in a folder without write permission."""
    raise PermissionError(13, "permission denied")


def test_a_forbidden_change_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On POSIX, an open file can be replaced, so waiting does not help."""
    pauses = list[float]()
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(os, "replace", raise_permission_error)
    with pytest.raises(RunError, match=r"a: permission denied"):
        write_text(tmp_path / "a", "new")
    assert not pauses


@pytest.mark.parametrize("change", [lambda path: write_text(path, "new"), files.remove_file], ids=["write", "remove"])
def test_a_busy_file_is_an_error_after_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    write_text(tmp_path / "a", "old")
    pauses = list[float]()
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(os, "replace", raise_sharing_violation)
    with monkeypatch.context() as patched, pytest.raises(RunError, match=r"a: permission denied"):
        if change is files.remove_file:
            patched.setattr(os, "unlink", raise_sharing_violation)
        change(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert sum(pauses) == pytest.approx(1.88) and os.listdir(tmp_path) == ["a"]


def disable_fcntl(monkeypatch: pytest.MonkeyPatch, msvcrt: object) -> None:
    """Replace fcntl by None and msvcrt by the argument."""
    monkeypatch.setattr(file_lock, "fcntl", None)
    monkeypatch.setattr(file_lock, "msvcrt", msvcrt)


def test_a_byte_is_locked_where_only_msvcrt_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked_offsets = list[int]()

    def locking(descriptor: int, mode: int, size: int) -> None:
        assert (mode, size) == (2, 1)
        locked_offsets.append(os.lseek(descriptor, 0, os.SEEK_CUR))
        if len(locked_offsets) == 2:
            raise PermissionError(13, "permission denied")

    disable_fcntl(monkeypatch, SimpleNamespace(locking=locking, LK_NBLCK=2))
    (tmp_path / "a").write_bytes(b"content")
    with open_regular(tmp_path / "a") as file:
        assert file_lock.try_lock(file) and not file_lock.try_lock(file, shared=True)
        assert file.read() == b"content", "the position has moved"
        file_lock.wait_for_lock(file)
    assert locked_offsets == [2**30] * 3


def test_without_locks_a_running_training_is_not_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disable_fcntl(monkeypatch, None)
    with lock_run_folder(tmp_path):
        assert not in_use(tmp_path)
        with lock_run_folder(tmp_path):
            pass


def test_a_link_is_refused_where_the_system_has_no_o_nofollow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_NOFOLLOW", raising=False)
    (tmp_path / "link").symlink_to(tmp_path / "new")
    with pytest.raises(RunError, match="link"), open_regular(tmp_path / "link", mode="ab"):
        pass
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["C:", "..\\run", "C:\\run", "a\\b"])
def test_member_names_with_windows_separators_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from pathlib import PureWindowsPath

    from pellucid.run_folder import run_files

    def windows_name(path: Any) -> Any:  # noqa: ANN401
        return PureWindowsPath(path) if isinstance(path, str) else path

    content = f'{{"members": ["{name}"]}}'.replace("\\", "\\\\")
    (tmp_path / ENSEMBLE).write_bytes(content.encode())
    monkeypatch.setattr(run_files, "Path", windows_name)
    with pytest.raises(RunError, match="is not the name of a folder"):
        member_folders(tmp_path)
