"""--help of the benchmarks: each script states what it measures, its inputs and its outputs."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import build_environment

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = [path for path in sorted(BENCHMARKS.rglob("*.py")) if "__main__" in path.read_text("utf-8")]
SERVERS = {"litserve_server.py"}
"""Scripts that measure nothing, and answer requests of another one."""
OUTPUT_WORDS = r"print|receives|keeps|kept|written|prints|gets|report"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.relative_to(BENCHMARKS).as_posix())
def test_help_of_a_benchmark_is_its_whole_documentation(path: Path) -> None:
    text = path.read_text("utf-8")
    documentation = ast.get_docstring(ast.parse(text)) or ""
    parser = "argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)"
    assert text.count("argparse.ArgumentParser(") == text.count(parser) == 1
    assert re.search(rf"^    .*python {path.relative_to(BENCHMARKS.parent).as_posix()} ", documentation, re.MULTILINE)
    assert path.name in SERVERS or re.search(OUTPUT_WORDS, documentation), "its outputs are not stated"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["provisional_weight.py", "confidence_methods.py", "crashes.py"])
def test_benchmark_prints_its_help(name: str) -> None:
    command = [sys.executable, str(BENCHMARKS / name), "--help"]
    result = subprocess.run(command, capture_output=True, text=True, env=build_environment(), check=False)
    documentation = ast.get_docstring(ast.parse((BENCHMARKS / name).read_text("utf-8"))) or ""
    assert result.returncode == 0 and documentation in result.stdout
