"""pellucid train: settings from preset, file and flags; interrupted and killed runs."""

import os
import re
import signal
from pathlib import Path

import pytest
from command_line import (
    run_pellucid,
    run_shell,
    send_interrupt,
    start_command,
    usage_error_message,
    wait_for_exit,
    wait_until,
)
from trained_runs import (
    RUN_FILES,
    TrainedRun,
    assert_runs_identical,
    comparable_log_records,
    copy_task_run,
    list_run_files,
    make_copy_examples,
    make_small_config,
    read_folder_state,
    training_flags,
    write_copy_files,
    write_pairs,
)

import pellucid
from pellucid.cli.train import report_interruption
from pellucid.config.settings import DataConfig
from pellucid.config.toml import load_config
from pellucid.data.examples import read_examples
from pellucid.run_folder.progress import read_progress


def train_command(trained: TrainedRun, run: Path) -> list[object]:
    """Return the command that trains this run in another folder."""
    return ["train", trained.files.train, "--valid", trained.files.valid, "--run", run, *training_flags(trained.config)]


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """Train an uninterrupted run of 500 updates, the reference of the interruption tests."""
    folder = tmp_path_factory.mktemp("long")
    config = make_small_config({"epochs": 100, "eval_interval": 0.9}, dropout=0.3)
    trained = TrainedRun(write_copy_files(folder), folder / "run", config)
    assert run_pellucid(*train_command(trained, trained.run)).code == 0
    return trained


@pytest.mark.slow
def test_command_line_and_python_train_identical_models(tmp_path: Path) -> None:
    result = run_shell('"$@"', *train_command(copy_task_run(), tmp_path / "run"))
    assert result.code == 0 and result.out == "" and "\x1b" not in result.err and "\r" not in result.err
    assert_runs_identical(copy_task_run().run, tmp_path / "run")
    assert list_run_files(tmp_path / "run") == RUN_FILES
    assert "40 examples" in result.err and "new run" in result.err
    assert sum(line.startswith("epoch") for line in result.err.splitlines()) == 6
    best = r"stopped: the maximum number of epochs is reached; best at update [\d,]+; "
    times = r"\d+ s of updates and validations, \d+ s for this command"
    assert re.fullmatch(best + times, result.err.splitlines()[-1])


@pytest.mark.slow
def test_finished_run_is_reported_and_unchanged() -> None:
    before = read_folder_state(copy_task_run().run)
    result = run_pellucid(*train_command(copy_task_run(), copy_task_run().run))
    sentences = " ".join(result.err.split())
    assert result.code == 0 and "nothing to do" in sentences and "the maximum number of epochs is reached" in sentences
    assert read_folder_state(copy_task_run().run) == before


def test_different_configuration_is_refused_with_the_differences() -> None:
    before = read_folder_state(copy_task_run().run)
    message = usage_error_message(
        run_pellucid(*train_command(copy_task_run(), copy_task_run().run), "--training.clip-norm", "2", "--seed", "7")
    )
    assert "\n  seed: 1 in the run, 7 now\n  training.clip_norm: 1.0 in the run, 2.0 now\n" in message
    assert read_folder_state(copy_task_run().run) == before


def test_flags_override_the_file_and_the_file_overrides_the_preset(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        'size = "large"\nseed = 5\n[encoder]\nhidden_size = 7\nnum_layers = 2\n'
        '[training]\nepochs = 0.1\n[data]\non_bad_line = "skip"\n'
    )
    files = write_copy_files(tmp_path)
    result = run_pellucid(
        *("train", files.train, "--valid", files.valid, "--run", tmp_path / "run", "--config", tmp_path / "a.toml"),
        *("--size=tiny", "--encoder.num-layers", "1", "--max-sequence-length", "50"),
    )
    assert result.code == 0
    config = load_config(tmp_path / "run" / "config.toml")
    assert (config.size, config.seed, config.encoder.hidden_size, config.encoder.num_layers) == ("tiny", 5, 7, 1)
    assert (config.decoder.hidden_size, config.training.epochs) == (32, 0.1)
    assert (config.data.max_sequence_length, config.data.on_bad_line) == (50, "skip")


def test_two_parallel_files_are_read(tmp_path: Path) -> None:
    paths = {}
    for name, examples in (("train", make_copy_examples(40, seed=1)), ("dev", make_copy_examples(10, seed=2))):
        for side in ("source", "target"):
            paths[name, side] = tmp_path / f"{name}.{side}"
            paths[name, side].write_text("".join(f"{getattr(example, side)}\n" for example in examples))
    command = ["train", paths["train", "source"], "--valid", paths["dev", "source"], "--run", tmp_path / "run"]
    command += ["--train-target", paths["train", "target"], *training_flags(copy_task_run().config)]
    assert "dev.source" in usage_error_message(run_pellucid(*command))
    assert run_pellucid(*command, "--valid-target", paths["dev", "target"]).code == 0
    assert comparable_log_records(tmp_path / "run")[-1] == comparable_log_records(copy_task_run().run)[-1]


