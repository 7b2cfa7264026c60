"""The package needs no more than every system has: no fcntl, fork, POSIX signal, or open file that can be replaced."""

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
from pellucid.training.run_folder import ENSEMBLE, in_use, lock_run_folder, member_folders

TESTS = Path(__file__).parent
IS_LINUX = sys.platform.startswith("linux")


def test_everything_runs_without_posix(tmp_path: Path) -> None:
    """Elsewhere than on Linux, the program runs on the system as it is."""
    site, folder = tmp_path / "site", tmp_path / "work"
    folder.mkdir()
    site.mkdir()
    if IS_LINUX:
        shutil.copy(TESTS / "windows_emulation.py", site / "sitecustomize.py")
    paths = [str(site), str(TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, str(TESTS / "platform_program.py"), str(TESTS.parent / "examples" / "roman")],
        cwd=folder,
        env=build_environment({**ascii_only, "PYTHONPATH": os.pathsep.join(paths)}),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
        check=False,
    )
    expected = "msvcrt" if IS_LINUX or os.name == "nt" else "fcntl"
    assert done.stdout.decode().splitlines()[-1:] == [f"done {expected}"], done.stderr.decode()


class SharingViolationError(PermissionError):
    """The error of Windows for a file that is open elsewhere."""

    winerror = 32


def refuse(*_: object) -> None:
    """As a file that another process has open all the time."""
    raise SharingViolationError(13, "permission denied")


def forbid(*_: object) -> None:
    """As a folder in which this user must not change a file."""
    raise PermissionError(13, "permission denied")


def test_a_forbidden_change_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On POSIX no other process keeps a file from being replaced, so that waiting would be in vain."""
    pauses = list[float]()
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(os, "replace", forbid)
    with pytest.raises(RunError, match=r"a: permission denied"):
        write_text(tmp_path / "a", "new")
    assert not pauses


@pytest.mark.parametrize("change", [lambda path: write_text(path, "new"), files.remove_file], ids=["write", "remove"])
def test_a_busy_file_is_given_up_after_the_stated_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    write_text(tmp_path / "a", "old")
    pauses = list[float]()
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(os, "replace", refuse)
    with monkeypatch.context() as only_here, pytest.raises(RunError, match=r"a: permission denied"):
        if change is files.remove_file:
            only_here.setattr(os, "unlink", refuse)
        change(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert sum(pauses) == pytest.approx(1.88) and os.listdir(tmp_path) == ["a"]


def without_fcntl(monkeypatch: pytest.MonkeyPatch, msvcrt: object) -> None:
    """Lock as on a system without fcntl."""
    monkeypatch.setattr(file_lock, "fcntl", None)
    monkeypatch.setattr(file_lock, "msvcrt", msvcrt)


def test_a_byte_is_locked_where_only_msvcrt_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = list[int]()

    def locking(descriptor: int, mode: int, size: int) -> None:
        assert (mode, size) == (2, 1)
        positions.append(os.lseek(descriptor, 0, os.SEEK_CUR))
        if len(positions) == 2:
            raise PermissionError(13, "permission denied")

    without_fcntl(monkeypatch, SimpleNamespace(locking=locking, LK_NBLCK=2))
    (tmp_path / "a").write_bytes(b"content")
    with open_regular(tmp_path / "a") as file:
        assert file_lock.try_lock(file) and not file_lock.try_lock(file, shared=True)
        assert file.read() == b"content", "the position has moved"
        file_lock.wait_for_lock(file)
    assert positions == [2**30] * 3


def test_without_locks_a_training_is_not_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_fcntl(monkeypatch, None)
    with lock_run_folder(tmp_path):
        assert not in_use(tmp_path)
        with lock_run_folder(tmp_path):
            pass


def test_a_link_is_not_written_through_where_the_system_cannot_refuse_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_NOFOLLOW", raising=False)
    (tmp_path / "link").symlink_to(tmp_path / "new")
    with pytest.raises(RunError, match="link"), open_regular(tmp_path / "link", mode="ab"):
        pass
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["C:", "..\\run", "C:\\run", "a\\b"])
def test_a_member_is_a_subfolder_on_windows_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    from pathlib import PureWindowsPath

    from pellucid.training import run_folder

    def windows_name(path: Any) -> Any:  # noqa: ANN401
        return PureWindowsPath(path) if isinstance(path, str) else path

    content = f'{{"members": ["{name}"]}}'.replace("\\", "\\\\")
    (tmp_path / ENSEMBLE).write_bytes(content.encode())
    monkeypatch.setattr(run_folder, "Path", windows_name)
    with pytest.raises(RunError, match="is not the name of a folder"):
        member_folders(tmp_path)
