"""Choice of the backend of the subcommands predict and score: NumPy at once, PyTorch where it is needed or worth it.

The runtime answers the first line several times as fast as a process that loads PyTorch. PyTorch with its kernels
decodes a line with a pair n-gram model faster, which saves more time than loading takes from some thousands of lines on
(`benchmarks/backend_thresholds.py`). Both give the same outputs, and scores that are equal to about 1e-5.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pellucid.config.settings import Device
from pellucid.decoding.base_predictor import BasePredictor
from pellucid.dependencies import has_package, require_pytorch
from pellucid.runtime.support import UnsupportedError

MIN_SOURCES_TO_LOAD = 4000
"""Number of sources so far, with those of the chunk to decode, from which PyTorch is loaded: both take as long for
3,000 to 9,000."""
MIN_TEXT_SIZE = 2**15
"""Size of a file of running text, in bytes, from which loading PyTorch is worth it."""
Configure = Callable[[BasePredictor], BasePredictor]
"""Function that returns a predictor with the settings and options of the command line."""


def is_worth_loading(file: Path) -> bool:
    """Return whether PyTorch is installed, and a file of running text is so long that loading it is worth it.

    Args:
        file: File of the text, or "-" for standard input, whose size is unknown.
    """
    return file.is_file() and file.stat().st_size >= MIN_TEXT_SIZE and has_package("torch")


class PredictionBackend:
    """Predictor of some runs: that of the runtime, until PyTorch is needed or the input is large."""

    def __init__(self, runs: Sequence[Path], device: Device, configure: Configure, reason: str = "") -> None:
        """Load the runs.

        Args:
            runs: Run folder, or several, which are loaded as one ensemble.
            device: Device of PyTorch; "auto" is a GPU if there is one.
            configure: Function that sets the options of the command line.
            reason: Option that needs PyTorch, for the message if it is missing; "" for none.

        Raises:
            MissingDependencyError: PyTorch is needed and not installed.
            InputError: A run cannot be loaded, or an option is invalid.
        """
        self.runs, self.device, self.configure = runs, device, configure
        self.has_pytorch, self.num_sources = has_package("torch"), 0
        self.predictor = self._load_pytorch(reason) if self._needs_pytorch(reason) else self._load_runtime()

    def for_sources(self, count: int) -> BasePredictor:
        """Return the predictor for the next chunk of the input; a large input is worth loading PyTorch, once.

        Args:
            count: Number of sources in the chunk.
        """
        from pellucid.runtime.predictor import RuntimePredictor

        self.num_sources += count
        is_runtime = isinstance(self.predictor, RuntimePredictor)
        if is_runtime and self.has_pytorch and self.num_sources >= MIN_SOURCES_TO_LOAD:
            self.predictor = self._load_pytorch("")
        return self.predictor

    def _needs_pytorch(self, reason: str) -> bool:
        """Return whether an option or the device needs PyTorch, or this process has loaded it already."""
        is_loaded = sys.modules.get("torch") is not None
        return bool(reason) or is_loaded or self.device == "cuda" or (self.device == "auto" and self.has_pytorch)

    def _load_runtime(self) -> BasePredictor:
        """Return the predictor in NumPy; that of PyTorch for a run that the runtime does not support."""
        from pellucid.runtime.loader import load

        try:
            return self.configure(load(self._run(), self.device))
        except UnsupportedError as error:
            return self._load_pytorch(str(error))

    def _load_pytorch(self, reason: str) -> BasePredictor:
        """Return the predictor in PyTorch, with its threads."""
        if not self.has_pytorch:
            raise require_pytorch(reason or f"--device {self.device}")
        from pellucid.model.device import use_threads
        from pellucid.run_folder.predictor_loader import load

        predictor = self.configure(load(self._run(), self.device))
        use_threads(predictor.config.threads)
        return predictor

    def _run(self) -> Path | list[Path]:
        """Return the argument of `load`."""
        return self.runs[0] if len(self.runs) == 1 else list(self.runs)
