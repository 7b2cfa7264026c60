"""Build step that pyproject.toml cannot express: the bill of materials in the wheel (PEP 770).

The wheel contains code of other projects in the two built pages. `make page` lists their packages beside each page, in
bundled-packages.json. The build writes them as CycloneDX into `.dist-info/sboms`. The same sources give the same bytes:
the document has no date and no random number.
"""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

ROOT = Path(__file__).parent
PAGES = ("pellucid/viewer/page/index.html", "pellucid/export/page/model.html")
CHANGES = {"svelte": "Parts that the pages do not use are removed by web/svelteReductions.ts; the rest is minified."}
"""Changes of bundled packages, other than those of a bundler."""


def read_bundled_packages() -> dict[str, dict[str, Any]]:
    """Return the packages of all pages by their package URLs; `pages` lists the pages of each."""
    packages_by_url = dict[str, dict[str, Any]]()
    for page in PAGES:
        for package in json.loads((ROOT / page).with_name("bundled-packages.json").read_text("utf-8")):
            url = f"pkg:npm/{package['name'].replace('@', '%40')}@{package['version']}"
            packages_by_url.setdefault(url, {**package, "pages": []})["pages"].append(page)
    return packages_by_url


def describe_component(url: str, package: dict[str, Any]) -> dict[str, Any]:
    """Return the component of CycloneDX of a bundled package."""
    name, version = package["name"], package["version"]
    algorithm, _, digest = package["integrity"].partition("-")
    archive = f"https://registry.npmjs.org/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
    hashes = [{"alg": algorithm.upper().replace("SHA", "SHA-"), "content": b64decode(digest).hex()}]
    component = {
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": version,
        "purl": url,
        "scope": "required",
        "licenses": [{"expression": package["license"], "acknowledgement": "declared"}],
        "externalReferences": [{"type": "distribution", "url": archive, "hashes": hashes}],
        "evidence": {"occurrences": [{"location": page} for page in package["pages"]]},
    }
    return component | ({"modified": True, "pedigree": {"notes": CHANGES[name]}} if name in CHANGES else {})


def describe_wheel(name: str, version: str) -> dict[str, Any]:
    """Return the bill of materials of the wheel: in CycloneDX, everything in it that is not Pellucid's own."""
    own_url = f"pkg:pypi/{name}@{version}"
    own = {"type": "library", "bom-ref": own_url, "name": name, "version": version, "purl": own_url}
    components = [describe_component(url, package) for url, package in sorted(read_bundled_packages().items())]
    urls = [component["bom-ref"] for component in components]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"lifecycles": [{"phase": "build"}], "component": own},
        "components": components,
        "dependencies": [{"ref": own_url, "dependsOn": urls}, *({"ref": url} for url in urls)],
        "compositions": [{"aggregate": "complete", "assemblies": [own_url]}],
    }


class WheelWithBillOfMaterials(bdist_wheel):
    """Builder of wheels that writes the bill of materials beside the metadata."""

    def egg2dist(self, egginfo_path: str, distinfo_path: str) -> None:
        """Write the metadata, then the bill of materials."""
        super().egg2dist(egginfo_path, distinfo_path)
        folder = Path(distinfo_path) / "sboms"
        folder.mkdir(exist_ok=True)
        metadata = self.distribution.metadata
        document = describe_wheel(metadata.get_name(), metadata.get_version())
        (folder / "pellucid.cdx.json").write_text(f"{json.dumps(document, indent=2)}\n", "utf-8", newline="\n")


if __name__ == "__main__":
    setup(cmdclass={"bdist_wheel": WheelWithBillOfMaterials})
