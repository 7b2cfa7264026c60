"""Training progress is printed as lines in a file and as a progress bar on a terminal."""

import contextlib
import itertools
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import TextIO

import msgspec
import pytest
from trained_runs import copy_task_run, train_to_end, write_copy_files

from pellucid.config.settings import Size, TaskName
from pellucid.data.readers import MAX_LISTED_BAD_LINES, BadLine
from pellucid.data.vocabulary import Vocabularies, Vocabulary
from pellucid.reporting.progress import (
    MAX_PREPARATION_SILENCE,
    MAX_SILENCE,
    MultiProgress,
    PipeSafeConsole,
    ProgressReporter,
    TrainingPace,
    build_progress_bars,
    default_size_line,
    format_scores,
    start_line,
    stop_line,
    training_progress,
)
from pellucid.run_folder.progress import LOSS_WINDOW, Progress
from pellucid.training.events import (
    ConfidenceFitted,
    FileRead,
    FileSaved,
    ModelBuilt,
    PairNgramFitted,
    RunEvent,
    SizeChosen,
    SizeMeasurementSkipped,
    SizeMeasurementStarted,
    TrainingStarted,
    TrainingStopped,
    UpdateCompleted,
    ValidationCompleted,
)
from pellucid.training.training_length import max_updates

METRICS = {"exact_match": 12.5, "symbol_error_rate": 3.25, "symbol_accuracy": 90.0, "loss": 0.5}


