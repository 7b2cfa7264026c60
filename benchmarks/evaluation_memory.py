"""CPU seconds and memory of the computations at the end of `pellucid evaluate`, with random outcomes for outputs.

    python benchmarks/memory_use.py --interval 0.1 --out DIR python benchmarks/evaluation_memory.py --outputs 20000000

Nothing is decoded. The counts of two runs on the same examples are filled with random numbers; then the metrics are
computed by the classes that `pellucid evaluate` uses. A line is printed for each step: its CPU seconds, and the
anonymous memory after it; `memory_use.py` measures the maximum, also within steps. Reads /proc of Linux.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from pellucid.evaluation.assessment import Assessment, compare_runs
from pellucid.evaluation.evaluation_pairs import KEY_BYTES, KEY_TYPE, EvaluationPairs
from pellucid.evaluation.metrics import OutcomeCounts
from pellucid.evaluation.output_counts import OutputCounts
from pellucid.evaluation.task_metrics import ERROR_RATE_METRICS

BLOCK = 100_000
"""Number of outputs that are drawn at a time."""
NUM_GROUPS = 10


def main(arguments: Sequence[str]) -> int:
    """Fill the counts, compute the metrics, and print a line for each step.

    Args:
        arguments: Command-line arguments.

    Returns:
        0.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outputs", type=int, default=1_000_000, help="number of outputs of each run")
    options = parser.parse_args(arguments)
    for name, step in evaluation_steps(options.outputs).items():
        started_at = time.process_time()
        step()
        print(f"{name}: {time.process_time() - started_at:.1f} CPU seconds, {anonymous_memory():.0f} MiB")
    return 0


def evaluation_steps(num_outputs: int) -> dict[str, Callable[[], object]]:
    """Return the computations by name; the first ones fill the counts.

    Args:
        num_outputs: Number of outputs of each run.
    """
    a, b = (Assessment(name, OutputCounts(None, False), {}, ERROR_RATE_METRICS) for name in ("a", "b"))
    baseline, pairs = OutcomeCounts(), EvaluationPairs(multi_reference=True, description="pairs")
    return {
        "fill the counts of two runs": lambda: fill_counts([a.counts, b.counts], num_outputs),
        "fill the hashes of pairs": lambda: fill_pairs(pairs, num_outputs),
        "merge references": lambda: pairs.arrange(print, str),
        "exact match and error rates": lambda: a.evaluation,
        "groups and macro average": lambda: (a.groups, a.mean),
        "calibration of probabilities": lambda: a.calibration,
        "calibration of confidences": lambda: a.confidence_calibration,
        "calibration error by chance": lambda: a.calibration_error_by_chance,
        "ranks of correct outputs": lambda: (a.oracle, a.mean_reciprocal_rank),
        "worst outputs": lambda: a.worst_examples(100),
        "order of all wrong outputs": lambda: sum(1 for _ in a.counts.best.wrong_by_rate()),
        "comparison of two runs": lambda: compare_runs(a, b),
        "outputs that one run has right": lambda: a.exclusively_right(b, 100),
        "join with another file": lambda: (baseline.extend(a.counts.best), b.counts.extend(a.counts)),
    }


def fill_counts(runs: Sequence[OutputCounts], num_outputs: int, seed: int = 1) -> None:
    """Add random outcomes of the same examples to the counts of runs.

    Args:
        runs: Counts of each run.
        num_outputs: Number of outputs of each run.
        seed: Seed of the random numbers.
    """
    generator = np.random.default_rng(seed)
    for run in runs:
        run.max_outputs = 5
        run._group_numbers.update({str(number): number for number in range(NUM_GROUPS)})
    for first in range(0, num_outputs, BLOCK):
        size = min(BLOCK, num_outputs - first)
        lengths, groups = generator.integers(1, 30, size), generator.integers(0, NUM_GROUPS, size)
        for run in runs:
            errors = np.minimum(generator.poisson(0.5, size), lengths)
            run.best._rows.extend(errors, lengths, lengths)
            scores, confidences = -generator.exponential(0.3, size), 1 - generator.random(size)
            run._rows.extend(scores, confidences, np.where(errors > 0, generator.integers(0, 6, size), 1), groups)


def fill_pairs(pairs: EvaluationPairs, num_pairs: int, seed: int = 1) -> None:
    """Add the hashes of random sources, of which each occurs four times on average, to pairs.

    Args:
        pairs: The pairs, without texts.
        num_pairs: Number of pairs.
        seed: Seed of the random numbers.
    """
    generator = np.random.default_rng(seed)
    for first in range(0, num_pairs, BLOCK):
        size = min(BLOCK, num_pairs - first)
        keys = np.zeros(size, KEY_TYPE)
        sources = generator.integers(1, max(2, num_pairs // 4), size).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        keys["key"] = np.repeat(sources, KEY_BYTES // 8).view(f"S{KEY_BYTES}")
        keys["number"] = np.arange(first, first + size)
        pairs._keys.extend_rows(keys)
        pairs._groups.extend(np.zeros(size, np.int32))


def anonymous_memory() -> float:
    """Return the anonymous memory of this process in MiB."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon:"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
