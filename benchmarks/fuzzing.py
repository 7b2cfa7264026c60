"""Fuzzing of every reader: files of pairs, vectors, vocabularies, settings, run folders, traces and HTTP requests.

    python benchmarks/fuzzing.py run --state DIR --hours 8 [--targets tsv ...] [--engine mutation atheris] [--seed 1]
    python benchmarks/fuzzing.py report --state DIR
    python benchmarks/fuzzing.py coverage --state DIR
    python benchmarks/fuzzing.py distill --state DIR --out tests/fuzzing

`run` takes turns among the targets (`fuzz_seeds.py` lists them, `fuzz_targets.py` states their properties), each for
`--slice` CPU seconds in a process of its own. An input fails if a property does not hold, if it takes more than
`--time-limit` CPU seconds, if the process needs more than `--memory` MiB beyond its memory at the start, or if the
process dies. Failures are minimized, and kept once each in DIR/TARGET/failures; inputs with a new outcome are kept in
DIR/TARGET/corpus. All is written as it is found: an interrupted campaign continues with the same command.

Engines: `mutation` is the seeded mutator of `fuzz_mutation.py`, guided by the outcomes (kinds of messages and of
results). `atheris` is libFuzzer with the same mutator, guided by the branches of Pellucid; it needs `pip install
atheris`. `coverage` replays the corpus and counts the lines of functions that were executed, in the modules of each
reader. `distill` writes a small corpus, and all failures, for the tests; earlier inputs stay. Linux.
"""

import argparse
import base64
import faulthandler
import hashlib
import importlib
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.fuzz_mutation import MAX_SIZE, minimize, mutate  # noqa: E402

SECONDS_PER_INPUT = 2.0
MEMORY_MIB = 1536
WALL_SECONDS = 120.0
"""Time after which a process that uses no CPU time is killed."""
MAX_CORPUS = 4000
"""Maximum number of inputs that the corpus of a target has."""
INSTRUMENTED = (
    *("pellucid.data", "pellucid.config", "pellucid.run_folder", "pellucid.auditing", "pellucid.sharing"),
    *("pellucid.tuning", "pellucid.serving", "pellucid.pair_ngram", "pellucid.files", "pellucid.http_requests"),
    *("pellucid.decoding.trace", "pellucid.decoding.text_decoder", "pellucid.decoding.options"),
    *("pellucid.training.snapshots", "pellucid.training.checkpoint", "pellucid.training.preparation"),
)
"""Packages whose branches guide atheris."""


class Limits(NamedTuple):
    """Limits of one input."""

    seconds: float = SECONDS_PER_INPUT
    memory: int = MEMORY_MIB


class Failure(NamedTuple):
    """Input that fails."""

    key: str
    """Kind and place of the fault; failures of one key are kept once."""
    text: str


class CampaignError(Exception):
    """Error of the campaign itself, which would occur again."""


