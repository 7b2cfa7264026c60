"""Licenses of the packages that Pellucid needs, as docs/licenses.md lists them. `make licenses` calls this script.

python tests/package_licenses.py writes the tables. It reads the metadata of installed packages; of those that another
system or the CUDA build of PyTorch needs, it reads a part of the wheel of the locked version from PyPI. It ends with
exit code 1, and writes nothing, if a package declares no license, or one that is neither permissive nor listed here.
"""

import io
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from http import HTTPStatus
from importlib.metadata import distributions
from itertools import starmap
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

from lock_files import LOCK, PROJECT, ROOT, own_requirements, read_lock, required_packages
from packaging.utils import canonicalize_name

PAGE = ROOT / "docs/licenses.md"
EXTRAS = tuple(name for name in PROJECT["optional-dependencies"] if name not in ("dev", "release"))
"""Extras for users."""
PERMITTED = frozenset(
    {"0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CNRI-Python", "ISC"}
    | {"HPND", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Unlicense", "Zlib", "Python-2.0"}
)
"""Licenses that permit use in software under the Apache License 2.0. "BSD" is what some packages declare."""
EXCEPTIONS = {"LLVM-exception"}
OTHER_PERMITTED = {
    "cuda-toolkit": "none declared: it has no code and only requires other packages",
    "matplotlib": "Matplotlib license (based on PSF)",
}
"""Packages whose license has no identifier, read by a person."""
WEAK_COPYLEFT = {"psycopg": "LGPL-3.0-only", "psycopg-binary": "LGPL-3.0-only"}
"""Packages of an extra whose license, read by a person, permits use by software under any license; only changes of the
package itself stay under it."""
NVIDIA = "NVIDIA (proprietary)"
"""License of the packages of the CUDA build of PyTorch."""
IDENTIFIERS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "Dual License": "Apache-2.0 OR BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "NVIDIA Proprietary Software": NVIDIA,
    "LicenseRef-NVIDIA-Proprietary": NVIDIA,
    "LicenseRef-NVIDIA-SOFTWARE-LICENSE": NVIDIA,
    "Other/Proprietary License": NVIDIA,
    "Python Software Foundation License": "PSF-2.0",
}
"""SPDX identifiers of other names of licenses."""


