"""requirements.lock, constraints.txt and pyproject.toml agree, so `make lock` ran after the last change."""

import re
import tomllib
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ENTRY = re.compile(r"^([a-z0-9-]+)==(\S+)(?: ; (.+?))?((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)
LOCKED = {
    name: (version, marker) for name, version, marker, _ in ENTRY.findall((ROOT / "requirements.lock").read_text())
}


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
    text = (ROOT / "requirements.lock").read_text("utf-8")
    assert len(LOCKED) == len(re.findall(r"^[a-z0-9]", text, re.MULTILINE)) > 100
    other_lines = ENTRY.sub("", text)
    assert all(re.fullmatch(r"(#| +#).*|", line) for line in other_lines.splitlines())
    assert not re.search(r"https?:|file:|--(extra-)?index-url|--find-links", text)


def test_the_constraints_are_the_lock_without_hashes() -> None:
    assert read_pins(ROOT / "constraints.txt") == LOCKED


def test_every_dependency_is_locked_at_a_version_that_pyproject_permits() -> None:
    extras = PROJECT["optional-dependencies"].values()
    requirements = [
        requirement
        for requirement in map(Requirement, (*PROJECT["dependencies"], *chain.from_iterable(extras)))
        if requirement.name != "pellucid"  # an extra that contains another one
    ]
    assert len(requirements) > 30
    for requirement in requirements:
        version, _ = LOCKED[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} is locked at {version}: make lock"


def test_torch_is_pinned_without_its_build() -> None:
    """A version without a build tag fits the builds for CPUs and for CUDA."""
    version, marker = LOCKED["torch"]
    assert re.fullmatch(r"[0-9.]+", version) and not marker
