"""Python interface: train, load and predict, with every file format, words, separators and features."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from trained_runs import (
    SMALL_SIZES,
    comparable_run_contents,
    copy_task_run,
    make_copy_examples,
    make_small_config,
    write_copy_files,
    write_pairs,
)

import pellucid
from pellucid.data.batches import Batch, collate
from pellucid.data.encoding import EncodedExamples
from pellucid.data.examples import Example
from pellucid.decoding.ensemble import Ensemble
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.errors import ConfigError, DataError, InputError

TRAIN, DEV = make_copy_examples(40, seed=1), make_copy_examples(10, seed=2)
SETTINGS = {"size": "tiny", **SMALL_SIZES, "training": {"epochs": 1, "batch_size": 8}}

COPY_TRAINING = {"epochs": 30, "batch_size": 8, "learning_rate": 0.02, "eval_interval": 30}
"""Settings that train a model to copy its source."""


def write_csv(path: Path, examples: list[Example]) -> Path:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([example.source, example.target] for example in examples)
    path.write_text(text.getvalue(), encoding="utf-8", newline="")
    return path


def write_jsonl(path: Path, examples: list[Example]) -> Path:
    path.write_text("".join(json.dumps({"from": e.source, "to": e.target}) + "\n" for e in examples))
    return path


def write_parquet(path: Path, examples: list[Example]) -> Path:
    columns = {"from": [example.source for example in examples], "to": [example.target for example in examples]}
    pq.write_table(pa.table(columns), path)
    return path


def write_gzip(path: Path, examples: list[Example]) -> Path:
    path.write_bytes(gzip.compress("".join(f"{e.source}\t{e.target}\n" for e in examples).encode()))
    return path


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("x.csv", write_csv),
        ("x.jsonl", write_jsonl),
        ("x.parquet", write_parquet),
        ("x.tsv.gz", write_gzip),
        ("x", write_pairs),
    ],
)
def test_every_file_format_trains_the_same_model(
    tmp_path: Path, name: str, write: Callable[[Path, list[Example]], Path]
) -> None:
    files = (write(tmp_path / f"train-{name}", TRAIN), write(tmp_path / f"dev-{name}", DEV))
    pellucid.train(*files, tmp_path / "run", SETTINGS)
    assert comparable_run_contents(tmp_path / "run")["moments"] == tsv_run_moments()


def tsv_run_moments() -> object:
    """Return the moments of the run trained on a TSV file."""
    folder = copy_task_run().run.parent / "plain"
    if not folder.exists():
        pellucid.train(copy_task_run().files.train, copy_task_run().files.valid, folder, SETTINGS)
    return comparable_run_contents(folder)["moments"]


def test_parallel_files_train_the_same_model(tmp_path: Path) -> None:
    paths = {}
    for name, examples in (("train", TRAIN), ("dev", DEV)):
        for side, texts in (("source", [e.source for e in examples]), ("target", [e.target for e in examples])):
            paths[name, side] = tmp_path / f"{name}.{side}"
            paths[name, side].write_text("".join(f"{text}\n" for text in texts))
    train, dev = ((paths[name, "source"], paths[name, "target"]) for name in ("train", "dev"))
    transducer = pellucid.train(train, dev, tmp_path / "run", SETTINGS)
    assert comparable_run_contents(tmp_path / "run")["moments"] == tsv_run_moments()
    assert transducer.config.data.input_format == "text"


def test_validation_file_may_have_another_format(tmp_path: Path) -> None:
    train, dev = write_pairs(tmp_path / "train.tsv", TRAIN), write_jsonl(tmp_path / "dev.jsonl", DEV)
    pellucid.train(train, dev, tmp_path / "run", SETTINGS)
    assert comparable_run_contents(tmp_path / "run")["moments"] == tsv_run_moments()


def test_training_returns_the_best_checkpoint(tmp_path: Path) -> None:
    files = write_copy_files(tmp_path)
    trained = pellucid.train(str(files.train), files.valid, str(tmp_path / "run"), make_small_config({"epochs": 2}))
    loaded = pellucid.load(tmp_path / "run")
    for trained_trace, loaded_trace in zip(trained.predict(["ab", "c"]), loaded.predict(["ab", "c"]), strict=True):
        assert isinstance(trained_trace, pellucid.Trace) and trained_trace.output == loaded_trace.output
        assert np.array_equal(trained_trace.attention, loaded_trace.attention)


def test_finished_run_is_loaded_and_interrupted_run_resumes(tmp_path: Path) -> None:
    files, run, config = copy_task_run()
    predictor = pellucid.train(files.train, files.valid, run, config)
    assert [t.output for t in predictor.predict(["abc"])] == [t.output for t in pellucid.load(run).predict(["abc"])]


def test_training_uses_the_configured_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are bit-for-bit equal only for the same number of threads, so Python and the command line must agree."""
    thread_counts = []

    def count_threads(encoded: EncodedExamples, rows: np.ndarray) -> Batch:
        thread_counts.append(torch.get_num_threads())
        return collate(encoded, rows)

    monkeypatch.setattr("pellucid.training.training_state.collate", count_threads)
    files = write_copy_files(tmp_path)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        pellucid.train(files.train, files.valid, tmp_path / "run", {**SETTINGS, "threads": 1})
        assert set(thread_counts) == {1}
    finally:
        torch.set_num_threads(before)


