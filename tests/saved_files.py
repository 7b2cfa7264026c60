"""Validity checks of the files that a panel saves."""

import csv
import io
import re
import struct
from xml.etree import ElementTree

SVG_NAMESPACE = "{http://www.w3.org/2000/svg}"


def read_svg_texts(file: bytes) -> list[str]:
    """Assert that an SVG is static and depends on no style sheet, variable or other file; return its texts."""
    root = ElementTree.fromstring(file)
    assert root.tag == f"{SVG_NAMESPACE}svg" and float(root.attrib["width"]) > 20 and float(root.attrib["height"]) > 20
    text = file.decode("utf-8")
    assert "var(" not in text and "color-mix" not in text and "NaN" not in text and "undefined" not in text
    assert root.find(f".//{SVG_NAMESPACE}script") is None and root.find(f".//{SVG_NAMESPACE}style") is None
    assert all(element.attrib.get("href", "data:").startswith("data:") for element in root.iter())
    assert root.attrib["role"] == "img" and root[0].tag == f"{SVG_NAMESPACE}title" and root[0].text
    interactive = {
        name
        for element in root.iter()
        for name in element.attrib
        if name.startswith(("aria-", "data-", "on", "tabindex"))
    }
    assert not interactive and "Arrow keys" not in text and "arrows" not in text
    assert [element.attrib["role"] for element in root.iter() if "role" in element.attrib] == ["img"]
    return ["".join(element.itertext()) for element in root.iter(f"{SVG_NAMESPACE}text")]


def assert_double_resolution(png: bytes, svg: bytes) -> None:
    """Assert that a PNG has two pixels for each unit of its SVG."""
    assert png.startswith(b"\x89PNG")
    root = ElementTree.fromstring(svg)
    size = [2 * int(float(root.attrib[name])) for name in ("width", "height")]
    assert list(struct.unpack(">II", png[16:24])) == size


def read_csv_lines(file: bytes) -> list[list[str]]:
    """Return the lines of a CSV, and assert that all have as many cells as the header."""
    lines = list(csv.reader(io.StringIO(file.decode("utf-8"))))
    assert lines and {len(line) for line in lines} == {len(lines[0])}
    return lines


def assert_valid_latex(text: str) -> None:
    """Assert that TeX code has no unclosed brace or environment and no unescaped special character."""
    unescaped = re.sub(r"\\[\\{}$&#%_]", "", text)
    depth = 0
    for character in unescaped:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    assert re.findall(r"\\begin{(\w+)}", text) == re.findall(r"\\end{(\w+)}", text) == ["tikzpicture"]
    code = "\n".join(
        line.split("%", 1)[0] for line in unescaped.splitlines() if line.startswith("%") or "%" not in line
    )
    assert not re.search(r"[&#_~^]", code)
    assert all(line.endswith(";") for line in text.splitlines() if re.match(r"\s*\\(fill|draw|node)", line))
