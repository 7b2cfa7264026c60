"""A fast sample of the fuzzing (benchmarks/fuzzing.py): the kept corpus, mutations, and properties by hypothesis."""

import base64
import csv
import io
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trained_runs import shared_folder

from benchmarks import fuzz_targets, fuzzing, hostile_sizes
from benchmarks.fuzz_mutation import MAX_SIZE, MUTATIONS, minimize, mutate
from benchmarks.fuzz_seeds import TARGETS, train_seed_run
from benchmarks.fuzz_targets import TABLE_VARIANTS, PropertyError, Target, describe_refusal, repair_digest
from benchmarks.fuzzing import Failure, InputRunner, TargetFolder
from pellucid.errors import DataError
from pellucid.run_folder.tensor_file import tensor_digest, tensor_file

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "tests" / "fuzzing"
NUM_MUTATIONS = 10
CONTENT_LIMIT = 1 << 13
sample = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def state() -> Path:
    """Return the folder of a campaign with the small run, which is trained once per test process."""
    folder = shared_folder() / "fuzzing"
    fuzz_targets.SeedRun.folder = train_seed_run(folder / "seeds")
    return folder


def run_inputs(target: Target, inputs: list[bytes]) -> None:
    """Give inputs to a target; fail with the first fault."""
    runner = InputRunner(target.name, state())
    for content in inputs:
        outcome = runner.run(content)
        assert not isinstance(outcome, Failure), f"{content!r}: {outcome.text}"


@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_the_kept_corpus_and_mutations_have_the_properties(target: Target) -> None:
    lines = (KEPT / f"{target.name}.jsonl").read_text("utf-8").splitlines()
    kept = [base64.b64decode(json.loads(line)) for line in lines]
    rng, seeds = random.Random(target.name), target.seeds(state() / "seeds" / "run")
    mutated = [mutate(rng.choice(seeds), target.structure, rng, seeds) for _ in range(NUM_MUTATIONS)]
    run_inputs(target, [*kept, *(content for content in mutated if len(content) < CONTENT_LIMIT)])


CELLS = st.text(st.one_of(st.sampled_from('ab,;"|\t\n\r\0 \ufeff\u2028é'), st.characters(codec="utf-8")), max_size=5)
TABLES = st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=6)
VARIANTS = st.integers(0, len(TABLE_VARIANTS) - 1)