def test_skipped_lines_are_counted_and_listed(tmp_path: Path) -> None:
    dev = write_pairs(tmp_path / "dev.tsv", make_copy_examples(5, seed=2))
    lines = [f"{example.source}\t{example.target}" for example in make_copy_examples(20, seed=1)]
    (tmp_path / "train.tsv").write_text("\n".join([*lines[:9], "one column", "", "\ttarget", *lines[9:]]) + "\n")
    command = ["train", tmp_path / "train.tsv", "--valid", dev, "--run", tmp_path / "run", "--size", "tiny"]
    assert f"{tmp_path / 'train.tsv'}:10: expected 2 columns, got 1" in usage_error_message(run_pellucid(*command))
    result = run_pellucid(*command, "--on-bad-line", "skip", "--training.epochs", "0.1")
    assert result.code == 0 and "20 examples, 1 blank line skipped, 2 bad lines skipped" in result.err
    assert "train.tsv:10: expected 2 columns" in result.err and "train.tsv:12: the source is empty" in result.err


@pytest.mark.parametrize("rate", ["1e+30", "3e+38"])
@pytest.mark.parametrize("eval_interval", ["1", "0.01"], ids=["detected in the gradient", "detected in a validation"])
def test_divergence_names_the_setting(tmp_path: Path, rate: str, eval_interval: str) -> None:
    command = [
        *train_command(copy_task_run(), tmp_path / "run"),
        "--training.learning-rate",
        rate,
        "--training.warmup-ratio",
        "0",
    ]
    for _ in range(2):
        message = usage_error_message(run_pellucid(*command, "--training.eval-interval", eval_interval))
        assert message.startswith("training diverged at update ") and f"training.learning_rate (now {rate})" in message
    assert "NaN" not in (tmp_path / "run" / "log.jsonl").read_text(), "NaN is not valid JSON"


def num_logged_updates(run: Path) -> int:
    """Return the number of updates in the log of a run."""
    logged = comparable_log_records(run) if (run / "log.jsonl").exists() else []
    return max((record.get("update", 0) for record in logged), default=0)


@pytest.mark.slow
def test_repeatedly_killed_training_is_bit_for_bit_reproducible(tmp_path: Path, long_run: TrainedRun) -> None:
    for update in (20, 80):
        with start_command(*train_command(long_run, tmp_path / "run")) as process:
            wait_until(lambda min_updates=update: num_logged_updates(tmp_path / "run") >= min_updates, process)  # type: ignore[misc]
            process.kill()
    assert num_logged_updates(tmp_path / "run") < 500, "training finished before it was killed"
    result = run_pellucid(*train_command(long_run, tmp_path / "run"))
    assert result.code == 0 and "resumed" in result.err
    assert_runs_identical(long_run.run, tmp_path / "run")
    updates = [
        (record["event"], record.get("path"), record.get("update"))
        for record in comparable_log_records(tmp_path / "run")
    ]
    assert len(updates) == len(set(updates))


@pytest.mark.slow
def test_ctrl_c_saves_a_checkpoint_and_training_resumes(tmp_path: Path, long_run: TrainedRun) -> None:
    command, run = train_command(long_run, tmp_path / "run"), tmp_path / "run"
    with start_command(*command) as process:
        wait_until(lambda: num_logged_updates(run) >= 30, process)
        assert usage_error_message(run_pellucid(*command)) == f"{run} is in use: another process is writing to it"
        send_interrupt(process)
        result = wait_for_exit(process)
    assert result.code == 130 and "Traceback" not in result.err and result.out == ""
    assert f"pellucid: interrupted; the same command resumes from {run}" in result.err
    assert (run / "training.safetensors").exists() and num_logged_updates(run) < 500
    assert run_pellucid(*command).code == 0
    assert_runs_identical(long_run.run, run)


def test_the_message_of_an_interruption_names_the_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy_task_run().run
    update = read_progress(run / "training.safetensors").update
    assert report_interruption(run) == 130 and report_interruption(tmp_path, signal.SIGTERM) == 143
    assert capsys.readouterr().err.splitlines() == [
        f"pellucid: interrupted; the same command resumes from {run} (checkpoint of update {update:,})",
        f"pellucid: stopped by SIGTERM; the same command resumes from {tmp_path}",
    ]


@pytest.mark.slow
def test_sigterm_saves_a_checkpoint_and_training_resumes(tmp_path: Path, long_run: TrainedRun) -> None:
    """Regression test: it ended a training without a message, and lost the updates after the last checkpoint."""
    command, run = train_command(long_run, tmp_path / "run"), tmp_path / "run"
    with start_command(*command) as process:
        wait_until(lambda: num_logged_updates(run) >= 30, process)
        process.send_signal(signal.SIGTERM)
        result = wait_for_exit(process)
    assert result.code == 143 and "Traceback" not in result.err and result.out == ""
    update = read_progress(run / "training.safetensors").update
    last = f"pellucid: stopped by SIGTERM; the same command resumes from {run} (checkpoint of update {update:,})"
    assert result.err.splitlines()[-1] == last and update >= 30
    assert run_pellucid(*command).code == 0
    assert_runs_identical(long_run.run, run)


