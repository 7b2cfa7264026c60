"""pellucid data: the list, downloads, messages, exit codes, and the use of the data by a recipe."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import run_pellucid, usage_error_message
from loopback_files import LoopbackFiles, loopback_files
from recipe_data import write_lines

from pellucid.cli import main
from pellucid.recipes.published_data import load_registry


@pytest.fixture
def server() -> Iterator[LoopbackFiles]:
    with loopback_files({"train.tsv": b"a\tb\n" * 1000, "dev.tsv": b"c\td\n"}) as state:
        yield state


def test_the_list_names_size_status_license_and_source(tmp_path: Path) -> None:
    result = run_pellucid("data", "list", "--data", tmp_path)
    assert result.code == 0 and result.err == "" and result.out.startswith(f"folder: {tmp_path}\n")
    for name, data_set in load_registry().items():
        assert re.search(rf"\n{name} +\d+\.\d MB  missing", result.out)
        assert f"  license: {data_set.license}\n  source: {data_set.source}\n" in result.out
    assert not any(tmp_path.iterdir())


def test_a_data_set_is_downloaded_with_its_license(server: LoopbackFiles, tmp_path: Path) -> None:
    registry = server.registry(tmp_path / "registry.toml", ["train.tsv", "dev.tsv"])
    command = ("data", "get", "words", "--registry", registry, "--data", tmp_path / "data")
    result = run_pellucid(*command)
    assert result.code == 0 and result.err == ""
    assert result.out.splitlines() == [
        "words: words",
        "  license: CC0 1.0",
        "  source: https://example.org/words",
        "  cite: Nobody (2026)",
        f"words: 2 files downloaded and checked, in {tmp_path / 'data' / 'words'}",
    ]
    again = run_pellucid(*command)
    assert again.code == 0 and again.out == f"words: already complete in {tmp_path / 'data' / 'words'}\n"
    listed = run_pellucid("data", "list", "--registry", registry, "--data", tmp_path / "data").out
    assert re.search(r"\nwords +0\.0 MB  complete\n", listed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "scan"], "data list takes no names: pellucid data list"),
        (["get"], "data get needs the name of a data set, such as scan (pellucid data list)"),
        (["get", "scam"], "there is no data set 'scam'; did you mean 'scan'? (pellucid data list)"),
        (["put"], "list|get: expected list or get, got 'put' (pellucid data --help)"),
        (["list", "--registry", "missing.toml"], "cannot read missing.toml: no such file or directory"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], message: str, tmp_path: Path) -> None:
    assert usage_error_message(run_pellucid("data", *arguments, folder=tmp_path)) == message


def test_a_failed_download_is_one_message(server: LoopbackFiles, tmp_path: Path) -> None:
    registry = server.registry(tmp_path / "registry.toml", ["train.tsv"])
    server.statuses["train.tsv"] = 404
    result = run_pellucid("data", "get", "words", "--registry", registry, "--data", tmp_path / "data")
    assert (result.code, result.err.count("\n")) == (2, 1) and "Traceback" not in result.err
    assert f"cannot download {server.address}/train.tsv: the server answered 404 Not Found" in result.err
    limited = run_pellucid("data", "get", "words", "--registry", registry, "--data", tmp_path, max_file_size=10)
    assert limited.code == 2 and "Traceback" not in limited.err


def test_a_data_set_without_download_is_explained_before_any_download(server: LoopbackFiles, tmp_path: Path) -> None:
    registry = server.registry(tmp_path / "registry.toml", ["train.tsv"])
    text = registry.read_text("utf-8")
    registry.write_text(text + text.replace("words", "own").replace("title", 'instructions = "write it"\ntitle'))
    result = run_pellucid("data", "get", "words", "own", "--registry", registry, "--data", tmp_path)
    assert result.code == 2 and server.requests == []
    assert "own cannot be downloaded. License: CC0 1.0. Source: https://example.org/own. " in result.err
    assert result.err.endswith(f"To get it by hand into {tmp_path / 'own'}: write it\n")
    write_lines(tmp_path / "own" / "train.tsv", ["of the user"])
    result = run_pellucid("data", "get", "words", "own", "--registry", registry, "--data", tmp_path)
    assert result.code == 0 and result.out.endswith(f"own: already in {tmp_path / 'own'}\n")


def test_a_missing_package_is_named(
    server: LoopbackFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    registry = server.registry(tmp_path / "registry.toml", ["train.tsv"])
    assert main(["data", "get", "words", "--registry", str(registry), "--data", str(tmp_path / "data")]) == 2
    assert capsys.readouterr().err == (
        "pellucid: pellucid data needs the package 'pooch', which is not installed: pip install 'pellucid[data]'\n"
    )
    assert not (tmp_path / "data").exists() and server.requests == []
    assert main(["data", "list", "--registry", str(registry), "--data", str(tmp_path / "data")]) == 0


def test_a_recipe_without_its_data_names_the_command(tmp_path: Path) -> None:
    for recipe, name in (("scan", "scan"), ("snips", "slu-snips"), ("g2p-ablations", "g2p-sigmorphon2020")):
        result = run_pellucid("recipe", recipe, "--run", tmp_path / "out", "--data", tmp_path)
        assert result.code == 2 and f"get it with pellucid data get {name}, or " in result.err
