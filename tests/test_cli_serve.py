"""Arguments of `pellucid serve`, failures and signals at its start."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from service_process import ROOT, wait_until
from trained_runs import copy_task_run

from pellucid.cli.serve import main, name_models, read_allowed_hosts, read_allowed_origins
from pellucid.errors import InputError
from pellucid.serving.index_page import index_page

PROGRAM = """
import asyncio, sys
from pellucid.serving.model_worker import ModelWorker
async def start(self):
    self._start_process()
    {body}
ModelWorker.start = start
from pellucid.cli.serve import main
sys.exit(main(sys.argv[1:]))
"""
"""Program that serves by workers that do not load a model."""


def start_program(body: str) -> "subprocess.Popen[str]":
    """Start a service with another `ModelWorker.start`."""
    command = [sys.executable, "-c", PROGRAM.format(body=body), str(copy_task_run().run), "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*command, "--workers", "2"], stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
    )


def test_an_internal_error_at_the_start_is_logged_and_has_exit_code_1() -> None:
    """Regression test: the exit code was 0, and no reason was given."""
    with start_program('raise RuntimeError("a bug")') as process:
        _, log = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "the service cannot be started" in log and "RuntimeError: a bug" in log and "service stopped" not in log


def has_processes(group: int) -> bool:
    """Return whether a process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_start_ends_the_service_at_once(number: signal.Signals) -> None:
    """Regression test: the service loaded all models first."""
    with start_program("print('loading', flush=True); await asyncio.sleep(1000)") as process:
        try:
            assert process.stdout is not None and process.stdout.readline().startswith("http")
            assert process.stdout.readline() == "loading\n"
            process.send_signal(number)
            started = time.monotonic()
            _, log = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0 and "service stopped" in log and "Traceback" not in log
    assert time.monotonic() - started < 30
    wait_until(lambda: not has_processes(process.pid), 20)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--max-queued-rows", "60"], "--max-queued-rows 60: expected at least --max-rows (256)"),
        (["--drain-timeout", "inf"], "--drain-timeout: expected 0 to 1,000,000 seconds"),
        (["--timeout", "nan"], "--timeout: expected a number above 0"),
        (["--reload-interval", "-1"], "--reload-interval: expected 0 to 1,000,000 seconds"),
        (["--workers", "0"], "--workers: expected a number above 0"),
        (["--host", "0.0.0.0"], "--token-file"),
        (["--allow-host", "page.example:80"], "page.example:80"),
        (["--allow-origin", "page.example"], "--allow-origin"),
    ],
)
def test_arguments_that_cannot_work_are_refused(tmp_path: Path, arguments: list[str], text: str) -> None:
    with pytest.raises(InputError) as caught:
        main([str(tmp_path), "--port", "0", *arguments])
    assert text in str(caught.value)


def test_name_of_a_folder_that_is_not_utf8_can_be_encoded() -> None:
    """Regression test: the page of the service could not be made."""
    folder = os.fsdecode(b"r\xe9seau")
    models = name_models((folder,))
    assert models == {"r\ufffdseau": Path(folder)} and b"r\xef\xbf\xbdseau" in index_page(list(models)).encode()


def test_allowed_hosts_and_origins_have_the_form_of_the_headers() -> None:
    """Regression test: names with capitals never matched a header."""
    assert read_allowed_hosts(("Pellucid.Example", "::1", "127.0.0.2")) == {"pellucid.example", "::1", "127.0.0.2"}
    assert read_allowed_origins(("https://Page.Example:8443",)) == {"https://page.example:8443"}
    for name in ("", "a:80", "https://a", "a/b", "a b@c", "[::1]"):
        with pytest.raises(InputError, match="--allow-host"):
            read_allowed_hosts((name,))
    for origin in ("", "*", "page.example", "https://page.example/", "file:///a"):
        with pytest.raises(InputError, match="--allow-origin"):
            read_allowed_origins((origin,))