def report_to_file(*events: RunEvent) -> str:
    """Return the lines that a file receives for the events."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as stream:
        with training_progress(stream) as reporter:
            for event in events:
                reporter.report(event)
        stream.seek(0)
        return stream.read()


def report_to_terminal(*events: RunEvent) -> str:
    """Return the characters that a terminal receives for the events."""
    reader, writer = os.openpty()
    with open(writer, "w", encoding="utf-8") as stream, training_progress(stream) as reporter:
        for event in events:
            reporter.report(event)
        reporter.bar.refresh()  # a busy machine may miss the automatic refresh
    pieces: list[bytes] = []
    with open(reader, "rb", buffering=0) as screen, contextlib.suppress(OSError):
        # A terminal returns a few kilobytes per read, and raises an error at the end.
        while piece := screen.read(1 << 16):
            pieces.append(piece)
    return b"".join(pieces).decode("utf-8")


def make_vocabulary(symbols: str) -> Vocabulary:
    return Vocabulary(tuple(symbols), (1,) * len(symbols))


def test_file_read_event_is_printed() -> None:
    assert report_to_file(FileRead(Path("a.tsv"), 12345, (), 0, "")) == "a.tsv: 12,345 examples\n"
    assert report_to_file(FileRead(Path("a.tsv"), 3, (), 2, "look here")) == (
        "a.tsv: 3 examples, 2 blank lines skipped\n  note: look here\n"
    )


def test_bad_lines_are_listed_up_to_a_limit() -> None:
    bad = [BadLine("a.tsv", number, "the target is empty") for number in range(1, MAX_LISTED_BAD_LINES + 4)]
    lines = report_to_file(FileRead(Path("a.tsv"), 3, bad, 0, "")).splitlines()
    assert lines[0] == f"a.tsv: 3 examples, {MAX_LISTED_BAD_LINES + 3} bad lines skipped"
    assert lines[1:-1] == [f"  {line}" for line in bad[:MAX_LISTED_BAD_LINES]]
    assert lines[-1] == "  … and 3 more; log.jsonl of the run lists the first ones"


def test_names_are_not_parsed_as_markup() -> None:
    name = "[red]runs[/red]/[link=x]:smile:"
    assert report_to_file(FileRead(Path(name), 1, (), 0, "")) == f"{name}: 1 example\n"


def test_model_built_event_is_printed() -> None:
    vocabularies = Vocabularies(make_vocabulary("abc"), make_vocabulary("xy"), make_vocabulary(""), 3, 2)
    assert report_to_file(ModelBuilt(Path("runs/a"), "base", 1234, vocabularies, resumed=False)) == (
        "runs/a: new run, size base, 1,234 parameters, 3 source symbols, 2 target symbols\n"
    )
    vocabularies_with_features = Vocabularies(
        make_vocabulary("abc"), make_vocabulary("xy"), make_vocabulary("NV"), 3, 2
    )
    assert (
        "resumed"
        in (text := report_to_file(ModelBuilt(Path("a"), "base", 5, vocabularies_with_features, resumed=True)))
        and "2 features" in text
    )


def test_a_resumed_training_names_its_update_and_its_maximum() -> None:
    vocabularies = Vocabularies(make_vocabulary("abc"), make_vocabulary("xy"), make_vocabulary(""), 3, 2)
    built = ModelBuilt(Path("a"), "base", 5, vocabularies, resumed=True, num_updates=1200, max_updates=2265)
    assert report_to_file(built).startswith("a: resumed after update 1,200 of at most 2,265, ")
    tokens = report_to_file(built._replace(has_equal_epochs=False))
    assert tokens.startswith("a: resumed after update 1,200 of about 2,265, ")
    assert report_to_file(built._replace(num_updates=0)).startswith("a: resumed before its first update, ")


def test_a_finished_run_is_not_called_resumed() -> None:
    vocabularies = Vocabularies(make_vocabulary("abc"), make_vocabulary("xy"), make_vocabulary(""), 3, 2)
    text = report_to_file(
        ModelBuilt(Path("a"), "base", 5, vocabularies, resumed=True, is_finished=True),
        TrainingStopped(Progress(seconds=61.4, best_update=1500), "all is done"),
    )
    assert text.startswith("a: finished run, size base, ") and "resumed" not in text
    end = (
        "nothing to do, because the training has already ended: all is done; best at update 1,500; 61 s of updates and"
    )
    assert end in text


def test_validation_and_end_are_printed() -> None:
    progress = Progress(epoch=2, batch=5, update=1500, seconds=61.4, best_update=1500, stop_cause="epochs")
    text = report_to_file(ValidationCompleted(progress, METRICS, True, [], epochs=3.0))
    assert re.search(r"epoch +3 · update +1,500 · exact match +12\.50 % · symbol error rate +3\.25 %", text)
    assert "loss 0.500 · 61 s" in text and text.endswith("· best\n")
    assert "best" not in report_to_file(ValidationCompleted(progress, METRICS, False, []))
    stopped = TrainingStopped(progress, "all is done")
    end = "stopped: all is done; best at update 1,500; 61 s of updates and validations"
    assert report_to_file(stopped) == f"{end}\n"
    assert stop_line(stopped, was_finished=False, seconds=75.6) == f"{end}, 76 s for this command"
    assert stop_line(stopped, was_finished=True, seconds=2.0).endswith("61 s of updates and validations")
    unchanged = TrainingStopped(
        Progress(seconds=61.4, update=1500, best_validation_score=(0.0, 0.0, 0.0)), "all is done"
    )
    assert "best at update 0 (the initial network; no later validation was better); 61 s of" in report_to_file(
        unchanged
    )


@pytest.mark.parametrize(
    ("task", "long_text", "short_text"),
    [
        ("transduce", "exact match  12.50 % · symbol error rate   3.25 % · loss 0.500", "exact match  12.50 %"),
        ("tag", "tag accuracy  90.00 % · sequence accuracy  12.50 % · loss 0.500", "tag accuracy  90.00 %"),
        ("classify", "accuracy  12.50 % · loss 0.500", "accuracy  12.50 %"),
        ("point", "accuracy  12.50 % · loss 0.500", "accuracy  12.50 %"),
    ],
)
def test_scores_have_the_names_of_the_task(task: TaskName, long_text: str, short_text: str) -> None:
    assert f" · {long_text} · " in report_to_file(ValidationCompleted(Progress(), METRICS, False, [], task))
    assert format_scores(task, METRICS, short=True) == f"{short_text} · loss 0.500"


def test_span_f1_is_first_for_bio_tags() -> None:
    metrics = {**METRICS, "span_f1": 87.5}
    assert (
        format_scores("tag", metrics)
        == "span F1  87.50 % · tag accuracy  90.00 % · sequence accuracy  12.50 % · loss 0.500"
    )
    assert format_scores("tag", metrics, short=True) == "span F1  87.50 % · loss 0.500"


def test_file_output_has_no_update_lines_and_no_escapes() -> None:
    steps = [UpdateCompleted(Progress(update=number), 0.1, 2.0, 0.1, 1.0) for number in (1, 2, 3)]
    text = report_to_file(TrainingStarted(Progress(), 1.0, 3), *steps, FileSaved(Path("a"), True))
    assert text == "training for at most 1 epoch, 3 updates\n"


def test_terminal_shows_a_transient_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    step = UpdateCompleted(Progress(update=2), 0.5, 1.25, 0.1, 1.0)
    text = report_to_terminal(TrainingStarted(Progress(), 1.0, 4), step)
    assert "training" in text and "50 %" in text and "loss 1.250" in text
    assert "\x1b[2K" in text.rpartition("training")[2], "the bar is wiped at the end"


def test_training_prints_one_line_per_validation(tmp_path: Path) -> None:
    events = train_to_end(write_copy_files(tmp_path), tmp_path / "run", copy_task_run().config)
    lines = report_to_file(*events).splitlines()
    assert lines[1].startswith("  note: ") and "repeat an earlier one exactly (lines 7, 9, 12, " in lines[1]
    assert lines[1].endswith(" more): each is trained on")
    others = [line for line in lines if "an earlier one exactly" not in line]
    assert [line.partition(":")[0].rpartition("/")[2] for line in others[:3]] == ["train.tsv", "dev.tsv", "  note"]
    assert sum(line.startswith("epoch") for line in lines) == 6
    assert lines[-1].startswith("stopped: the maximum number of epochs is reached; best at update ")


def test_standard_error_is_looked_up_at_each_call(capsys: pytest.CaptureFixture[str]) -> None:
    """Notebooks and tests replace sys.stderr after the import of the module."""
    with training_progress() as reporter:
        reporter.report(FileRead(Path("a.tsv"), 1, (), 0, ""))
    assert capsys.readouterr().err == "a.tsv: 1 example\n"


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def stream() -> Iterator[TextIO]:
    """A text file that is not a terminal."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        yield file


