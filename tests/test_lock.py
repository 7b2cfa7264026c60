"""The locks, constraints.txt and pyproject.toml agree with each other and with the installed packages.

So `make lock` ran after the last change. `make check-lock` compares the locks with new ones.
"""

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from lock_files import CPU_LOCK, ENTRY, LOCK, OWN_NAME, PROJECT, ROOT, own_requirements, read_lock
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCKED = read_lock(LOCK)
CPU_LOCKED = read_lock(CPU_LOCK)
EXTRAS = tuple(PROJECT["optional-dependencies"])


def read_pins(path: Path) -> dict[str, tuple[str, str]]:
    """Return the versions and markers of a file without hashes, by name."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    pins_by_name = dict[str, tuple[str, str]]()
    for line in lines:
        requirement = Requirement(line)
        (pin,) = requirement.specifier
        assert pin.operator == "==" and requirement.name not in pins_by_name, line
        pins_by_name[requirement.name] = (pin.version, line.partition(" ; ")[2])
    return pins_by_name


def test_every_line_of_the_lock_is_a_pin_with_hashes_and_names_no_server() -> None:
    for path, entries in ((LOCK, LOCKED), (CPU_LOCK, CPU_LOCKED)):
        text = path.read_text("utf-8")
        assert len(entries) == len(re.findall(r"^[a-z0-9]", text, re.MULTILINE)) > 100
        other_lines = ENTRY.sub("", text)
        assert all(re.fullmatch(r"#.*|", line) for line in other_lines.splitlines())
        assert not re.search(r"https?:|file:|--(extra-)?index-url|--find-links", text)


def test_the_constraints_are_the_lock_without_hashes() -> None:
    pins_by_name = {name: (entry.version, entry.marker) for name, entry in LOCKED.items()}
    assert read_pins(ROOT / "constraints.txt") == pins_by_name


def test_every_dependency_is_locked_at_a_version_that_pyproject_permits() -> None:
    requirements = own_requirements(EXTRAS)
    assert len(requirements) > 30
    for requirement in requirements:
        version = LOCKED[canonicalize_name(requirement.name)].version
        assert requirement.specifier.contains(version), f"{requirement} is locked at {version}: make lock"


def test_the_lock_names_as_direct_dependencies_those_of_pyproject() -> None:
    direct = {name for name, entry in LOCKED.items() if OWN_NAME in entry.parents}
    assert direct == {canonicalize_name(requirement.name) for requirement in own_requirements(EXTRAS)}


def locked_distributions() -> Iterator[tuple[str, Distribution]]:
    """Yield the installed packages that have the locked version."""
    for found in distributions():
        name = str(canonicalize_name(found.metadata["Name"]))
        if name in LOCKED and found.version.partition("+")[0] == LOCKED[name].version:
            yield name, found


def test_every_requirement_of_an_installed_package_is_locked() -> None:
    """The packages that another one requires on this system are locked, in permitted versions, with its name."""
    missing = []
    for parent, found in locked_distributions():
        for requirement in map(Requirement, found.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                entry = LOCKED.get(canonicalize_name(requirement.name))
                if not entry or parent not in entry.parents or not requirement.specifier.contains(entry.version):
                    missing.append(f"{parent} requires {requirement}")
    assert missing == [], "make lock"


def test_every_parent_that_the_lock_names_requires_the_package() -> None:
    required_by_parent = {
        parent: {canonicalize_name(Requirement(text).name) for text in found.requires or ()}
        for parent, found in locked_distributions()
        if parent != "torch"  # the lock names what the CUDA build requires
    }
    stale = [
        f"{name} via {parent}"
        for name, entry in LOCKED.items()
        for parent in entry.parents & required_by_parent.keys()
        if name not in required_by_parent[parent]
    ]
    assert stale == [], "make lock"


def test_torch_is_pinned_without_its_build() -> None:
    """A version without a build tag fits the builds for CPUs and for CUDA."""
    version, marker = LOCKED["torch"][:2]
    assert re.fullmatch(r"[0-9.]+", version) and not marker


def test_the_lock_for_cpus_is_the_lock_without_the_packages_of_cuda() -> None:
    """Both have the same versions and hashes, except the build of PyTorch."""
    others = CPU_LOCKED.keys() - {"torch"}
    assert {name: CPU_LOCKED[name][:1] + CPU_LOCKED[name][2:3] for name in others} == {
        name: LOCKED[name][:1] + LOCKED[name][2:3] for name in others
    }
    assert CPU_LOCKED["torch"].version == LOCKED["torch"].version + "+cpu"
    assert not set(CPU_LOCKED["torch"].hashes) & set(LOCKED["torch"].hashes)
    assert not [name for name in CPU_LOCKED if name.startswith(("nvidia-", "cuda-", "triton"))]


def test_the_lock_for_cpus_has_all_that_development_and_a_release_need() -> None:
    requirements = own_requirements(("dev", "release"))
    assert {canonicalize_name(requirement.name) for requirement in requirements} <= CPU_LOCKED.keys()
