"""Contents of requirements.lock, requirements-cpu.lock and constraints.txt, and what pyproject.toml asks for."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK, CPU_LOCK = ROOT / "requirements.lock", ROOT / "requirements-cpu.lock"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
OWN_NAME = "pellucid (pyproject.toml)"
"""Name of this package in the comments of a lock."""
ENTRY = re.compile(
    r"^([a-z0-9-]+)==(\S+)(?: ; (.+?))?((?: \\\n +--hash=sha256:[0-9a-f]{64})+)\n((?: +#.*\n)*)", re.MULTILINE
)


class LockedPackage(NamedTuple):
    """One entry of a lock; `parents` are the packages that require it, in requirements.lock only."""

    version: str
    marker: str
    hashes: tuple[str, ...]
    parents: frozenset[str]


def read_lock(path: Path) -> dict[str, LockedPackage]:
    """Return the entries of a lock by name."""
    return {
        name: LockedPackage(
            version,
            marker,
            tuple(re.findall(r"sha256:(\w+)", hashes)),
            frozenset(re.sub(r"#( +via)?", "", line).strip() for line in comments.splitlines()) - {""},
        )
        for name, version, marker, hashes, comments in ENTRY.findall(path.read_text("utf-8"))
    }


def own_requirements(extras: Iterable[str]) -> list[Requirement]:
    """Return what the package and some of its extras require of other packages; an extra may contain another one."""
    requirements = [Requirement(text) for text in PROJECT["dependencies"]]
    for extra in extras:
        for requirement in map(Requirement, PROJECT["optional-dependencies"][extra]):
            inner = own_requirements(requirement.extras) if requirement.name == PROJECT["name"] else [requirement]
            requirements.extend(inner)
    return requirements


def required_packages(lock: Mapping[str, LockedPackage], extras: Iterable[str]) -> set[str]:
    """Return the names of the locked packages that the package and some of its extras need, directly or indirectly."""
    needed = {str(canonicalize_name(requirement.name)) for requirement in own_requirements(extras)}
    while added := {name for name, entry in lock.items() if entry.parents & needed} - needed:
        needed |= added
    return needed
