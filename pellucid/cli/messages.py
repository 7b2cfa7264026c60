"""Messages to the person at the terminal, on standard error: one line each, in which nothing acts on the terminal."""

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol, runtime_checkable

from pellucid.reporting.visible import visible_message


@runtime_checkable
class TextStream(Protocol):
    """A stream of text that can be written."""

    def write(self, text: str, /) -> int:
        """Write a text and return how many characters it has."""

    def flush(self) -> None:
        """Write what waits."""

    def fileno(self) -> int:
        """Return the number of the open file."""


def say(*lines: str) -> None:
    """Write the lines of one message on standard error, if that is open."""
    if sys.stderr is not None:
        print("pellucid: " + "\n".join(map(visible_message, lines)), file=sys.stderr)


def format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return a warning as any other message, without the line of code that it came from."""
    return f"pellucid: {visible_message(str(message))}\n"


def format_warnings_as_messages() -> None:
    """Word every warning as a message."""
    warnings.formatwarning = format_warning


class OptionalStream:
    """Standard error, which a program can do without: what cannot be written, on a full disk say, is left out.

    The exit code is told by the output alone.
    """

    def __init__(self, stream: TextStream) -> None:
        """Pass everything on to the stream."""
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text, or leave it out."""
        try:
            return self._stream.write(text)
        except OSError:
            self._abandon()
            return len(text)

    def flush(self) -> None:
        """Write what waits, or leave it out."""
        try:
            self._stream.flush()
        except OSError:
            self._abandon()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the stream has)
        """Return what the stream itself has."""
        return getattr(self._stream, name)

    def _abandon(self) -> None:
        """Let everything go nowhere from here on, the interpreter's last flush too."""
        redirect_to_devnull(self._stream)


def redirect_to_devnull(stream: TextStream) -> None:
    """Let everything that a stream still writes go nowhere: whoever read it is gone, or its disk is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def make_optional(stream: TextStream) -> OptionalStream:
    """Return the stream as one that a program can do without."""
    return OptionalStream(stream)


class InterruptHandler:
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
def handle_sigint() -> Iterator[InterruptHandler]:
    """What Ctrl-C asks for within the block."""
    interruption = InterruptHandler()
    previous = signal.signal(signal.SIGINT, interruption.ask)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, previous)
