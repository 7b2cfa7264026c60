"""Limits on the size of files: environment variables replace the defaults, and a wrong value is one message."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid import limits
from pellucid.errors import ConfigError
from pellucid.limits import check_module_limits, read_limit, read_module_limit
from pellucid.run_folder.log import read_log

VARIABLE = "PELLUCID_MAX_LINE_MIB"


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "2048", "a", "9" * 5000])
def test_a_wrong_limit_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ConfigError, match=rf"^{VARIABLE}: expected a whole number of MiB from 1 to 2047, got '"):
        read_limit(VARIABLE, 256, largest=2047)


def test_the_default_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, expected in (("", 256), ("3", 3)):
        monkeypatch.setenv(VARIABLE, text)
        assert read_limit(VARIABLE, 256) == expected * 2**20


def test_a_wrong_limit_of_a_module_is_reported_after_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_ERRORS", [])
    check_module_limits()
    monkeypatch.setenv(VARIABLE, "3")
    assert read_module_limit(VARIABLE, 256) == 3 * 2**20
    check_module_limits()
    monkeypatch.setenv(VARIABLE, "x")
    assert read_module_limit(VARIABLE, 256) == 256 * 2**20
    with pytest.raises(ConfigError, match=rf"^{VARIABLE}: expected a whole number of MiB from 1 to 1048576, got 'x'"):
        check_module_limits()


@pytest.mark.parametrize(
    ("limit", "message"), [("1", "long.tsv:1: the line has more than 1,048,576 bytes"), ("x", f"{VARIABLE}: expected")]
)
def test_the_command_line_has_the_limit(tmp_path: Path, limit: str, message: str) -> None:
    (tmp_path / "long.tsv").write_bytes(b"a\t" + b"b" * 1_100_000 + b"\n")
    command = [sys.executable, "-m", "pellucid", "split", str(tmp_path / "long.tsv"), "--out", str(tmp_path / "out")]
    result = subprocess.run(command, env={**os.environ, VARIABLE: limit}, capture_output=True, text=True, check=False)
    assert result.returncode == 2 and message in result.stderr and "Traceback" not in result.stderr


def test_a_wrong_limit_is_reported_where_only_a_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_ERRORS", [ConfigError("PELLUCID_MAX_LOG_MIB: expected a whole number")])
    (tmp_path / "log.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"^PELLUCID_MAX_LOG_MIB: expected a whole number$"):
        read_log(tmp_path)
