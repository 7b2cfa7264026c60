"""Software and processor of a training, which its log records.

Results are equal bit for bit only if these are equal, since another version or processor may round sums differently.
"""

import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RECORDED_PACKAGES = ("torch", "numpy", "numba", "llvmlite")
"""Packages whose arithmetic or compiler determines the last bits of a result."""
COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
"""Identifier of a commit of Git."""
GIT_SECONDS = 5.0
"""Maximum time that Git may take to compare the files with the commit."""


def processor_name() -> str:
    """Return the model of the processor: "AMD EPYC 7763 64-Core Processor"; the architecture if it is unknown."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def package_version(name: str) -> str:
    """Return the installed version of a package, or "none".

    Args:
        name: Name of the package.
    """
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def source_commit(clone: Path = Path(__file__).parents[2]) -> str:
    """Return the commit of the clone that the package runs from, in hexadecimal; "" if it is not a clone.

    Changes that are not committed have no effect on it (`has_local_changes`).

    Args:
        clone: Folder that holds the package; a clone has `.git` there.
    """
    try:
        folder = clone / ".git"
        if folder.is_file():  # a worktree
            folder = clone / folder.read_text("utf-8").removeprefix("gitdir:").strip()
        head = (folder / "HEAD").read_text("utf-8").strip()
        if not head.startswith("ref:"):
            return head if COMMIT.fullmatch(head) else ""
        shared = folder / "commondir"
        common = folder / shared.read_text("utf-8").strip() if shared.is_file() else folder
        return _commit_of(common, head.removeprefix("ref:").strip())
    except (OSError, ValueError):
        return ""


def has_local_changes(clone: Path = Path(__file__).parents[2]) -> bool:
    """Return whether files of the package differ from the commit; False without Git, and outside of a clone.

    Args:
        clone: Folder that holds the package.
    """
    command = ["git", "-C", str(clone), "status", "--porcelain", "--untracked-files=no", "--", "pellucid"]
    try:
        status = subprocess.run(command, capture_output=True, timeout=GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return status.returncode == 0 and bool(status.stdout.strip())


def _commit_of(folder: Path, reference: str) -> str:
    """Return the commit of a branch, such as "refs/heads/main"; "" if it has none."""
    path = folder / reference
    if path.is_file():
        text = path.read_text("utf-8").strip()
        return text if COMMIT.fullmatch(text) else ""
    packed = (line.split() for line in (folder / "packed-refs").read_text("utf-8").splitlines())
    return next((parts[0] for parts in packed if parts[1:] == [reference] and COMMIT.fullmatch(parts[0])), "")


def describe_environment(threads: int, gpu: str = "") -> dict[str, str | int]:
    """Return the software, the processor and the number of threads, for the log.

    Args:
        threads: Number of threads of the training.
        gpu: Name of the GPU; empty by default, for a training on the processor.
    """
    packages = {name: package_version(name) for name in RECORDED_PACKAGES}
    graphics = {"gpu": gpu} if gpu else {}
    commit = source_commit()
    if commit and has_local_changes():
        commit += " with local changes"
    return {
        **({"commit": commit} if commit else {}),
        "python": platform.python_version(),
        **packages,
        "processor": processor_name(),
        **graphics,
        "threads": threads,
    }
