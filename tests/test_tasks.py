"""The four tasks work from training to the command line and the page."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import output_lines, run_pellucid, usage_error_message
from report_documents import read_report, select_parts
from task_cases import CLASSIFICATION_TASKS, make_examples, make_task_config, task_run
from trained_runs import DataFiles, assert_training_resumes, copy_run_folder, train_to_end, write_pairs

from pellucid.config.settings import TaskName
from pellucid.config.toml import build_config
from pellucid.data.examples import Example
from pellucid.errors import ConfigError, RunError
from pellucid.evaluation.assessment import ERROR_RATE_KEYS
from pellucid.run_folder.log import read_log
from pellucid.run_folder.predictor_loader import load
from pellucid.training.events import UpdateCompleted
from pellucid.training.session import train_run
from pellucid.viewer.handlers import compare_what_if, decode_source
from pellucid.viewer.inputs import open_run, read_example_file
from pellucid.viewer.page_contents import PageData, assemble_page
from pellucid.viewer.report_schema import ReportExamples
from pellucid.viewer.schema import DecodeRequest, WhatIfRequest


def build_page_data(task: TaskName, served: bool = True) -> PageData:
    """Return page data of the run of a task and its validation file."""
    trained = task_run(task)
    return assemble_page(
        [open_run(trained.run, task, "cpu", None)],
        [read_example_file(trained.files.valid, trained.config.data)],
        10,
        served,
    )


@pytest.mark.parametrize(("task", "label"), [("tag", "tag"), ("classify", "class")])
def test_an_empty_list_of_labels_is_reported_as_such(task: TaskName, label: str, tmp_path: Path) -> None:
    run = copy_run_folder(task_run(task).run, tmp_path / "run")
    content = json.loads((run / "vocabulary.json").read_text("utf-8"))
    content["target"] = {**content["target"], "symbols": [], "counts": []}
    (run / "vocabulary.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(
        RunError, match=rf"vocabulary\.json: target\.symbols: expected one {label} or more, got an empty"
    ):
        load(run)


@pytest.mark.parametrize("task", CLASSIFICATION_TASKS)
def test_every_task_resumes_bit_for_bit(task: TaskName, tmp_path: Path) -> None:
    files = DataFiles(*(write_pairs(tmp_path / f"{name}.tsv", make_examples(task, 60, 7)) for name in ("train", "dev")))
    files = files._replace(valid=write_pairs(tmp_path / "dev.tsv", make_examples(task, 20, 8)))
    dropout: dict[str, Any] = {"dropout": 0.3, "convolutions": [1, 3], "filters": 4}
    config = make_task_config(
        task,
        training={"epochs": 3, "batch_size": 8, "weight_averaging": "ema"},
        encoder=dropout,
        decoder={"dropout": 0.3},
    )
    assert_training_resumes(files, config, tmp_path, update=11)


def test_a_log_without_span_f1_is_continued_with_it(tmp_path: Path) -> None:
    """Older versions wrote no span F1."""
    lines = [("play a song", "O O B-what"), ("a rainy day", "O B-sky I-sky"), ("play", "O")] * 16
    pairs = [Example(*line) for line in lines]
    files = DataFiles(
        write_pairs(tmp_path / "train.tsv", pairs),
        write_pairs(tmp_path / "dev.tsv", [*pairs[:3], Example("a song", "O B-what")]),
    )
    word_data: dict[str, Any] = {"source_symbols": "words", "target_symbols": "words"}
    config = make_task_config("tag", training={"epochs": 3, "batch_size": 8, "learning_rate": 0.03}, data=word_data)
    train_to_end(files, tmp_path / "uninterrupted", config)
    for event in (events := train_run(files, tmp_path / "interrupted", config)):
        if isinstance(event, UpdateCompleted) and event.progress.update == 7:
            break
    events.close()
    log = tmp_path / "interrupted" / "log.jsonl"
    older_records = [{key: value for key, value in each.items() if key != "span_f1"} for each in read_log(log.parent)]
    log.write_text("".join(f"{json.dumps(record)}\n" for record in older_records))
    train_to_end(files, log.parent, config)
    uninterrupted, resumed = (
        [record for record in read_log(tmp_path / name) if record["event"] == "validated"]
        for name in ("uninterrupted", "interrupted")
    )
    assert ["span_f1" in record for record in resumed] == [False, True, True]
    assert [record.get("span_f1") for record in resumed[1:]] == [record["span_f1"] for record in uninterrupted[1:]]
    assert all(0 <= record["span_f1"] <= 100 for record in uninterrupted)


@pytest.mark.parametrize("task", CLASSIFICATION_TASKS)
def test_each_line_has_its_output(task: TaskName) -> None:
    run, sources = task_run(task).run, ["axb", "", "b", "dcax"]
    text = "".join(f"{source}\n" for source in sources).encode()
    expected = [trace.output for trace in load(run).predict(sources)]
    result = run_pellucid("predict", run, stdin=text)
    assert result.code == 0 and output_lines(result.out) == expected
    traces = [
        json.loads(line)
        for line in output_lines(run_pellucid("predict", run, "--output-format", "jsonl", stdin=text).out)
    ]
    assert [trace["output"] for trace in traces] == expected and all(trace["task"] == task for trace in traces)


def test_nbest_lists_and_refused_operations() -> None:
    result = run_pellucid("predict", task_run("point").run, "--nbest", 2, stdin=b"ax\n")
    assert sorted(result.out.strip().split("\t")) == ["1", "2"]
    for task, flags, message in (
        (
            "tag",
            ("--beam-size", 3),
            "--beam-size = 3 needs task = 'transduce', whose outputs are generated symbol by symbol",
        ),
        ("tag", ("--nbest", 2), "--nbest: expected 1, because a model whose task is 'tag' gives one tagging"),
        ("classify", ("--prefix", "a"), "prefix: "),
        ("point", ("--sample", 2), "--sample: "),
    ):
        assert message in usage_error_message(run_pellucid("predict", task_run(task).run, *flags, stdin=b"ax\n"))
    files = task_run("tag").files
    assert "--multi-reference" in usage_error_message(
        run_pellucid("evaluate", task_run("tag").run, files.valid, "--multi-reference")
    )


@pytest.mark.parametrize(
    ("task", "keys"),
    [
        ("tag", {"accuracy", "accuracy_ci95", "mcc", "macro_f1", "confusion"}),
        ("classify", {"accuracy", "accuracy_ci95", "mcc", "macro_f1", "confusion"}),
        ("point", {"accuracy", "accuracy_ci95", "top_3", "top_3_ci95"}),
        (
            "tag-and-classify",
            {
                *("accuracy", "accuracy_ci95", "class_accuracy", "class_accuracy_ci95", "class_confusion"),
                *("tag_accuracy", "tag_accuracy_ci95", "tag_macro_f1", "tag_confusion"),
            },
        ),
    ],
)
def test_evaluate_has_the_scores_of_the_task(task: TaskName, keys: set[str], tmp_path: Path) -> None:
    trained = task_run(task)
    result = run_pellucid("evaluate", trained.run, trained.files.valid, "--json", "--html", tmp_path / "page.html")
    scores = json.loads(result.out)
    assert keys <= scores.keys() and scores["task"] == task and scores["accuracy"] > 90
    name = "sequence accuracy" if "tag" in task else "accuracy"
    assert name in [each.label for each in read_report(tmp_path / "page.html").summary]
    text = run_pellucid("evaluate", trained.run, trained.files.valid).out
    assert "sequence error rate" not in text and name in text
    assert scores.keys().isdisjoint(ERROR_RATE_KEYS) and "exact_match" in scores
    other = shutil.copytree(trained.run, tmp_path / "other")
    comparison = run_pellucid("evaluate", trained.run, other, trained.files.valid)
    assert comparison.code == 0 and "error rate" not in comparison.out and name in comparison.out


@pytest.mark.parametrize("task", ["tag", "classify"])
def test_the_runs_of_a_placeholder_are_joined(task: TaskName, tmp_path: Path) -> None:
    trained = task_run(task)
    lines = trained.files.valid.read_text("utf-8").splitlines(keepends=True)
    for name, part in (("one", lines[:3]), ("two", lines[3:])):
        (tmp_path / f"{name}.tsv").write_text("".join(part), "utf-8")
        shutil.copytree(trained.run, tmp_path / "runs" / name)
    whole = json.loads(run_pellucid("evaluate", trained.run, trained.files.valid, "--json").out)
    result = run_pellucid("evaluate", tmp_path / "runs" / "{}", tmp_path / "{}.tsv", "--json")
    assert result.code == 0, result.err
    joined = json.loads(result.out)
    assert [group["group"] for group in joined["groups"]] == ["one", "two"] and joined["macro"]["accuracy"] > 80
    keys = {"task", "examples", "lines", "accuracy", "exact_match", "mcc", "macro_f1", "confusion", "symbols"}
    for key in keys & whole.keys():
        assert joined[key] == whole[key], key
    assert keys & joined.keys() == keys & whole.keys() and keys & whole.keys() >= {"examples", "accuracy", "symbols"}
    assert joined["calibration"]["brier"] == pytest.approx(whole["calibration"]["brier"], abs=1e-6)
    text = run_pellucid("evaluate", tmp_path / "runs" / "{}", tmp_path / "{}.tsv").out
    assert "one" in text and "two" in text and "accuracy" in text


@pytest.mark.parametrize("task", CLASSIFICATION_TASKS)
def test_groups_and_comparisons_report_accuracy(task: TaskName, tmp_path: Path) -> None:
    trained, page = task_run(task), tmp_path / "page.html"
    lines = trained.files.valid.read_text("utf-8").splitlines()
    grouped = tmp_path / "grouped.tsv"
    grouped.write_text("".join(f"{line}\t{'pq'[index % 2]}\n" for index, line in enumerate(lines)))
    command = ("evaluate", trained.run, grouped, "--group", 3)
    result = json.loads(run_pellucid(*command, "--json", "--html", page).out)
    rates = {"accuracy", "accuracy_ci95"} | ({"exact_match", "exact_match_ci95"} if "tag" in task else set())
    assert [row.keys() - {"group", "examples"} for row in result["groups"]] == [rates, rates]
    assert result["macro"].keys() == rates and result["macro"]["accuracy_ci95"][0] <= result["macro"]["accuracy"]
    accuracies = [(row["accuracy"], row["examples"]) for row in result["groups"]]
    if "tag" not in task:
        assert result["accuracy"] == pytest.approx(sum(each * n for each, n in accuracies) / len(lines))
    first = {"tag": "tag accuracy", "tag-and-classify": "label accuracy"}.get(task, "accuracy")
    text = run_pellucid(*command).out
    assert "sequence error rate" not in text and "symbol error rate" not in text and f"{first} %" in text
    other = shutil.copytree(trained.run, tmp_path / "other")
    comparison_command = ("evaluate", other, *command[1:], "--json", "--html", tmp_path / "b.html")
    (compared,) = json.loads(run_pellucid(*comparison_command).out)["comparisons"]
    assert compared["accuracy"]["difference"] == 0 and "symbol_error_rate" not in compared
    for html in (page, tmp_path / "b.html"):
        page_text = str(read_report(html)).lower()
        assert "error rate" not in page_text and "symbol errors" not in page_text and first in page_text


def test_the_evaluation_page_shows_wrong_tags(tmp_path: Path) -> None:
    trained = task_run("tag")
    wrong = write_pairs(tmp_path / "wrong.tsv", [Example("abcd", "CC-V")])
    result = run_pellucid("evaluate", trained.run, wrong, "--html", tmp_path / "page.html")
    assert result.code == 0
    (errors,) = select_parts(read_report(tmp_path / "page.html"), ReportExamples, "Errors")
    output = load(trained.run).predict(["abcd"])[0].output
    item = errors.examples[0].outputs[0]
    marked = [item.traces[0].target[each.step or 0] for each in item.edits if each.kind != "same"]
    assert marked == [answer for answer, tag in zip(output, "CC-V", strict=True) if tag not in ("-", answer)] != []


@pytest.mark.parametrize("task", CLASSIFICATION_TASKS)
def test_score_prints_the_probability_of_pairs(task: TaskName) -> None:
    trained = task_run(task)
    result = run_pellucid("score", trained.run, trained.files.valid)
    assert result.code == 0 and all(float(line) <= 0 for line in output_lines(result.out))


@pytest.mark.parametrize("task", CLASSIFICATION_TASKS)
def test_the_page_shows_each_task(task: TaskName) -> None:
    page = build_page_data(task, served=False).contents
    assert page.card is not None and page.card.task == task and page.card.has_attention == (task != "tag")
    assert len(page.examples) == 10 and page.corpus is not None and page.corpus.scores[0].name == "accuracy"
    assert ("class accuracy" in [score.name for score in page.corpus.scores]) == (task == "tag-and-classify")
    assert page.training is not None and page.training.frames and page.state_space is None
    for item in page.examples:
        assert item.exact == all(edit.kind == "same" for edit in item.edits)
        assert len(item.traces[0].target) == len(item.edits)


@pytest.mark.parametrize("task", CLASSIFICATION_TASKS)
def test_the_page_server_answers_requests(task: TaskName) -> None:
    page_data = build_page_data(task)
    assert (
        decode_source(page_data, DecodeRequest(text="axb")).traces[0].output
        == load(task_run(task).run).predict(["axb"])[0].output
    )
    changed = compare_what_if(
        page_data, WhatIfRequest(before=DecodeRequest(text="axb"), after=DecodeRequest(text="bxb"))
    )
    assert changed.rescored.output == changed.before.traces[0].output
    with pytest.raises(ConfigError, match="symbol by symbol"):
        decode_source(page_data, DecodeRequest(text="axb", prefix=["C"]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "tag", "data": {"equal_length": False}}, "task = 'tag' needs data.equal_length = true"),
        (
            {"task": "classify", "data": {"target_symbols": "words"}},
            "task = 'classify' needs data.target_symbols = 'whole'",
        ),
        (
            {"data": {"target_symbols": "position"}},
            "task = 'transduce' needs data.target_symbols other than 'position'",
        ),
        ({"task": "point", "attention": {"type": "none"}}, "task = 'point' needs attention.type other than"),
        ({"task": "classify", "data": {"ignored_tag": "x"}}, "data.ignored_tag needs task = 'tag'"),
        (
            {"task": "tag", "decoder": {"pointer_generator": True}},
            "decoder.pointer_generator = true needs task = 'transduce', whose outputs",
        ),
        (
            {"task": "tag", "data": {"features_column": "3"}},
            "task = 'tag' with features needs encoder.feature_merge = 'sum'",
        ),
        (
            {"task": "tag-and-classify", "data": {"class_first": False}},
            "task = 'tag-and-classify' needs data.equal_length = true, data.class_first = true, and",
        ),
        (
            {"task": "tag-and-classify", "data": {"target_symbols": "whole"}},
            "data.target_symbols other than 'whole' and 'subwords'",
        ),
        (
            {"task": "tag-and-classify", "attention": {"type": "none"}},
            "task = 'tag-and-classify' needs attention.type other than 'none'",
        ),
        ({"task": "tag-and-classify", "search": {"beam_size": 2}}, "search.beam_size = 2 needs task = 'transduce'"),
        ({"task": "tag", "data": {"class_first": True}}, "data.class_first = true needs task = 'tag-and-classify'"),
        ({"data": {"class_column": "intent"}}, "data.class_column = 'intent' needs task = 'tag-and-classify'"),
        (
            {"task": "tagg"},
            "expected transduce, tag, classify, point or tag-and-classify, got 'tagg'; did you mean 'tag'",
        ),
        ({"encoder": {"convolutions": [3, 0]}}, r"encoder.convolutions\[1\]: expected a whole number of at least 1"),
    ],
)
def test_settings_that_contradict_a_task_are_refused(settings: dict[str, Any], message: str) -> None:

    with pytest.raises(ConfigError, match=message):
        build_config(settings, "a test")


def test_runs_of_different_tasks_are_not_compared() -> None:
    tagger, pointer = task_run("tag"), task_run("point")
    message = usage_error_message(run_pellucid("evaluate", tagger.run, pointer.run, tagger.files.valid))
    assert message.startswith("runs of different tasks cannot be compared: ") and message.endswith("'point'")
