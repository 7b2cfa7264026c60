"""reporting/terminal_width.py: tables, bars and help also where the width of the terminal is 0 or a few columns."""

import os

import pytest
from command_line import run_shell
from trained_runs import digits_run

from pellucid.cli.evaluate import TableConsole
from pellucid.reporting.progress import PipeSafeConsole
from pellucid.reporting.terminal_width import MIN_WIDTH, terminal_width, usable_terminal_width


@pytest.mark.parametrize(("columns", "width"), [("0", 80), ("1", MIN_WIDTH), ("39", MIN_WIDTH), ("100", 100)])
def test_no_width_is_below_the_minimum(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width() == TableConsole().width == PipeSafeConsole().width == width
    with usable_terminal_width():
        assert os.environ["COLUMNS"] == str(width)
    assert os.environ["COLUMNS"] == columns
    monkeypatch.delenv("COLUMNS")
    with usable_terminal_width():
        assert int(os.environ["COLUMNS"]) >= MIN_WIDTH
    assert "COLUMNS" not in os.environ


@pytest.mark.parametrize("columns", [0, 1])
def test_tables_and_help_are_printed_at_any_width(columns: int) -> None:
    """Regression test: with COLUMNS=0, evaluate printed nothing; with COLUMNS=1, --help-all did not end."""
    run = digits_run()
    script = f'COLUMNS={columns} exec "$@"'
    tables = run_shell(script, "evaluate", run.run, run.files.valid)
    assert tables.code == 0 and "exact match" in tables.out, tables
    page = run_shell(script, "split", "--help-all")
    assert page.code == 0 and "--test-size" in page.out, page
