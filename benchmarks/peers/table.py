"""The table, in Markdown."""
from benchmarks.peers.results import Results
def table(results: Results) -> str:
    """x"""
    return ""