def test_progress_is_printed_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write_copy_files(tmp_path)
    pellucid.train(files.train, files.valid, tmp_path / "run", SETTINGS)
    captured = capsys.readouterr()
    assert captured.out == "" and "40 examples" in captured.err and "stopped: the maximum" in captured.err


def test_user_errors_are_input_errors(tmp_path: Path) -> None:
    files = write_copy_files(tmp_path)
    for train, settings, message in (
        (files.train, {"trainin": {}}, "config: unknown key 'trainin'; did you mean 'training'?"),
        (files.train, {"encoder": {"cell": "gur"}}, "encoder.cell: expected gru or lstm, got 'gur'"),
        (tmp_path / "trian.tsv", SETTINGS, "no such file or directory; did you mean 'train.tsv'?"),
    ):
        with pytest.raises(InputError) as caught:
            pellucid.train(train, files.valid, tmp_path / "run", settings)
        assert message in str(caught.value)


def proportion_correct(transducer: pellucid.Predictor, examples: list[Example]) -> float:
    """Return the proportion of examples whose output equals the target."""
    traces = transducer.predict_examples(examples)
    return sum(t.output == e.target for t, e in zip(traces, examples, strict=True)) / len(examples)


def test_words_and_separators_end_to_end(tmp_path: Path) -> None:
    examples = [Example("+".join(e.source), " ".join(e.target.upper())) for e in TRAIN]
    data = {"source_symbols": "+", "target_symbols": "words"}
    train, dev = write_pairs(tmp_path / "t.tsv", examples[:30]), write_pairs(tmp_path / "d.tsv", examples[30:])
    settings = {"size": "tiny", "data": data, "training": COPY_TRAINING}
    transducer = pellucid.train(train, dev, tmp_path / "run", settings)
    (trace,) = transducer.predict(["a+b"])
    assert trace.source == ("a", "b") and trace.output == " ".join(trace.target[:-1])
    assert set(transducer.vocabularies.target.symbols) == set("ABCD")
    assert proportion_correct(transducer, examples[:30]) > 0.8


@pytest.mark.slow
def test_features_end_to_end(tmp_path: Path) -> None:
    """Only the tag determines whether the target is uppercase."""
    tagged = [Example(e.source, e.target.upper(), "UP;NOUN") for e in TRAIN]
    tagged += [Example(e.source, e.target, "LOW;NOUN") for e in TRAIN]
    train, dev = write_pairs(tmp_path / "t.tsv", tagged), write_pairs(tmp_path / "d.tsv", tagged[35:45])
    data = {"features_column": "3"}
    transducer = pellucid.train(train, dev, tmp_path / "run", {"size": "tiny", "data": data, "training": COPY_TRAINING})
    assert proportion_correct(transducer, tagged) > 0.8
    uppercase, lowercase, unknown = transducer.predict(
        ["cab", "cab", "cab"], features=["UP;NOUN", "LOW;NOUN", "UP;VERB"]
    )
    assert uppercase.output.isupper() and lowercase.output.islower()
    assert (
        uppercase.source == ("UP", "NOUN", "c", "a", "b")
        and uppercase.num_features == 2
        and uppercase.attention.shape[1] == 5
    )
    assert unknown.unknown == (1,)
    with pytest.raises(DataError, match="one features text for each of 2 sources, got 1"):
        transducer.predict(["a", "b"], features=["UP;NOUN"])


