"""pellucid share and download: output, messages, exit codes, and the folder as a run of other subcommands."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from command_line import build_environment, run_pellucid, usage_error_message
from loopback_hub import TOKEN, LoopbackHub, loopback_hub
from shared_models import copies_with_pair_ngram, file_names

from pellucid.sharing.manifest import MANIFEST

FLAGS = ("--license", "cc0-1.0", "--language", "en,de", "--dataset", "user/a, user/b", "--example", "abc")


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with loopback_hub() as server:
        yield server


def run_with_hub(hub: LoopbackHub, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a subcommand in a process of its own, which uses the stand-in of the hub."""
    changes: Mapping[str, str] = {
        "HF_ENDPOINT": hub.address,
        "HF_TOKEN": TOKEN,
        "HF_HOME": str(folder / "home"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    command = [sys.executable, "-m", "pellucid", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env=build_environment(changes), cwd=folder, check=False
    )


@pytest.mark.slow
def test_a_shared_folder_is_a_run_of_all_subcommands(tmp_path: Path) -> None:
    run, folder = copies_with_pair_ngram(), tmp_path / "shared"
    (tmp_path / "use.md").write_text("Only for *tests*.\n")
    result = run_pellucid("share", run, "--to", folder, *FLAGS, "--intended-use", tmp_path / "use.md", "--title", "C")
    assert result.code == 0 and result.err == ""
    assert result.out.startswith(f"{folder}: 5 files of the model, 0.") and MANIFEST in result.out
    card = (folder / "README.md").read_text("utf-8")
    assert 'language: ["en", "de"]\n' in card and 'datasets: ["user/a", "user/b"]\n' in card
    assert "\n# C\n" in card and "Only for *tests*." in card and (folder / "attention.png").read_bytes()[1:4] == b"PNG"
    (tmp_path / "pairs.tsv").write_text("ab\tab\ncd\tcd\n")
    for subcommand in ("predict", "score", "evaluate", "align"):
        results = [run_pellucid(subcommand, each, tmp_path / "pairs.tsv") for each in (folder, run)]
        assert results[0].code == 0, results[0].err
        if subcommand != "evaluate":  # which prints the name of the run
            assert results[0].out == results[1].out


def test_a_card_without_license_and_example_is_reported(tmp_path: Path) -> None:
    result = run_pellucid("share", copies_with_pair_ngram(), "--to", tmp_path / "shared")
    assert result.code == 0 and result.err.count("\n") == 3
    assert "the card does not say what the model is for: --intended-use FILE" in result.err
    assert "the card names no license: --license ID" in result.err and "--example TEXT" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "share needs one destination: --to DIR or --hub USER/MODEL"),
        (["--to", "a", "--hub", "u/m"], "share needs one destination"),
        (["--to", "a", "--private"], "--private and --message need --hub USER/MODEL"),
        (["--to", "a", "--license", "The MIT License"], "--license: expected an identifier such as 'apache-2.0'"),
        (["--to", "a", "--language", "en,English"], "--language: expected a code such as 'en', got 'English'"),
        (["--to", "a", "--dataset", "a/b/c"], "--dataset: expected an identifier such as 'user/data'"),
        (["--to", "a", "--intended-use", "missing.md"], "cannot read missing.md: no such file"),
        (["--to", "."], ". exists and is not an empty folder; name a new one"),
        (["--hub", "model"], "'model' is not the name of a repository: expected USER/MODEL"),
    ],
)
def test_wrong_arguments_of_share_are_named(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "something").touch()
    result = run_pellucid("share", copies_with_pair_ngram(), *arguments, folder=tmp_path)
    assert result.code == 2 and "Traceback" not in result.err and message in result.err
    assert os.listdir(tmp_path) == ["something"]


def test_a_folder_without_a_run_cannot_be_shared(tmp_path: Path) -> None:
    (tmp_path / "use.md").write_text("Tests.\n")
    flags = (*FLAGS, "--intended-use", tmp_path / "use.md")
    message = usage_error_message(run_pellucid("share", tmp_path, "--to", tmp_path / "new", *flags))
    assert message == f"{tmp_path} is not a run folder: it holds no config.toml"
    assert os.listdir(tmp_path) == ["use.md"]


@pytest.mark.slow
def test_a_model_is_pushed_and_downloaded(hub: LoopbackHub, tmp_path: Path) -> None:
    result = run_with_hub(
        hub,
        tmp_path,
        "share",
        copies_with_pair_ngram(),
        "--hub",
        "user/copies",
        "--private",
        "--message",
        "One",
        *FLAGS,
    )
    assert result.returncode == 0, result.stderr
    assert hub.repositories["user/copies"].private
    url, command = result.stdout.splitlines()
    commit = url.rpartition("/")[2]
    assert command == f"pellucid download user/copies --revision {commit} --out DIR"
    result = run_with_hub(hub, tmp_path, "download", "user/copies", "--revision", commit, "--out", "model")
    assert result.returncode == 0 and result.stderr == "", result.stderr
    assert result.stdout.startswith(f"model: user/copies at commit {commit}, 0.")
    assert {"README.md", "attention.png", MANIFEST} < set(file_names(tmp_path / "model"))
    (tmp_path / "words.txt").write_text("ab\n")
    outputs = [
        run_pellucid("predict", each, "words.txt", folder=tmp_path) for each in ("model", copies_with_pair_ngram())
    ]
    assert outputs[0].code == 0 and outputs[0].out == outputs[1].out
    result = run_with_hub(hub, tmp_path, "download", "user/copies", "--revision", "main", "--out", "other")
    assert result.returncode == 0 and f"user/copies@main is the commit {commit} now" in result.stderr


@pytest.mark.parametrize("name", ["user/a--b", "user/a..b", "user/a.git", "user/a-"])
@pytest.mark.parametrize("revision", [["--revision", "0" * 40], []])
def test_names_that_the_hub_refuses_are_errors_of_a_download(tmp_path: Path, name: str, revision: list[str]) -> None:
    result = run_pellucid("download", name, *revision, "--out", tmp_path / "model")
    assert f"'{name}' is not the name of a repository: expected USER/MODEL" in usage_error_message(result)


@pytest.mark.slow
def test_errors_of_a_download_exit_with_code_2(hub: LoopbackHub, tmp_path: Path) -> None:
    commit = hub.add("user/model", {"model.pkl": b"\x80"})
    for arguments, message in (
        ((), "download needs --out DIR, the folder to write"),
        (("--out", "model"), f"give --revision {commit}, its newest commit, or another revision"),
        (("--out", "model", "--revision", commit), "holds 'model.pkl', which may contain code"),
        (("--out", "model", "--revision", "x"), "there is no such revision"),
    ):
        result = run_with_hub(hub, tmp_path, "download", "user/model", *arguments)
        assert result.returncode == 2 and message in result.stderr, result.stderr
        assert result.stderr.startswith("pellucid: ") and result.stderr.count("\n") == 1
    assert not (tmp_path / "model").exists()
