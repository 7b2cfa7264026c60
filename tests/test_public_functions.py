"""The functions of the package equal the command line: evaluate, compare, predict, score and save; callbacks."""

import inspect
import json
import os
import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from command_line import run_pellucid
from trained_runs import SMALL_SIZES, copy_task_run, make_copy_examples, write_copy_files, write_pairs

import pellucid
from pellucid.data.examples import Example
from pellucid.errors import ArgumentError, DataError, InputError, RunError
from pellucid.training.events import RunEvent, TrainingStopped, UpdateCompleted, ValidationCompleted

TRAIN, DEV = make_copy_examples(60, seed=1), make_copy_examples(10, seed=2)
SETTINGS: dict[str, Any] = {"size": "tiny", **SMALL_SIZES, "training": {"epochs": 1, "batch_size": 8}}
ROWS = [(example.source, example.target) for example in DEV]


@pytest.fixture(scope="module")
def other_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other") / "other"
    pellucid.train([(e.source, e.target) for e in TRAIN], ROWS, folder, {**SETTINGS, "seed": 7}, progress=False)
    return folder


def without_seconds(values: Any) -> Any:  # noqa: ANN401
    """Return the results of an evaluation without decoding times and without the record of its files."""
    if isinstance(values, dict):
        return {key: without_seconds(value) for key, value in values.items() if key not in ("seconds", "provenance")}
    return [without_seconds(value) for value in values] if isinstance(values, list | tuple) else values


@pytest.mark.slow
def test_evaluate_returns_what_the_command_prints(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "dev.tsv", DEV)
    printed = json.loads(run_pellucid("evaluate", copy_task_run().run, path, "--json").out)
    for pairs in (path, str(path), ROWS, iter(ROWS), pa.table([*zip(*ROWS, strict=True)], names=["a", "b"])):
        evaluation = pellucid.evaluate(copy_task_run().run, pairs)
        assert without_seconds(json.loads(json.dumps(evaluation.to_dict()))) == without_seconds(printed)
    assert evaluation.assessment.evaluation.exact_match == printed["exact_match"]
    assert pellucid.evaluate(copy_task_run().run, path).to_dict()["provenance"] == printed["provenance"]
    assert evaluation.to_dict()["provenance"] == {**printed["provenance"], "files": []}
    loaded = pellucid.load(copy_task_run().run)
    assert without_seconds(pellucid.evaluate(loaded, ROWS).to_dict()) == without_seconds(evaluation.to_dict())


def test_compare_returns_what_the_command_prints(tmp_path: Path, other_run: Path) -> None:
    path, runs = write_pairs(tmp_path / "dev.tsv", DEV), [copy_task_run().run, other_run]
    printed = json.loads(run_pellucid("evaluate", *runs, path, "--json").out)
    compared = without_seconds(json.loads(json.dumps(pellucid.compare(runs, ROWS).to_dict())))
    for values in (printed, compared):
        for run, path in zip(values["runs"], runs, strict=True):
            assert Path(run.pop("name")).name == path.name
        assert [Path(values["comparisons"][0].pop(key)).name for key in "ab"] == [path.name for path in runs]
    assert compared == without_seconds(printed)
    for wrong, message in (([other_run], "runs: expected two runs or more"), ([other_run, 5], r"runs\[1\]: expected")):
        with pytest.raises(ArgumentError, match=message):
            inspect.unwrap(pellucid.compare)(wrong, ROWS)


def test_compared_runs_of_equal_folder_names_are_told_apart(tmp_path: Path, other_run: Path) -> None:
    """Regression test: the first run had the name of the second in the results."""
    runs = [shutil.copytree(run, tmp_path / name / "run") for run, name in ((other_run, "a"), (other_run, "b"))]
    names = [each.assessment.name for each in pellucid.compare(runs, ROWS).evaluations]
    assert names == [str(run) for run in runs]


