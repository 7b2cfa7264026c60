"""The figure."""
from pathlib import Path
from benchmarks.peers.results import Results
def write_figure(results: Results, path: Path) -> None:
    """x"""