def write_csv(rows: list[list[str]]) -> bytes:
    """Return rows as CSV."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


TABLE_WRITERS: dict[str, Callable[[list[list[str]]], bytes]] = {
    "tsv": lambda rows: "\n".join("\t".join(row) for row in rows).encode(),
    "csv": write_csv,
    "json-lines": lambda rows: "\n".join(json.dumps(dict(zip(("source", "target"), row))) for row in rows).encode(),  # noqa: B905
    "parallel": lambda rows: fuzz_targets.SEPARATOR.join(
        "\n".join(row[0 if side == 0 else -1] for row in rows).encode() for side in range(2)
    ),
}


@sample
@given(TABLES, VARIANTS)
@pytest.mark.parametrize("name", TABLE_WRITERS)
def test_no_row_of_a_table_is_lost(name: str, rows: list[list[str]], variant: int) -> None:
    target = next(target for target in TARGETS if target.name == name)
    run_inputs(target, [bytes([variant]) + TABLE_WRITERS[name](rows)])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | CELLS,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(st.sampled_from(["event", "format", "members", "version", "target", "text", "x"]), JSON)


@sample
@given(OBJECTS, st.integers(0, 3))
@pytest.mark.parametrize("name", ["log", "trace", "records", "vocabulary", "config"])
def test_any_object_is_read_or_refused(name: str, value: dict[str, object], variant: int) -> None:
    target = next(target for target in TARGETS if target.name == name)
    run_inputs(target, [bytes([variant]) + json.dumps(value).encode()])


@sample
@given(st.binary(max_size=60), st.sampled_from([*MUTATIONS]), st.integers(0, 99))
def test_mutations_are_bounded_and_repeatable(content: bytes, structure: str, seed: int) -> None:
    mutated = [mutate(content, structure, random.Random(seed), [b"\0other"]) for _ in range(2)]  # type: ignore[arg-type]
    assert mutated[0] == mutated[1] and 0 < len(mutated[0]) <= MAX_SIZE


def test_json_within_a_string_is_mutated_to_a_string() -> None:
    """Regression test: bytes that are no UTF-8 ended the campaign."""
    content = json.dumps({"a": '["\u00e9\u20ac\ud800"'}).encode()
    for seed in range(100):
        assert mutate(b"\0" + content, "json", random.Random(seed), [b"\0other"])


def test_a_failure_is_minimized() -> None:
    content = b"\7" + b"a" * 500 + b"bad" + b"c" * 300
    assert minimize(content, lambda candidate: b"bad" in candidate) == b"\7bad"


def test_a_fault_is_described_by_its_place_and_kept_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = TARGETS[0]._replace(check=lambda content, folder: str(1 // len(content[1:])))
    runner = InputRunner(target.name, state())
    runner.target = target
    failure = runner.run(b"\0")
    assert isinstance(failure, Failure) and failure.key == "ZeroDivisionError" and "Traceback" in failure.text
    folder = TargetFolder(tmp_path, target.name)
    assert folder.add_failure(b"\0", failure) and not folder.add_failure(b"\0\1", failure)
    assert [record["key"] for record in folder.failure_records()] == ["ZeroDivisionError"]


def test_a_message_must_name_the_file_and_have_no_control_characters() -> None:
    assert describe_refusal(DataError("a.tsv:12: wrong 'x'"), "a.tsv") == "DataError a_tsv:_: wrong _"
    with pytest.raises(PropertyError, match="not named"):
        describe_refusal(DataError("wrong"), "a.tsv")
    with pytest.raises(PropertyError, match="a message of"):
        describe_refusal(DataError(*["x" * 9_000] * 3))


def test_a_checksum_is_repaired() -> None:
    import numpy as np

    arrays = {"a": np.ones(3, np.float32)}
    content = tensor_file(arrays, {"sha256": "wrong"})
    repaired = repair_digest(content, lambda metadata, values: tensor_digest(values))
    assert tensor_digest(arrays).encode() in repaired and repair_digest(b"other", lambda *_: "") == b"other"


@pytest.mark.slow
def test_a_campaign_continues_and_keeps_the_input_of_a_process_that_dies(tmp_path: Path) -> None:
    state()
    (tmp_path / "seeds").symlink_to(shared_folder() / "fuzzing" / "seeds")
    arguments = ["run", "--state", str(tmp_path), "--targets", "vectors"]
    command = [sys.executable, str(ROOT / "benchmarks" / "fuzzing.py"), *arguments]
    for hours in ("0.0001", "0.0002"):
        subprocess.run([*command, "--slice", "0.4", "--hours", hours], check=True, capture_output=True)
    counts = TargetFolder(tmp_path, "vectors").counts()
    assert counts["seconds"] >= 0.72 and counts["inputs"] > 50 and not counts["deaths"]
    assert TargetFolder(tmp_path, "vectors").failure_records() == []
    assert len(TargetFolder(tmp_path, "vectors").inputs()) > 5
    args = fuzzing.parse_arguments([*arguments, "--slice", "5", "--time-limit", "0.000001"])
    for _ in range(3):  # on a busy machine, a slice once ended without the signal of the timer
        fuzzing.run_slice("vectors", "mutation", args)
        if TargetFolder(tmp_path, "vectors").failure_records():
            break
    [record] = TargetFolder(tmp_path, "vectors").failure_records()
    assert (
        record["key"].startswith("takes too long SIGPROF") and TargetFolder(tmp_path, "vectors").counts()["deaths"] == 1
    )
    assert "| vectors |" in fuzzing.format_report(tmp_path)


HANGING_WORKER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from benchmarks import fuzzing
from benchmarks.fuzz_targets import Target

def check(content, folder):
    while len(content) < 4:
        time.sleep(0)
    raise ValueError

target = Target("vectors", (), "text", check, lambda run: [b"four"])
runner, folder = fuzzing.InputRunner("vectors", Path(sys.argv[2])), fuzzing.TargetFolder(Path(sys.argv[2]), "vectors")
runner.target = target
limits = fuzzing.Limits(seconds=0.3, memory=1000)
fuzzing.limit_process(limits, reserved_memory=0)
failure = fuzzing.run_within_limits(b"four", runner, folder, limits)
folder.add_failure(b"four", failure)
fuzzing._minimize_failure(b"four", failure, runner, folder, limits)
"""


