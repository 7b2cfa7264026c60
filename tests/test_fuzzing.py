"""A fast sample of the fuzzing (benchmarks/fuzzing.py): the kept corpus, mutations, and properties by hypothesis."""

import base64
import csv
import io
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trained_runs import shared_folder

from benchmarks import fuzz_targets, fuzzing, hostile_sizes
from benchmarks.fuzz_mutation import MAX_SIZE, MUTATIONS, minimize, mutate
from benchmarks.fuzz_seeds import TARGETS, train_seed_run
from benchmarks.fuzz_targets import PropertyError, Target, describe_refusal, repair_digest
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
    chance, seeds = random.Random(target.name), target.seeds(state() / "seeds" / "run")
    mutated = [mutate(chance.choice(seeds), target.structure, chance, seeds) for _ in range(NUM_MUTATIONS)]
    run_inputs(target, [*kept, *(content for content in mutated if len(content) < CONTENT_LIMIT)])


CELLS = st.text(st.one_of(st.sampled_from('ab,;"|\t\n\r\0 \ufeff\u2028é'), st.characters(codec="utf-8")), max_size=5)
TABLES = st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=6)
VARIANTS = st.integers(0, 8)


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


def test_a_campaign_continues_and_keeps_the_input_of_a_process_that_dies(tmp_path: Path) -> None:
    state()
    (tmp_path / "seeds").symlink_to(shared_folder() / "fuzzing" / "seeds")
    arguments = ["run", "--state", str(tmp_path), "--targets", "vectors"]
    command = [sys.executable, str(ROOT / "benchmarks" / "fuzzing.py"), *arguments]
    for hours in ("0.0001", "0.0002"):
        subprocess.run([*command, "--slice", "0.4", "--hours", hours], check=True, capture_output=True)
    counts = TargetFolder(tmp_path, "vectors").counts()
    assert counts["seconds"] >= 0.72 and counts["inputs"] > 50 and not counts["deaths"]
    assert len(TargetFolder(tmp_path, "vectors").inputs()) > 5
    args = fuzzing.parse_arguments([*arguments, "--slice", "5", "--time-limit", "0.000001"])
    fuzzing.run_slice("vectors", "mutation", args)
    [record] = TargetFolder(tmp_path, "vectors").failure_records()
    assert (
        record["key"].startswith("takes too long SIGPROF") and TargetFolder(tmp_path, "vectors").counts()["deaths"] == 1
    )
    assert "| vectors |" in fuzzing.format_report(tmp_path)


@pytest.mark.parametrize("name", ["TOML, tables 1,000 deep", "run, model is a pickle"])
def test_hostile_inputs_of_real_size_are_refused(name: str, tmp_path: Path) -> None:
    shutil.copytree(state() / "seeds" / "run", tmp_path / "run")
    measured = hostile_sizes.run_case(name, tmp_path, baseline=5000.0)
    assert not measured.is_fault and measured.outcome.startswith("refused: "), measured
