"""Decoding of pairs by the machines of a Ray cluster (evaluate --on ray).

The pairs are decoded in the same chunks as without --on ray. Each chunk is a block of a folder; the machines write the
traces of its outputs as JSON in compact form, to the bit. Metrics and tables are computed by the command itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pellucid.cli.backend import BackendChoice, BackendPlan, ChosenBackends, count_hypotheses
from pellucid.cli.block_progress import RayMessages, process_on_cluster
from pellucid.cli.fingerprint import LoadedFiles, checksum, command_fingerprint
from pellucid.cli.line_blocks import WrittenBlocks
from pellucid.cli.search_flags import (
    SearchFlags,
    apply_search_flags,
    decode_nbest,
    decode_samples,
    needs_pair_ngram,
    read_lexicon,
)
from pellucid.cluster.block_folder import BlockFolder, BlockNumbers, locked_block_folder
from pellucid.cluster.block_pool import BlockJob
from pellucid.cluster.ray_connection import ray_connection
from pellucid.cluster.ray_pool import JobResources
from pellucid.config.settings import Device
from pellucid.data.examples import Example
from pellucid.decoding.trace import Trace
from pellucid.errors import DataError
from pellucid.evaluation.evaluation_pairs import EvaluationPairs

if TYPE_CHECKING:
    from pellucid.decoding.base_predictor import BasePredictor
    from pellucid.decoding.sampling_config import SamplingConfig


class EvaluationCommand(NamedTuple):
    """Decoding of the pairs of one run, as the machines of a cluster get it; paths are absolute."""

    run: Path
    """Folder of the run."""
    device: Device
    """Device for decoding."""
    search: SearchFlags
    """Parsed flags of the search."""
    sampling: "SamplingConfig | None"
    """Settings of sampling; None for a search."""

    def configure(self, predictor: "BasePredictor") -> "BasePredictor":
        """Return the predictor with the options of the command line.

        Args:
            predictor: Predictor of the run.
        """
        from pellucid.decoding.options import DecodingOptions

        predictor = apply_search_flags(predictor, self.search)
        return predictor.with_options(DecodingOptions(lexicon=read_lexicon(predictor, self.search)))


class ExampleBlock(msgspec.Struct, frozen=True):
    """A chunk of examples, and how it is decoded."""

    examples: list[Example]
    first: int
    """Number of the first example, from 0."""
    choice: BackendChoice


class EvaluationBlockProcessor:
    """Decodes blocks of examples on a machine of the cluster."""

    def __init__(self, command: EvaluationCommand, fingerprint: Mapping[str, str], threads: int) -> None:
        """Set the command; the run is loaded with the first block.

        Args:
            command: The command.
            fingerprint: Its fingerprint, with which the loaded files are compared.
            threads: Number of threads.
        """
        self.command, runs = command, [command.run]
        files = LoadedFiles(runs, command.search.lexicon, fingerprint)
        self.backends = ChosenBackends(
            *(runs, command.device, command.configure, threads, files.unchanged, needs_pair_ngram(command.search))
        )

    def __call__(self, content: bytes) -> bytes:
        """Return the outputs of each example of a block, as JSON.

        Args:
            content: The block.

        Raises:
            InputError: As in decoding; or the run has changed since the command began.
        """
        block, command = msgspec.msgpack.decode(content, type=ExampleBlock), self.command
        with self.backends.predictor(block.choice) as predictor:
            outputs = decode_examples(predictor, block.examples, block.first, command.search.nbest, command.sampling)
        return msgspec.msgpack.encode([[trace.to_json(compact=True) for trace in traces] for traces in outputs])


class EvaluationCluster:
    """Decoding of the runs of an evaluation on a cluster, one after the other.

    The folder of the blocks has a folder for each run and each group of files, by their number. Finished blocks are
    kept until `remove`.
    """

    def __init__(self, path: Path, device: Device, locks: ExitStack) -> None:
        """Begin before the first run.

        Args:
            path: Folder of the blocks, as an absolute path.
            device: Device for decoding.
            locks: Stack that unlocks the folders of the runs at its end.
        """
        self.path, self.device, self.locks = path, device, locks
        self.plan = BackendPlan(uses_pytorch=True)
        self.folders = list[BlockFolder]()

    def decode(
        self,
        predictor: "BasePredictor",
        pairs: EvaluationPairs,
        search: SearchFlags,
        sampling: "SamplingConfig | None",
    ) -> Iterator[list[list[Trace]]]:
        """Yield the outputs of each example of each chunk by the model of the next run; all are decoded before.

        Args:
            predictor: Predictor of the run in this process, which decodes nothing.
            pairs: Examples.
            search: Parsed flags, with absolute paths.
            sampling: Settings of sampling; None for a search.

        Raises:
            InputError: As in decoding; or Ray is not installed, no cluster answers, or a machine of the cluster cannot
                decode. Finished blocks are kept.
        """
        command = EvaluationCommand(Path(predictor.folder).absolute(), self.device, search, sampling)
        folder = self._open_folder(command, pairs)
        written = self._write_blocks(folder, pairs, predictor, command)
        if written.unfinished:
            resources = JobResources(predictor.config.threads or 1)
            job = BlockJob(folder, partial(EvaluationBlockProcessor, command, folder.fingerprint), resources)
            process_on_cluster(job, command.device, written.unfinished, written.num_blocks)
        for number, chunk in enumerate(pairs.example_chunks()):
            yield _read_traces(folder, number, len(chunk))

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connect to a cluster within the block, so that all runs are decoded with one connection.

        Raises:
            MissingDependencyError: Ray is not installed.
            ClusterError: No cluster answers.
        """
        with redirect_stdout(RayMessages()), ray_connection("--on ray"):
            yield

    def remove(self) -> None:
        """Remove the finished blocks, when the results are written.

        Raises:
            RunError: A file cannot be removed.
        """
        for folder in self.folders:
            folder.remove()

    def _open_folder(self, command: EvaluationCommand, pairs: EvaluationPairs) -> BlockFolder:
        """Return the folder of the next run."""
        fingerprint = {
            **command_fingerprint(command.search, SearchFlags.__dataclass_fields__, [command.run]),
            "the input": checksum([checksum(chunk) for chunk in pairs.example_chunks()]),
            "the device": command.device,
        }
        folder = self.locks.enter_context(locked_block_folder(self.path / str(len(self.folders) + 1), fingerprint))
        self.folders.append(folder)
        return folder

    def _write_blocks(
        self,
        folder: BlockFolder,
        pairs: EvaluationPairs,
        predictor: "BasePredictor",
        command: EvaluationCommand,
    ) -> WrittenBlocks:
        """Write the blocks that are not finished, and return their numbers."""
        finished, unfinished, first, number = folder.finished_numbers(), BlockNumbers(), 0, -1
        for number, chunk in enumerate(pairs.example_chunks()):
            num_hypotheses = count_hypotheses(predictor, chunk, command.search.nbest or 1, command.sampling)
            block = ExampleBlock(chunk, first, self.plan.choose(len(chunk), num_hypotheses))
            first += len(chunk)
            if number not in finished:
                unfinished.add(number)
                folder.write_input(number, msgspec.msgpack.encode(block))
        return WrittenBlocks(number + 1, first, unfinished)


