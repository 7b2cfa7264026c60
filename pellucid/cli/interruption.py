"""Ctrl-C while something trains."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pellucid.cli.messages import say


class Interruption:
    """The first Ctrl-C asks for an end after the update in hand; the second ends at once."""

    def __init__(self) -> None:
        """Nothing asked yet."""
        self.asked = False
        self.training = False
        """Whether there is an update in hand, which is worth ending well."""

    def ask(self, signal_number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        if self.asked or not self.training:
            raise KeyboardInterrupt
        self.asked = True
        say("stopping after this update (Ctrl-C again to stop at once)")


@contextmanager
def heeded() -> Iterator[Interruption]:
    """What Ctrl-C asks for within the block."""
    interruption = Interruption()
    previous = signal.signal(signal.SIGINT, interruption.ask)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, previous)
