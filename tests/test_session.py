"""A training writes a run folder; a refused training leaves the folder unchanged."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from trained_runs import (
    RUN_FILES,
    DataFiles,
    assert_runs_identical,
    copy_run_folder,
    copy_task_run,
    list_run_files,
    make_copy_examples,
    make_small_config,
    read_folder_state,
    read_tensors,
    train_to_end,
    write_copy_files,
    write_pairs,
)

import pellucid
from pellucid.config.settings import Config
from pellucid.config.toml import build_config, load_config, override_settings, to_toml
from pellucid.data.examples import Example
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.errors import ConfigError, DataError, OutOfMemoryError, RunError
from pellucid.inspection.attribution import attribute
from pellucid.reporting.progress import training_progress
from pellucid.run_folder.initialization import check_same_config
from pellucid.run_folder.lock import lock_run_folder
from pellucid.run_folder.log import load_run_log
from pellucid.run_folder.predictor_loader import load
from pellucid.training import loop, session
from pellucid.training.data_warnings import OVERLAP_ADVICE
from pellucid.training.events import (
    FileRead,
    FileSaved,
    ModelBuilt,
    TrainingStarted,
    TrainingStopped,
    UpdateCompleted,
)
from pellucid.training.session import train_run
from pellucid.training.training_state import TrainingState


def training_error(files: DataFiles, folder: Path, config: Config, kind: type[Exception] = RunError) -> str:
    with pytest.raises(kind) as caught:
        train_to_end(files, folder, config)
    return str(caught.value)


def test_a_run_folder_has_its_files_and_no_pickle() -> None:
    assert list_run_files(copy_task_run().run) == RUN_FILES
    for name, (content, _) in read_folder_state(copy_task_run().run).items():
        assert b"\x80\x04" not in content[:2] and not content.startswith(b"PK"), name
        if name.endswith(".safetensors"):
            assert read_tensors(copy_task_run().run / name)[0]
        else:
            content.decode("utf-8")


def test_the_given_settings_are_saved() -> None:
    """Only the format and the header differ, because they are detected from the file."""
    saved = load_config(copy_task_run().run / "config.toml")
    detected = {"input_format": saved.data.input_format, "header": saved.data.header}
    assert detected == {"input_format": "tsv", "header": False}
    data = msgspec.structs.replace(copy_task_run().config.data, **detected)
    assert saved == msgspec.structs.replace(copy_task_run().config, data=data)


def test_bfloat16_on_a_cpu_is_refused_without_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The training would be in float32. A training in float32 goes on without kernels."""
    monkeypatch.setattr(session, "load_kernels", lambda: False)
    monkeypatch.setattr(session, "check_precision", lambda device, precision: None)
    config = make_small_config({"epochs": 1})
    files = write_copy_files(tmp_path)
    with pytest.raises(ConfigError, match=r"precision: expected float32 .*, got 'bf16': .* cannot be compiled here"):
        train_to_end(files, tmp_path / "bf16", msgspec.structs.replace(config, precision="bf16"))
    train_to_end(files, tmp_path / "float32", config)


@contextmanager
def float64_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("context", "message"),
    [
        (float64_default, r"^torch's default type is torch\.float64, but networks are float32: call "),
        (partial(torch.device, "meta"), r"^torch's default device is \"meta\", which holds no values"),
    ],
)
def test_unsuitable_defaults_of_torch_are_refused(
    tmp_path: Path, context: Callable[[], AbstractContextManager[object]], message: str
) -> None:
    files, run = write_copy_files(tmp_path), copy_task_run().run
    with context():
        with pytest.raises(RunError, match=message):
            train_to_end(files, tmp_path / "run", make_small_config({"epochs": 1}))
        with pytest.raises(RunError, match=message):
            load(run)
        with pytest.raises(RunError, match=message):
            pellucid.train(files.train, files.valid, tmp_path / "run", ensemble=2)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_training_without_gradients_is_refused(
    tmp_path: Path, context: Callable[[], AbstractContextManager[object]]
) -> None:
    with context(), pytest.raises(RunError, match=r"^torch computes no gradients here, but training needs them: call"):
        train_to_end(write_copy_files(tmp_path), tmp_path / "run", make_small_config({"epochs": 1}))
    assert not (tmp_path / "run").exists()