@pytest.mark.slow
def test_a_shorter_input_that_hangs_ends_the_process_and_is_kept(tmp_path: Path) -> None:
    state()
    (tmp_path / "seeds").symlink_to(shared_folder() / "fuzzing" / "seeds")
    command = [sys.executable, "-c", HANGING_WORKER, str(ROOT), str(tmp_path)]
    result = subprocess.run(command, check=False, capture_output=True, timeout=60)
    assert result.returncode == -signal.SIGPROF, result.stderr
    folder = TargetFolder(tmp_path, "vectors")
    assert len(folder.current.read_bytes()) < 4
    [record] = folder.failure_records()
    assert record["key"].startswith("ValueError") and Path(record["input"]).read_bytes() == b"four"


RESERVING_WORKER = """
import mmap, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from benchmarks import fuzzing
from benchmarks.fuzz_targets import Target

def check(content, folder):
    with mmap.mmap(-1, 600 * 2**20) as memory:
        for position in range(0, len(memory), mmap.PAGESIZE) if content == b"used" else ():
            memory[position] = 1
    return "read"

target = Target("vectors", (), "text", check, lambda run: [b"kept"], reserved_memory=1000)
runner, folder = fuzzing.InputRunner("vectors", Path(sys.argv[2])), fuzzing.TargetFolder(Path(sys.argv[2]), "vectors")
runner.target = target
limits = fuzzing.Limits(seconds=20.0, memory=500)
fuzzing.limit_process(limits, target.reserved_memory)
outcomes = [fuzzing.run_within_limits(content, runner, folder, limits) for content in (b"kept", b"used", b"kept")]
print([outcome if isinstance(outcome, str) else outcome.key for outcome in outcomes])
"""


@pytest.mark.slow
def test_memory_that_is_reserved_and_not_used_is_no_failure(tmp_path: Path) -> None:
    state()
    (tmp_path / "seeds").symlink_to(shared_folder() / "fuzzing" / "seeds")
    command = [sys.executable, "-c", RESERVING_WORKER, str(ROOT), str(tmp_path)]
    result = subprocess.run(command, check=True, capture_output=True, timeout=60, text=True)
    assert result.stdout.split("\n")[0] == "['read', 'too much memory', 'read']", result.stderr


