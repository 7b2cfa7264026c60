"""Several trainings as they go: one live row for each on a terminal, plain lines everywhere else."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.progress import Progress, TaskID

from pellucid.look.progress import Telling, bars_on, compiling, scores
from pellucid.look.visible import visible_message
from pellucid.training.loop import Started, Stepped, Stopped, Validated
from pellucid.training.session import Built, RunEvent


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
