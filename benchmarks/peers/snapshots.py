"""Copies of the best checkpoint of a running training at several times after its start."""

import os
import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict


class KeptCheckpoint(TypedDict):
    """Name of a checkpoint, and the second after the start of the training at which it was copied."""

    checkpoint: str
    copied_after: float


class CheckpointSnapshots:
    """Copies of the best checkpoint so far, one for each budget, made while the training runs.

    The checkpoint file is copied whenever it changes. A copy counts only if it is a complete zip archive, which is the
    format of `torch.save`: the table of contents is at the end of the file. At each budget the last complete copy is
    kept.
    """

    def __init__(self, find_best: Callable[[], Path | None], folder: Path, budgets: Sequence[float]) -> None:
        """Remove the snapshots of an earlier training.

        Args:
            find_best: Function that returns the best checkpoint of the training, or None before the first one.
            folder: Folder of the snapshots.
            budgets: Minutes after the start at which a snapshot is kept, in ascending order.
        """
        self.find_best = find_best
        self.folder = folder
        self.remaining = list(budgets)
        self.newest: KeptCheckpoint | None = None
        self.kept: dict[str, KeptCheckpoint | None] = {}
        """Checkpoint by the budget, such as "2" or "0.5"; None for a budget before the first checkpoint."""
        self._signature: tuple[str, int, int] | None = None
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def update(self, seconds: float) -> None:
        """Copy the best checkpoint if it has changed, and keep it for the budgets that have passed.

        Args:
            seconds: Seconds since the start of the training.
        """
        self._copy(seconds)
        while self.remaining and seconds >= 60 * self.remaining[0]:
            self._keep(self.remaining.pop(0))

    def finish(self, seconds: float) -> None:
        """Keep the best checkpoint for all remaining budgets, when the training has ended by itself.

        Args:
            seconds: Duration of the training in seconds.
        """
        self._copy(seconds)
        while self.remaining:
            self._keep(self.remaining.pop(0))

    def path(self, budget: float) -> Path:
        """Return the file of the snapshot of a budget.

        Args:
            budget: The budget in minutes.
        """
        return self.folder / f"{budget:g}.ckpt"

    def _copy(self, seconds: float) -> None:
        """Copy the best checkpoint if it is another file than that of the last copy."""
        temporary = self.folder / "copy.part"
        try:
            best = self.find_best()
            if best is None:
                return
            status = best.stat()
            signature = best.name, status.st_mtime_ns, status.st_size
            if signature == self._signature:
                return
            shutil.copyfile(best, temporary)
        except FileNotFoundError:  # the system has just replaced it
            return
        if zipfile.is_zipfile(temporary):
            temporary.replace(self.folder / "newest")
            self._signature, self.newest = (
                signature,
                KeptCheckpoint(checkpoint=best.name, copied_after=round(seconds, 1)),
            )

    def _keep(self, budget: float) -> None:
        """Keep the newest copy for a budget."""
        self.kept[f"{budget:g}"] = self.newest
        if self.newest is not None:
            os.link(self.folder / "newest", self.path(budget))
