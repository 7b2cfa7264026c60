"""Progress of one training, or of several side by side, in the terminal."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pellucid.config.settings import Task
from pellucid.kernels.cache import cache_folder
from pellucid.reporting.display_text import visible_message
from pellucid.tasks.registry import get_task
from pellucid.training.loop import Started, Stepped, Stopped, Validated
from pellucid.training.session import Built, Read, RunEvent
from pellucid.training.training_data import Augmented

MAX_LISTED_LINES = 5
"""Bad lines that are listed one by one."""


@contextmanager
def training_progress(stream: TextIO | None = None) -> Iterator["ProgressReporter"]:
    """A teller of training events to a stream (standard error), with a progress bar in the block on a terminal."""
    console = PipeSafeConsole(file=stream or sys.stderr, highlight=False, soft_wrap=True)
    bar = build_progress_bars(console)
    with bar:
        yield ProgressReporter(console, bar)


def build_progress_bars(console: "PipeSafeConsole") -> Progress:
    """Bars for trainings, a row each, shown where the console is a terminal."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>3.0f} % · {task.fields[state]}", markup=False),
        TimeRemainingColumn(),
        console=console,
        refresh_per_second=4,
        disable=not console.is_terminal,
        transient=True,
        # What goes to a file is not to be caught by the bars' terminal.
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
    )