DYING_WORKER = """
import os, sys
state = sys.argv[sys.argv.index("--state") + 1]
open(os.path.join(state, "vectors", "current"), "wb").write(b"killer")
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("engine", ["mutation", "atheris"])
def test_a_process_that_dies_at_once_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    """Regression test: neither inputs nor seconds grew, so that the next slice was the same, without an end."""
    (tmp_path / "worker.py").write_text(DYING_WORKER)
    monkeypatch.setattr(fuzzing, "__file__", str(tmp_path / "worker.py"))
    args = fuzzing.parse_arguments(["run", "--state", str(tmp_path), "--targets", "vectors"])
    fuzzing.run_slice("vectors", engine, args)
    counts = TargetFolder(tmp_path, "vectors").counts()
    assert counts["deaths"] == counts["inputs"] + counts["atheris_inputs"] == 1
    assert 0 < fuzzing.total_seconds(tmp_path, "vectors") < 10 and counts[fuzzing.COUNTED_SECONDS[engine]] > 0
    [record] = TargetFolder(tmp_path, "vectors").failure_records()
    assert Path(record["input"]).read_bytes() == b"killer"


def test_an_error_of_a_worker_ends_the_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = fuzzing.parse_arguments(["run", "--state", str(tmp_path), "--targets", "vectors"])
    monkeypatch.setattr(fuzzing, "__file__", str(tmp_path / "missing.py"))
    with pytest.raises(fuzzing.CampaignError, match=r"vectors: the process ended with 2: .*missing"):
        fuzzing.run_campaign(args)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["TOML, tables 1,000 deep", "run, model is a pickle"])
def test_hostile_inputs_of_real_size_are_refused(name: str, tmp_path: Path) -> None:
    shutil.copytree(state() / "seeds" / "run", tmp_path / "run")
    (tmp_path / "baseline").mkdir()
    baseline_name = "run (baseline of run folders)" if name.startswith("run") else "empty file (baseline of readers)"
    baseline = hostile_sizes.run_case(baseline_name, tmp_path / "baseline", 0).memory
    measured = hostile_sizes.run_case(name, tmp_path, baseline)
    assert not measured.is_fault and measured.outcome.startswith("refused: "), measured


def test_the_message_of_a_fault_is_reported_and_an_unknown_case_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(
        hostile_sizes.CASES, "broken", hostile_sizes.HostileInput(lambda folder: folder, "missing_reader", max_memory=1)
    )
    measured = hostile_sizes.run_case("broken", tmp_path, baseline=0.0)
    assert measured.is_fault and measured.outcome.endswith("KeyError: 'missing_reader'")
    monkeypatch.setattr(sys, "argv", ["hostile_sizes.py", "--cases", "nonsense"])
    with pytest.raises(SystemExit, match="2"):
        hostile_sizes.main()
    assert "no case begins with 'nonsense'" in capsys.readouterr().err


PATTERNS = {
    "marks": "\u0301\u0323",
    "marks that decompose": "\u0f73",
    "quotes": '"',
    "tabs": "a\t",
    "commas": "a,",
    "keys": '"sourca":0,',
    "backslashes": "\\",
    "joiners": "\u200d",
    "words": " a",
}
LINES: dict[str, tuple[int, Callable[[str], bytes]]] = {
    "tsv": (0, lambda text: f"a{text}\tb\n".encode()),
    "csv": (0, lambda text: f"a{text},b\n".encode()),
    "json-lines": (0, lambda text: f'{{"source":"a",{text}"target":"b"}}\n'.encode()),
    "vectors": (0, lambda text: f"a{text} 1\n".encode()),
    "prefixes": (0, lambda text: f"a{text}\n".encode()),
    "text": (0, lambda text: f"a{text}\n".encode()),
    "audit-rules": (5, lambda text: f"a{text}\tb\n".encode() * 2),
    "service-rows": (0, lambda text: json.dumps({"rows": [{"source": f"a{text}"}]}).encode()),
}
"""For each target, the byte of a variant, and a function that returns a content with a text in a line."""


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", LINES)
def test_the_time_of_a_line_is_no_square_of_its_length(name: str, pattern: str) -> None:
    target = next(target for target in TARGETS if target.name == name)
    variant, write = LINES[name]
    runner, times = InputRunner(target.name, state()), list[float]()
    for count in (4_000, 32_000):
        content = bytes([variant]) + write(PATTERNS[pattern] * count)
        durations = []
        for _ in range(2):
            start = time.process_time()
            outcome = runner.run(content)
            durations.append(time.process_time() - start)
            assert not isinstance(outcome, Failure), outcome.text
        times.append(min(durations))
    # Eight times the length: a linear time grows by 8, a square by 64.
    assert times[1] < 30 * max(times[0], 0.005)
