"""Progress of one training, or of several side by side, in the terminal."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pellucid.config.settings import Task
from pellucid.kernels.cache import cache_folder
from pellucid.reporting.visible import visible_message
from pellucid.tasks.registry import task_named
from pellucid.training.loop import Started, Stepped, Stopped, Validated
from pellucid.training.session import Built, Read, RunEvent
from pellucid.training.training_data import Augmented

LISTED = 5
"""Bad lines that are listed one by one."""


@contextmanager
def shown(stream: TextIO | None = None) -> Iterator["Teller"]:
    """A teller of training events to a stream (standard error), with a progress bar in the block on a terminal."""
    console = Telling(file=stream or sys.stderr, highlight=False, soft_wrap=True)
    bar = bars_on(console)
    with bar:
        yield Teller(console, bar)


def bars_on(console: "Telling") -> Progress:
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


class Telling(Console):
    """A console that falls silent when nobody reads it any more: the training goes on."""

    def tell(self, line: str) -> None:
        """Write one line; nothing in it is taken for markup, or acts on the terminal."""
        self.print(visible_message(line), markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Say nothing from here on."""
        self.quiet = True


class Teller:
    """Tells each event to a console."""

    def __init__(self, console: Telling, bar: Progress) -> None:
        """Begin with an empty bar."""
        self.console = console
        self.bar = bar
        self.task: TaskID | None = None

    def tell(self, event: RunEvent) -> None:
        """Say what a person wants to know of an event."""
        match event:
            case Read():
                self._tell_read(event)
            case Augmented():
                made = "copied words" if event.kind == "copy" else "pairs with made-up stems"
                self._print(f"augmentation: {event.made:,} {made} beside {event.examples:,} examples")
            case Built():
                self._tell_built(event)
            case Started():
                self._tell_started(event)
            case Stepped():
                self._tell_stepped(event)
            case Validated():
                self._tell_validated(event)
            case Stopped():
                best = f"best at update {event.progress.best_update:,}"
                self._print(f"stopped: {event.progress.finished}; {best}, {event.progress.seconds:,.0f} s")

    def _print(self, text: str) -> None:
        """One line."""
        self.console.tell(text)

    def _tell_read(self, event: Read) -> None:
        """How many examples, and every line that is none."""
        blank = f", {event.blank:,} blank lines passed over" if event.blank else ""
        bad = f", {len(event.bad):,} bad lines skipped" if event.bad else ""
        self._print(f"{event.path}: {event.examples:,} examples{blank}{bad}")
        for line in event.bad[:LISTED]:
            self._print(f"  {line}")
        if len(event.bad) > LISTED:
            self._print(f"  … and {len(event.bad) - LISTED:,} more")
        if event.note:
            self._print(f"  note: {event.note}")

    def _tell_built(self, event: Built) -> None:
        """What will be trained, and where."""
        source, target = len(event.vocabularies.source.symbols), len(event.vocabularies.target.symbols)
        beside = len(event.vocabularies.features.symbols)
        tags = f" and {beside} features" if beside else ""
        verb = "resumed" if event.resumed else "new run"
        self._print(
            f"{event.folder}: {verb}, {event.parameters:,} parameters, "
            f"{source} source symbols{tags}, {target} target symbols"
        )
        for each in event.covered:
            self._print(f"{each.path}: vectors of {each.found:,} of {each.symbols:,} {each.side} symbols")
        for sentence in event.foreseen:
            self._print(f"note: {sentence}")
        if event.compiles:
            self._print(compiling())

    def _tell_started(self, event: Started) -> None:
        """How long it will take at most."""
        self._print(f"training for {event.epochs:g} epochs at most, {event.updates:,} updates")
        self.task = self.bar.add_task("training", total=event.updates, completed=event.progress.update, state="")

    def _tell_stepped(self, event: Stepped) -> None:
        """Move the bar."""
        if self.task is not None:
            state = f"loss {event.loss:.3f}"
            self.bar.update(self.task, completed=event.progress.update, state=state)

    def _tell_validated(self, event: Validated) -> None:
        """The scores, and whether they are the best so far."""
        progress = event.progress
        self._print(
            f"epoch {progress.epoch + (1 if progress.batch else 0):>3} · update {progress.update:>6,} · "
            f"{scores(event.task, event.metrics)} · {progress.seconds:,.0f} s{' · best' if event.best else ''}"
        )


