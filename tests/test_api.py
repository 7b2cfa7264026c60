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
from pellucid.data.batches import Batch, EncodedExamples, collate
from pellucid.data.examples import Example
from pellucid.decoding.ensemble import Ensemble
from pellucid.decoding.sampling import SamplingConfig
from pellucid.errors import ConfigError, DataError, InputError

TRAIN, DEV = make_copy_examples(40, seed=1), make_copy_examples(10, seed=2)
SETTINGS = {"size": "tiny", **SMALL_SIZES, "training": {"epochs": 1, "batch_size": 8}}

TRAINING = {"epochs": 30, "batch_size": 8, "learning_rate": 0.02, "eval_interval": 30}
"""Enough to learn to copy."""


def as_csv(path: Path, examples: list[Example]) -> Path:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([example.source, example.target] for example in examples)
    path.write_text(text.getvalue(), encoding="utf-8", newline="")
    return path


def as_jsonl(path: Path, examples: list[Example]) -> Path:
    path.write_text("".join(json.dumps({"from": e.source, "to": e.target}) + "\n" for e in examples))
    return path


def as_parquet(path: Path, examples: list[Example]) -> Path:
    columns = {"from": [example.source for example in examples], "to": [example.target for example in examples]}
    pq.write_table(pa.table(columns), path)
    return path


def as_gzip(path: Path, examples: list[Example]) -> Path:
    path.write_bytes(gzip.compress("".join(f"{e.source}\t{e.target}\n" for e in examples).encode()))
    return path


@pytest.mark.parametrize(
    ("name", "write"),
    [("x.csv", as_csv), ("x.jsonl", as_jsonl), ("x.parquet", as_parquet), ("x.tsv.gz", as_gzip), ("x", write_pairs)],
)
def test_every_file_format_trains_the_same_model(
    tmp_path: Path, name: str, write: Callable[[Path, list[Example]], Path]
) -> None:
    files = (write(tmp_path / f"train-{name}", TRAIN), write(tmp_path / f"dev-{name}", DEV))
    pellucid.train(*files, tmp_path / "run", SETTINGS)
    assert comparable_run_contents(tmp_path / "run")["moments"] == plain_moments()


def plain_moments() -> object:
    """What a plain TSV file trains to."""
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
    assert comparable_run_contents(tmp_path / "run")["moments"] == plain_moments()
    assert transducer.config.data.input_format == "text"


def test_validation_file_may_have_another_format(tmp_path: Path) -> None:
    train, dev = write_pairs(tmp_path / "train.tsv", TRAIN), as_jsonl(tmp_path / "dev.jsonl", DEV)
    pellucid.train(train, dev, tmp_path / "run", SETTINGS)
    assert comparable_run_contents(tmp_path / "run")["moments"] == plain_moments()


def test_training_returns_the_best_checkpoint(tmp_path: Path) -> None:
    files = write_copy_files(tmp_path)
    trained = pellucid.train(str(files.train), files.valid, str(tmp_path / "run"), make_small_config({"epochs": 2}))
    loaded = pellucid.load(tmp_path / "run")
    for one, other in zip(trained.predict(["ab", "c"]), loaded.predict(["ab", "c"]), strict=True):
        assert isinstance(one, pellucid.Trace) and one.output == other.output
        assert np.array_equal(one.attention, other.attention)


def test_finished_run_is_loaded_and_interrupted_run_resumes(tmp_path: Path) -> None:
    files, run, config = copy_task_run()
    again = pellucid.train(files.train, files.valid, run, config)
    assert [t.output for t in again.predict(["abc"])] == [t.output for t in pellucid.load(run).predict(["abc"])]