def written_text(stream: TextIO) -> str:
    """Return all that was written to a file."""
    stream.seek(0)
    return stream.read()


def make_update(number: int, loss: float = 2.0) -> UpdateCompleted:
    """Return an update of ten examples; each update of the window has the same loss."""
    loss_sum = loss * ((number - 1) % LOSS_WINDOW + 1)
    return UpdateCompleted(Progress(update=number, samples=10 * number, loss_sum=loss_sum), 0.1, loss, 0.1, 1.0)


def test_a_file_receives_a_line_at_least_every_thirty_seconds(stream: TextIO) -> None:
    """Updates every three seconds for ten minutes; validations count as lines."""
    clock, times = Clock(), [0.0]
    console = PipeSafeConsole(stream, clock)
    reporter = ProgressReporter(console, build_progress_bars(console))
    reporter.report(TrainingStarted(Progress(), 1.0, 400))
    for number in range(1, 201):
        clock.now += 3
        size = stream.tell()
        reporter.report(make_update(number))
        if number == 50:
            reporter.report(ValidationCompleted(Progress(update=50, samples=500, loss_sum=100), METRICS, True, []))
        if stream.tell() > size:
            times.append(clock.now - 100)
    assert max(after - before for before, after in itertools.pairwise(times)) <= MAX_SILENCE
    assert len(times) == 21, "no more lines than needed"
    lines = written_text(stream).splitlines()
    assert lines[1] == ("update 10 of at most 400 · loss 2.000 · 3 examples per second · at most 0:19:30 remaining")
    (validation,) = [line for line in lines if line.startswith("epoch")]
    assert validation.endswith(" · 0 s · at most 0:17:30 remaining · best")