@contextmanager
def evaluation_cluster(blocks: Path | None, device: Device) -> Iterator[EvaluationCluster | None]:
    """Keep finished blocks in a folder, which is locked until the end of the block.

    Args:
        blocks: Folder of the finished blocks; None for an evaluation without a cluster.
        device: Device for decoding.

    Yields:
        The cluster, to which this process is not connected yet; None for an evaluation without one.
    """
    if blocks is None:
        yield None
        return
    path = blocks.absolute()
    with ExitStack() as locks:
        yield EvaluationCluster(path, device, locks)
    with suppress(OSError):  # finished blocks of a command that failed and files of others stay
        path.rmdir()


def decode_examples(
    predictor: "BasePredictor",
    examples: Sequence[Example],
    first: int,
    nbest: int | None,
    sampling: "SamplingConfig | None",
) -> list[list[Trace]]:
    """Return the outputs of each example: the best, the n best, or samples.

    Args:
        predictor: Predictor of a run.
        examples: Examples.
        first: Number of the first example, from 0, for sampling.
        nbest: Length of the n-best lists; None for the best alone.
        sampling: Settings of sampling; None for a search.
    """
    if sampling is not None:
        return decode_samples(predictor, examples, sampling, first)
    if nbest is None:
        return [[trace] for trace in predictor.predict_examples(examples)]
    return decode_nbest(predictor, examples, nbest)


def _read_traces(folder: BlockFolder, number: int, num_examples: int) -> list[list[Trace]]:
    """Return the outputs of a finished block; `RunError` if it is damaged."""
    content = folder.read_output(number)
    with suppress(msgspec.DecodeError, DataError):
        outputs = msgspec.msgpack.decode(content, type=list[list[str]])
        if len(outputs) == num_examples:
            return [[Trace.from_json(text) for text in texts] for texts in outputs]
    raise folder.damage_error(number)