def test_training_under_autocast_is_refused(tmp_path: Path) -> None:
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RunError, match=r"^torch\.autocast is active, but"):
        train_to_end(write_copy_files(tmp_path), tmp_path / "run", make_small_config({"epochs": 1}))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("members", [1, 2])
def test_predictions_do_not_depend_on_autocast(members: int) -> None:
    """Regression test: PyTorch computed in bfloat16, which neither NumPy nor the kernels read (`TypeError`)."""
    model = load([copy_task_run().run] * members if members > 1 else copy_task_run().run)
    examples = [Example("abca", "cba"), Example("b", "b")]
    sources = [example.source for example in examples]

    def results() -> list[tuple[str, list[float], list[list[float]]]]:
        """Return the outputs of all methods, with their log-probabilities and attention weights."""
        traces = [*model.predict(sources), *model.score_examples(examples)]
        traces += [
            trace
            for each in (*model.nbest(sources, 2), *model.sample(sources, SamplingConfig(samples=2)))
            for trace in each
        ]
        return [(trace.output, trace.log_probabilities.tolist(), trace.attention.tolist()) for trace in traces]

    expected = results()
    with torch.autocast("cpu", torch.bfloat16):
        assert results() == expected
        assert (
            load(copy_task_run().run).predict(sources)[0].output == load(copy_task_run().run).predict(sources)[0].output
        )
        assert torch.is_autocast_enabled("cpu")


def test_prediction_with_the_default_device_meta_is_refused() -> None:
    model = load(copy_task_run().run)
    with torch.device("meta"), pytest.raises(RunError, match=r'^torch.s default device is "meta"'):
        model.predict(["ab"])
    assert model.predict(["ab"])[0].output == load(copy_task_run().run).predict(["ab"])[0].output


@pytest.mark.parametrize("copies", [False, True])
def test_a_minimum_count_above_all_counts_is_refused(tmp_path: Path, copies: bool) -> None:
    config = make_small_config({"epochs": 1})
    data = msgspec.structs.replace(config.data, min_count=1_000_000)
    decoder = msgspec.structs.replace(config.decoder, pointer_generator=copies)
    config = msgspec.structs.replace(config, data=data, decoder=decoder)
    message = r"no source symbol of the training examples occurs so often; lower data\.min_count \(--min-count\)$"
    with pytest.raises(DataError, match=rf"^data\.min_count = 1,000,000: {message}"):
        train_to_end(write_copy_files(tmp_path), tmp_path / "run", config)


def test_a_model_loaded_in_inference_mode_has_gradients() -> None:
    run = copy_task_run().run
    with torch.inference_mode():
        model = load(run)
    assert not any(parameter.is_inference() for parameter in model.network.parameters())
    (trace,) = model.predict(["ab"])
    expected, actual = (attribute(each, trace).input_x_gradient for each in (load(run), model))
    np.testing.assert_array_equal(actual, expected)


def test_events_are_in_order(tmp_path: Path) -> None:
    files = write_copy_files(tmp_path)
    events = train_to_end(files, tmp_path / "run", make_small_config({"epochs": 2}))
    assert [type(event) for event in events[:4]] == [FileRead, FileRead, ModelBuilt, TrainingStarted]
    assert [event.num_examples for event in events if isinstance(event, FileRead)] == [40, 10]
    assert [event.resumed for event in events if isinstance(event, ModelBuilt)] == [False]
    assert sum(isinstance(event, UpdateCompleted) for event in events) == 10
    saved = [event for event in events if isinstance(event, FileSaved)]
    assert {event.path.name for event in saved} == {"model.safetensors", "training.safetensors"}