def test_a_search_and_samples_exclude_each_other() -> None:
    with pytest.raises(ArgumentError, match="nbest, sampling: expected one of them, got both"):
        pellucid.EvaluationOptions(nbest=2, sampling=pellucid.SamplingConfig(samples=3))


def test_tuples_are_pairs_for_a_run_of_named_columns(tmp_path: Path) -> None:
    """Regression test: the columns of the training file were sought in tuples."""
    training, rows = ([{"sound": pair.target, "word": pair.source} for pair in pairs] for pairs in (TRAIN, DEV))
    columns = {"data": {"source_column": "word", "target_column": "sound"}}
    model = pellucid.train(training, rows, tmp_path / "run", {**SETTINGS, **columns}, progress=False)
    expected = without_seconds(pellucid.evaluate(model, rows).to_dict())
    for pairs in (ROWS, map(list, ROWS), [Example(*row) for row in ROWS]):
        assert without_seconds(pellucid.evaluate(model, pairs).to_dict()) == expected
    scores = [trace.score for trace in pellucid.score(model, rows)]
    assert [trace.score for trace in pellucid.score(model, ROWS)] == scores
    assert pellucid.align(ROWS, model) == pellucid.align(rows, model)
    grouped = [(*row, "ab"[index % 2]) for index, row in enumerate(ROWS)]
    evaluation = pellucid.evaluate(model, grouped, pellucid.EvaluationOptions(group="3"))
    assert [group.group for group in evaluation.assessment.groups] == ["a", "b"]
    with pytest.raises(InputError, match=r"^group = 'kind' is a name, but the rows of the list of pairs have no names"):
        pellucid.evaluate(model, grouped, pellucid.EvaluationOptions(group="kind"))


def test_results_are_printed_in_a_few_lines(other_run: Path) -> None:
    """Regression test: the text of an evaluation held all counts and traces."""
    comparisons = pellucid.compare([copy_task_run().run, other_run], ROWS)
    first, other = comparisons.evaluations
    exact, errors = first.assessment.evaluation.exact_match, first.assessment.evaluation.symbol_error_rate
    rates = f"exact_match={exact:.2f}, symbol_error_rate={errors:.2f}"
    assert repr(first) == f"<RunEvaluation {first.name!r}, 10 examples, {rates}>"
    title, exact_line, *lines = str(first).splitlines()
    assert title == f"{first.name}: 10 examples" and len(lines) < 15
    assert exact_line.split()[:4] == ["exact", "match", f"{exact:.2f}", "%"]
    assert str(comparisons).startswith(f"{first}\n{other}\n{first.name} - {other.name}, exact match: ")
    assert (
        len(repr(comparisons)) < 1000
        and repr(first.assessment) == f"<Assessment {first.assessment.name!r}, 10 examples>"
    )


