"""The wheel lists the code of other projects that it contains (PEP 770), and has the texts of their licenses."""

import base64
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "third_party_licenses", "pellucid")
PAGES = ("pellucid/viewer/page/index.html", "pellucid/export/page/model.html")
BUILD = "from setuptools import build_meta; import sys; print(build_meta.build_wheel(sys.argv[1]))"


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a copy of its sources, so that the clone stays as it is."""
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    subprocess.run([sys.executable, "-c", BUILD, "dist"], cwd=folder, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("sources"))) as archive:
        yield archive


@pytest.fixture(scope="module")
def document(wheel: zipfile.ZipFile) -> dict[str, Any]:
    (name,) = [name for name in wheel.namelist() if "/sboms/" in name]
    assert name.endswith(".dist-info/sboms/pellucid.cdx.json") and name.count("/") == 2
    content: dict[str, Any] = json.loads(wheel.read(name))
    return content


def read_lists() -> dict[str, list[dict[str, str]]]:
    """Return the packages that `make page` found in each page."""
    return {page: json.loads((ROOT / page).with_name("bundled-packages.json").read_text("utf-8")) for page in PAGES}


def test_the_wheel_has_a_bill_of_materials_with_every_package_of_the_pages(document: dict[str, Any]) -> None:
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    listed = {
        (component["name"], component["version"], place["location"])
        for component in document["components"]
        for place in component["evidence"]["occurrences"]
    }
    assert listed == {
        (package["name"], package["version"], page) for page, packages in read_lists().items() for package in packages
    }
    assert {name for name, _, _ in listed} >= {"svelte"}


def test_every_component_has_a_license_a_package_url_and_the_hash_of_the_lock_file(document: dict[str, Any]) -> None:
    locked = json.loads((ROOT / "web/package-lock.json").read_text("utf-8"))["packages"]
    for component in document["components"]:
        entry = locked[f"node_modules/{component['name']}"]
        assert component["purl"] == f"pkg:npm/{component['name']}@{entry['version']}" == component["bom-ref"]
        assert component["licenses"] == [{"expression": entry["license"], "acknowledgement": "declared"}]
        (archive,) = component["externalReferences"]
        (digest,) = archive["hashes"]
        assert digest["alg"] == "SHA-512"
        assert base64.b64encode(bytes.fromhex(digest["content"])).decode() == entry["integrity"].removeprefix("sha512-")


def test_the_references_of_the_bill_of_materials_name_its_components(document: dict[str, Any]) -> None:
    own = document["metadata"]["component"]["bom-ref"]
    components = [component["bom-ref"] for component in document["components"]]
    assert own.startswith("pkg:pypi/pellucid@")
    assert document["dependencies"][0] == {"ref": own, "dependsOn": components}
    assert [entry["ref"] for entry in document["dependencies"]] == [own, *components]


def test_every_file_of_the_wheel_is_code_or_data_of_pellucid_or_a_page_with_a_list(wheel: zipfile.ZipFile) -> None:
    """A new file of another kind, such as a library, needs an entry in setup.py."""
    names = [name for name in wheel.namelist() if ".dist-info/" not in name]
    others = [name for name in names if not name.endswith((".py", ".toml", "/py.typed"))]
    assert sorted(others) == sorted([*PAGES, "pellucid/auditing/worklist.html"])


def test_the_wheel_has_the_license_text_of_every_package_in_it(
    wheel: zipfile.ZipFile, document: dict[str, Any]
) -> None:
    texts = {
        name.partition("third_party_licenses/")[2]: wheel.read(name).decode()
        for name in wheel.namelist()
        if "/third_party_licenses/" in name
    }
    expected = {component["name"].replace("/", "--") + ".txt" for component in document["components"]}
    assert set(texts) == expected
    assert "Permission is hereby granted" in texts["svelte.txt"] and "Svelte Contributors" in texts["svelte.txt"]


def test_the_license_of_the_wheel_names_those_of_its_parts(wheel: zipfile.ZipFile, document: dict[str, Any]) -> None:
    (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    (line,) = [text for text in wheel.read(metadata).decode().splitlines() if text.startswith("License-Expression: ")]
    licenses = {part for component in document["components"] for part in [component["licenses"][0]["expression"]]}
    assert line.removeprefix("License-Expression: ").split(" AND ") == ["Apache-2.0", *sorted(licenses)]


def test_the_same_sources_give_the_same_bill_of_materials(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    (name,) = [name for name in wheel.namelist() if "/sboms/" in name]
    with zipfile.ZipFile(build_wheel(tmp_path)) as second:
        assert second.read(name) == wheel.read(name)