class RemoteFile(io.RawIOBase):
    """File of a server, of which only the parts that are read are transferred."""

    def __init__(self, url: str, size: int) -> None:
        """Take the address and the number of bytes."""
        self.url, self.size, self.position = url, size, 0

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move, and return the position."""
        self.position = offset + (0, self.position, self.size)[whence]
        return self.position

    def tell(self) -> int:
        """Return the position."""
        return self.position

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401
        """Fill a buffer, and return the number of bytes."""
        end = min(self.size, self.position + len(buffer))
        if end <= self.position:
            return 0
        with urlopen(Request(self.url, headers={"Range": f"bytes={self.position}-{end - 1}"})) as response:
            assert response.status == HTTPStatus.PARTIAL_CONTENT, self.url
            content: bytes = response.read()
        buffer[: len(content)] = content
        self.position += len(content)
        return len(content)


def download_metadata(name: str, hashes: tuple[str, ...]) -> Message:
    """Return the metadata in a locked wheel on PyPI."""
    accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
    with urlopen(Request(f"https://pypi.org/simple/{name}/", headers=accept)) as response:
        files = json.load(response)["files"]
    file = next(file for file in files if file["hashes"]["sha256"] in hashes and file["filename"].endswith(".whl"))
    with zipfile.ZipFile(io.BufferedReader(RemoteFile(file["url"], file["size"]), 1 << 16)) as wheel:
        (path,) = [path for path in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", path)]
        return Parser().parsestr(wheel.read(path).decode())


def installed_metadata() -> dict[str, Message]:
    """Return the metadata of the installed packages that have the locked version, by name."""
    lock = read_lock(LOCK)
    metadata_by_name = {canonicalize_name(found.metadata["Name"]): found for found in distributions()}
    return {
        name: found.metadata  # type: ignore[misc]
        for name, found in metadata_by_name.items()
        if name in lock and found.version.partition("+")[0] == lock[name].version
    }


def declared_license(metadata: Message) -> str:
    """Return the license that a package declares, with its SPDX identifiers where it has some; "" if it declares none.

    The newest field counts: the expression, then a short text, then the classifiers.
    """
    text = metadata.get("License-Expression") or metadata.get("License") or ""
    names = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier", []) if line.startswith("License ::")]
    if text and "\n" not in text.strip() and len(text) < 100:
        return IDENTIFIERS.get(text.strip(), text.strip())
    return " AND ".join(IDENTIFIERS.get(name, name) for name in names)


def is_permitted(name: str, license_text: str) -> bool:
    """Return whether a license is permissive: every part of an expression, or a license that a person has read."""
    if name in OTHER_PERMITTED | WEAK_COPYLEFT:
        return license_text == (OTHER_PERMITTED | WEAK_COPYLEFT)[name]
    parts = re.split(r" AND | OR | WITH |[()]", license_text)
    return all(part.strip() in PERMITTED | EXCEPTIONS for part in parts if part.strip()) and bool(license_text)


class LicenseTable(NamedTuple):
    """One table of the page."""

    title: str
    names: tuple[str, ...]


def list_tables() -> Iterator[LicenseTable]:
    """Yield the tables of the page, with the names of their packages."""
    lock = read_lock(LOCK)
    required = {str(canonicalize_name(requirement.name)) for requirement in own_requirements(())}
    direct = {str(canonicalize_name(requirement.name)) for requirement in own_requirements(EXTRAS)} - required
    needed = required_packages(lock, EXTRAS)
    nvidia = {name for name in needed if name.startswith(("nvidia-", "cuda-"))}
    yield LicenseTable("Required", (*sorted(required),))
    yield LicenseTable("Extras", (*sorted(direct),))
    yield LicenseTable("Required by these", (*sorted(needed - required - direct - nvidia),))
    yield LicenseTable("Required by the CUDA build of PyTorch", (*sorted(nvidia),))


def read_page() -> dict[str, dict[str, str]]:
    """Return the licenses in the tables of docs/licenses.md, by title and package."""
    sections = [section.partition("\n") for section in PAGE.read_text("utf-8").split("\n## ")[1:]]
    rows = {title: re.findall(r"^\| ([a-z0-9-]+) \| (.+) \|$", text, re.MULTILINE) for title, _, text in sections}
    return {title: {name: text for name, text in found if name != "package"} for title, found in rows.items()}


def find_license(name: str, installed: dict[str, Message]) -> str:
    """Return the license of a locked package."""
    metadata = installed.get(name) or download_metadata(name, read_lock(LOCK)[name].hashes)
    return OTHER_PERMITTED.get(name) or declared_license(metadata)


def format_table(table: LicenseTable, licenses: dict[str, str]) -> str:
    """Return one table with its title."""
    rows = [f"| {name} | {text} |" for name, text in licenses.items()]
    return "\n".join([f"## {table.title}", "", "| package | license |", "|---|---|", *rows])


def write_page() -> int:
    """Write the tables of docs/licenses.md, unless a license is not permitted; return the exit code."""
    installed = installed_metadata()
    licenses = {table: {name: find_license(name, installed) for name in table.names} for table in list_tables()}
    refused = [
        f"{name}: {text or 'declares no license'}"
        for table, found in licenses.items()
        for name, text in found.items()
        if not (is_permitted(name, text) or (text == NVIDIA and "CUDA" in table.title))
    ]
    if refused:
        print("licenses that tests/package_licenses.py does not permit:", *refused, sep="\n", file=sys.stderr)
        return 1
    introduction = PAGE.read_text("utf-8").partition("\n## ")[0].rstrip()
    PAGE.write_text("\n\n".join([introduction, *starmap(format_table, licenses.items())]) + "\n", "utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(write_page())
