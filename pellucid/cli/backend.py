"""Choice of the backend of the subcommands predict and score: NumPy at once, PyTorch where it is needed or worth it.

The runtime answers the first line several times as fast as a process that loads PyTorch. PyTorch with its kernels
decodes a line with a pair n-gram model faster, which saves more time than loading takes from some thousands of lines on
(`benchmarks/backend_thresholds.py`). Both give the same outputs, and scores that are equal to about 1e-5.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import msgspec

from pellucid.config.settings import Device
from pellucid.data.examples import Example
from pellucid.decoding.base_predictor import BasePredictor
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.dependencies import has_package, require_pytorch
from pellucid.runtime.support import UnsupportedError

MIN_SOURCES_TO_LOAD = 4000
"""Number of sources so far, with those of the chunk to decode, from which PyTorch is loaded: the break-even point
is between 3,000 and 9,000 sources."""
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

    def __init__(
        self,
        runs: Sequence[Path],
        device: Device,
        configure: Configure,
        reason: str = "",
        needs_pair_ngram: bool = True,
    ) -> None:
        """Load the runs.

        Args:
            runs: Run folder, or several, which are loaded as one ensemble.
            device: Device of PyTorch; "auto" is a GPU if there is one.
            configure: Function that sets the options of the command line.
            reason: Option that needs PyTorch, for the message if it is missing; "" if there is none.
            needs_pair_ngram: Whether a damaged or missing pair n-gram model is an error; otherwise it is a warning.
                True by default.

        Raises:
            MissingDependencyError: PyTorch is needed and not installed.
            InputError: A run cannot be loaded, or an option is invalid.
        """
        self.runs, self.device, self.configure = runs, device, configure
        self.needs_pair_ngram = needs_pair_ngram
        self.has_pytorch, self.num_sources = has_package("torch"), 0
        self.predictor = self._load_pytorch(reason) if self._needs_pytorch(reason) else self._load_runtime()

    def for_sources(self, count: int) -> BasePredictor:
        """Return the predictor for the next chunk of the input; a large input is worth loading PyTorch, once.

        Args:
            count: Number of sources in the chunk.
        """
        self.num_sources += count
        if not self.is_pytorch and self.has_pytorch and self.num_sources >= MIN_SOURCES_TO_LOAD:
            self.predictor = self._load_pytorch("")
        return self.predictor

    @property
    def is_pytorch(self) -> bool:
        """True if the predictor is that of PyTorch."""
        from pellucid.runtime.predictor import RuntimePredictor

        return not isinstance(self.predictor, RuntimePredictor)

    def _needs_pytorch(self, reason: str) -> bool:
        """Return whether an option or the device needs PyTorch, or this process has loaded it already."""
        is_loaded = sys.modules.get("torch") is not None
        return bool(reason) or is_loaded or self.device == "cuda" or (self.device == "auto" and self.has_pytorch)

    def _load_runtime(self) -> BasePredictor:
        """Return the predictor in NumPy; that of PyTorch for a run that the runtime does not support."""
        try:
            return _load_runtime(self.runs, self.device, self.configure, self.needs_pair_ngram)
        except UnsupportedError as error:
            return self._load_pytorch(str(error))

    def _load_pytorch(self, reason: str) -> BasePredictor:
        """Return the predictor in PyTorch, with its threads."""
        if not self.has_pytorch:
            raise require_pytorch(reason or f"--device {self.device}")
        return _load_pytorch(self.runs, self.device, self.configure, self.needs_pair_ngram)


class BackendChoice(msgspec.Struct, frozen=True):
    """Backend that computes a chunk of the input."""

    pytorch: bool
    """PyTorch in place of NumPy."""
    kernels: bool
    """Whether PyTorch uses the compiled kernels on a CPU."""


class BackendPlan:
    """Choice of the backend of each chunk, the same as in one process that decodes the chunks in order.

    Processes that share the input compute each chunk with the same one, so that their numbers are equal.
    """

    def __init__(self, uses_pytorch: bool, has_pytorch: bool = True) -> None:
        """Begin before the first chunk.

        Args:
            uses_pytorch: Whether the first chunk is computed in PyTorch, however short the input.
            has_pytorch: Whether PyTorch is installed; True by default.
        """
        self.uses_pytorch, self.has_pytorch = uses_pytorch, has_pytorch
        self.num_sources, self.uses_kernels = 0, False

    def choose(self, num_sources: int, num_hypotheses: int) -> BackendChoice:
        """Return the backend of the next chunk.

        Args:
            num_sources: Number of its sources.
            num_hypotheses: Number of hypotheses that are searched for them.
        """
        self.num_sources += num_sources
        self.uses_pytorch |= self.has_pytorch and self.num_sources >= MIN_SOURCES_TO_LOAD
        if self.uses_pytorch:
            from pellucid.kernels.dispatch import are_kernels_worth_loading

            self.uses_kernels |= are_kernels_worth_loading(num_hypotheses, "cpu")
        return BackendChoice(self.uses_pytorch, self.uses_kernels)


def count_hypotheses(
    predictor: BasePredictor, examples: Sequence[Example], nbest: int, sampling: SamplingConfig | None
) -> int:
    """Return the number of hypotheses that are searched for examples, without those of the lexicon.

    Args:
        predictor: Predictor of the runs.
        examples: Examples.
        nbest: Maximum number of outputs per source of a search.
        sampling: Settings of sampling; None for a search.
    """
    beam_size = predictor.config.search.beam_size if predictor.autoregressive else 1
    per_source = max(nbest, beam_size) if sampling is None else sampling.samples
    lexicon, normalize = predictor.options.lexicon, predictor.tokenizers.source.normalize
    searched = [example.source for example in examples if example.source]
    if lexicon is None:
        return per_source * len(searched)
    return per_source * sum(normalize(source) not in lexicon.targets for source in searched)


class ChosenBackends:
    """Predictors of some runs in the backends that another process has chosen, each loaded when it is first needed."""

    def __init__(
        self,
        runs: Sequence[Path],
        device: Device,
        configure: Configure,
        threads: int,
        loading: Callable[[], AbstractContextManager[None]] = nullcontext,
        needs_pair_ngram: bool = True,
    ) -> None:
        """Set what is loaded.

        Args:
            runs: Run folder, or several, which are loaded as one ensemble.
            device: Device of PyTorch.
            configure: Function that sets the options of the command line.
            threads: Number of threads of PyTorch, in place of that of the run.
            loading: Function that returns the context in which they are loaded; none by default.
            needs_pair_ngram: Whether a damaged or missing pair n-gram model is an error; otherwise it is a warning.
                True by default.
        """
        self.loading = loading
        self.load = {
            False: partial(_load_runtime, runs, device, configure, needs_pair_ngram),
            True: partial(_load_pytorch, runs, device, configure, needs_pair_ngram, threads),
        }
        self.loaded: dict[bool, BasePredictor] = {}

    @contextmanager
    def predictor(self, choice: BackendChoice) -> Iterator[BasePredictor]:
        """Yield the predictor of a backend; within the block, it uses the chosen kernels.

        Args:
            choice: The backend.

        Raises:
            InputError: A run cannot be loaded, or as in the context of loading.
        """
        if choice.pytorch not in self.loaded:
            with self.loading():
                self.loaded[choice.pytorch] = self.load[choice.pytorch]()
        if not choice.pytorch:
            yield self.loaded[False]
            return
        from pellucid.kernels.dispatch import set_kernels_enabled

        with set_kernels_enabled(choice.kernels):
            yield self.loaded[True]


def _load_runtime(runs: Sequence[Path], device: Device, configure: Configure, needs_pair_ngram: bool) -> BasePredictor:
    """Return the predictor of some runs in NumPy; `UnsupportedError` for a run that the runtime does not support."""
    from pellucid.runtime.loader import load

    return configure(load(_run(runs), device, needs_pair_ngram))


def _load_pytorch(
    runs: Sequence[Path], device: Device, configure: Configure, needs_pair_ngram: bool, threads: int | None = None
) -> BasePredictor:
    """Return the predictor of some runs in PyTorch, with its threads, or another number of them."""
    from pellucid.model.device import use_threads
    from pellucid.run_folder.predictor_loader import load

    predictor = configure(load(_run(runs), device, needs_pair_ngram))
    use_threads(predictor.config.threads if threads is None else threads)
    return predictor


def _run(runs: Sequence[Path]) -> Path | list[Path]:
    """Return the argument of `load`."""
    return runs[0] if len(runs) == 1 else list(runs)
