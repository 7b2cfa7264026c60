"""The validation set that is held out of the training file: its choice, its file, and the commands that use it."""

import json
import unicodedata
from pathlib import Path

import msgspec
import pytest
from command_line import run_pellucid
from hypothesis import given
from hypothesis import strategies as st
from trained_runs import make_copy_examples, make_small_config, train_to_end, training_flags

import pellucid
from pellucid.config.settings import DataConfig
from pellucid.config.toml import size_preset
from pellucid.data.examples import Example, read_examples
from pellucid.data.validation_split import (
    MAX_VALIDATION_SOURCES,
    format_validation_file,
    split_by_group,
    split_by_source,
    validation_file_config,
)
from pellucid.errors import DataError
from pellucid.run_folder.run_files import VALIDATION
from pellucid.training.events import FileRead
from pellucid.training.training_data import TrainingFiles

SETTINGS = {"size": "tiny", "training": {"epochs": 1}}
DATA, SPEAKERS, SECOND = DataConfig(), DataConfig(group_column="speaker"), DataConfig(group_column="2")
WORD = st.text("ab\t\u2028'\"", min_size=1, max_size=3)


@given(st.lists(st.builds(Example, WORD, WORD, WORD), min_size=1, max_size=60))
def test_every_example_is_in_one_part_and_every_source_too(examples: list[Example]) -> None:
    sources = {example.source for example in examples}
    if len(sources) == 1:
        with pytest.raises(DataError, match=r"^a has a single source: none can be held out"):
            split_by_source(examples, DATA, "a")
        return
    (training, validation), _ = split_by_source(examples, DATA, "a")
    assert sorted([*training, *validation]) == sorted(examples)
    held_out = {example.source for example in validation}
    assert held_out.isdisjoint({example.source for example in training})
    assert len(held_out) == max(1, round(len(sources) / 10))
    assert [each for each in examples if each.source in held_out] == validation


def test_a_large_file_keeps_all_but_two_thousand_sources() -> None:
    examples = [Example(str(number), "a") for number in range(50_000)]
    (training, validation), _ = split_by_source(examples, DATA, "a")
    assert len(validation) == MAX_VALIDATION_SOURCES == 2_000 and len(training) == 48_000
    assert split_by_source(examples, DATA, "b")[0] == (training, validation)
    numbers = [int(example.source) for example in validation]
    assert 20_000 < sum(numbers) / len(numbers) < 30_000 and numbers == sorted(numbers)


@given(st.lists(st.builds(Example, WORD, WORD, WORD), min_size=1, max_size=5))
def test_the_file_of_the_run_holds_the_same_examples(
    tmp_path_factory: pytest.TempPathFactory, examples: list[Example]
) -> None:
    path = tmp_path_factory.mktemp("split") / VALIDATION
    path.write_bytes(format_validation_file(examples))
    data = msgspec.structs.replace(size_preset("tiny").data, features_column="tags", source_column="7")
    assert read_examples(path, validation_file_config(data)).examples == examples


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "parallel"])
def test_a_run_without_validation_file_is_trained_resumed_and_shown(tmp_path: Path, kind: str) -> None:
    examples = make_copy_examples(60, seed=1)
    train, targets, flags = tmp_path / f"train.{kind}", tmp_path / "targets.txt", list[str | Path]()
    match kind:
        case "tsv":
            train.write_text("".join(f"{each.source}\t{each.target}\n" for each in examples))
        case "csv":
            train.write_text("word,copy\n" + "".join(f'"{each.source}",{each.target}\n' for each in examples))
            flags = ["--source-column", "word", "--target-column", "copy"]
        case "jsonl":
            train.write_text("".join(json.dumps({"a": each.source, "b": each.target}) + "\n" for each in examples))
            flags = ["--source-column", "a", "--target-column", "b"]
        case _:
            train.write_text("".join(f"{each.source}\n" for each in examples))
            targets.write_text("".join(f"{each.target}\n" for each in examples))
            flags = ["--train-target", targets]
    config = make_small_config({"epochs": 2})
    command = ["train", train, "--run", tmp_path / "run", *training_flags(config), *flags]
    result = run_pellucid(*command)
    validation = tmp_path / "run" / VALIDATION
    held_out = validation.read_text().splitlines()
    assert result.code == 0, result.err
    assert f"\n{validation}: {len(held_out)} examples\n" in result.err
    num_sources = len({json.loads(line)["source"] for line in held_out})
    assert f"note: held out of {train}: all examples of {num_sources} sources chosen at random\n" in result.err
    assert f"{train}: {60 - len(held_out)} examples\n" in result.err
    model = (tmp_path / "run" / "model.safetensors").read_bytes()
    validation.unlink()
    again = run_pellucid(*command)
    assert again.code == 0 and (tmp_path / "run" / "model.safetensors").read_bytes() == model
    assert validation.read_text().splitlines() == held_out
    (tmp_path / "run").rename(tmp_path / "moved")
    shown = run_pellucid("look", tmp_path / "moved", "--terminal", "--max-examples", 100)
    assert shown.code == 0 and shown.out.count(" → ") >= len(held_out)
    validation = tmp_path / "moved" / VALIDATION
    validation.write_text("".join(f"{line}\n" for line in reversed(held_out)))
    changed = run_pellucid("look", tmp_path / "moved", "--terminal")
    assert changed.code == 2 and "is not, or no longer, the validation file of this run" in changed.err


