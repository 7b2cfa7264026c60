"""cli/completion.py: the scripts, run by the shells that are installed."""

import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import run_pellucid, usage_error_message

from pellucid.cli.subcommands import SUBCOMMANDS


@pytest.fixture(scope="module")
def bash_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for bash."""
    path = tmp_path_factory.mktemp("completion") / "pellucid.bash"
    path.write_text(run_pellucid("completion", "bash").out, "utf-8")
    return path


def bash_completes(script: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    program = (
        f'source "{script}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pellucid; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", program, "bash", "pellucid", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and done.stderr == ""
    return done.stdout.split()


def test_bash_completes_subcommands_flags_and_choices(bash_file: Path) -> None:
    assert set(SUBCOMMANDS) <= set(bash_completes(bash_file, ""))
    assert bash_completes(bash_file, "tr") == ["train"]
    assert bash_completes(bash_file, "train", "--epo") == ["--epochs"]
    assert bash_completes(bash_file, "train", "a.tsv", "--training.epo") == ["--training.epochs"]
    assert bash_completes(bash_file, "train", "a.tsv", "--size", "") == ["tiny", "small", "base", "large"]
    assert bash_completes(bash_file, "train", "a.tsv", "-s", "t") == ["tiny"]
    assert bash_completes(bash_file, "train", "a.tsv", "--cell", "") == ["gru", "lstm"]
    assert bash_completes(bash_file, "predict", "run", "--output-format", "") == ["text", "tsv", "jsonl"]
    assert "--no-bidirectional" in bash_completes(bash_file, "tune", "--no-")
    assert bash_completes(bash_file, "recipe", "digits-att") == ["digits-attention-faithful", "digits-attention"]
    assert bash_completes(bash_file, "bench", "gr") == ["greedy"]
    assert bash_completes(bash_file, "bench", "all", "--case", "s") == ["small"]
    assert bash_completes(bash_file, "completion", "") == ["bash", "zsh", "fish"]
    assert bash_completes(bash_file, "look", "--help") == ["--help", "--help-all"]


def test_bash_leaves_files_to_its_own_completion(bash_file: Path) -> None:
    assert bash_completes(bash_file, "predict", "") == []
    assert bash_completes(bash_file, "train", "a.tsv", "--valid", "d") == []
    assert "complete -o default -F _pellucid pellucid" in bash_file.read_text("utf-8")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_their_script(shell: str, tmp_path: Path) -> None:
    script = run_pellucid("completion", shell)
    assert script.code == 0 and script.err == ""
    for verb in SUBCOMMANDS:
        assert verb in script.out
    assert "epochs" in script.out and "tiny small base large" in script.out
    if shutil.which(shell):
        (tmp_path / "script").write_text(script.out, "utf-8")
        assert subprocess.run([shell, "-n", tmp_path / "script"], check=False).returncode == 0


def test_unknown_shell_is_an_error() -> None:
    assert usage_error_message(run_pellucid("completion", "tcsh")) == (
        "SHELL: expected bash, zsh or fish, got 'tcsh' (pellucid completion --help)"
    )
    assert usage_error_message(run_pellucid("completion")) == "SHELL is required (pellucid completion --help)"
