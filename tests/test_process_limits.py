"""process_limits.py: messages where the address space is too small, also for the libraries themselves."""

import errno
import os
import sys

import pytest
from command_line import run_shell, usage_error_message

import pellucid.config.extension_errors
from pellucid import cli, process_limits
from pellucid.errors import is_out_of_memory


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), True),
        (OSError("libtorch_cpu.so: failed to map segment from shared object"), True),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), True),
        (MemoryError(), True),
        (ImportError("libgomp.so.1: cannot allocate memory in static TLS block"), False),
        (ImportError("libfoo.so: cannot open shared object file: No such file or directory"), False),
    ],
)
def test_a_library_that_does_not_fit_is_lack_of_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) == expected


def test_the_advice_names_the_limit_of_the_address_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_limits, "process_limit", lambda name: None)
    assert process_limits.memory_advice() == "reduce training.batch_size, search.batch_size or size"
    monkeypatch.setattr(process_limits, "process_limit", lambda name: 600_000 * 1024)
    assert "is limited to 586 MiB (ulimit -v): raise this limit, or reduce" in process_limits.memory_advice()


def test_failures_of_imports_in_a_small_address_space_are_lack_of_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression test: PyTorch failed with SystemError, and then an import with MemoryError."""

    def fail(command_line: list[str]) -> int:
        raise SystemError("error return without exception set")

    def lack_memory(error: Exception) -> None:
        raise MemoryError

    monkeypatch.setattr(cli, "_run_subcommand", fail)
    monkeypatch.setattr(cli, "process_limit", lambda name: 2**29)
    assert cli.main(["train"]) == 2 and "pellucid: out of memory; " in capsys.readouterr().err
    monkeypatch.setattr(cli, "process_limit", lambda name: None)
    with pytest.raises(SystemError):
        cli.main(["train"])
    monkeypatch.setattr(pellucid.config.extension_errors, "extension_error", lack_memory)
    assert cli.main(["train"]) == 2 and "pellucid: out of memory; " in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the address space")
def test_a_small_address_space_is_named() -> None:
    """Regression test: PyTorch, which could not be loaded, ended the command in a traceback."""
    result = run_shell('ulimit -v 400000 && exec "$@"', "train", "a.tsv", "--run", "b", "--size", "tiny")
    assert "out of memory; the address space of this process" in usage_error_message(result)
    assert "is limited to 391 MiB (ulimit -v)" in result.err