def test_a_finished_run_stays_unchanged() -> None:
    before = read_folder_state(copy_task_run().run)
    events = train_to_end(copy_task_run().files, copy_task_run().run, copy_task_run().config)
    assert [type(event) for event in events] == [ModelBuilt, FileRead, FileRead, TrainingStopped]
    assert read_folder_state(copy_task_run().run) == before


def test_the_first_line_of_a_resumed_training_names_the_update_from_which_it_continues(tmp_path: Path) -> None:
    files, run = write_copy_files(tmp_path, num_training=20), tmp_path / "run"
    config = make_small_config({"epochs": 2.5, "eval_interval": 1})  # 20 examples in batches of 8 are 3 updates
    events = train_run(files, run, config)
    for event in events:
        if isinstance(event, UpdateCompleted) and event.progress.update == 5:
            events.close()
    with (tmp_path / "output.txt").open("w+", encoding="utf-8") as output:
        with training_progress(output) as reporter:
            for event in train_run(files, run, config):
                reporter.report(event)
        output.seek(0)
        first, *others = output.read().splitlines()
    assert first.startswith(f"{run}: resumed after update 5 of at most 8, size tiny, ")
    assert "training for at most 2.5 epochs, 8 updates" in others
    assert "Epochs: at most 2.5 (8 updates); done: 8 updates" in (run / "card.md").read_text("utf-8")
    last = load_run_log(run).last_progress
    assert last is not None and last["update"] == 8


def test_a_run_of_another_configuration_is_refused_with_the_differences() -> None:
    before = read_folder_state(copy_task_run().run)
    other = make_small_config({"epochs": 4, "eval_interval": 0.5}, dropout=0.3)
    assert training_error(copy_task_run().files, copy_task_run().run, other).splitlines() == [
        f"{copy_task_run().run} holds a run with a different configuration:",
        "  encoder.dropout: 0.4 in the run, 0.3 now",
        "  decoder.dropout: 0.4 in the run, 0.3 now",
        "  training.epochs: 3.0 in the run, 4.0 now",
        "name another run folder",
    ]
    assert read_folder_state(copy_task_run().run) == before


def test_a_finished_run_of_another_length_is_refused_with_the_reason() -> None:
    trained = copy_task_run()
    longer = override_settings(trained.config, {"training": {"epochs": 9}})
    assert training_error(trained.files, trained.run, longer).splitlines() == [
        f"{trained.run} holds a run with a different configuration:",
        "  training.epochs: 3.0 in the run, 9.0 now",
        "the training of this run has ended, so that nothing is left to resume: a run cannot be made longer or "
        "shorter, because its learning rate depends on the length from the first update on; name another run folder, "
        f"in which the training begins anew; --init-from {trained.run} begins it with the parameters of this run",
    ]


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_a_finished_run_is_not_resumed_with_its_time_limit(tmp_path: Path, size: str) -> None:
    """Regression test: the message said to resume it with the time limit that was used up."""
    run = copy_run_folder(copy_task_run().run, tmp_path / "run")
    config = build_config({"size": "tiny", "training": {"time_limit": "30s"}}, "test")
    (run / "config.toml").write_text(to_toml(config), "utf-8")
    other = build_config({"size": size, "training": {"time_limit": "40s"}}, "test")
    with pytest.raises(RunError, match="the training of this run has ended, so that nothing is left") as raised:
        check_same_config(run, other)
    assert "--time" not in str(raised.value)
    (run / "training.safetensors").unlink()
    with pytest.raises(RunError, match="resume it with --time 30s"):
        check_same_config(run, other)


@pytest.mark.parametrize(
    ("before", "now", "advice"),
    [
        ("8m", "5m", "resume it with --time 8m, of which only the rest is spent"),
        ("", "5m", "resume it without --time"),
    ],
)
def test_another_time_limit_is_refused_with_the_flag_to_give(
    tmp_path: Path, before: str, now: str, advice: str
) -> None:
    config = override_settings(copy_task_run().config, {"training": {"time_limit": before}})
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(to_toml(config), "utf-8")
    other = override_settings(config, {"training": {"time_limit": now}})
    with pytest.raises(RunError) as raised:
        check_same_config(tmp_path / "run", other)
    assert str(raised.value).splitlines()[-1].startswith(f"{advice}: a run cannot be made longer or shorter")


