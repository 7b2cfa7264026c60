"""cli/completion.py: completion scripts, run by the installed shells."""

import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import run_pellucid, usage_error_message

from pellucid.cli.subcommands import SUBCOMMANDS


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the completion script of bash and return its path."""
    path = tmp_path_factory.mktemp("completion") / "pellucid.bash"
    path.write_text(run_pellucid("completion", "bash").out, "utf-8")
    return path


def complete_in_bash(script: Path, *words: str) -> list[str]:
    """Return the completions that bash offers for the last word."""
    program = (
        f'source "{script}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pellucid; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    process = subprocess.run(
        ["bash", "--norc", "-c", program, "bash", "pellucid", *words], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0 and process.stderr == ""
    return process.stdout.split()


def test_bash_completes_subcommands_flags_and_choices(bash_script: Path) -> None:
    assert set(SUBCOMMANDS) <= set(complete_in_bash(bash_script, ""))
    assert complete_in_bash(bash_script, "tr") == ["train"]
    assert complete_in_bash(bash_script, "train", "--epo") == ["--epochs"]
    assert complete_in_bash(bash_script, "train", "a.tsv", "--training.epo") == ["--training.epochs"]
    assert complete_in_bash(bash_script, "train", "a.tsv", "--size", "") == ["auto", "tiny", "small", "base", "large"]
    assert complete_in_bash(bash_script, "train", "a.tsv", "-s", "t") == ["tiny"]
    assert complete_in_bash(bash_script, "train", "a.tsv", "--cell", "") == ["gru", "lstm"]
    assert complete_in_bash(bash_script, "predict", "run", "--output-format", "") == ["text", "csv", "tsv", "jsonl"]
    assert "--no-bidirectional" in complete_in_bash(bash_script, "tune", "--no-")
    assert complete_in_bash(bash_script, "recipe", "digits-att") == ["digits-attention-faithful", "digits-attention"]
    assert complete_in_bash(bash_script, "bench", "gr") == ["greedy"]
    assert complete_in_bash(bash_script, "bench", "all", "--case", "s") == ["small"]
    assert complete_in_bash(bash_script, "completion", "") == ["bash", "zsh", "fish"]
    assert complete_in_bash(bash_script, "look", "--help") == ["--help", "--help-all"]


def test_bash_leaves_files_to_its_own_completion(bash_script: Path) -> None:
    assert complete_in_bash(bash_script, "predict", "") == []
    assert complete_in_bash(bash_script, "train", "a.tsv", "--valid", "d") == []
    assert "complete -o default -F _pellucid pellucid" in bash_script.read_text("utf-8")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_their_script(shell: str, tmp_path: Path) -> None:
    script = run_pellucid("completion", shell)
    assert script.code == 0 and script.err == ""
    for subcommand in SUBCOMMANDS:
        assert subcommand in script.out
    assert "epochs" in script.out and "tiny small base large" in script.out
    if shutil.which(shell):
        (tmp_path / "script").write_text(script.out, "utf-8")
        assert subprocess.run([shell, "-n", tmp_path / "script"], check=False).returncode == 0


def test_unknown_shell_is_an_error() -> None:
    assert usage_error_message(run_pellucid("completion", "tcsh")) == (
        "SHELL: expected bash, zsh or fish, got 'tcsh' (pellucid completion --help)"
    )
    assert usage_error_message(run_pellucid("completion")) == "SHELL is required (pellucid completion --help)"