class TargetFolder:
    """State of a target on disk: inputs, failures and counts."""

    def __init__(self, state: Path, name: str) -> None:
        """Create the folders.

        Args:
            state: Folder of the campaign.
            name: Name of the target.
        """
        self.folder = state / name
        self.corpus, self.failures = self.folder / "corpus", self.folder / "failures"
        self.current, self.counts_file = self.folder / "current", self.folder / "counts.json"
        for folder in (self.corpus, self.failures):
            folder.mkdir(parents=True, exist_ok=True)

    def counts(self) -> dict[str, Any]:
        """Return the counts: inputs, CPU seconds, largest growth of memory, outcomes."""
        try:
            counts: dict[str, Any] = json.loads(self.counts_file.read_bytes())
        except (FileNotFoundError, ValueError):
            return {"inputs": 0, "seconds": 0.0, "growth": 0, "atheris_inputs": 0, "atheris_seconds": 0.0, "deaths": 0}
        return counts

    def write_counts(self, counts: Mapping[str, Any]) -> None:
        """Write the counts in place of the earlier ones.

        Args:
            counts: The counts.
        """
        temporary = self.counts_file.with_suffix(".tmp")
        temporary.write_text(json.dumps(counts), "utf-8")
        temporary.replace(self.counts_file)

    def inputs(self) -> list[bytes]:
        """Return the inputs of the corpus in the order of their names."""
        return [path.read_bytes() for path in sorted(self.corpus.iterdir())]

    def add_input(self, content: bytes) -> None:
        """Add an input to the corpus.

        Args:
            content: The input.
        """
        (self.corpus / hashlib.sha256(content).hexdigest()[:20]).write_bytes(content)

    def add_failure(self, content: bytes, failure: Failure) -> bool:
        """Keep a failure, unless one of its key is kept; return whether it is new.

        Args:
            content: The input.
            failure: Its fault.
        """
        name = hashlib.sha256(failure.key.encode()).hexdigest()[:16]
        if (self.failures / f"{name}.json").exists():
            return False
        (self.failures / f"{name}.input").write_bytes(content)
        record = {"key": failure.key, "text": failure.text, "size": len(content)}
        (self.failures / f"{name}.json").write_text(json.dumps(record, indent=1), "utf-8")
        return True

    def failure_records(self) -> list[dict[str, Any]]:
        """Return the failures with the path of the input."""
        paths = sorted(self.failures.glob("*.json"))
        return [{**json.loads(path.read_bytes()), "input": str(path.with_suffix(".input"))} for path in paths]


# --- one input


class InputRunner:
    """Calls a target with inputs, in a folder of its own."""

    def __init__(self, name: str, state: Path) -> None:
        """Prepare the target and the small run.

        Args:
            name: Name of the target.
            state: Folder of the campaign.
        """
        from benchmarks import fuzz_targets
        from benchmarks.fuzz_seeds import TARGETS, train_seed_run

        fuzz_targets.SeedRun.folder = train_seed_run(state / "seeds")
        self.target = next(target for target in TARGETS if target.name == name)
        self.folder = state / name / "input"
        self.folder.mkdir(parents=True, exist_ok=True)

    def run(self, content: bytes) -> str | Failure:
        """Return the kind of the outcome of an input, or its failure.

        Args:
            content: The input.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                return self.target.check(content, self.folder)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also panics of Rust, which are no Exception
            return describe_failure(error)


def describe_failure(error: BaseException) -> Failure:
    """Return the failure of an exception: its type, its line in Pellucid, and its text.

    Args:
        error: The exception.
    """
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if f"{os.sep}pellucid{os.sep}" in frame.filename
    ]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].name}:{frames[-1].lineno}" if frames else ""
    name = type(error).__name__
    kind = re.sub(r"'[^']*'|[\d,.]+", "_", str(error))[:50] if name == "PropertyError" else ""
    return Failure(f"{name} {place} {kind}".strip(), "".join(traceback.format_exception(error))[-4000:])


# --- processes


def limit_process(limits: Limits, reserved_memory: int) -> None:
    """Limit the memory of this process, and write its stack if a time limit ends it.

    Args:
        limits: Limits of one input.
        reserved_memory: Address space in MiB that a library may reserve beyond the limit.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + (limits.memory + reserved_memory) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)


def run_mutations(name: str, state: Path, seconds: float, seed: int, limits: Limits) -> None:
    """Fuzz a target for some CPU seconds by the mutations of `fuzz_mutation.py`.

    Args:
        name: Name of the target.
        state: Folder of the campaign.
        seconds: CPU seconds.
        seed: Random seed.
        limits: Limits of one input.
    """
    folder, runner = TargetFolder(state, name), InputRunner(name, state)
    counts = folder.counts()
    rng = random.Random(f"{seed} {name} {counts['inputs']}")
    corpus = folder.inputs() or runner.target.seeds(state / "seeds" / "run")
    runner.run(corpus[0])  # loads what the target needs
    limit_process(limits, runner.target.reserved_memory)
    outcomes, started = set[str](), time.process_time()
    memory = _peak_memory()
    failures = {path.read_bytes() for path in folder.failures.glob("*.input")}
    queue, written = [content for content in corpus if content not in failures], started
    rng.shuffle(queue)  # after an input that ends the process, the next slice begins with other ones
    while (now := time.process_time()) - started < seconds:
        content = queue.pop() if queue else mutate(rng.choice(corpus), runner.target.structure, rng, corpus[-300:])
        outcome = run_within_limits(content, runner, folder, limits)
        counts["inputs"] += 1
        if isinstance(outcome, Failure):
            if folder.add_failure(content, outcome):
                _minimize_failure(content, outcome, runner, folder, limits)
        elif outcome not in outcomes:
            outcomes.add(outcome)
            if len(corpus) < MAX_CORPUS:
                folder.add_input(content)
                corpus.append(content)
        if now - written > 2:
            counts["seconds"] += now - written
            counts["growth"], written = max(counts["growth"], _peak_memory() - memory), now
            folder.write_counts(counts)
    counts["seconds"] += time.process_time() - written
    counts["growth"] = max(counts["growth"], _peak_memory() - memory)
    counts["outcomes"] = len(outcomes)
    folder.write_counts(counts)
    folder.current.unlink(missing_ok=True)