def test_a_run_whose_size_was_chosen_by_a_time_limit_is_resumed_with_this_limit(tmp_path: Path) -> None:
    """Regression test: without --time the size differs, too, and the advice did not name the flag."""
    config = build_config({"size": "small", "training": {"time_limit": "10m"}}, "test")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(to_toml(config), "utf-8")
    with pytest.raises(RunError) as raised:
        check_same_config(tmp_path / "run", build_config({}, "test"))
    lines = str(raised.value).splitlines()
    assert len(lines) > 4
    assert lines[-1] == (
        "resume it with --time 10m, of which only the rest is spent, or name another run folder, in which the training "
        "begins anew"
    )


@pytest.mark.parametrize("training", [{"batch_size": 32}, {"epochs": 9}, {"learning_rate": 0.1}])
def test_no_time_limit_is_advised_where_other_settings_differ_too(tmp_path: Path, training: dict[str, Any]) -> None:
    """Regression test: the advice to give --time was refused, because the other setting still differed."""
    config = build_config({"training": {"time_limit": "10m"}}, "test")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(to_toml(config), "utf-8")
    with pytest.raises(RunError) as raised:
        check_same_config(tmp_path / "run", build_config({"training": training}, "test"))
    assert "resume it" not in str(raised.value)


def replace_letters(examples: Sequence[Example]) -> list[Example]:
    """Replace every letter of the targets by the next, which gives other symbols with nearly the same ids."""
    return [Example(e.source, e.target.translate(str.maketrans("abcd", "bcda"))) for e in examples]


@pytest.mark.parametrize(
    ("training", "validation_examples"),
    [
        (make_copy_examples(41, seed=1), make_copy_examples(10, seed=2)),
        (list(reversed(make_copy_examples(40, seed=1))), make_copy_examples(10, seed=2)),
        (make_copy_examples(40, seed=1), make_copy_examples(9, seed=2)),
        (replace_letters(make_copy_examples(40, seed=1)), make_copy_examples(10, seed=2)),
    ],
    ids=["one more", "another order", "other validation set", "other symbols"],
)
def test_a_run_of_other_data_is_refused(
    tmp_path: Path, training: list[Example], validation_examples: list[Example]
) -> None:
    before = read_folder_state(copy_task_run().run)
    files = DataFiles(write_pairs(tmp_path / "a.tsv", training), write_pairs(tmp_path / "b.tsv", validation_examples))
    assert "is of a training on other data" in training_error(files, copy_task_run().run, copy_task_run().config)
    assert read_folder_state(copy_task_run().run) == before


def test_a_model_without_its_training_state_is_not_overwritten(tmp_path: Path) -> None:
    shutil.copytree(copy_task_run().run, tmp_path / "run")
    (tmp_path / "run" / "training.safetensors").unlink()
    before = read_folder_state(tmp_path / "run")
    assert str(tmp_path / "run") in training_error(copy_task_run().files, tmp_path / "run", copy_task_run().config)
    assert read_folder_state(tmp_path / "run") == before


def test_a_folder_with_other_files_is_refused_and_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.tex").write_text("hello")
    assert training_error(copy_task_run().files, folder, copy_task_run().config) == (
        f"{folder} is not empty and holds no run (chapter.tex); name a new folder"
    )
    assert [path.name for path in folder.iterdir()] == ["chapter.tex"]


def test_a_second_training_in_the_same_folder_is_refused() -> None:
    with lock_run_folder(copy_task_run().run):
        assert training_error(copy_task_run().files, copy_task_run().run, copy_task_run().config) == (
            f"{copy_task_run().run} is in use: another process is writing to it"
        )
    train_to_end(copy_task_run().files, copy_task_run().run, copy_task_run().config)


