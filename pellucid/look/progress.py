"""Training as it goes: one live line on a terminal, one plain line a validation everywhere else."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pellucid.config import Task
from pellucid.kernels.cache import cache_folder
from pellucid.look.visible import visible_message
from pellucid.tasks.registry import task_named
from pellucid.training.augmentation import Augmented
from pellucid.training.loop import Started, Stepped, Stopped, Validated
from pellucid.training.session import Built, Read, RunEvent

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