def test_options_of_an_evaluation(tmp_path: Path) -> None:
    rows = [(*row, "ab"[index % 2]) for index, row in enumerate(ROWS)]
    run = copy_task_run().run
    evaluation = pellucid.evaluate(run, rows, pellucid.EvaluationOptions(group="3", nbest=2, texts=True))
    assert [group.group for group in evaluation.assessment.groups] == ["a", "b"]
    assert len(evaluation.assessment.oracle) == 2 and evaluation.assessment.text_scores is not None
    (path := tmp_path / "groups.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    by_file = pellucid.evaluate(run, path, pellucid.EvaluationOptions(group="3", nbest=2, texts=True))
    assert without_seconds(by_file.to_dict()) == without_seconds(evaluation.to_dict())
    with pytest.raises(DataError, match=r"^pair 1 of the list of pairs: expected 4 items, got 3$") as raised:
        pellucid.evaluate(run, rows, pellucid.EvaluationOptions(group="4"))
    assert raised.value.missing_columns == ("group",)
    named = [{"source": source, "target": target} for source, target, _ in rows]
    for pairs, group, message in (
        (named, "kind", r"no column 'kind' \(group\) among 'source', 'target'"),
        (pa.Table.from_pylist(named), "kind", r"no column 'kind' \(group\) among 'source', 'target'"),
        (rows, "kind", "^group = 'kind' is a name, but the rows of the list of pairs have no names"),
        (path, "kind", r"^the column 'kind' \(group\) is a name, but .* has no header"),
        (path, "0", "^group: expected a name or a number from 1, got '0'"),
    ):
        with pytest.raises(InputError, match=message):
            pellucid.evaluate(run, pairs, pellucid.EvaluationOptions(group=group))
    skipped = pellucid.evaluate(run, [*ROWS, ("a", None)], pellucid.EvaluationOptions(on_bad_line="skip"))
    assert str(skipped.bad_lines[0]) == "pair 11 of the list of pairs: the value of the target is None, not a string"
    twice = pellucid.evaluate(run, [*ROWS, (ROWS[0][0], "x")])
    assert "multi_reference accepts any of them" in twice.notes[0]
    sampling = pellucid.SamplingConfig(samples=3, seed=1)
    sampled = pellucid.evaluate(run, ROWS, pellucid.EvaluationOptions(sampling=sampling))
    assert len(sampled.assessment.oracle) == 3


def test_predict_and_score_accept_files_and_objects(tmp_path: Path) -> None:
    run, model = copy_task_run().run, pellucid.load(copy_task_run().run)
    sources = [source for source, _ in ROWS]
    expected = [trace.output for trace in model.predict(sources)]
    (path := tmp_path / "sources.txt").write_text("".join(f"{source}\n" for source in sources))
    for value in (
        path,
        os.fspath(path),
        sources,
        iter(sources),
        np.array(sources),
        ROWS,
        pa.table({"source": sources}),
        pa.chunked_array([sources]),
        [Example(*row) for row in ROWS],
    ):
        assert [trace.output for trace in pellucid.predict(run, value)] == expected
    scores = [trace.score for trace in model.score_examples([Example(*row) for row in ROWS])]
    pairs = write_pairs(tmp_path / "pairs.tsv", DEV)
    for pairs_value in (pairs, ROWS, iter(ROWS)):
        assert [trace.score for trace in pellucid.score(model, pairs_value)] == scores
    with pytest.raises(DataError, match=r"^source 2 of the list of sources: expected a source, got 5"):
        pellucid.predict(model, ["a", 5])
    with pytest.raises(DataError, match=r"^pair 1 of the list of pairs: the target is empty"):
        pellucid.score(model, [("a", "")])


def test_columns_of_pandas_and_polars_are_sources() -> None:
    model, sources = pellucid.load(copy_task_run().run), [source for source, _ in ROWS]
    expected = [trace.output for trace in model.predict(sources)]
    for name in ("pandas", "polars"):
        column = pytest.importorskip(name).Series(sources)
        assert [trace.output for trace in pellucid.predict(model, column)] == expected


def test_a_saved_model_predicts_the_same(tmp_path: Path, other_run: Path) -> None:
    for name, run in (("copy", copy_task_run().run), ("other", other_run)):
        model = pellucid.load(run).with_beam(3)
        pellucid.save(model, tmp_path / name)
        loaded = pellucid.load(tmp_path / name)
        for one, other in zip(model.predict(["abc", "b"]), loaded.predict(["abc", "b"]), strict=True):
            assert one.output == other.output and one.score == other.score
        assert loaded.config.search.beam_size == 3
        assert loaded.confidence == model.confidence is not None
        with pytest.raises(RunError, match=r"is not empty \(confidence.json, config.toml"):
            pellucid.save(model, tmp_path / name)
    for arguments, message in (((None, tmp_path), "predictor: expected a Predictor"), ((model, 5), "folder: exp")):
        with pytest.raises(ArgumentError, match=message):
            inspect.unwrap(pellucid.save)(*arguments)
    with pytest.raises(ArgumentError, match="got an ensemble: save its members"):
        pellucid.save(pellucid.load([other_run, other_run]), tmp_path / "ensemble")


class Recorder:
    """Callback that records the events, and interrupts the training at an update."""

    def __init__(self, stop_at: int = 0) -> None:
        self.stop_at = stop_at
        self.events = list[tuple[Path, RunEvent]]()

    def on_event(self, folder: Path, event: RunEvent) -> bool:
        self.events.append((folder, event))
        return isinstance(event, UpdateCompleted) and event.progress.update == self.stop_at


def test_callbacks_receive_all_events_and_may_interrupt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, folder = write_copy_files(tmp_path), tmp_path / "run"
    first, second = Recorder(), Recorder()
    pellucid.train(files.train, files.valid, folder, SETTINGS, progress=False, callbacks=[first, second])
    assert capsys.readouterr().err == "" and first.events == second.events
    assert {path for path, _ in first.events} == {folder}
    assert isinstance(first.events[-1][1], TrainingStopped)
    assert any(isinstance(event, ValidationCompleted) for _, event in first.events)
    interrupted = tmp_path / "interrupted"
    with pytest.raises(RunError, match=r"a callback interrupted .* holds no model yet: the same call continues it"):
        pellucid.train(files.train, files.valid, interrupted, SETTINGS, progress=False, callbacks=[Recorder(2)])
    pellucid.train(files.train, files.valid, interrupted, SETTINGS, progress=False)
    assert (interrupted / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_an_exception_of_a_callback_ends_the_training_which_is_saved(tmp_path: Path) -> None:
    class Broken:
        def on_event(self, folder: Path, event: RunEvent) -> None:
            if isinstance(event, UpdateCompleted):
                raise LookupError("of the callback")

    files = write_copy_files(tmp_path)
    with pytest.raises(LookupError, match="of the callback"):
        pellucid.train(files.train, files.valid, tmp_path / "run", SETTINGS, callbacks=[Broken()])
    assert (tmp_path / "run" / "training.safetensors").exists()


def test_other_arguments_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such folder"):
        pellucid.predict(tmp_path / "none", ["a"])
    with pytest.raises(InputError, match=r"^texts scores generated text"):
        pellucid.evaluate(_tagger(tmp_path), [("ab", "xy")], pellucid.EvaluationOptions(texts=True))


def _tagger(folder: Path) -> Path:
    """Return the run folder of a tagger."""
    rows = [(f"{letter}b", "xy") for letter in "abcdefghijklmnopqrstuvwxyz"]
    pellucid.train(rows, None, folder / "tagger", {**SETTINGS, "task": "tag"}, progress=False)
    return folder / "tagger"


@pytest.mark.parametrize("answer", [True, np.bool_(True)])
def test_a_callback_may_interrupt_at_the_first_event(answer: object, tmp_path: Path) -> None:
    """Regression test: the message said that the folder is not a run folder, and a value of NumPy had no effect."""

    class Interrupting:
        def on_event(self, folder: Path, event: RunEvent) -> bool:
            return cast(bool, answer)

    files, folder = write_copy_files(tmp_path), tmp_path / "run"
    with pytest.raises(RunError, match=r"a callback interrupted the training, and .* holds no model yet"):
        pellucid.train(files.train, files.valid, folder, SETTINGS, progress=False, callbacks=[Interrupting()])
    assert not (folder / "model.safetensors").exists()


def test_a_class_is_no_callback(tmp_path: Path) -> None:
    """Regression test: a class has the method, too, and failed with a `TypeError` at the first event."""
    files, classes = write_copy_files(tmp_path), cast(list[Recorder], [Recorder(), Recorder])
    with pytest.raises(ArgumentError, match=r"callbacks\[1\]: expected an object, got the class Recorder"):
        pellucid.train(files.train, files.valid, tmp_path / "run", SETTINGS, progress=False, callbacks=classes)