@pytest.mark.parametrize("copied", [False, True])
def test_a_validation_set_that_is_the_training_set_is_refused(tmp_path: Path, copied: bool) -> None:
    train = write_pairs(tmp_path / "train.tsv", make_copy_examples(20, seed=1))
    dev = write_pairs(tmp_path / "dev.tsv", list(reversed(make_copy_examples(20, seed=1)))) if copied else train
    message = training_error(DataFiles(train, dev), tmp_path / "run", make_small_config(), DataError)
    assert message.startswith(f"{dev} holds the same examples as {train}")
    assert not (tmp_path / "run" / "config.toml").exists()


def test_files_are_reported_when_read(tmp_path: Path) -> None:
    train, dev = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    train.write_text("a\ta\n\nab\tab\nbad line\nb\tb\n\n")
    dev.write_text("a\ta\nc\tc\n")
    config = make_small_config({"epochs": 1}, data={"on_bad_line": "skip"})
    first, second = [
        e for e in train_to_end(DataFiles(train, dev), tmp_path / "run", config) if isinstance(e, FileRead)
    ]
    assert (first.path, first.num_examples, first.num_blank_lines, first.note) == (train, 3, 2, "")
    assert [str(bad) for bad in first.bad_lines] == [f"{train}:4: expected 2 columns, got 1 (tabs separate columns)"]
    consequence = f"scores and confidence are too high for new data; {OVERLAP_ADVICE}"
    assert second.note == f"1 of 2 validation examples is also in {train}: {consequence}" and second.num_shared == 1


@pytest.mark.slow
def test_training_does_not_import_torch_dynamo(tmp_path: Path) -> None:
    """Importing torch._dynamo, as torch.optim does, takes longer than a small training."""
    write_pairs(tmp_path / "train.tsv", make_copy_examples(8, seed=1))
    write_pairs(tmp_path / "dev.tsv", make_copy_examples(4, seed=2))
    program = """
import sys
from pathlib import Path
from pellucid.config.toml import build_config
from pellucid.training.session import train_run
from pellucid.training.snapshots import SnapshotNumber
from pellucid.training.training_data import TrainingFiles
config = build_config({"size": "tiny", "training": {"epochs": 1}}, origin="test")
events = list(train_run(TrainingFiles(Path("train.tsv"), Path("dev.tsv")), Path("run"), config))
print(len(events), "torch._dynamo" in sys.modules)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PELLUCID_PLAIN": "1"}
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    events, imported = run.stdout.split()
    assert int(events) > 3 and imported == "False"


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")]
)
def test_a_failed_allocation_says_what_to_reduce_and_keeps_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    files, uninterrupted, config = copy_task_run()
    update_parameters = loop._update_parameters

    def fail_at_update_8(state: TrainingState, *arguments: Any) -> tuple[float, float]:  # noqa: ANN401
        if state.progress.update == 7:
            raise error
        return update_parameters(state, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_update_parameters", fail_at_update_8)
        message = training_error(files, tmp_path / "run", config, OutOfMemoryError)
    assert message.startswith(
        f"{tmp_path / 'run'}: out of memory; reduce training.batch_size, search.batch_size or size"
    )
    list(train_run(files, tmp_path / "run", config))
    assert_runs_identical(tmp_path / "run", uninterrupted)


def test_another_runtime_error_is_not_taken_for_a_lack_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(loop, "_update_parameters", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        list(train_run(write_copy_files(tmp_path), tmp_path / "run", make_small_config({"epochs": 1})))


def test_a_training_that_ended_without_confidence_loads_the_kernels_to_fit_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An undisturbed training fits it with kernels; without them, its last digits would differ."""
    files, run, config = copy_task_run()
    shutil.copytree(run, tmp_path / "run")
    loads = list[str]()

    def count_load() -> bool:
        loads.append("kernels")
        return True

    monkeypatch.setattr(session, "load_kernels", count_load)
    monkeypatch.setattr(session, "are_kernels_disabled", lambda: False)
    list(train_run(files, tmp_path / "run", config))
    assert loads == []
    (tmp_path / "run" / "confidence.json").unlink()
    list(train_run(files, tmp_path / "run", config))
    assert loads == ["kernels"]