def test_a_model_is_trained_from_python_without_validation_file(tmp_path: Path) -> None:
    train = tmp_path / "train.tsv"
    train.write_text("".join(f"{each.source}\t{each.target}\n" for each in make_copy_examples(60, seed=1)))
    model = pellucid.train(train, None, tmp_path / "run", SETTINGS)
    assert len(model.predict(["ab", "ba"])) == 2


def test_the_validation_set_of_a_run_has_its_own_columns_in_python(tmp_path: Path) -> None:
    """Regression test: it was read with the columns of the training file."""
    train, run = tmp_path / "train.csv", tmp_path / "run"
    train.write_text(
        "word,copy\n" + "".join(f"{each.source},{each.target}\n" for each in make_copy_examples(60, seed=1))
    )
    columns = {"source_column": "word", "target_column": "copy"}
    model = pellucid.train(train, None, run, {**SETTINGS, "data": columns}, progress=False)
    held_out = read_examples(run / VALIDATION, validation_file_config(model.config.data)).examples
    assert len(pellucid.evaluate(model, run / VALIDATION).assessment.scored) == len(held_out) > 0
    for traces in (pellucid.predict(model, run / VALIDATION), pellucid.score(model, run / VALIDATION)):
        assert ["".join(trace.source) for trace in traces] == [example.source for example in held_out]


def test_members_of_an_ensemble_have_the_same_validation_set(tmp_path: Path) -> None:
    train = tmp_path / "train.tsv"
    train.write_text("".join(f"{each.source}\t{each.target}\n" for each in make_copy_examples(60, seed=1)))
    command = ["train", train, "--run", tmp_path / "run", *training_flags(make_small_config({"epochs": 1}))]
    assert run_pellucid(*command, "--ensemble", 2, "--jobs", 1).code == 0
    first, second = ((tmp_path / "run" / name / VALIDATION).read_bytes() for name in ("seed-1", "seed-2"))
    assert first == second != b""


def test_targets_of_a_validation_file_that_is_not_given_are_an_error(tmp_path: Path) -> None:
    (path := tmp_path / "train.txt").write_text("a\nb\n")
    files = TrainingFiles(path, None, path, path)
    with pytest.raises(DataError, match="holds targets of a validation set, but its sources are not given"):
        train_to_end(files, tmp_path / "run", size_preset("tiny"))


def test_a_header_in_the_first_line_is_an_error_wherever_it_would_be(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("word\tpronunciation\n" + "".join(f"{n}\t{n}\n" for n in range(40)))
    result = run_pellucid("train", path, "--run", tmp_path / "run", "--size", "tiny")
    assert result.code == 2 and "give --header" in result.err and not (tmp_path / "run").exists()


def test_events_count_the_examples_of_both_parts(tmp_path: Path) -> None:
    (path := tmp_path / "train.tsv").write_text("a\tb\na\tc\nbroken\n\n" + "".join(f"{n}\t{n}\n" for n in range(19)))
    config = make_small_config({"epochs": 1}, data={"on_bad_line": "skip"})
    reads = [
        event
        for event in train_to_end(TrainingFiles(path, None), tmp_path / "run", config)
        if isinstance(event, FileRead)
    ]
    assert [len(read.bad_lines) for read in reads] == [1, 0] and [read.num_blank_lines for read in reads] == [1, 0]
    assert sum(read.num_examples for read in reads) == 21 and reads[1].path == tmp_path / "run" / VALIDATION


@given(st.lists(st.tuples(st.builds(Example, WORD, WORD), st.sampled_from("abcdefghij")), min_size=1, max_size=80))
def test_every_example_of_a_group_is_in_one_part(rows: list[tuple[Example, str]]) -> None:
    examples, groups = [example for example, _ in rows], [group for _, group in rows]
    if len(set(groups)) == 1:
        with pytest.raises(DataError, match=r"^a has a single group, '[a-j]', in column 'speaker' \(data.group_co"):
            split_by_group(examples, groups, SPEAKERS, "a")
        return
    (training, validation), description = split_by_group(examples, groups, SPEAKERS, "a")
    sizes = {group: groups.count(group) for group in groups}
    numbered = [(group, example) for example, group in rows]
    held_out = [group for group in sizes if any((group, example) in numbered for example in validation)]
    assert sorted([*training, *validation]) == sorted(examples) and training and validation and held_out
    assert len(validation) <= len(examples) / 10 or len(validation) == min(sizes.values())
    count = int(description.split("all examples of ")[1].split()[0])
    assert 1 <= count < len(sizes) and f"of {len(sizes)} group" in description
    shared = {example.source for example in validation} & {example.source for example in training}
    assert (f"{len(shared)} of its sources are also in other groups" in description) is bool(shared)


def test_groups_that_make_a_split_doubtful_are_reported() -> None:
    examples = [Example(str(number), "a") for number in range(100)]
    _, description = split_by_group(examples, ["a"] * 95 + ["b"] * 5, SECOND, "x")
    assert "1 of 2 groups (column '2')" in description and "5.0 % of the examples" in description
    assert "the group 'a' holds 95.0 % of the examples, so the validation set does not represent" in description
    (training, validation), description = split_by_group(examples, ["a"] * 60 + ["b"] * 40, SECOND, "x")
    assert (len(training), len(validation)) == (60, 40) and "no group has fewer examples" in description


def grouped_rows() -> list[dict[str, str]]:
    """Return 60 rows of 20 speakers; each word occurs once."""
    examples = list({each.source: each for each in make_copy_examples(300, seed=1)}.values())[:60]
    return [
        {"speaker": f"speaker {index % 20}", "word": each.source, "copy": each.target}
        for index, each in enumerate(examples)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "jsonl", "list"])
