"""What the files that a panel gives must be, whatever they are of."""

import csv
import io
import re
import struct
from xml.etree import ElementTree

SVG_NAMESPACE = "{http://www.w3.org/2000/svg}"


def read_svg_texts(file: bytes) -> list[str]:
    """The texts of an SVG, which stands on its own: no variable of a page, no style sheet, nothing fetched."""
    root = ElementTree.fromstring(file)
    assert root.tag == f"{SVG_NAMESPACE}svg" and float(root.attrib["width"]) > 20 and float(root.attrib["height"]) > 20
    text = file.decode("utf-8")
    assert "var(" not in text and "color-mix" not in text and "NaN" not in text and "undefined" not in text
    assert root.find(f".//{SVG_NAMESPACE}script") is None and root.find(f".//{SVG_NAMESPACE}style") is None
    assert all(each.attrib.get("href", "data:").startswith("data:") for each in root.iter())
    assert root.attrib["role"] == "img" and root[0].tag == f"{SVG_NAMESPACE}title" and root[0].text
    live = {
        name for each in root.iter() for name in each.attrib if name.startswith(("aria-", "data-", "on", "tabindex"))
    }
    assert not live and "Arrow keys" not in text and "arrows" not in text
    assert [each.attrib["role"] for each in root.iter() if "role" in each.attrib] == ["img"]
    return ["".join(each.itertext()) for each in root.iter(f"{SVG_NAMESPACE}text")]


def assert_double_resolution(png: bytes, svg: bytes) -> None:
    """A PNG of an SVG has two pixels for each of its units."""
    assert png.startswith(b"\x89PNG")
    root = ElementTree.fromstring(svg)
    size = [2 * int(float(root.attrib[name])) for name in ("width", "height")]
    assert list(struct.unpack(">II", png[16:24])) == size


def read_csv_lines(file: bytes) -> list[list[str]]:
    """The lines of a CSV, all as long as the first, which names the columns."""
    lines = list(csv.reader(io.StringIO(file.decode("utf-8"))))
    assert lines and {len(line) for line in lines} == {len(lines[0])}
    return lines


def assert_valid_latex(text: str) -> None:
    """What TeX would choke on is not there: an open brace, a bare special character, an open environment."""
    bare = re.sub(r"\\[\\{}$&#%_]", "", text)
    depth = 0
    for letter in bare:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        assert depth >= 0
    assert depth == 0
    assert re.findall(r"\\begin{(\w+)}", text) == re.findall(r"\\end{(\w+)}", text) == ["tikzpicture"]
    code = "\n".join(line.split("%", 1)[0] for line in bare.splitlines() if line.startswith("%") or "%" not in line)
    assert not re.search(r"[&#_~^]", code)
    assert all(line.endswith(";") for line in text.splitlines() if re.match(r"\s*\\(fill|draw|node)", line))