@pytest.mark.slow
def test_second_ctrl_c_stops_at_once_and_keeps_the_checkpoint(tmp_path: Path, long_run: TrainedRun) -> None:
    run = tmp_path / "run"
    with start_command(*train_command(long_run, run)) as process:
        wait_until(lambda: num_logged_updates(run) >= 30, process)
        send_interrupt(process)
        send_interrupt(process)
        result = wait_for_exit(process)
    assert result.code == 130 and "Traceback" not in result.err and "Exception ignored" not in result.err
    assert f"pellucid: interrupted; the same command resumes from {run}" in result.err
    assert (run / "training.safetensors").exists() and num_logged_updates(run) < 500
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == [".lock"], "no partial file remains"
    assert run_pellucid(*train_command(long_run, run)).code == 0
    assert_runs_identical(long_run.run, run)


@pytest.mark.parametrize(("number", "cause"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "stopped by SIGTERM")])
def test_a_signal_while_reading_stops_at_once(tmp_path: Path, number: signal.Signals, cause: str) -> None:
    """The training file is an endless pipe, and there is no checkpoint yet, which the message did not say."""
    os.mkfifo(tmp_path / "train.tsv")
    files = (tmp_path / "train.tsv", "--valid", copy_task_run().files.valid)
    with (
        start_command("train", *files, "--run", tmp_path / "run") as process,
        open(tmp_path / "train.tsv", "wb", buffering=0) as pipe,
    ):
        pipe.write(b"a\ta\n")
        send_interrupt(process) if number == signal.SIGINT else process.send_signal(number)
        result = wait_for_exit(process)
    assert result.code == 128 + number and "Traceback" not in result.err
    assert result.err == (
        f"pellucid: {cause} before the first update: {tmp_path}/run has no checkpoint, and the same command trains "
        "from the start\n"
    )


def test_unread_columns_are_reported(tmp_path: Path) -> None:
    files, _, config = copy_task_run()
    wide = tmp_path / "wide.tsv"
    wide.write_text("".join(f"{line}\tmore\n" for line in files.train.read_text("utf-8").splitlines()), "utf-8")
    message = "the file has 3 columns; used are 1 as source, 2 as target"
    settings = [*training_flags(config), "--training.epochs", "1"]
    result = run_pellucid("train", wide, "--valid", files.valid, "--run", tmp_path / "run", *settings)
    assert result.code == 0 and result.err.count(message) == 1
    with_column = run_pellucid("train", wide, "--run", tmp_path / "other", *settings, "--target-column", "3")
    assert with_column.err.count("the file has 3 columns; used are 1 as source, 3 as target") == 1


def test_a_size_by_the_number_of_pairs_is_named(tmp_path: Path) -> None:
    """Pairs that are held out for validation count, as they do for the choice."""
    train = write_copy_files(tmp_path, num_training=40).train
    arguments = ("train", train, "--epochs", 0.01, "--no-pair-ngram", "--run")
    result = run_pellucid(*arguments, tmp_path / "run")
    assert result.code == 0
    held_out = read_examples(tmp_path / "run" / "validation.jsonl", DataConfig()).examples
    expected = (
        f"size base, the default for 40 pairs, of which {len(held_out)} are held out for validation, with batches"
    )
    assert f"{expected} of 8 examples\n" in result.err
    assert f"{train}: {40 - len(held_out)} examples" in result.err
    assert "the default for" not in run_pellucid(*arguments, tmp_path / "tiny", "--size", "tiny").err


@pytest.mark.parametrize("interface", ["command line", "Python"])
def test_the_first_line_repeats_the_estimate_of_the_measured_size(
    interface: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, run = write_copy_files(tmp_path).train, tmp_path / "run"
    if interface == "Python":
        settings = {"training": {"time_limit": "6s", "epochs": 90000.0, "pair_ngram": False}}
        pellucid.train(train, None, run, settings)
        lines = " ".join(capsys.readouterr().err.split())
    else:
        result = run_pellucid("train", train, "--run", run, "--time", "6s", "--epochs", "90000", "--no-pair-ngram")
        lines = " ".join(result.err.split())
    (estimate,) = re.findall(r"size \w+: .*? an estimated ([\d,]+) updates? of", lines)
    (start,) = re.findall(r"training until the time limit, [\d:]+ from now: (.*?; the maximum is [\d,]+ epochs)", lines)
    assert f"estimated {estimate}" in start and start.endswith("90,000 epochs")
