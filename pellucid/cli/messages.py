"""Messages on standard error, without control characters, and the handling of Ctrl-C and SIGTERM."""

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol, runtime_checkable

from pellucid.reporting.display_text import visible_message


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


class BestEffortStream:
    """Wrapper of standard error that drops text that cannot be written, such as on a full disk.

    So the exit code depends on standard output alone.
    """

    def __init__(self, stream: TextStream) -> None:
        """Wrap a stream.

        Args:
            stream: Stream to wrap.
        """
        self._stream = stream

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

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (any attribute of the stream)
        """Return an attribute of the wrapped stream."""
        return getattr(self._stream, name)

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
    """SIGTERM that stops a training at once, as a second Ctrl-C does."""


class InterruptHandler:
    """Handler of Ctrl-C and SIGTERM during training: the first one requests a stop after the current update, the second
    one stops at once.

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
        """Handle SIGINT or SIGTERM: request a stop and print a message, or raise.

        Args:
            signal_number: Number of the signal.
            frame: Current stack frame; unused.

        Raises:
            KeyboardInterrupt: At the second signal, or before training has begun; `TerminationInterrupt` of SIGTERM.
        """
        self.signal_number = signal_number
        if self.requested or not self.is_training:
            raise TerminationInterrupt if signal_number == signal.SIGTERM else KeyboardInterrupt
        self.requested = True
        again = "SIGTERM" if signal_number == signal.SIGTERM else "Ctrl-C"
        print_message(f"stopping after this update ({again} again to stop at once)")


@contextmanager
def handle_stop_signals(includes_termination: bool = True) -> Iterator[InterruptHandler]:
    """Handle Ctrl-C and SIGTERM by an `InterruptHandler` within the block, and as before after it.

    For the main thread only.

    Args:
        includes_termination: Whether to handle SIGTERM, too; True by default.

    Yields:
        Handler that records the request to stop.
    """
    interruption = InterruptHandler()
    numbers = (signal.SIGINT, signal.SIGTERM) if includes_termination else (signal.SIGINT,)
    previous = {number: signal.signal(number, interruption.handle) for number in numbers}
    try:
        yield interruption
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
