"""run_folder/environment.py: the record of the software of a training."""

import subprocess
from pathlib import Path

import pytest

from pellucid.run_folder.environment import describe_environment, has_local_changes, source_commit


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder and return its output."""
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    result = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return result.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def test_the_commit_is_that_of_git(clone: Path, tmp_path: Path) -> None:
    commit = git(clone, "rev-parse", "HEAD")
    assert source_commit(clone) == commit
    git(clone, "worktree", "add", "-q", str(tmp_path / "other"))
    assert source_commit(tmp_path / "other") == commit
    git(clone, "pack-refs", "--all")
    assert source_commit(clone) == source_commit(tmp_path / "other") == commit
    git(clone, "checkout", "-q", "--detach")
    assert source_commit(clone) == commit


def test_without_a_commit_the_text_is_empty(tmp_path: Path) -> None:
    assert source_commit(tmp_path) == ""
    git(tmp_path, "init", "-q")
    assert source_commit(tmp_path) == "", "a branch without a commit"
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/../../secret")
    assert source_commit(tmp_path) == ""
    (tmp_path / ".git" / "HEAD").write_bytes(b"\xff\xfe")
    assert source_commit(tmp_path) == ""


def test_the_record_has_the_commit_of_a_clone_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for commit in ("", "0" * 40):
        monkeypatch.setattr("pellucid.run_folder.environment.source_commit", lambda commit=commit: commit)
        monkeypatch.setattr("pellucid.run_folder.environment.has_local_changes", lambda: False)
        assert describe_environment(1).get("commit", "") == commit
    monkeypatch.setattr("pellucid.run_folder.environment.has_local_changes", lambda: True)
    assert describe_environment(1)["commit"] == f"{'0' * 40} with local changes"


def test_changes_of_the_package_are_noticed(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (clone / "pellucid").mkdir()
    (clone / "pellucid" / "a.py").write_text("x = 1\n")
    git(clone, "add", "pellucid")
    git(clone, "commit", "-q", "-m", "second")
    (clone / "README.md").write_text("not of the package")
    assert not has_local_changes(clone) and not has_local_changes(tmp_path / "none")
    (clone / "pellucid" / "a.py").write_text("x = 2\n")
    assert has_local_changes(clone)
    monkeypatch.setenv("PATH", "")
    assert not has_local_changes(clone)