@pytest.mark.slow
def test_added_features_end_to_end(tmp_path: Path) -> None:
    """Feature embeddings are added to each symbol; the features are not positions of the trace."""
    tagged = [Example(e.source, e.target.upper(), "UP;NOUN") for e in TRAIN]
    tagged += [Example(e.source, e.target, "LOW;NOUN") for e in TRAIN]
    train, dev = write_pairs(tmp_path / "t.tsv", tagged), write_pairs(tmp_path / "d.tsv", tagged[35:45])
    settings = {"data": {"features_column": "3"}, "encoder": {"feature_merge": "sum"}, "training": COPY_TRAINING}
    pellucid.train(train, dev, tmp_path / "run", {"size": "tiny", **settings})
    transducer = pellucid.load(tmp_path / "run")
    assert proportion_correct(transducer, tagged) > 0.8
    sources, tags = ["cab?", "cab?", "cab?", "a"], ["UP;NOUN", "LOW;NOUN", "UP;VERB", ""]
    uppercase, lowercase, unknown, without = transducer.predict(sources, features=tags)
    assert uppercase.output.isupper() and lowercase.output.islower()
    assert (uppercase.source, uppercase.num_features, uppercase.summed_features) == (
        ("c", "a", "b", "?"),
        0,
        ("UP", "NOUN"),
    )
    assert uppercase.unknown == unknown.unknown == (3,) and without.summed_features == ()
    assert json.loads(uppercase.to_json())["summed_features"] == ["UP", "NOUN"] and "summed_features" not in json.loads(
        without.to_json()
    )
    np.testing.assert_allclose(uppercase.attention.sum(axis=1), 1, atol=1e-5)
    with_coverage = transducer.with_search(
        msgspec.structs.replace(transducer.config.search, coverage_penalty=0.2, beam_size=3)
    )
    for predictor in (transducer.with_beam(3), with_coverage, pellucid.load([tmp_path / "run"] * 2)):
        result = predictor.predict(sources, features=tags)
        assert [len(trace.source) for trace in result] == [trace.attention.shape[1] for trace in result] == [4, 4, 4, 1]
    (forced,) = transducer.score_examples([Example("cab?", uppercase.output, "UP;NOUN")])
    np.testing.assert_allclose(forced.log_probabilities, uppercase.log_probabilities, atol=1e-4)
    assert transducer.sample(["cab"], SamplingConfig(), ["UP;NOUN"])[0][0].attention.shape[1] == 3


def test_features_do_not_count_for_the_maximum_length(tmp_path: Path) -> None:
    """An example that training accepts must not be refused when it is decoded after an epoch."""
    tagged = [Example(e.source, e.target, "A;B;C") for e in TRAIN]
    train, dev = write_pairs(tmp_path / "t.tsv", tagged), write_pairs(tmp_path / "d.tsv", tagged[:9])
    settings = {**SETTINGS, "data": {"features_column": "3", "max_sequence_length": 3}}
    transducer = pellucid.train(train, dev, tmp_path / "run", settings)
    assert len(transducer.predict(["abc"], features=["A;B;C"])[0].source) == 6
    with pytest.raises(DataError, match="source 1 has 4 symbols"):
        transducer.predict(["abcd"])
    with pytest.raises(DataError, match="source 1: the features have 4 symbols"):
        transducer.predict(["abc"], features=["A;B;C;D"])


@pytest.mark.slow
def test_ensemble_is_trained_and_loaded(tmp_path: Path) -> None:
    """Each member equals the run trained with its seed. A second call loads the existing runs."""
    train, dev, *_ = write_copy_files(tmp_path)
    settings = {**SETTINGS, "seed": 3}
    ensemble = pellucid.train(train, dev, tmp_path / "runs", settings, ensemble=2)
    assert isinstance(ensemble, Ensemble) and len(ensemble.members.networks) == 2
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        ".lock",
        "confidence.json",
        "ensemble.json",
        "seed-3",
        "seed-4",
    ]
    single_model = pellucid.train(train, dev, tmp_path / "alone", settings)
    assert comparable_run_contents(tmp_path / "alone") == comparable_run_contents(tmp_path / "runs" / "seed-3")
    loaded = pellucid.train(train, dev, tmp_path / "runs", settings, ensemble=2)
    assert [trace.output for trace in loaded.predict(["abc"])] == [trace.output for trace in ensemble.predict(["abc"])]
    assert not isinstance(single_model, Ensemble)
    with pytest.raises(ConfigError, match="ensemble: expected 1 to 1,000 runs, got 0"):
        pellucid.train(train, dev, tmp_path / "none", settings, ensemble=0)
    with pytest.raises(ConfigError, match="seed = 4294967295 leaves no room for the seeds of 2 runs"):
        pellucid.train(train, dev, tmp_path / "none", {**SETTINGS, "seed": 2**32 - 1}, ensemble=2)
