"""The log of a training as it grows, the model card, and the frames of its validations, as server-sent events."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pellucid.search.trace_schema import encode_json
from pellucid.training.run import LOG, has_stopped, in_use, read_log
from pellucid.training.snapshots import read_snapshots
from pellucid.viewer.history import frames
from pellucid.viewer.models import Model, card

SECONDS = 0.5
"""Between two looks at the log."""
QUIET = 20
"""Looks without news after which a comment shows that the line is open."""


@dataclass
class Cursor:
    """Where a page stands in a log: what comes before line `line` it has, and the frames of these lines."""

    model: Model
    line: int
    seen: tuple[int, int] = (-1, -1)
    """Size and time of the log when it was last read."""
    base: int | None = None
    """The update whose vectors made the plane in which the page has its frames: it keeps that."""
    ended: bool = False
    """Whether all that is to come has come."""
    running: bool | None = None
    """What the page was told of whether somebody trains."""

    def over(self) -> bool:
        """Whether the page has all, and training is over."""
        log = read_log(self.model.folder)
        return has_stopped(log) and self.line >= len(log)

    def news(self) -> list[bytes]:
        """The events since the last look; whether somebody trains comes last, and not after the end."""
        running = in_use(self.model.folder)  # before the log is read: what ends meanwhile has told so there
        told = self._lines()
        if running != self.running and not self.ended:
            told.append(_event("running", msgspec.json.encode(running)))
        self.running = running
        return told

    def _lines(self) -> list[bytes]:
        """New lines and frames."""
        path = self.model.folder / LOG
        state = path.stat() if path.exists() else None
        now = (state.st_size, state.st_mtime_ns) if state else (-1, -1)
        if now == self.seen:
            return []
        self.seen = now
        log = read_log(self.model.folder)
        told = [_event("line", msgspec.json.encode(record), at) for at, record in enumerate(log)][self.line :]
        if told:
            told.insert(0, _event("card", encode_json(card(self.model))))
        # A validation's snapshot is written before its line: whoever has the line can have the frame. Frames go first,
        # for the page stops listening at the line that ends the training.
        fresh = _validated(log[self.line :])
        if fresh:
            if self.base is None:
                self.base = (_validated(log[: self.line]) or fresh[:1])[-1]
            film = frames(read_snapshots(self.model.folder), log, self.base)
            told = [_event("frame", encode_json(frame)) for frame in film if frame.update in fresh] + told
        self.line = max(self.line, len(log))
        self.ended = has_stopped(log)
        return told


async def follow(cursor: Cursor) -> AsyncIterator[bytes]:
    """The events, as they come, until training is over."""
    quiet = 0
    while True:
        told = await asyncio.to_thread(cursor.news)
        for event in told:
            yield event
        if cursor.ended:
            return
        quiet = 0 if told else quiet + 1
        if quiet == QUIET:
            yield b": nothing new\n\n"
            quiet = 0
        await asyncio.sleep(SECONDS)


def _validated(log: Sequence[dict[str, Any]]) -> list[int]:
    """The updates after which there was a validation."""
    return [record["update"] for record in log if record["event"] == "validated"]


def _event(name: str, data: bytes, number: int | None = None) -> bytes:
    """One event; JSON holds no line break."""
    identity = b"" if number is None else b"id: %d\n" % number
    return b"%sevent: %s\ndata: %s\n\n" % (identity, name.encode(), data)
