"""docs/licenses.md has the licenses that the needed packages declare, and all of them permit the use in Pellucid."""

from email.message import Message

import pytest
from package_licenses import (
    NVIDIA,
    OTHER_PERMITTED,
    declared_license,
    installed_metadata,
    is_permitted,
    list_tables,
    read_page,
)


def test_the_page_lists_every_needed_package_once() -> None:
    assert {title: [*table] for title, table in read_page().items()} == {
        table.title: [*table.names] for table in list_tables()
    }


def test_every_license_on_the_page_is_permitted() -> None:
    for title, table in read_page().items():
        for name, text in table.items():
            assert is_permitted(name, text) or (text == NVIDIA and "CUDA" in title), f"{name}: {text}"


def test_the_page_has_the_licenses_of_the_installed_packages() -> None:
    installed = installed_metadata()
    rows = {name: text for table in read_page().values() for name, text in table.items() if name in installed}
    assert len(rows) > 20
    declared = {name: OTHER_PERMITTED.get(name) or declared_license(installed[name]) for name in rows}
    assert rows == declared, "make licenses"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"License-Expression": "MIT AND Zlib", "License": "old"}, "MIT AND Zlib"),
        ({"License": "Apache License 2.0"}, "Apache-2.0"),
        (
            {"License": "Copyright\nPermission granted", "Classifier": "License :: OSI Approved :: MIT License"},
            "MIT",
        ),
        ({"Classifier": "License :: OSI Approved :: BSD License"}, "BSD"),
        ({"Classifier": "Programming Language :: Python"}, ""),
    ],
)
def test_the_newest_field_with_a_short_text_is_the_declared_license(fields: dict[str, str], expected: str) -> None:
    metadata = Message()
    for name, text in fields.items():
        metadata[name] = text
    assert declared_license(metadata) == expected


@pytest.mark.parametrize(
    ("text", "permitted"),
    [
        ("MIT", True),
        ("(MIT OR Apache-2.0) AND BSD-3-Clause", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-3.0-or-later", False),
        ("MIT AND GPL-3.0-only", False),
        (NVIDIA, False),
        ("", False),
    ],
)
def test_every_part_of_an_expression_must_be_permitted(text: str, permitted: bool) -> None:
    assert is_permitted("some-package", text) == permitted