def test_remaining_time_of_a_resumed_training_counts_its_own_updates() -> None:
    pace = TrainingPace(TrainingStarted(Progress(update=300, samples=3000), 1.0, 400), 50.0)
    assert pace.remaining_seconds(60.0) is None and pace.describe(60.0) == "update 300 of at most 400"
    pace.record(make_update(301), 300.0)  # slow: it waits for the kernels
    assert pace.remaining_seconds(300.0) is None and "remaining" not in pace.describe(300.0)
    pace.record(make_update(302), 310.0)  # a validation after it
    assert pace.remaining_seconds(320.0) is None
    pace.record(make_update(321, loss=1.0), 330.0)
    assert pace.remaining_seconds(340.0) == pytest.approx(2 * 79)
    assert pace.describe(340.0).endswith("loss 1.000 · 5 examples per second · at most 0:02:38 remaining")
    pace.record(make_update(450), 340.0)  # batches by tokens: the maximum is approximate
    assert pace.remaining_seconds(340.0) == 0


def test_lines_are_printed_while_no_event_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading, compilation and validation have no events: a thread prints their lines."""
    monkeypatch.setattr("pellucid.reporting.progress.POLL_SECONDS", 0.01)
    file, clock = tmp_path / "log", Clock()
    vocabularies = Vocabularies(make_vocabulary("abc"), make_vocabulary("xy"), make_vocabulary(""), 3, 2)
    with open(file, "w", encoding="utf-8") as stream, training_progress(stream) as reporter:
        reporter.console.clock, reporter.console.printed_at, reporter.phase_started_at = clock, clock(), clock()
        clock.now += MAX_PREPARATION_SILENCE
        wait_for_line(file, "reading the data (60 s)")
        reporter.report(ModelBuilt(Path("a"), "base", 5, vocabularies, resumed=False, compiles=True))
        for seconds in (60, 120):
            clock.now += MAX_PREPARATION_SILENCE
            wait_for_line(file, f"compiling kernels ({seconds} s)")
        clock.now += MAX_PREPARATION_SILENCE / 2
        reporter.print_due_line()
        wait_for_line(file, "compiling kernels (120 s)")
    assert not [thread for thread in threading.enumerate() if thread.name == "pellucid-progress"]


def wait_for_line(file: Path, line: str) -> None:
    """Wait until the last line of a file is the given one; fail after 20 seconds."""
    end = time.monotonic() + 20
    while file.read_text("utf-8").splitlines()[-1:] != [line]:
        assert time.monotonic() < end, file.read_text("utf-8")
        time.sleep(0.01)


def test_parallel_trainings_print_their_updates_to_a_file(stream: TextIO) -> None:
    clock = Clock()
    console = PipeSafeConsole(stream, clock)
    progress = MultiProgress(console, build_progress_bars(console))
    for name in ("seed-1", "seed-2"):
        progress.report(name, TrainingStarted(Progress(), 1.0, 400))
        progress.report(name, make_update(1))
        progress.report(name, make_update(101))
    clock.now += MAX_SILENCE / 2
    progress.print_due_lines()
    assert written_text(stream) == ""
    clock.now += MAX_SILENCE / 2
    progress.print_due_lines()
    assert written_text(stream).splitlines() == [
        f"{name}: update 101 of at most 400 · loss 2.000 · 33 examples per second · at most 0:01:30 remaining"
        for name in ("seed-1", "seed-2")
    ]
    progress.report("seed-1", TrainingStopped(Progress(update=400, stop_cause="epochs", best_update=400), "done"))
    progress.report("seed-2", TrainingStopped(Progress(update=400, stop_cause="epochs", best_update=400), "done"))
    clock.now += MAX_PREPARATION_SILENCE
    progress.print_due_lines()
    assert written_text(stream).splitlines()[-1] == "still running"


def test_a_member_without_a_pair_ngram_model_is_named(stream: TextIO) -> None:
    """Regression test: a training alone said that no model could be fitted, the members of an ensemble did not."""
    console = PipeSafeConsole(stream)
    progress = MultiProgress(console, build_progress_bars(console))
    progress.report("seed-1", PairNgramFitted(40, 40, 0.0, 0))
    progress.report("seed-2", PairNgramFitted(0, 40, 0.0, 0))
    (line,) = written_text(stream).splitlines()
    assert line.startswith("seed-2: pair n-gram: no model, since ") and line.endswith("the network decodes alone")


def test_validations_of_parallel_trainings_have_epoch_and_remaining_time(stream: TextIO) -> None:
    clock = Clock()
    console = PipeSafeConsole(stream, clock)
    progress = MultiProgress(console, build_progress_bars(console))
    progress.report("seed-1", TrainingStarted(Progress(), 1.0, 400))
    for number in range(1, 52):
        progress.report("seed-1", make_update(number))
        clock.now += 3
    state = Progress(epoch=2, batch=5, update=51, samples=510, seconds=61.4)
    progress.report("seed-1", ValidationCompleted(state, METRICS, True, [], epochs=3.0))
    (line,) = written_text(stream).splitlines()
    assert re.fullmatch(
        r"seed-1: epoch +3 · update +51 · exact match +12\.50 % · loss 0\.500 · 61 s · "
        r"at most 0:17:48 remaining · best",
        line,
    ), line


def test_the_bar_shows_the_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    text = report_to_terminal(TrainingStarted(Progress(), 1.0, 4), make_update(1), make_update(2))
    assert re.search(r"\d:\d\d:\d\d", text) and "remaining" in text
    assert "examples per second" not in text


class FullStream(StringIO):
    """Stream that cannot be written."""

    def write(self, _: str) -> int:
        raise OSError(28, "No space left on device")


def closed_stream() -> StringIO:
    """Return a closed stream."""
    stream = StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize(
    "stream", [None, FullStream(), closed_stream(), object()], ids=["none", "full", "closed", "other"]
)
def test_a_training_goes_on_without_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stream: object
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with training_progress() as reporter:
        reporter.report(TrainingStarted(Progress(), 1.0, 400))
        reporter.report(make_update(1))
        reporter.report(ValidationCompleted(Progress(update=50, samples=500, loss_sum=100), METRICS, True, []))
    assert capsys.readouterr().out == "", "progress is not written to standard output"


def test_the_size_for_a_time_limit_is_printed() -> None:
    chosen = SizeChosen("small", "45s", 29.344, 30.0, 200.0, "32 examples", "base", 5000.0)
    line = "size small: about 29.3 epochs in 45s, an estimated 5,869 updates of 32 examples each"
    reason = "; size base would make fewer than 5,000 updates in this time\n"
    assert report_to_file(chosen) == line + reason
    assert report_to_file(chosen._replace(next_larger_size=None)) == f"{line}\n"
    # Regression test: only size base was said to make fewer than 5,000 updates.
    assert report_to_file(chosen._replace(epochs=9.34)) == (
        "size small: about 9.3 epochs in 45s, an estimated 1,868 updates of 32 examples each; even small makes fewer "
        "than 5,000 updates in this time\n"
    )
    long = chosen._replace(time_limit="1h", epochs=5000.0, max_epochs=57.0, next_larger_size=None)
    line = "size small: the time of 1h is enough for the maximum of"  # regression test: "about 5,000.0 epochs in 1h"
    assert report_to_file(long) == f"{line} 57 epochs, 11,400 updates of 32 examples each\n"
    assert report_to_file(long._replace(max_epochs=1.0)) == f"{line} 1 epoch, 200 updates of 32 examples each\n"
    # Regression test: the size line rounded numbers of updates and epochs, the training rounded them up.
    part = long._replace(max_epochs=1.25, updates_per_epoch=25.0)
    assert report_to_file(part) == f"{line} 1.2 epochs, 32 updates of 32 examples each\n"
    training = report_to_file(TrainingStarted(Progress(), 1.25, max_updates(1.25, 25.0)))
    assert training == "training for at most 1.2 epochs, 32 updates\n"
    # With batches by tokens, epochs differ in their number of batches.
    tokens = TrainingStarted(Progress(), 1.25, max_updates(1.25, 25.0), has_equal_epochs=False)
    assert report_to_file(tokens) == "training for at most 1.2 epochs, about 32 updates\n"
    started = report_to_file(SizeMeasurementStarted("45s", 7600, compiles=False))
    assert started == "choosing the size for 45s: 7,600 examples, by the speed of a few updates\n"
    compiling = report_to_file(SizeMeasurementStarted("45s", 7600, compiles=True))
    assert compiling.startswith(started + "compiling kernels ")
    parallel = report_to_file(chosen._replace(has_one_process=False))
    assert f"32 examples each, at the speed of one process alone on this machine{reason}" in parallel
    few = chosen._replace(epochs=1.0, next_larger_size=None, needed_updates=1200.0)
    assert report_to_file(few).endswith("; even small makes fewer than 1,200 updates in this time\n")
    skipped = report_to_file(SizeMeasurementSkipped("base", Path("pipe")))
    assert skipped == "size base: pipe cannot be read twice, so no speed is measured; --size chooses another\n"


def test_a_time_limit_that_allows_hardly_any_update_is_called_too_short() -> None:
    """Regression test: nothing but "0:00:00 from now" was printed."""
    over = report_to_file(TrainingStarted(Progress(), 180.0, 2340, seconds_left=0.0))
    assert over.endswith("2,340 updates, but the time limit has passed, so only one update is made\n")
    assert "0:00:05 from now" in report_to_file(TrainingStarted(Progress(), 180.0, 2340, seconds_left=5.0))
    progress = Progress(update=1, batch=1, best_update=1, stop_cause="time_limit")
    assert "; note: 1 update in this time is few: for more, train" in report_to_file(TrainingStopped(progress, ""))
    assert "999 updates in this time are few" in report_to_file(
        TrainingStopped(msgspec.structs.replace(progress, epoch=9, update=999), "")
    )
    for changes in ({"update": 1000}, {"stop_cause": "epochs"}):
        assert "note" not in report_to_file(TrainingStopped(msgspec.structs.replace(progress, **changes), ""))


@pytest.mark.parametrize(
    ("size", "end"),
    [
        ("base", "size base, the default for 4,999 training pairs, with batches of 16 examples\n"),
        (
            "large",
            "size large, the default for 4,999 training pairs (from 5,000 on), with batches of 16 examples; "
            "--size base takes less than half of the time\n",
        ),
    ],
)
def test_a_default_size_is_named_with_its_batch_size(size: Size, end: str, stream: TextIO) -> None:
    """Regression test: without --time, nothing said why the size is `large`, nor that `base` is cheaper."""
    symbols = make_vocabulary("ab")
    vocabularies = Vocabularies(symbols, symbols, make_vocabulary(""), 3, 2)
    built = ModelBuilt(Path("run"), size, 5, vocabularies, False, num_pairs=4999, batch_size="16 examples")
    assert "default" not in report_to_file(built)
    for is_finished in (False, True):
        console = PipeSafeConsole(stream, Clock())
        ProgressReporter(console, build_progress_bars(console), True).report(built._replace(is_finished=is_finished))
    assert [line for line in written_text(stream).splitlines(keepends=True) if "default" in line] == [end]
    stream.truncate(0)
    console = PipeSafeConsole(stream, Clock())
    progress = MultiProgress(console, build_progress_bars(console), True)
    for name in ("seed-1", "seed-2"):
        progress.report(name, built)
    assert written_text(stream).lstrip("\0").startswith(end) and written_text(stream).count("default") == 1


def test_the_default_size_of_a_pipe_does_not_follow_the_number_of_its_pairs() -> None:
    """Regression test: the same 5,000 pairs were said to have the default `large` in a file and `base` in a pipe."""
    symbols = make_vocabulary("ab")
    vocabularies = Vocabularies(symbols, symbols, make_vocabulary(""), 3, 2)
    built = ModelBuilt(
        Path("run"), "base", 5, vocabularies, False, num_pairs=5000, num_held_out=500, batch_size="16 examples"
    )
    line = "size base, the default for a pipe, which cannot be counted before it is read; it has"
    assert default_size_line(built._replace(is_stream=True)) == (
        f"{line} 5,000 pairs, of which 500 are held out for validation, with batches of 16 examples; from 5,000 pairs "
        "of sequences on, --size large is the default for a file"
    )
    few = default_size_line(built._replace(is_stream=True, num_pairs=10, num_held_out=0))
    assert few == f"{line} 10 training pairs, with batches of 16 examples"


def test_an_estimate_of_updates_is_corrected_when_less_time_is_left() -> None:
    """Regression test: 222 updates were announced, one second was left after the preparation, and 1 was made."""
    choice = SizeChosen("small", "20s", 2.0, 60.0, 111.0, "8 examples", None, 5000.0, updates_per_second=25.0)
    start = TrainingStarted(Progress(), 60.0, 6660, seconds_left=2.5)
    end = "at the measured speed, not the estimated 222; the maximum is 60 epochs\n"
    assert report_to_file(choice, start).endswith(
        f"\ntraining until the time limit, 0:00:02 from now: about 12 updates {end}"
    )
    assert report_to_file(choice, start._replace(seconds_left=1.0)).endswith(f": about 1 update {end}")
    assert start_line(start, choice._replace(epochs=60.0)).endswith(
        ": about 12 updates at the measured speed, not the estimated 6,660; the maximum is 60 epochs"
    )


def test_the_first_lines_of_a_training_with_a_time_limit_agree() -> None:
    """Regression test: after the epochs for which the time is enough, the maximum was announced as the length."""
    choice = SizeChosen("small", "20s", 2.0, 60.0, 111.0, "8 examples", None, 5000.0, updates_per_second=25.0)
    start = TrainingStarted(Progress(), 60.0, 6660, seconds_left=11.0)
    size, training = report_to_file(choice, start).splitlines()
    assert size.startswith("size small: about 2 epochs in 20s, an estimated 222 updates of 8 examples each; ")
    left = "until the time limit, 0:00:11 from now"
    assert training == f"training {left}: about 2 epochs, an estimated 222 updates; the maximum is 60 epochs"
    assert start_line(start, choice._replace(updates_per_second=0.0)) == training
    few = start_line(start, choice._replace(epochs=0.1))
    assert few == f"training {left}: about 0.1 epochs, an estimated 12 updates; the maximum is 60 epochs"
    for each in (None, choice._replace(epochs=61.0, updates_per_second=1e6)):
        assert start_line(start, each) == f"training for at most 60 epochs, 6,660 updates, or {left}"
    assert start_line(start._replace(seconds_left=None), None) == "training for at most 60 epochs, 6,660 updates"


@pytest.mark.parametrize(
    ("size", "advice"),
    [("tiny", ""), ("small", ""), ("base", " or a smaller --size"), ("large", " or a smaller --size")],
)
def test_a_smaller_size_is_advised_only_where_there_is_one(size: Size, advice: str, stream: TextIO) -> None:
    """Regression test: the note advised a smaller size after `small`, the smallest that --time chooses."""
    symbols = make_vocabulary("ab")
    built = ModelBuilt(Path("run"), size, 5, Vocabularies(symbols, symbols, make_vocabulary(""), 3, 2), resumed=False)
    stopped = TrainingStopped(Progress(update=9, batch=9, best_update=9, stop_cause="time_limit"), "")
    end = f"with a longer --time{advice}\n"
    assert report_to_file(built, stopped).endswith(end)
    console = PipeSafeConsole(stream, Clock())
    progress = MultiProgress(console, build_progress_bars(console))
    progress.report("seed-1", built)
    progress.report("seed-1", stopped)
    assert written_text(stream).endswith(end)


@pytest.mark.parametrize(("examples", "is_rough"), [(1, True), (49, True), (50, False), (2000, False)])
def test_a_confidence_of_few_pairs_is_called_rough(examples: int, is_rough: bool) -> None:
    """Regression test: 9 pairs gave a mean confidence of 14.5 % with 6.4 % of the outputs correct, without a note."""
    line = report_to_file(ConfidenceFitted(examples, 5.0, 20.0, 1.0, 0.5))
    assert line.startswith(f"confidence: fitted to {examples:,} validation pair{'s' * (examples > 1)} in 0.5 s: ")
    assert line.endswith("; it is rough, because these pairs are few\n" if is_rough else "is 20.0 %\n")


@pytest.mark.parametrize(
    ("epochs", "text"),
    [(0.0, "0"), (0.02, "0.02"), (0.05, "0.05"), (0.5, "0.5"), (1.0, "1"), (3.25, "3.2"), (57.0, "57")],
)
def test_a_part_of_an_epoch_is_printed_as_such(epochs: float, text: str) -> None:
    """Regression test: a validation after half an epoch was said to be in epoch 1."""
    progress = Progress(batch=5, update=50)
    line = report_to_file(ValidationCompleted(progress, METRICS, False, [], epochs=epochs))
    assert line.startswith(f"epoch {text:>4} · update     50 · "), line
