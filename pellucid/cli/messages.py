"""Messages on standard error, without control characters, and the handling of Ctrl-C, SIGTERM and SIGHUP."""

import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol, runtime_checkable

from pellucid.reporting.display_text import visible_message

REPEAT_SECONDS = 1.0
"""Seconds after a signal that stops a command in which further ones are ignored, so that it can remove its files."""


@runtime_checkable
class TextStream(Protocol):
    """Interface of a text stream for writing, such as `sys.stderr`."""

    def write(self, text: str, /) -> int:
        """Write a text.

        Args:
            text: The text.

        Returns:
            Number of characters written.
        """

    def flush(self) -> None:
        """Write buffered text."""

    def fileno(self) -> int:
        """Return the file descriptor."""


def print_message(*lines: str) -> None:
    """Write one message on standard error, after "pellucid: "; do nothing if standard error is closed.

    Args:
        *lines: Lines of the message; control characters are replaced by visible signs.
    """
    if sys.stderr is not None:
        print("pellucid: " + "\n".join(map(visible_message, lines)), file=sys.stderr)


def format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return a warning in the format of all other messages, without its source line.

    Args:
        message: Warning.
        category: Class of the warning; unused.
        filename: Unused.
        lineno: Unused.
        line: Unused.

    Returns:
        Text for standard error.
    """
    return f"pellucid: {visible_message(str(message))}\n"


def format_warnings_as_messages() -> None:
    """Format all Python warnings of this process as messages, from now on."""
    warnings.formatwarning = format_warning


class StreamWrapper:
    """Text stream that has all attributes of another stream; a subclass changes how text is written."""

    def __init__(self, stream: TextStream) -> None:
        """Wrap a stream.

        Args:
            stream: Stream to wrap.
        """
        self._stream = stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (any attribute of the stream)
        """Return an attribute of the wrapped stream."""
        return getattr(self._stream, name)


class BestEffortStream(StreamWrapper):
    """Wrapper of standard error that drops text that cannot be written, such as on a full disk.

    So the exit code depends on standard output alone.
    """

    def write(self, text: str) -> int:
        """Write a text; if that fails, drop it and all later text.

        Args:
            text: The text.

        Returns:
            Number of characters written or dropped.
        """
        try:
            return self._stream.write(text)
        except OSError:
            self._abandon()
            return len(text)

    def flush(self) -> None:
        """Write buffered text; if that fails, drop it and all later text."""
        try:
            self._stream.flush()
        except OSError:
            self._abandon()

    def _abandon(self) -> None:
        """Drop all further text, including the interpreter's last flush."""
        redirect_to_devnull(self._stream)


def redirect_to_devnull(stream: TextStream) -> None:
    """Redirect the file descriptor of a stream to the null device: its reader is gone, or its disk is full.

    Args:
        stream: Stream with a file descriptor.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class TerminationInterrupt(KeyboardInterrupt):
    """SIGTERM or SIGHUP that stops a command at once, as Ctrl-C does: temporary files are removed."""

    def __init__(self, signal_number: int = signal.SIGTERM) -> None:
        """Store the signal.

        Args:
            signal_number: Number of the signal.
        """
        super().__init__()
        self.signal_number = signal_number


def stop_signal(error: KeyboardInterrupt) -> int:
    """Return the number of the signal that has stopped a command.

    Args:
        error: The interruption.
    """
    return error.signal_number if isinstance(error, TerminationInterrupt) else signal.SIGINT


def describe_stop(signal_number: int) -> str:
    """Return what has stopped a command: "interrupted" of Ctrl-C, else "stopped by SIGTERM".

    Args:
        signal_number: Number of the signal.
    """
    return "interrupted" if signal_number == signal.SIGINT else f"stopped by {signal.Signals(signal_number).name}"


def termination_signals() -> list[signal.Signals]:
    """Return the signals that ask a process to end, SIGTERM and SIGHUP; without SIGHUP if nohup ignores it."""
    numbers = [signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # Windows has none
        numbers.append(signal.SIGHUP)
    return numbers


@contextmanager
def raise_on_termination() -> Iterator[None]:
    """Raise `TerminationInterrupt` at SIGTERM and SIGHUP within the block, where they would end the process at once.

    Signals that are ignored, or that the program around has a handler for, stay as they are; so do all in other threads
    than the main one. Signals of the second after the first one are ignored: a terminal or a scheduler may send both.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    raised_at = -math.inf

    def raise_interrupt(signal_number: int, frame: FrameType | None) -> None:
        """Raise `TerminationInterrupt`, unless one was raised a moment ago.

        Args:
            signal_number: Number of the signal.
            frame: Current stack frame; unused.

        Raises:
            TerminationInterrupt: At the first signal.
        """
        nonlocal raised_at
        if time.monotonic() - raised_at > REPEAT_SECONDS:
            raised_at = time.monotonic()
            raise TerminationInterrupt(signal_number)

    numbers = [number for number in termination_signals() if signal.getsignal(number) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, raise_interrupt)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


class InterruptHandler:
    """Handler of Ctrl-C, SIGTERM and SIGHUP during training: the first one requests a stop after the current update,
    the second one stops at once.

    The command reads `requested` after each event and ends the training. It sets `is_training` when this begins.
    """

    def __init__(self) -> None:
        """Initialize without a request to stop."""
        self.requested = False
        """True after the first signal."""
        self.signal_number: int = signal.SIGINT
        """Number of the last signal."""
        self.is_training = False
        """True once training has begun; before, the first signal stops at once."""

    def handle(self, signal_number: int, frame: FrameType | None) -> None:
        """Handle SIGINT, SIGTERM or SIGHUP: request a stop and print a message, or raise.

        Args:
            signal_number: Number of the signal.
            frame: Current stack frame; unused.

        Raises:
            KeyboardInterrupt: At the second signal, or before training has begun; `TerminationInterrupt` of SIGTERM and
                SIGHUP.
        """
        self.signal_number = signal_number
        is_interrupt = signal_number == signal.SIGINT
        if self.requested or not self.is_training:
            raise KeyboardInterrupt if is_interrupt else TerminationInterrupt(signal_number)
        self.requested = True
        again = "Ctrl-C" if is_interrupt else signal.Signals(signal_number).name
        print_message(f"stopping after this update ({again} again to stop at once)")


@contextmanager
def handle_stop_signals(includes_termination: bool = True) -> Iterator[InterruptHandler]:
    """Handle Ctrl-C, SIGTERM and SIGHUP by an `InterruptHandler` within the block, and as before after it.

    For the main thread only.

    Args:
        includes_termination: Whether to handle SIGTERM and SIGHUP, too; True by default.

    Yields:
        Handler that records the request to stop.
    """
    interruption = InterruptHandler()
    numbers = [signal.SIGINT, *(termination_signals() if includes_termination else ())]
    previous = {number: signal.signal(number, interruption.handle) for number in numbers}
    try:
        yield interruption
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