def _peak_memory() -> int:
    """Return the largest resident memory so far, in KiB."""
    return int(Path("/proc/self/status").read_text("ascii").partition("VmHWM:")[2].split()[0])


def run_within_limits(content: bytes, runner: InputRunner, folder: TargetFolder, limits: Limits) -> str | Failure:
    """Return the kind of the outcome of an input, or its failure; SIGPROF ends this process if it takes too long.

    The input is in a file while it runs, so that the process that started this one can keep it if this one dies.

    Args:
        content: The input.
        runner: Runner of the target.
        folder: Folder of the target.
        limits: Limits of the input.
    """
    folder.current.write_bytes(content)
    signal.setitimer(signal.ITIMER_PROF, limits.seconds)
    outcome = runner.run(content)
    signal.setitimer(signal.ITIMER_PROF, 0)
    if runner.target.reserved_memory and (used := _peak_memory() // 1024) > limits.memory:
        Path("/proc/self/clear_refs").write_text("5")  # the next peak is that of the next input
        return Failure("too much memory", f"{used} MiB of resident memory")
    return outcome


def _minimize_failure(
    content: bytes, failure: Failure, runner: InputRunner, folder: TargetFolder, limits: Limits
) -> None:
    """Replace the input of a failure by a short one that fails in the same way.

    A shorter input that takes too long or ends the process is a failure of its own; the first one keeps its long input.
    """

    def fails(candidate: bytes) -> bool:
        outcome = run_within_limits(candidate, runner, folder, limits)
        return isinstance(outcome, Failure) and outcome.key == failure.key

    short = minimize(content, fails)
    name = hashlib.sha256(failure.key.encode()).hexdigest()[:16]
    (folder.failures / f"{name}.input").write_bytes(short)


def run_atheris(name: str, state: Path, seconds: float, seed: int, limits: Limits) -> None:
    """Fuzz a target for some CPU seconds by libFuzzer, guided by the branches of Pellucid; the process ends then.

    Args:
        name: Name of the target.
        state: Folder of the campaign.
        seconds: CPU seconds.
        seed: Random seed.
        limits: Limits of one input.
    """
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

    with atheris.instrument_imports(include=[*INSTRUMENTED]):
        runner = InputRunner(name, state)
    folder = TargetFolder(state, name)
    counts = folder.counts()
    for content in [] if any(folder.corpus.iterdir()) else runner.target.seeds(state / "seeds" / "run"):
        folder.add_input(content)
    others = folder.inputs()
    runner.run(others[0])
    limit_process(limits, runner.target.reserved_memory)
    start = written = time.process_time()

    def mutate_input(content: bytes, max_size: int, number: int) -> bytes:
        return mutate(content, runner.target.structure, random.Random(number), others)[:max_size]

    def test_input(content: bytes) -> None:
        nonlocal written
        outcome = run_within_limits(content, runner, folder, limits)
        if isinstance(outcome, Failure) and folder.add_failure(content, outcome):
            _minimize_failure(content, outcome, runner, folder, limits)
        counts["atheris_inputs"] += 1
        now = time.process_time()
        if now - written > 2 or now - start > seconds:
            counts["atheris_seconds"] += now - written
            written = now
            folder.write_counts(counts)
        if now - start > seconds:
            folder.current.unlink(missing_ok=True)
            os._exit(0)

    flags = [f"-seed={seed + counts['atheris_inputs'] + 1}", f"-max_len={MAX_SIZE}", "-timeout=100", "-verbosity=0"]
    flags += ["-rss_limit_mb=0", f"-artifact_prefix={folder.folder}/", str(folder.corpus)]
    atheris.Setup([sys.argv[0], *flags], test_input, custom_mutator=mutate_input)
    atheris.Fuzz()


WORKERS: dict[str, Callable[[str, Path, float, int, Limits], None]] = {
    "mutation": run_mutations,
    "atheris": run_atheris,
}


COUNTED_INPUTS = {"mutation": "inputs", "atheris": "atheris_inputs"}
"""Name of the count of the inputs of each engine."""
COUNTED_SECONDS = {"mutation": "seconds", "atheris": "atheris_seconds"}
"""Name of the count of the CPU seconds of each engine."""


def run_slice(name: str, engine: str, args: argparse.Namespace) -> None:
    """Fuzz a target in a process of its own, and keep the input of a process that died.

    Args:
        name: Name of the target.
        engine: Name of the engine.
        args: Arguments of the campaign.

    Raises:
        CampaignError: The process ended with an error of this program, such as a missing package.
    """
    folder = TargetFolder(args.state, name)
    options = ["--state", args.state, "--targets", name, "--engine", engine, "--slice", args.slice, "--seed", args.seed]
    options += ["--time-limit", args.time_limit, "--memory", args.memory]
    command = [sys.executable, __file__, "worker", *map(str, options)]
    folder.current.unlink(missing_ok=True)
    counted, used = folder.counts()[COUNTED_SECONDS[engine]], _children_seconds()
    with (folder.folder / "stderr").open("w+b") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            _wait(process, folder, errors)
        finally:
            process.kill()
            process.wait()
    # A process that died has not counted its last input and seconds; without them the next slice would be the same one.
    if process.returncode:
        counts = folder.counts()
        counts["deaths"] += 1
        counts[COUNTED_INPUTS[engine]] += 1
        counts[COUNTED_SECONDS[engine]] = counted + _children_seconds() - used
        folder.write_counts(counts)


def _children_seconds() -> float:
    """Return the CPU seconds of all processes that this one has started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _wait(process: "subprocess.Popen[bytes]", folder: TargetFolder, errors: Any) -> None:  # noqa: ANN401 (a file)
    """Wait for the end of a worker, and keep its input if it died or waits for ever; see `run_slice` for the error."""
    while process.poll() is None:
        time.sleep(0.5)
        with suppress(FileNotFoundError):
            if time.time() - folder.current.stat().st_mtime > WALL_SECONDS:
                process.kill()
                process.wait()
    if process.returncode == 0:
        return
    errors.seek(0)
    text = errors.read()[-6000:].decode(errors="replace")
    if process.returncode == 1 or not folder.current.exists():  # a fault of this program
        raise CampaignError(f"{folder.folder.name}: the process ended with {process.returncode}: {text[-1500:]}")
    places = re.findall(r'File ".*[/\\]pellucid[/\\](.+?)", line \d+ in (\S+)', text)
    signal_name = signal.Signals(-process.returncode).name if process.returncode < 0 else f"code {process.returncode}"
    kind = "takes too long" if signal_name == "SIGPROF" else "killed"
    folder.add_failure(folder.current.read_bytes(), Failure(f"{kind} {signal_name} {places[:1]}", text))


def run_campaign(args: argparse.Namespace) -> None:
    """Take turns among the targets and engines until the CPU time is used.

    Each round begins with the targets that had the least time, so that a campaign that is often interrupted reaches
    all of them.

    Args:
        args: Arguments.
    """
    names = args.targets or target_names()
    while sum(total_seconds(args.state, each) for each in names) < args.hours * 3600:
        for name in sorted(names, key=partial(total_seconds, args.state)):
            for engine in args.engine:
                run_slice(name, engine, args)
        print(format_report(args.state), flush=True)


def target_names() -> list[str]:
    """Return the names of all targets."""
    from benchmarks.fuzz_seeds import TARGETS

    return [target.name for target in TARGETS]


def total_seconds(state: Path, name: str) -> float:
    """Return the CPU seconds of a target with all engines.

    Args:
        state: Folder of the campaign.
        name: Name of the target.
    """
    counts = TargetFolder(state, name).counts()
    return float(counts["seconds"] + counts["atheris_seconds"])


# --- reports


def format_report(state: Path) -> str:
    """Return a table of inputs, CPU seconds, corpus, memory and failures of each target.

    Args:
        state: Folder of the campaign.
    """
    rows, totals = [], [0, 0, 0.0, 0, 0]
    for name in target_names():
        folder = TargetFolder(state, name)
        counts, failures = folder.counts(), folder.failure_records()
        inputs, seconds = (counts["inputs"], counts["atheris_inputs"]), total_seconds(state, name)
        size = len(list(folder.corpus.iterdir()))
        values = [*inputs, seconds, size, len(failures)]
        totals = [total + value for total, value in zip(totals, values, strict=True)]
        growth = counts["growth"] // 1024
        shown = f"{inputs[0]:,} | {inputs[1]:,} | {seconds:,.0f} | {size:,} | {growth:,} | {len(failures)}"
        rows.append(f"| {name} | {shown} |")
    names = ("target", "inputs", "of these by atheris", "CPU seconds", "corpus", "MiB", "failures")
    head = f"| {' | '.join(names)} |\n|---|{'--:|' * (len(names) - 1)}"
    last = f"| all | {totals[0]:,} | {totals[1]:,} | {totals[2]:,.0f} | {totals[3]:,} | | {totals[4]} |"
    return "\n".join([head, *rows, last])


def print_failures(state: Path) -> None:
    """Print each failure with the path of its input.

    Args:
        state: Folder of the campaign.
    """
    for name in target_names():
        for record in TargetFolder(state, name).failure_records():
            content = Path(record["input"]).read_bytes()
            print(f"\n{name}: {record['key']}\n  {record['input']} ({len(content)} bytes) {content[:150]!r}")
            print("  " + record["text"].strip().replace("\n", "\n  ")[-1200:])


def function_lines(code: CodeType) -> Iterator[tuple[str, int]]:
    """Yield file and line of each statement in the functions of a module.

    Args:
        code: Code of the module, or of a function or class in it.
    """
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # CO_NEWLOCALS: a function; the body of a class runs at import
                first = constant.co_firstlineno
                lines = {line for _, _, line in constant.co_lines() if line is not None and line > first}
                yield from ((constant.co_filename, line) for line in lines)
            yield from function_lines(constant)


def measure_coverage(name: str, state: Path, limit: int) -> dict[str, list[list[int]]]:
    """Replay the corpus of a target; return the executed and all lines of functions, by module.

    Args:
        name: Name of the target.
        state: Folder of the campaign.
        limit: Maximum number of inputs, besides the first ones.
    """
    runner, folder = InputRunner(name, state), TargetFolder(state, name)
    files = {importlib.import_module(module).__file__: module for module in runner.target.modules}
    executed: dict[str, set[int]] = {file: set() for file in files if file}

    def trace_call(frame: FrameType, event: str, argument: object) -> Any:  # noqa: ANN401
        lines = executed.get(frame.f_code.co_filename)
        if lines is None:
            return None

        def trace_line(frame: FrameType, event: str, argument: object) -> Any:  # noqa: ANN401
            lines.add(frame.f_lineno)
            return trace_line

        return trace_line

    sys.settrace(trace_call)
    for content in [*runner.target.seeds(state / "seeds" / "run"), *folder.inputs()[:limit]]:
        runner.run(content)
    sys.settrace(None)
    result = {}
    for file, module in files.items():
        source = Path(str(file)).read_text("utf-8")
        lines = {line for _, line in function_lines(compile(source, str(file), "exec"))}
        result[module] = [sorted(lines & executed[str(file)]), sorted(lines)]
    return result


def print_coverage(args: argparse.Namespace) -> None:
    """Print the coverage of each module by all targets, each of which is measured in a process of its own.

    Args:
        args: Arguments.
    """
    modules: dict[str, tuple[list[str], set[int], int]] = {}
    for name in args.targets or target_names():
        command = [sys.executable, __file__, "measure", "--state", str(args.state), "--targets", name]
        command += ["--replay", str(args.replay)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            print(f"| {name} | {result.stderr[-300:]} |", flush=True)
            continue
        for module, (executed, lines) in json.loads(result.stdout.splitlines()[-1]).items():
            names, covered, _ = modules.setdefault(module, ([], set(), len(lines)))
            names.append(name)
            covered.update(executed)
    for module, (names, covered, total) in modules.items():
        share = f"{len(covered)} of {total} | {100 * len(covered) / max(1, total):.0f} %"
        print(f"| `{module.removeprefix('pellucid.')}` | {', '.join(names)} | {share} |")


def distill(args: argparse.Namespace) -> None:
    """Write the failures and the shortest inputs of all outcomes of each target as lines of JSON, for the tests.

    Args:
        args: Arguments.
    """
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.targets or target_names():
        folder, runner = TargetFolder(args.state, name), InputRunner(name, args.state)
        shortest: dict[str, bytes] = {}
        failures = [path.read_bytes() for path in sorted(folder.failures.glob("*.input"))]
        inputs = [content for content in folder.inputs() if len(content) <= args.max_bytes]
        for content in sorted(inputs, key=len)[: 10 * args.limit]:
            outcome = runner.run(content)
            shortest.setdefault(outcome if isinstance(outcome, str) else outcome.key, content)
        path = args.out / f"{name}.jsonl"
        earlier = (
            [base64.b64decode(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
        )
        kept = [*failures, *earlier, *sorted(shortest.values(), key=len)[: max(0, args.limit - len(earlier))]]
        kept = [content for content in dict.fromkeys(kept) if len(content) <= args.max_bytes]
        lines = [json.dumps(base64.b64encode(content).decode()) for content in kept]
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        print(f"{name}: {len(kept)} inputs, {len(failures)} of failures")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the parsed arguments.

    Args:
        arguments: Arguments; None for those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "worker", "report", "coverage", "measure", "distill"])
    parser.add_argument("--state", type=Path, required=True, help="folder of the campaign")
    parser.add_argument("--targets", nargs="+", default=[])
    parser.add_argument("--engine", nargs="+", default=["mutation"], choices=[*WORKERS])
    parser.add_argument("--hours", type=float, default=8.0, help="CPU hours of all targets, earlier ones included")
    parser.add_argument("--slice", type=float, default=20.0, help="CPU seconds of a target in its turn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=SECONDS_PER_INPUT, help="CPU seconds of an input")
    parser.add_argument("--memory", type=int, default=MEMORY_MIB, help="MiB beyond the memory at the start")
    parser.add_argument("--replay", type=int, default=MAX_CORPUS, help="inputs of a target that coverage replays")
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "fuzzing")
    parser.add_argument("--limit", type=int, default=60, help="outcomes of a target that distill keeps")
    parser.add_argument("--max-bytes", type=int, default=2000, help="size of an input that distill keeps")
    return parser.parse_args(arguments)


def main() -> None:
    """Run a command."""
    args = parse_arguments()
    args.state.mkdir(parents=True, exist_ok=True)
    match args.command:
        case "run":
            try:
                run_campaign(args)
            except CampaignError as error:
                sys.exit(str(error))
        case "worker":
            limits = Limits(args.time_limit, args.memory)
            WORKERS[args.engine[0]](args.targets[0], args.state, args.slice, args.seed, limits)
        case "coverage":
            print_coverage(args)
        case "measure":
            print(json.dumps(measure_coverage(args.targets[0], args.state, args.replay)))
        case "distill":
            distill(args)
        case _:
            print(format_report(args.state))
            print_failures(args.state)


if __name__ == "__main__":
    main()
