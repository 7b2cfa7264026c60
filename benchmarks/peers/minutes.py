"""Curves of the word error rate of pronunciations against the minutes of training, of Pellucid and its peers.

    python benchmarks/peers/minutes.py --train FILE --valid FILE --test FILE --minutes 2 5 10 30 60 --out DIR

The files have one word, a tab, and its phones with spaces between per line. A word may have several lines; an output is
correct if it equals one of them.

* Pellucid has one training per budget: `pellucid train FILE --valid FILE --run DIR --target-symbols words --time Nm`,
  and `pellucid predict` with its defaults. A training that ends before its budget is noted.
* yoyodyne and JoeyNMT have no time budgets, so each has one training as long as the longest budget. Their settings are
  in `trainers.py`: those of their authors, and the sizes of Pellucid. They validate once per epoch, or more often with
  `--validations`, so that there is a checkpoint at the end of a budget that is shorter than an epoch. Every
  `POLL_SECONDS`, this script looks for a new best checkpoint and copies it; the copy at the end of a budget decodes the
  test words after the training, with a beam of 5. The clock of a training begins at the start of its process, and
  contains reading the data and validations. Decoding the test words is not part of any budget.
* Phonetisaurus and the pair n-gram model of Pellucid have no budgets: their training, with the defaults, is one point.

Every system has one thread, and with `--core` it is pinned to a core. Systems are measured one after the other. Results
are written after each measurement, with versions and date; an interrupted run continues with the next one, and measures
failures again. It is refused if the processor, the content of the files or an option differs.
"""

import argparse
import hashlib
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.peers.curve_measurement import TITLES, CurvePlan, measure_system  # noqa: E402
from benchmarks.peers.curve_report import CurveResults, format_curves, write_curve_figure  # noqa: E402
from benchmarks.peers.measure import CHILDREN  # noqa: E402
from benchmarks.peers.pronunciations import read_pairs, read_references  # noqa: E402
from benchmarks.peers.run import describe_hardware, log  # noqa: E402
from benchmarks.peers.trainers import write_files  # noqa: E402
from pellucid.run_folder.environment import describe_environment, package_version  # noqa: E402


def main(arguments: Sequence[str]) -> int:
    """Make the missing measurements and write the results.

    Args:
        arguments: Command-line arguments; an interrupted run is continued with the same --out.

    Returns:
        The exit status.
    """
    parser = build_parser()
    options = parser.parse_args(arguments)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    results = CurveResults(out / "results.json")
    plan = build_plan(options, out)
    description = describe_run(options, plan)
    if different := find_differences(results.machine, description):
        parser.error(
            f"{results.path} has results of other data or of another processor, seed, number of validations or core "
            f"({', '.join(different)}): remove its folder or give another --out"
        )
    results.machine = description
    results.write()  # before the first training, of which another seed or other data must not take the checkpoints
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for name in options.system:
            measure_system(name, plan, results, log)
            write_report(results, out)
    finally:
        CHILDREN.stop()
    sys.stdout.write(format_curves(results, TITLES))
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("train", "valid", "test"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--minutes", type=float, nargs="+", default=[2.0, 5.0, 10.0, 30.0, 60.0], help="budgets")
    parser.add_argument("--system", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--validations", type=int, default=1, help="validations of yoyodyne and JoeyNMT per epoch")
    parser.add_argument("--core", type=int, help="core to which every process is pinned (default: none)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results; an interrupted run continues")
    parser.add_argument("--environments", type=Path, default=ROOT / "runs" / "peers" / "environments")
    return parser


def build_plan(options: argparse.Namespace, out: Path) -> CurvePlan:
    """Read the data and write it in the formats of every system.

    Args:
        options: Parsed arguments.
        out: Folder of the results.
    """
    references = read_references(options.test)
    files = write_files(out / "data", read_pairs(options.train), read_pairs(options.valid), list(references))
    environments = options.environments.resolve()
    budgets, seed, core = sorted(options.minutes), options.seed, options.core
    return CurvePlan(files, references, budgets, out, environments, seed, core, options.validations, find_versions())


def find_versions() -> str:
    """Return the versions of Pellucid, Python and PyTorch, and the date."""
    hardware, commit = describe_hardware(), describe_environment(1).get("commit")
    pellucid = f"Pellucid {package_version('pellucid')}{f', commit {commit}' if commit else ''}"
    return f"{pellucid}, Python {hardware['python']}, {hardware['torch']}, {hardware['date']}"


def describe_run(options: argparse.Namespace, plan: CurvePlan) -> dict[str, object]:
    """Return machine, data and options, which are those of all measurements.

    Args:
        options: Parsed arguments.
        plan: Data, budgets and folders.
    """
    hardware, files = describe_hardware(), (options.train, options.valid, options.test)
    return {
        "processor": hardware["processor"],
        "cores": hardware["cores"],
        "pinned": "" if plan.core is None else f", pinned to core {plan.core}",
        "num_pairs": plan.files.num_pairs,
        "num_words": len(plan.references),
        "seed": plan.seed,
        "validations": plan.validations,
        "data": [str(path.resolve()) for path in files],
        "checksums": [hashlib.sha256(path.read_bytes()).hexdigest() for path in files],
    }


def find_differences(stored: Mapping[str, object], description: Mapping[str, object]) -> list[str]:
    """Return the names of the values with which the stored results cannot be compared.

    Args:
        stored: Description of the stored results; empty without results. That of an earlier version has no checksums,
            so paths and numbers of pairs and words are compared.
        description: Description of this run.
    """
    data = ["checksums"] if "checksums" in stored else ["data", "num_pairs", "num_words"]
    keys = ["processor", *data, "seed", "validations", "pinned"]
    return [key for key in keys if stored.get(key) != description[key]] if stored else []


def write_report(results: CurveResults, out: Path) -> None:
    """Write the table and the figure.

    Args:
        results: Results of the benchmark.
        out: Folder of the files.
    """
    (out / "table.md").write_text(format_curves(results, TITLES), "utf-8")
    write_curve_figure(results, TITLES, out / "figure.svg")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