def test_a_split_by_groups_is_reported_and_stored(tmp_path: Path, kind: str) -> None:
    rows, run = grouped_rows(), tmp_path / "run"
    config = make_small_config({"epochs": 1})
    columns = {"source_column": "word", "target_column": "copy", "group_column": "speaker"}
    if kind == "list":
        settings = msgspec.structs.replace(config, data=msgspec.structs.replace(config.data, **columns))
        pellucid.train(rows, None, run, settings)
    else:
        (path := tmp_path / f"train.{kind}").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
            if kind == "jsonl"
            else "speaker,word,copy\n" + "".join(",".join(row.values()) + "\n" for row in rows)
        )
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in columns.items()]
        result = run_pellucid("train", path, "--run", run, *training_flags(config), *flags)
        assert result.code == 0 and "of 20 groups (column 'speaker') chosen at random" in result.err, result.err
    held_out = [json.loads(line)["source"] for line in (run / VALIDATION).read_text().splitlines()]
    groups = {row["word"]: row["speaker"] for row in rows}
    assert len({groups[word] for word in held_out}) == 2 and len(held_out) == 6
    assert 'group_column = "speaker"' in (run / "config.toml").read_text()
    # Files of later commands need no column of groups.
    (path := tmp_path / "sources.csv").write_text("word\nab\n")
    assert run_pellucid("predict", run, path).code == 0
    (path := tmp_path / "pairs.csv").write_text("word,copy\nab,ab\n")
    assert run_pellucid("evaluate", run, path).code == 0
    assert run_pellucid("look", run, "--terminal").code == 0


def test_groups_need_a_column_and_no_validation_set(tmp_path: Path) -> None:
    (path := tmp_path / "train.tsv").write_text("a\tb\tx\nc\td\ty\n")
    base = ["train", path, "--run", tmp_path / "run", "--size", "tiny", "--group-column"]
    given = run_pellucid(*base, "3", "--valid", path)
    assert given.code == 2 and "data.group_column (--group-column) divides the training set, but a" in given.err
    missing = run_pellucid(*base, "4")
    assert missing.code == 2 and "expected 4 columns, got 3" in missing.err
    parallel = run_pellucid(*base, "3", "--train-target", path)
    assert parallel.code == 2 and "parallel files of text have none" in parallel.err
    named = run_pellucid(*base, "speaker")
    assert named.code == 2
    assert "no column 'speaker' (--group-column, data.group_column) among 'a', 'b', 'x'" in named.err


def test_spellings_of_one_source_are_in_one_part() -> None:
    """Regression test: composed and decomposed spellings, which the model reads alike, were in both parts."""
    words = [f"{letter}é{letter}" for letter in "abcdefghijklmnopqrst"]
    examples = [Example(unicodedata.normalize(form, word), word) for form in ("NFC", "NFD") for word in words]
    (training, validation), description = split_by_source(examples, DATA, "a")
    assert (len(training), len(validation)) == (36, 4) and description == "all examples of 2 sources chosen at random"
    assert {example.target for example in training}.isdisjoint({example.target for example in validation})
    assert sorted([*training, *validation]) == sorted(examples)
    _, description = split_by_group(examples, ["a"] * 20 + ["b"] * 20, SECOND, "x")
    assert "20 of its sources are also in other groups" in description
    unchanged = DataConfig(source_normalization="none")
    assert len(split_by_source(examples, unchanged, "a")[0].validation_examples) == 4
    with pytest.raises(DataError, match="a has a single source"):
        split_by_source([examples[0], examples[20]], DATA, "a")