def compiling() -> str:
    """Why the first update is late."""
    kept = "for this machine, once" if cache_folder() else "each time, for want of a folder to keep them in"
    return f"compiling kernels {kept}: up to a minute before the first update"


def scores(task: Task, metrics: Mapping[str, float], few: bool = False) -> str:
    """What a validation found, in words of the task; or the first of it and the loss."""
    followed = task_named(task).metrics.followed
    found = [f"{each.name} {metrics[each.key]:6.2f} %" for each in followed if each.key in metrics]
    return " · ".join([*found[: 1 if few else None], f"loss {metrics['loss']:.3f}"])


@contextmanager
def rows(stream: TextIO | None = None) -> Iterator["Rows"]:
    """Rows on a stream (standard error), alive within the block where it is a terminal."""
    console = Telling(file=stream or sys.stderr, highlight=False, soft_wrap=True)
    bars = bars_on(console)
    with bars:
        yield Rows(console, bars)


class Rows:
    """A row for each training under way, by its name."""

    def __init__(self, console: Telling, bars: Progress) -> None:
        """Begin without a row."""
        self.console = console
        self.bars = bars
        self.tasks: dict[str, TaskID] = {}

    @property
    def alive(self) -> bool:
        """Whether rows are seen: without a terminal, lines have to tell what they would."""
        return self.console.is_terminal

    def say(self, text: str) -> None:
        """One line above the rows."""
        self.console.tell(text)

    def move(self, name: str, event: RunEvent) -> None:
        """Bring the row of a training up to an event."""
        match event:
            case Started():
                self.end(name)
                done = event.progress.update
                self.tasks[name] = self.bars.add_task(
                    visible_message(name), total=event.updates, completed=done, state=""
                )
            case Stepped() if name in self.tasks:
                self.bars.update(self.tasks[name], completed=event.progress.update)
            case Validated() if name in self.tasks:
                self.bars.update(
                    self.tasks[name], completed=event.progress.update, state=scores(event.task, event.metrics, few=True)
                )
            case Stopped():
                self.end(name)

    def tell(self, name: str, event: RunEvent) -> None:
        """Bring a training's row up to an event, and say what a person wants to know of it."""
        self.move(name, event)
        match event:
            case Built():
                self.say(f"{name}: {'resumed' if event.resumed else 'new run'}, {event.parameters:,} parameters")
                for sentence in event.foreseen:
                    self.say(f"{name}: note: {sentence}")
                if event.compiles:
                    self.say(f"{name}: {compiling()}")
            case Validated() if not self.alive:
                best = " · best" if event.best else ""
                self.say(
                    f"{name}: update {event.progress.update:,} · {scores(event.task, event.metrics, few=True)}{best}"
                )
            case Stopped():
                best = f"best at update {event.progress.best_update:,}"
                self.say(f"{name}: stopped: {event.progress.finished}; {best}, {event.progress.seconds:,.0f} s")

    def reach(self, name: str, done: int, total: int, state: str) -> None:
        """Bring a row of another training than a run's up to where it is, or say so."""
        if not self.alive:
            self.say(f"{name}: {done:,} of {total:,} samples · {state}")
            return
        if name not in self.tasks:
            self.tasks[name] = self.bars.add_task(visible_message(name), total=total, state="")
        self.bars.update(self.tasks[name], completed=done, state=visible_message(state))
        if done >= total:
            self.end(name)

    def end(self, name: str) -> None:
        """Take a row away."""
        if name in self.tasks:
            self.bars.remove_task(self.tasks.pop(name))
