"""Training progress in the terminal, for one training or several in parallel.

A terminal shows a progress bar with speed and remaining time. Elsewhere, for instance in a file, a line is printed at
least every `MAX_SILENCE` seconds, before the first update at least every `MAX_PREPARATION_SILENCE` seconds.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pellucid.argument_checks import argument_error
from pellucid.config.durations import parse_duration
from pellucid.config.presets import LARGE_DATA
from pellucid.config.settings import DEFAULT_TASK, Size, TaskName
from pellucid.config.training_types import METRIC_TYPES, format_metric, is_custom_metric
from pellucid.data.readers import MAX_LISTED_BAD_LINES
from pellucid.errors import count_noun, quote
from pellucid.kernels.compilation import cache_folder
from pellucid.reporting.display_text import visible_message
from pellucid.reporting.terminal_width import environment_with_width
from pellucid.tasks.registry import get_task
from pellucid.training.events import (
    CallbackFailed,
    CallbackInterrupted,
    ConfidenceFitted,
    DataAugmented,
    FileRead,
    ModelBuilt,
    NetworkInitialized,
    PairNgramFitted,
    PairNgramWeighted,
    PairsMixedIn,
    RunEvent,
    SizeChosen,
    SizeMeasurementSkipped,
    SizeMeasurementStarted,
    TrainingStarted,
    TrainingStopped,
    UpdateCompleted,
    ValidationCompleted,
)
from pellucid.training.schedule import INITIAL_RESERVE
from pellucid.training.training_length import describe_updates

MAX_LISTED_SYMBOLS = 20
"""Maximum number of listed new symbols of each column."""
FEW_UPDATES = 1000
"""Number of updates below which the time limit of a training is called too short."""
CORRECTION_FRACTION = 0.8
"""Share of the estimated updates of a time limit below which a better estimate is printed when the updates begin."""
FEW_VALIDATION_PAIRS = 50
"""Number of validation pairs below which the confidence, or the weight of the pair n-gram model, is called rough."""
MAX_SILENCE = 30.0
"""Maximum number of seconds without a line, if the stream is not a terminal."""
MAX_PREPARATION_SILENCE = 60.0
"""The same before the first update, while a training reads its data and compiles kernels."""
MIN_PACE_UPDATES = 5
"""Number of updates of this process, after the first, from which the remaining time is estimated."""
POLL_SECONDS = 1.0
"""Seconds between two checks whether a line is due."""


@contextmanager
def training_progress(
    stream: TextIO | None = None,
    has_default_size: bool = False,
    started_at: float | None = None,
    size_chosen: SizeChosen | None = None,
) -> Iterator["ProgressReporter"]:
    """Yield a reporter that prints the events of one training, with a progress bar if the stream is a terminal.

    Args:
        stream: Output stream; None for standard error.
        has_default_size: Whether the number of training pairs has determined the size, as a line then says.
        started_at: Start of the command whose time the last line gives, as time of `time.monotonic`; None for no
            command.
        size_chosen: Choice of the size by this command before the training; None without one.

    Yields:
        The reporter; the bar is removed at the end of the block. Without a terminal, a thread prints a line at least
        every `MAX_SILENCE` seconds until then.

    Raises:
        ArgumentError: The stream is not a text stream.
    """
    _check_stream(stream)
    console = PipeSafeConsole(stream)
    bar = build_progress_bars(console)
    reporter = ProgressReporter(console, bar, has_default_size, started_at, size_chosen)
    with bar, _regular_lines(console, reporter.print_due_line):
        yield reporter


def _check_stream(stream: TextIO | None) -> None:
    """Raise `ArgumentError` for a value that is neither None nor has the methods of an output stream."""
    if stream is not None and not _is_output_stream(stream):
        raise argument_error("stream", "a text stream or None", stream)


def _is_output_stream(stream: Any) -> bool:  # noqa: ANN401 (a program may pass any object)
    """Return whether a value has the methods of an output stream."""
    try:
        return callable(stream.write) and callable(stream.flush)
    except Exception:  # methods of the value may raise anything
        return False


def build_progress_bars(console: "PipeSafeConsole") -> Progress:
    """Return an empty display of progress bars, one row per task; each task needs the field `state`, a text.

    Args:
        console: Console; the bars are shown only if it is a terminal, and disappear at the end.
    """
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>3.0f} % · {task.fields[state]}", markup=False),
        TextColumn("·", markup=False),
        TimeRemainingColumn(),
        TextColumn("remaining", markup=False),
        console=console,
        refresh_per_second=4,
        disable=not console.is_terminal,
        transient=True,
        # Output that is redirected to a file must not pass through the progress bars.
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
    )


def _standard_error() -> Any:  # noqa: ANN401 (a program may replace it by any object)
    """Return standard error; None if the program has none, as a service, or one that is not an output stream."""
    stream = sys.stderr
    return stream if _is_output_stream(stream) and not getattr(stream, "closed", False) else None


class PipeSafeConsole(Console):
    """Console that stops printing on a broken pipe, so that training continues, and that knows when a line is due."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Initialize; the silence begins now.

        Args:
            stream: Output stream; None for standard error.
            clock: Function that returns the time in seconds.
        """
        usable = _standard_error() if stream is None else stream
        super().__init__(
            file=usable or StringIO(),
            quiet=usable is None,
            highlight=False,
            soft_wrap=True,
            _environ=environment_with_width(),
        )
        self.clock = clock
        self.printed_at = clock()

    def line_is_due(self, max_silence: float = MAX_SILENCE) -> bool:
        """Return whether no line was printed for so long that the next check might be too late.

        Args:
            max_silence: Maximum number of seconds without a line.
        """
        return self.clock() - self.printed_at >= max_silence - POLL_SECONDS

    def report(self, line: str) -> None:
        """Print one line, with control characters replaced and without markup.

        Args:
            line: The line.
        """
        self.printed_at = self.clock()
        try:
            self.print(visible_message(line), markup=False, emoji=False)
        except (OSError, ValueError):  # the stream is full or closed: the work goes on without lines
            self.quiet = True

    def on_broken_pipe(self) -> None:
        """Print nothing from now on. Rich calls this method; its own version would end the program."""
        self.quiet = True


@contextmanager
def _regular_lines(console: PipeSafeConsole, print_due_line: Callable[[], None]) -> Iterator[None]:
    """Call a function every `POLL_SECONDS` seconds in a thread during the block, unless the console is a terminal."""
    if console.is_terminal:
        yield
        return
    ended = threading.Event()

    def print_lines() -> None:
        """Print due lines until the block ends."""
        while not ended.wait(POLL_SECONDS):
            print_due_line()

    thread = threading.Thread(target=print_lines, name="pellucid-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class TrainingPace:
    """Updates, loss, speed and remaining time of one training, from its events."""

    def __init__(self, start: TrainingStarted, now: float) -> None:
        """Initialize at the start of the training.

        Args:
            start: Start of the training, new or resumed.
            now: Time in seconds.
        """
        self.start = start
        self.started_at = now
        self.measured_from = now
        """Time from which the speed is measured."""
        self.progress = start.progress
        self.first_progress = start.progress
        """Progress at `measured_from`."""

    def record(self, event: UpdateCompleted | ValidationCompleted, now: float) -> None:
        """Record the progress. The pace is measured from the end of the first update, which is slower than the others.

        Args:
            event: Event of the training.
            now: Time in seconds.
        """
        if self.first_progress is self.start.progress and event.progress.update > self.first_progress.update:
            self.first_progress, self.measured_from = event.progress, now
        self.progress = event.progress

    def remaining_seconds(self, now: float) -> float | None:
        """Return the seconds until the maximum number of updates, at the mean speed since the first update.

        Args:
            now: Time in seconds.

        Returns:
            The seconds, validations included, at most those until the time limit; without one, None before
            `MIN_PACE_UPDATES` updates more than the first.
        """
        by_updates = self._seconds_of_updates(now)
        if self.start.seconds_left is None:
            return by_updates
        by_time = max(0.0, self.start.seconds_left - (now - self.started_at))
        return by_time if by_updates is None else min(by_updates, by_time)

    def _seconds_of_updates(self, now: float) -> float | None:
        """Return the seconds until the maximum number of updates; None before the speed is known."""
        done = self.progress.update - self.first_progress.update
        left = max(0, self.start.max_updates - self.progress.update)
        return (now - self.measured_from) / done * left if done >= min(MIN_PACE_UPDATES, left + 1) else None

    def describe(self, now: float) -> str:
        """Return the number of updates, the loss, the speed and the remaining time as text.

        Args:
            now: Time in seconds.
        """
        maximum = maximum_text(self.start.max_updates, self.start.has_equal_epochs)
        parts = [f"update {self.progress.update:,} of {maximum}"]
        remaining, seconds = self.remaining_seconds(now), now - self.measured_from
        if self.progress.update > self.start.progress.update:
            parts.append(f"loss {self.progress.training_loss:.3f}")
        if remaining is not None:
            if seconds > 0:
                samples = self.progress.samples - self.first_progress.samples
                parts.append(f"{samples / seconds:,.0f} examples per second")
            parts.append(f"at most {format_duration(remaining)} remaining")
        return " · ".join(parts)


def format_duration(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds: "0:01:05".

    Args:
        seconds: Number of seconds, at least 0.
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60:,}:{minutes % 60:02}:{rest:02}"


class ProgressReporter:
    """Prints the events of one training as lines, and shows its updates in a progress bar."""

    def __init__(
        self,
        console: PipeSafeConsole,
        bar: Progress,
        has_default_size: bool = False,
        started_at: float | None = None,
        size_chosen: SizeChosen | None = None,
    ) -> None:
        """Initialize without a row; the row appears when the training starts.

        Args:
            console: Console for the lines.
            bar: Display of progress bars on the same console.
            has_default_size: Whether the number of training pairs has determined the size.
            started_at: Start of the command, as time of the console's clock; None for no command.
            size_chosen: Choice of the size by this command; None without one, or before it.
        """
        self.console = console
        self.bar = bar
        self.started_at = started_at
        self.has_default_size = has_default_size
        self.task: TaskID | None = None
        self.phase = "reading the data"
        """Current activity before the first update."""
        self.is_finished = False
        """Whether the training had reached its end before."""
        self.size: Size | None = None
        """Size of the network; None before it is built."""
        self.size_chosen = size_chosen
        self.phase_started_at = console.clock()
        self.pace: TrainingPace | None = None

    def print_due_line(self) -> None:
        """Print the state of the training if no line was printed for about `MAX_SILENCE` seconds.

        Before the first update, the line names the current activity and its duration, after `MAX_PREPARATION_SILENCE`
        seconds.
        """
        now = self.console.clock()
        if self.pace is not None:
            if self.console.line_is_due():
                self._print_line(self.pace.describe(now))
        elif self.console.line_is_due(MAX_PREPARATION_SILENCE):
            self._print_line(f"{self.phase} ({now - self.phase_started_at:,.0f} s)")

    def report(self, event: RunEvent) -> None:
        """Print an event as a line or more. An update moves the bar, or prints a line if one is due without a terminal.

        A saved file is not reported.

        Args:
            event: Event of the training.
        """
        match event:
            case FileRead():
                self._report_reading(event)
            case DataAugmented() | PairsMixedIn():
                self._report_added_pairs(event)
            case SizeMeasurementStarted() | SizeChosen() | SizeMeasurementSkipped():
                self._report_size(event)
            case ModelBuilt():
                self._report_model(event)
            case TrainingStarted():
                self._report_start(event)
            case UpdateCompleted():
                self._report_step(event)
            case ValidationCompleted():
                self._report_validation(event)
            case (
                PairNgramFitted() | PairNgramWeighted() | ConfidenceFitted() | CallbackFailed() | CallbackInterrupted()
            ):
                self.is_finished = False  # a run without its last files was not finished
                self._print_line(fit_or_callback_line(event))
            case TrainingStopped():
                seconds = None if self.started_at is None else self.console.clock() - self.started_at
                self._print_line(stop_line(event, self.is_finished, self.size, seconds))

    def _print_line(self, text: str) -> None:
        """Print one line."""
        self.console.report(text)

    def _report_reading(self, event: FileRead) -> None:
        """Print the number of examples and the bad lines."""
        blank = f", {count_noun(event.num_blank_lines, 'blank line')} skipped" if event.num_blank_lines else ""
        bad = f", {count_noun(len(event.bad_lines), 'bad line')} skipped" if event.bad_lines else ""
        self._print_line(f"{event.path}: {count_noun(event.num_examples, 'example')}{blank}{bad}")
        for line in event.bad_lines[:MAX_LISTED_BAD_LINES]:
            self._print_line(f"  {line}")
        if len(event.bad_lines) > MAX_LISTED_BAD_LINES:
            num_others = len(event.bad_lines) - MAX_LISTED_BAD_LINES
            self._print_line(f"  … and {num_others:,} more; log.jsonl of the run lists the first ones")
        for note in filter(None, [event.text_note, event.note]):
            self._print_line(f"  note: {note}")

    def _report_size(self, event: SizeMeasurementStarted | SizeChosen | SizeMeasurementSkipped) -> None:
        """Print the chosen size; before, what is measured, and that kernels are compiled first."""
        if isinstance(event, SizeMeasurementSkipped):
            self._print_line(
                f"size {event.size}: {event.path} cannot be read twice, so no speed is measured; --size chooses another"
            )
            return
        if isinstance(event, SizeChosen):
            self.size_chosen = event
            self._print_line(size_line(event))
            return
        self._print_line(
            f"choosing the size for {event.time_limit}: {count_noun(event.num_examples, 'example')}, by the speed of a "
            "few updates"
        )
        if event.compiles:
            self._print_line(compilation_note())
        self.phase = f"{'compiling kernels, and ' if event.compiles else ''}choosing the size"
        self.phase_started_at = self.console.clock()

    def _report_added_pairs(self, event: DataAugmented | PairsMixedIn) -> None:
        """Print the number of synthetic or earlier pairs; of the latter, how many each epoch has, and the bad lines."""
        if isinstance(event, DataAugmented):
            noun, ending = ("copied target", "") if event.kind == "copy" else ("pair", " with random stems")
            self._print_line(
                f"augmentation: {count_noun(event.num_synthetic, noun)}{ending} in addition to "
                f"{count_noun(event.num_examples, 'example')}"
            )
            return
        bad = f", {count_noun(len(event.bad_lines), 'bad line')} skipped" if event.bad_lines else ""
        self._print_line(
            f"{event.path}: {count_noun(event.num_examples, 'earlier example')}{bad}; each epoch has "
            f"{event.num_per_epoch:,} of them and all {event.num_new_examples:,} others"
        )
        if event.num_validation:
            left_out = count_noun(event.num_validation, "further pair is", "further pairs are")
            self._print_line(f"  note: {left_out} left out, because the validation set has their sources")

    def _report_model(self, event: ModelBuilt) -> None:
        """Print the run folder, the number of parameters and the vocabulary sizes."""
        num_source, num_target = len(event.vocabularies.source.symbols), len(event.vocabularies.target.symbols)
        num_features = len(event.vocabularies.features.symbols)
        tags = f" and {count_noun(num_features, 'feature')}" if num_features else ""
        verb, self.is_finished, self.size = training_state(event), event.is_finished, event.size
        self._print_line(
            f"{event.folder}: {verb}, size {event.size}, {event.num_parameters:,} parameters, "
            f"{count_noun(num_source, 'source symbol')}{tags}, {count_noun(num_target, 'target symbol')}"
        )
        if self.has_default_size and not event.is_finished:
            self._print_line(default_size_line(event))
        for coverage in event.coverage:
            self._print_line(
                f"{coverage.path}: pretrained vectors for {coverage.num_found:,} of {coverage.num_symbols:,} "
                f"{coverage.side} symbols"
            )
        if event.initialized is not None:
            self._print_line(initialization_text(event.initialized))
        for sentence in event.warnings:
            self._print_line(f"note: {sentence}")
        if event.compiles:
            self._print_line(compilation_note())
        self.phase = "compiling kernels" if event.compiles else "preparing the first update"
        self.phase_started_at = self.console.clock()

    def _report_start(self, event: TrainingStarted) -> None:
        """Print how long the training takes at most, and show the progress bar."""
        self._print_line(start_line(event, self.size_chosen))
        self.task = self.bar.add_task("training", total=event.max_updates, completed=event.progress.update, state="")
        self.pace = TrainingPace(event, self.console.clock())

    def _report_step(self, event: UpdateCompleted) -> None:
        """Update the progress bar."""
        if self.pace is not None:
            self.pace.record(event, self.console.clock())
        if not self.console.is_terminal:
            self.print_due_line()
        if self.task is not None:
            state = f"loss {event.loss:.3f}"
            self.bar.update(self.task, completed=event.progress.update, state=state)

    def _report_validation(self, event: ValidationCompleted) -> None:
        """Print the validation metrics, and mark the best checkpoint so far."""
        self._print_line(validation_line(event, self.pace, self.console.clock()))


def training_state(event: ModelBuilt) -> str:
    """Return the state of a training at its start, in words: "resumed after update 1,200 of at most 2,265".

    Args:
        event: The network of the training.
    """
    if event.is_finished:
        return "finished run"
    if not event.resumed:
        return "new run"
    if not event.num_updates:
        return "resumed before its first update"
    maximum = "" if event.max_updates is None else f" of {maximum_text(event.max_updates, event.has_equal_epochs)}"
    return f"resumed after update {event.num_updates:,}{maximum}"


def maximum_text(max_updates: int, has_equal_epochs: bool) -> str:
    """Return the maximum number of updates in words: "at most 2,265", or "about 2,265" if it is approximate.

    Args:
        max_updates: Maximum number of updates.
        has_equal_epochs: False if batches are measured in tokens: epochs then differ in their number of batches.
    """
    return f"{'at most' if has_equal_epochs else 'about'} {max_updates:,}"


def format_epochs(epochs: float) -> str:
    """Return a number of epochs with a decimal, or two digits below 1: "1 epoch", "29.3 epochs", "0.05 epochs".

    Args:
        epochs: Number of epochs, at least 0.
    """
    number = _format_number(epochs)
    return f"{number} {'epoch' if number == '1' else 'epochs'}"


def _format_number(number: float) -> str:
    """Return a number with a decimal, or two digits below 1, but a whole number without one."""
    return f"{number:,.1f}".removesuffix(".0") if number >= 1 or not number else f"{number:.2g}"


def size_line(event: SizeChosen) -> str:
    """Describe the size that was chosen for a time limit: its epochs and updates, and why it is no larger one.

    Args:
        event: The choice.
    """
    fits = f"about {format_epochs(event.epochs)} in {event.time_limit}, an estimated"
    if event.epochs >= event.max_epochs:
        fits = f"the time of {event.time_limit} is enough for the maximum of {format_epochs(event.max_epochs)},"
    updates = count_noun(event.updates, "update")
    alone = "" if event.has_one_process else ", at the speed of one process alone on this machine"
    reason = f"; {event.reason}" if event.reason else ""
    return f"size {event.size}: {fits} {updates} of {event.batch_size} each{alone}{reason}"


def start_line(event: TrainingStarted, choice: SizeChosen | None) -> str:
    """Return the length of a training at its start: its epochs and updates, or those for which its time is enough.

    Args:
        event: Start of the training.
        choice: Choice of its size for a time limit; None for a given or a default size, and for a resumed training.
    """
    updates = describe_updates(event.max_updates, event.has_equal_epochs)
    most = f"training for at most {format_epochs(event.max_epochs)}, {updates}"
    if event.seconds_left is None:
        return most
    if event.seconds_left == 0 and not event.progress.update:
        return f"{most}, but the time limit has passed, so only one update is made"
    limit = f"until the time limit, {format_duration(event.seconds_left)} from now"
    if choice is None:
        return f"{most}, or {limit}"
    correction = correction_text(choice, event.seconds_left)
    if not correction and choice.epochs >= choice.max_epochs:
        return f"{most}, or {limit}"
    enough = correction or f"about {format_epochs(choice.epochs)}, an estimated {count_noun(choice.updates, 'update')}"
    return f"training {limit}: {enough}; the maximum is {format_epochs(event.max_epochs)}"


def correction_text(choice: SizeChosen, seconds_left: float) -> str:
    """Return the number of updates that the remaining time allows, if the choice has estimated many more.

    Reading the data and fitting the pair n-gram model may have taken longer than the estimate expects.

    Args:
        choice: The choice of the size.
        seconds_left: Seconds until the time limit when the updates begin.
    """
    seconds = seconds_left - INITIAL_RESERVE * parse_duration("training.time_limit", choice.time_limit)
    updates = max(1, round(seconds * choice.updates_per_second))
    if not choice.updates_per_second or updates >= CORRECTION_FRACTION * choice.updates:
        return ""
    return f"about {count_noun(updates, 'update')} at the measured speed, not the estimated {choice.updates:,}"


def default_size_line(event: ModelBuilt) -> str:
    """Describe a size that the number of training pairs has determined, with the batch size and a cheaper size.

    Args:
        event: The network of the training.
    """
    other = "; --size base takes less than half of the time" if event.size == "large" else ""
    if event.is_stream and event.task == DEFAULT_TASK and event.num_pairs >= LARGE_DATA:
        other = f"; from {LARGE_DATA:,} pairs of sequences on, --size large is the default for a file"
    return f"size {event.size}, {event.default_size_reason}, with batches of {event.batch_size}{other}"


def stop_line(
    event: TrainingStopped, was_finished: bool, size: Size | None = None, seconds: float | None = None
) -> str:
    """Return the reason of the end of a training, its best update, and the seconds of its updates and validations.

    Args:
        event: End of the training.
        was_finished: Whether an earlier training had reached this end, so that nothing was to be done.
        size: Size of the network. A smaller one is advised after few updates only if there is one of use.
        seconds: Wall-clock time of the command that has trained, which also reads data, fits and writes; None for no
            command.
    """
    progress = event.progress
    start = "nothing to do, because the training has already ended" if was_finished else "stopped"
    kept = (
        " (the initial network; no later validation was better)"
        if progress.best_validation_score and not progress.best_update
        else ""
    )
    is_short = progress.stop_cause == "time_limit" and progress.update < FEW_UPDATES
    smaller = " or a smaller --size" if size in ("base", "large") else ""
    short = (
        f"; note: {count_noun(progress.update, 'update')} in this time {'is' if progress.update == 1 else 'are'} few: "
        f"for more, train in another run folder with a longer --time{smaller}"
        if is_short
        else ""
    )
    times = f"{progress.seconds:,.0f} s of updates and validations"
    if seconds is not None and not was_finished:
        times += f", {seconds:,.0f} s for this command"
    return f"{start}: {event.reason}; best at update {progress.best_update:,}{kept}; {times}{short}"


def validation_line(event: ValidationCompleted, pace: TrainingPace | None, now: float, short: bool = False) -> str:
    """Return epoch, update, scores, time, and remaining time of a validation; "best" marks the best one so far.

    Args:
        event: The validation.
        pace: Pace of the training; None if its start is unknown.
        now: Time in seconds.
        short: Whether the scores are those of a progress bar.
    """
    progress = event.progress
    remaining = pace.remaining_seconds(now) if pace and not progress.is_finished else None
    left = "" if remaining is None else f" · at most {format_duration(remaining)} remaining"
    return (
        f"epoch {_format_number(event.epochs):>4} · update {progress.update:>6,} · "
        f"{format_scores(event.task, event.metrics, short)} · {progress.seconds:,.0f} s{left}"
        f"{' · best' if event.is_best else ''}"
    )


def pair_ngram_line(event: PairNgramFitted | PairNgramWeighted) -> str:
    """Describe a pair n-gram model, or its weight in predictions, with its scores on the validation set.

    Args:
        event: Event of the training.
    """
    if isinstance(event, PairNgramFitted) and not event.num_examples:
        reason = "the symbols are too many or too varied, or each target has over four symbols per source symbol"
        if event.are_all_too_long:
            reason = "every example is too long for it (--time limits the length as well)"
        return f"pair n-gram: no model, since {reason}; the network decodes alone"
    if isinstance(event, PairNgramFitted):
        limited = f"{event.num_examples:,} of " if event.num_examples < event.num_available else ""
        examples = f"{limited}{count_noun(event.num_available, 'example')}"
        sources = count_noun(event.num_sources, "validation source")
        score = f", exact match {event.exact_match:.2f} % on {sources} without the network" if event.num_sources else ""
        skipped = f"; it cannot read all symbols of {event.num_uncovered:,} of them" if event.num_uncovered else ""
        return f"pair n-gram: fitted to {examples}{score}{skipped}"
    if not event.num_sources:
        return "pair n-gram: weight 0, since no validation source has a symbol"
    sources = count_noun(event.num_sources, "different validation source")
    alone = (
        f"{event.network_exact_match:.2f} % by the network alone, "
        f"{event.pair_ngram_exact_match:.2f} % if the pair n-gram model alone ranks the outputs of both"
    )
    rough = "; the weight is a rough choice, because these sources are few"
    if not event.weight:
        return f"pair n-gram: no weight above 0 is chosen on {sources}: exact match {alone}"
    return (
        f"pair n-gram: weight {event.weight:g}, chosen on {sources} with the beam size of predict: exact match "
        f"{event.exact_match:.2f} % by both, {alone}"
        f"{rough if event.num_sources < FEW_VALIDATION_PAIRS else ''}"
        f"{'' if event.in_predictions else '; the search settings of this run do not use it'}"
    )


def initialization_text(event: NetworkInitialized) -> str:
    """Return the initial run, and the numbers of symbols that it lacks with the first of them.

    Args:
        event: Event of the initialization.
    """
    counts = [
        f"{len(symbols):,} new {noun if len(symbols) != 1 else noun.removesuffix('s')} "
        f"({' '.join(quote(symbol) for symbol in symbols[:MAX_LISTED_SYMBOLS])}"
        f"{' …' if len(symbols) > MAX_LISTED_SYMBOLS else ''})"
        for noun, symbols in (
            ("source symbols", event.new_source),
            ("target symbols", event.new_target),
            ("features", event.new_features),
            ("characters", event.new_characters),
        )
        if symbols
    ]
    return f"{event.run}: initial parameters and symbols; {', '.join(counts) or 'no new symbols'}"


def confidence_line(event: ConfidenceFitted) -> str:
    """Describe the fit of a confidence.

    Args:
        event: Event of the training.
    """
    rough = "; it is rough, because these pairs are few" if event.num_examples < FEW_VALIDATION_PAIRS else ""
    return (
        f"confidence: fitted to {count_noun(event.num_examples, 'validation pair')} in {event.seconds:.1f} s: "
        f"calibration error {event.confidence_error:.1f} % on these pairs; that of the probabilities is "
        f"{event.probability_error:.1f} %{rough}"
    )


def fit_or_callback_line(
    event: PairNgramFitted | PairNgramWeighted | ConfidenceFitted | CallbackFailed | CallbackInterrupted,
) -> str:
    """Describe the fit of a pair n-gram model or a confidence, or the failure or interruption by a callback.

    Args:
        event: Event of the training.
    """
    match event:
        case ConfidenceFitted():
            return confidence_line(event)
        case CallbackFailed() | CallbackInterrupted():
            return callback_line(event)
        case _:
            return pair_ngram_line(event)


def callback_line(event: CallbackFailed | CallbackInterrupted) -> str:
    """Describe the failure of a callback, or that it ended the training.

    Args:
        event: Event of the training.
    """
    if isinstance(event, CallbackInterrupted):
        return f"the callback {quote(event.callback)} interrupts the training, whose state is saved"
    return (
        f"note: the callback {quote(event.callback)} failed at {event.event}, and receives no further events; the "
        f"training continues: {event.reason}"
    )


def compilation_note() -> str:
    """Return a note that kernels are compiled before the first update: once per machine, or at each run if no cache
    folder is available.
    """
    frequency = "once, for this machine" if cache_folder() else "for every run, without a cache folder"
    return f"compiling kernels {frequency}: the first update takes one to three minutes of a core"


def format_scores(task: TaskName, metrics: Mapping[str, float], short: bool = False) -> str:
    """Return the validation metrics of a task as text: "exact match  93.10 % · … · loss 0.123".

    Args:
        task: Name of the task.
        metrics: Validation metrics by their keys in the log, with "loss"; others that are missing are left out.
        short: Whether to return only the most important metric and the loss.
    """
    validation_metrics = get_task(task).metrics.validation_metrics
    scores = [f"{metric.name} {metrics[metric.key]:6.2f} %" for metric in validation_metrics if metric.key in metrics]
    custom = [
        f"{name} {format_metric(name, value)}"
        for name, value in metrics.items()
        if is_custom_metric(name) and name in METRIC_TYPES
    ]
    return " · ".join([*scores[: 1 if short else None], *custom, f"loss {metrics['loss']:.3f}"])


@contextmanager
def multi_progress(stream: TextIO | None = None, has_default_size: bool = False) -> Iterator["MultiProgress"]:
    """Yield a reporter of several trainings, with a progress bar for each if the stream is a terminal.

    Args:
        stream: Output stream; None for standard error.
        has_default_size: Whether the number of training pairs has determined the size of all of them, as a line then
            says.

    Yields:
        The reporter; the bars are removed at the end of the block.

    Raises:
        ArgumentError: The stream is not a text stream.
    """
    _check_stream(stream)
    console = PipeSafeConsole(stream)
    bars = build_progress_bars(console)
    progress = MultiProgress(console, bars, has_default_size)
    with bars, _regular_lines(console, progress.print_due_lines):
        yield progress


class MultiProgress:
    """Reports several trainings: a progress bar for each in a terminal, and lines."""

    def __init__(self, console: PipeSafeConsole, bars: Progress, has_default_size: bool = False) -> None:
        """Initialize without rows.

        Args:
            console: Console for the lines.
            bars: Display of progress bars on the same console.
            has_default_size: Whether the number of training pairs has determined the size of all trainings.
        """
        self.console = console
        self.bars = bars
        self.has_default_size = has_default_size
        """Whether a line will say that the size is a default; False once it is printed."""
        self.tasks: dict[str, TaskID] = {}
        self.paces: dict[str, TrainingPace] = {}
        self.compiles = False
        self.finished = set[str]()
        self.sizes: dict[str, Size] = {}
        """Size of the network of each training that has begun."""

    def print_due_lines(self) -> None:
        """Print the state of each training if no line was printed for about `MAX_SILENCE` seconds."""
        paces = dict(self.paces)
        if self.console.line_is_due(MAX_SILENCE if paces else MAX_PREPARATION_SILENCE):
            now = self.console.clock()
            for name, pace in paces.items():
                self.print_line(f"{name}: {pace.describe(now)}")
            if not paces:
                self.print_line(f"still running{': compiling kernels' if self.compiles else ''}")

    @property
    def is_live(self) -> bool:
        """True if rows are shown; without a terminal, lines are printed instead."""
        return self.console.is_terminal

    def print_line(self, text: str) -> None:
        """Print one line above the rows.

        Args:
            text: The line.
        """
        self.console.report(text)

    def update_row(self, name: str, event: RunEvent) -> None:
        """Show an event in the row of a training, which appears at its start and disappears at its end.

        Args:
            name: Name of the training, unique among those shown.
            event: An event of it; events before its start have no effect.
        """
        match event:
            case TrainingStarted():
                self.remove_row(name)
                done = event.progress.update
                self.tasks[name] = self.bars.add_task(
                    visible_message(name), total=event.max_updates, completed=done, state=""
                )
                self.paces[name] = TrainingPace(event, self.console.clock())
            case UpdateCompleted() if name in self.tasks:
                self.paces[name].record(event, self.console.clock())
                self.bars.update(self.tasks[name], completed=event.progress.update)
            case ValidationCompleted() if name in self.tasks:
                self.paces[name].record(event, self.console.clock())
                self.bars.update(
                    self.tasks[name],
                    completed=event.progress.update,
                    state=format_scores(event.task, event.metrics, short=True),
                )
            case TrainingStopped():
                self.remove_row(name)

    def report(self, name: str, event: RunEvent) -> None:
        """Update the row of a training (`update_row`), and print a line for some events.

        These are the network's size with warnings, a pair n-gram model that could not be fitted, the weight of one, the
        end, and, without a terminal, each validation.

        Args:
            name: Name of the training, unique among those shown.
            event: An event of it.
        """
        self.update_row(name, event)
        match event:
            case ModelBuilt():
                self._report_model(name, event)
            case ValidationCompleted() if not self.is_live:
                line = validation_line(event, self.paces.get(name), self.console.clock(), short=True)
                self.print_line(f"{name}: {line}")
            case PairNgramFitted() if event.num_examples:
                pass  # its weight follows
            case (
                PairNgramFitted() | PairNgramWeighted() | ConfidenceFitted() | CallbackFailed() | CallbackInterrupted()
            ):
                self.finished.discard(name)  # a run without its last files was not finished
                self.print_line(f"{name}: {fit_or_callback_line(event)}")
            case TrainingStopped():
                self.print_line(f"{name}: {stop_line(event, name in self.finished, self.sizes.get(name))}")

    def _report_model(self, name: str, event: ModelBuilt) -> None:
        """Print the number of parameters, the initial run and the warnings; once, the size if it is a default."""
        if self.has_default_size and not event.is_finished:
            self.print_line(default_size_line(event))
            self.has_default_size = False
        self.print_line(f"{name}: {training_state(event)}, {event.num_parameters:,} parameters")
        self.sizes[name] = event.size
        if event.is_finished:
            self.finished.add(name)
        if event.initialized is not None:
            self.print_line(f"{name}: {initialization_text(event.initialized)}")
        for sentence in event.warnings:
            self.print_line(f"{name}: note: {sentence}")
        if event.compiles:
            self.compiles = True
            self.print_line(f"{name}: {compilation_note()}")

    def update_samples(self, name: str, done: int, total: int, state: str) -> None:
        """Show the progress of a training that has no events but counts samples; without a terminal, print a line.

        The row appears at the first call, and disappears when all samples are done.

        Args:
            name: Name of the training, unique among those shown.
            done: Number of samples so far.
            total: Total number of samples.
            state: Text at the end of the row.
        """
        if not self.is_live:
            self.print_line(f"{name}: {done:,} of {total:,} samples · {state}")
            return
        if name not in self.tasks:
            self.tasks[name] = self.bars.add_task(visible_message(name), total=total, state="")
        self.bars.update(self.tasks[name], completed=done, state=visible_message(state))
        if done >= total:
            self.remove_row(name)

    def remove_row(self, name: str) -> None:
        """Remove the row of a training, if it has one.

        Args:
            name: Name of the training.
        """
        self.paces.pop(name, None)
        if name in self.tasks:
            self.bars.remove_task(self.tasks.pop(name))