class PipeSafeConsole(Console):
    """A console that falls silent when nobody reads it any more: the training goes on."""

    def report(self, line: str) -> None:
        """Write one line; nothing in it is taken for markup, or acts on the terminal."""
        self.print(visible_message(line), markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Say nothing from here on."""
        self.quiet = True


class ProgressReporter:
    """Tells each event to a console."""

    def __init__(self, console: PipeSafeConsole, bar: Progress) -> None:
        """Begin with an empty bar."""
        self.console = console
        self.bar = bar
        self.task: TaskID | None = None

    def report(self, event: RunEvent) -> None:
        """Say what a person wants to know of an event."""
        match event:
            case Read():
                self._report_reading(event)
            case Augmented():
                made = "copied words" if event.kind == "copy" else "pairs with made-up stems"
                self._print_line(f"augmentation: {event.made:,} {made} beside {event.examples:,} examples")
            case Built():
                self._report_model(event)
            case Started():
                self._report_start(event)
            case Stepped():
                self._report_step(event)
            case Validated():
                self._report_validation(event)
            case Stopped():
                best = f"best at update {event.progress.best_update:,}"
                self._print_line(f"stopped: {event.progress.finished}; {best}, {event.progress.seconds:,.0f} s")

    def _print_line(self, text: str) -> None:
        """One line."""
        self.console.report(text)

    def _report_reading(self, event: Read) -> None:
        """How many examples, and every line that is none."""
        blank = f", {event.blank:,} blank lines passed over" if event.blank else ""
        bad = f", {len(event.bad):,} bad lines skipped" if event.bad else ""
        self._print_line(f"{event.path}: {event.examples:,} examples{blank}{bad}")
        for line in event.bad[:MAX_LISTED_LINES]:
            self._print_line(f"  {line}")
        if len(event.bad) > MAX_LISTED_LINES:
            self._print_line(f"  … and {len(event.bad) - MAX_LISTED_LINES:,} more")
        if event.note:
            self._print_line(f"  note: {event.note}")

    def _report_model(self, event: Built) -> None:
        """What will be trained, and where."""
        source, target = len(event.vocabularies.source.symbols), len(event.vocabularies.target.symbols)
        beside = len(event.vocabularies.features.symbols)
        tags = f" and {beside} features" if beside else ""
        verb = "resumed" if event.resumed else "new run"
        self._print_line(
            f"{event.folder}: {verb}, {event.parameters:,} parameters, "
            f"{source} source symbols{tags}, {target} target symbols"
        )
        for each in event.covered:
            self._print_line(f"{each.path}: vectors of {each.found:,} of {each.symbols:,} {each.side} symbols")
        for sentence in event.foreseen:
            self._print_line(f"note: {sentence}")
        if event.compiles:
            self._print_line(compilation_note())

    def _report_start(self, event: Started) -> None:
        """How long it will take at most."""
        self._print_line(f"training for {event.epochs:g} epochs at most, {event.updates:,} updates")
        self.task = self.bar.add_task("training", total=event.updates, completed=event.progress.update, state="")

    def _report_step(self, event: Stepped) -> None:
        """Move the bar."""
        if self.task is not None:
            state = f"loss {event.loss:.3f}"
            self.bar.update(self.task, completed=event.progress.update, state=state)

    def _report_validation(self, event: Validated) -> None:
        """The scores, and whether they are the best so far."""
        progress = event.progress
        self._print_line(
            f"epoch {progress.epoch + (1 if progress.batch else 0):>3} · update {progress.update:>6,} · "
            f"{format_scores(event.task, event.metrics)} · {progress.seconds:,.0f} s{' · best' if event.best else ''}"
        )


def compilation_note() -> str:
    """Why the first update is late."""
    kept = "for this machine, once" if cache_folder() else "each time, for want of a folder to keep them in"
    return f"compiling kernels {kept}: up to a minute before the first update"


def format_scores(task: Task, metrics: Mapping[str, float], few: bool = False) -> str:
    """What a validation found, in words of the task; or the first of it and the loss."""
    followed = get_task(task).metrics.validation_metrics
    found = [f"{each.name} {metrics[each.key]:6.2f} %" for each in followed if each.key in metrics]
    return " · ".join([*found[: 1 if few else None], f"loss {metrics['loss']:.3f}"])


@contextmanager
def multi_progress(stream: TextIO | None = None) -> Iterator["MultiProgress"]:
    """Rows on a stream (standard error), alive within the block where it is a terminal."""
    console = PipeSafeConsole(file=stream or sys.stderr, highlight=False, soft_wrap=True)
    bars = build_progress_bars(console)
    with bars:
        yield MultiProgress(console, bars)


class MultiProgress:
    """A row for each training under way, by its name."""

    def __init__(self, console: PipeSafeConsole, bars: Progress) -> None:
        """Begin without a row."""
        self.console = console
        self.bars = bars
        self.tasks: dict[str, TaskID] = {}

    @property
    def is_live(self) -> bool:
        """Whether rows are seen: without a terminal, lines have to tell what they would."""
        return self.console.is_terminal

    def print_line(self, text: str) -> None:
        """One line above the rows."""
        self.console.report(text)

    def update_row(self, name: str, event: RunEvent) -> None:
        """Bring the row of a training up to an event."""
        match event:
            case Started():
                self.remove_row(name)
                done = event.progress.update
                self.tasks[name] = self.bars.add_task(
                    visible_message(name), total=event.updates, completed=done, state=""
                )
            case Stepped() if name in self.tasks:
                self.bars.update(self.tasks[name], completed=event.progress.update)
            case Validated() if name in self.tasks:
                self.bars.update(
                    self.tasks[name],
                    completed=event.progress.update,
                    state=format_scores(event.task, event.metrics, few=True),
                )
            case Stopped():
                self.remove_row(name)

    def report(self, name: str, event: RunEvent) -> None:
        """Bring a training's row up to an event, and say what a person wants to know of it."""
        self.update_row(name, event)
        match event:
            case Built():
                self.print_line(f"{name}: {'resumed' if event.resumed else 'new run'}, {event.parameters:,} parameters")
                for sentence in event.foreseen:
                    self.print_line(f"{name}: note: {sentence}")
                if event.compiles:
                    self.print_line(f"{name}: {compilation_note()}")
            case Validated() if not self.is_live:
                best = " · best" if event.best else ""
                self.print_line(
                    f"{name}: update {event.progress.update:,} · {format_scores(event.task, event.metrics, few=True)}{best}"
                )
            case Stopped():
                best = f"best at update {event.progress.best_update:,}"
                self.print_line(f"{name}: stopped: {event.progress.finished}; {best}, {event.progress.seconds:,.0f} s")

    def update_samples(self, name: str, done: int, total: int, state: str) -> None:
        """Bring a row of another training than a run's up to where it is, or say so."""
        if not self.is_live:
            self.print_line(f"{name}: {done:,} of {total:,} samples · {state}")
            return
        if name not in self.tasks:
            self.tasks[name] = self.bars.add_task(visible_message(name), total=total, state="")
        self.bars.update(self.tasks[name], completed=done, state=visible_message(state))
        if done >= total:
            self.remove_row(name)

    def remove_row(self, name: str) -> None:
        """Take a row away."""
        if name in self.tasks:
            self.bars.remove_task(self.tasks.pop(name))