def test_training_uses_the_configured_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are the same to the bit only for the same number of threads, so Python and command line must agree."""
    seen = []

    def watched(encoded: EncodedExamples, rows: np.ndarray) -> Batch:
        seen.append(torch.get_num_threads())
        return collate(encoded, rows)

    monkeypatch.setattr("pellucid.training.loop.collate", watched)
    files = write_copy_files(tmp_path)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        pellucid.train(files.train, files.valid, tmp_path / "run", {**SETTINGS, "threads": 1})
        assert set(seen) == {1}
    finally:
        torch.set_num_threads(before)


def test_progress_is_printed_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write_copy_files(tmp_path)
    pellucid.train(files.train, files.valid, tmp_path / "run", SETTINGS)
    said = capsys.readouterr()
    assert said.out == "" and "40 examples" in said.err and "stopped: all its passes" in said.err


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


def share_right(transducer: pellucid.Predictor, examples: list[Example]) -> float:
    """How much of what it was trained on a model can repeat."""
    traces = transducer.trace(examples)
    return sum(t.output == e.target for t, e in zip(traces, examples, strict=True)) / len(examples)


def test_words_and_separators_end_to_end(tmp_path: Path) -> None:
    examples = [Example("+".join(e.source), " ".join(e.target.upper())) for e in TRAIN]
    data = {"source_symbols": "+", "target_symbols": "words"}
    train, dev = write_pairs(tmp_path / "t.tsv", examples[:30]), write_pairs(tmp_path / "d.tsv", examples[30:])
    settings = {"size": "tiny", "data": data, "training": TRAINING}
    transducer = pellucid.train(train, dev, tmp_path / "run", settings)
    (trace,) = transducer.predict(["a+b"])
    assert trace.source == ("a", "b") and trace.output == " ".join(trace.target[:-1])
    assert set(transducer.vocabularies.target.symbols) == set("ABCD")
    assert share_right(transducer, examples[:30]) > 0.8


def test_features_end_to_end(tmp_path: Path) -> None:
    """The tag alone says whether the letters are to be capitals."""
    tagged = [Example(e.source, e.target.upper(), "UP;NOUN") for e in TRAIN]
    tagged += [Example(e.source, e.target, "LOW;NOUN") for e in TRAIN]
    train, dev = write_pairs(tmp_path / "t.tsv", tagged), write_pairs(tmp_path / "d.tsv", tagged[35:45])
    data = {"features_column": "3"}
    transducer = pellucid.train(train, dev, tmp_path / "run", {"size": "tiny", "data": data, "training": TRAINING})
    assert share_right(transducer, tagged) > 0.8
    up, low, unknown = transducer.predict(["cab", "cab", "cab"], features=["UP;NOUN", "LOW;NOUN", "UP;VERB"])
    assert up.output.isupper() and low.output.islower()
    assert up.source == ("UP", "NOUN", "c", "a", "b") and up.features == 2 and up.attention.shape[1] == 5
    assert unknown.unknown == (1,)
    with pytest.raises(DataError, match="one features text for each of 2 sources, got 1"):
        transducer.predict(["a", "b"], features=["UP;NOUN"])


def test_added_features_end_to_end(tmp_path: Path) -> None:
    """The same with features that are added to each symbol: learned, saved, loaded, and no positions of a Trace."""
    tagged = [Example(e.source, e.target.upper(), "UP;NOUN") for e in TRAIN]
    tagged += [Example(e.source, e.target, "LOW;NOUN") for e in TRAIN]
    train, dev = write_pairs(tmp_path / "t.tsv", tagged), write_pairs(tmp_path / "d.tsv", tagged[35:45])
    settings = {"data": {"features_column": "3"}, "encoder": {"features": "sum"}, "training": TRAINING}
    pellucid.train(train, dev, tmp_path / "run", {"size": "tiny", **settings})
    transducer = pellucid.load(tmp_path / "run")
    assert share_right(transducer, tagged) > 0.8
    sources, tags = ["cab?", "cab?", "cab?", "a"], ["UP;NOUN", "LOW;NOUN", "UP;VERB", ""]
    up, low, unknown, without = transducer.predict(sources, features=tags)
    assert up.output.isupper() and low.output.islower()
    assert (up.source, up.features, up.added) == (("c", "a", "b", "?"), 0, ("UP", "NOUN"))
    assert up.unknown == unknown.unknown == (3,) and without.added == ()
    assert json.loads(up.to_json())["added"] == ["UP", "NOUN"] and "added" not in json.loads(without.to_json())
    np.testing.assert_allclose(up.attention.sum(axis=1), 1, atol=1e-5)
    wide = transducer.with_search(msgspec.structs.replace(transducer.config.search, coverage_penalty=0.2, beam_size=3))
    for other in (transducer.with_beam(3), wide, pellucid.load([tmp_path / "run"] * 2)):
        found = other.predict(sources, features=tags)
        assert [len(trace.source) for trace in found] == [trace.attention.shape[1] for trace in found] == [4, 4, 4, 1]
    (forced,) = transducer.force([Example("cab?", up.output, "UP;NOUN")])
    np.testing.assert_allclose(forced.log_probabilities, up.log_probabilities, atol=1e-4)
    assert transducer.sample(["cab"], SamplingConfig(), ["UP;NOUN"])[0][0].attention.shape[1] == 3


def test_features_do_not_count_for_the_maximum_length(tmp_path: Path) -> None:
    """What was read without complaint must not be refused after an epoch, when it is decoded."""
    tagged = [Example(e.source, e.target, "A;B;C;D") for e in TRAIN]
    train, dev = write_pairs(tmp_path / "t.tsv", tagged), write_pairs(tmp_path / "d.tsv", tagged[:9])
    settings = {**SETTINGS, "data": {"features_column": "3", "max_sequence_length": 3}}
    transducer = pellucid.train(train, dev, tmp_path / "run", settings)
    assert len(transducer.predict(["abc"], features=["A;B;C;D"])[0].source) == 7
    with pytest.raises(DataError, match="source 1 has 4 symbols"):
        transducer.predict(["abcd"])


def test_ensemble_is_trained_and_loaded(tmp_path: Path) -> None:
    """Each member is the run that its seed alone trains; the same call again loads what is there."""
    train, dev, *_ = write_copy_files(tmp_path)
    settings = {**SETTINGS, "seed": 3}
    together = pellucid.train(train, dev, tmp_path / "runs", settings, ensemble=2)
    assert isinstance(together, Ensemble) and len(together.members.networks) == 2
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        ".lock",
        "ensemble.json",
        "seed-3",
        "seed-4",
    ]
    alone = pellucid.train(train, dev, tmp_path / "alone", settings)
    assert comparable_run_contents(tmp_path / "alone") == comparable_run_contents(tmp_path / "runs" / "seed-3")
    again = pellucid.train(train, dev, tmp_path / "runs", settings, ensemble=2)
    assert [trace.output for trace in again.predict(["abc"])] == [trace.output for trace in together.predict(["abc"])]
    assert not isinstance(alone, Ensemble)
    with pytest.raises(ConfigError, match="ensemble: expected 1 to 1,000 runs, got 0"):
        pellucid.train(train, dev, tmp_path / "none", settings, ensemble=0)
    with pytest.raises(ConfigError, match="seed = 4294967295 leaves no room for the seeds of 2 runs"):
        pellucid.train(train, dev, tmp_path / "none", {**SETTINGS, "seed": 2**32 - 1}, ensemble=2)
