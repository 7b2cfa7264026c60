"""Decoding of the lines of a file by the machines of a Ray cluster (predict and score --on ray).

The command reads the input as without --on ray, in the same chunks, and writes each chunk to a folder beside the output
as a block. The machines decode the blocks, each chunk with the backend and the kernels that one process would use for
it, and write the output lines. At the end the output is put together in the order of the lines.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import msgspec

from pellucid.argument_checks import replace_surrogates
from pellucid.cli.backend import BackendChoice, BackendPlan, ChosenBackends, PredictionBackend
from pellucid.cli.block_progress import process_on_cluster
from pellucid.cli.csv_output import CsvOutput
from pellucid.cli.fingerprint import LoadedFiles
from pellucid.cli.sources import Acceptance, DecodingNotes, LineChunk, NoteCounts
from pellucid.cluster.block_folder import START_AGAIN, BlockFolder, BlockNumbers, locked_block_folder
from pellucid.cluster.block_pool import BlockJob
from pellucid.cluster.ray_pool import JobResources
from pellucid.config.settings import Delimiter, Device
from pellucid.data.examples import Example
from pellucid.data.readers import BadLine, TableCells
from pellucid.errors import RunError
from pellucid.files import follow_links, open_atomic

if TYPE_CHECKING:
    from pellucid.decoding.base_predictor import BasePredictor

BLOCKS_ENDING = ".blocks"
"""Ending that the name of the output gets for the folder of its finished blocks."""


@runtime_checkable
class LineDecoder(Protocol):
    """Decodes chunks of lines and formats their outputs, for one subcommand."""

    notes: DecodingNotes
    """Counts of the lines so far."""
    acceptance: Acceptance | None
    """Counts of accepted outputs; None if all are."""
    table: CsvOutput | None
    """Output as CSV; None for other formats."""

    def count_sources(self, chunk: LineChunk) -> int:
        """Return the number of sources of a chunk.

        Args:
            chunk: Lines.
        """

    def count_hypotheses(self, predictor: "BasePredictor", chunk: LineChunk) -> int:
        """Return the number of hypotheses that are searched for a chunk.

        Args:
            predictor: Predictor of the runs.
            chunk: Lines.
        """

    def decode_lines(self, predictor: "BasePredictor", chunk: LineChunk) -> Iterator[str]:
        """Decode a chunk, and yield the output lines of each of its lines.

        Args:
            predictor: Predictor of the runs.
            chunk: Lines.
        """


@runtime_checkable
class LineCommand(Protocol):
    """Parts of a command that the machines of a cluster need. They can be pickled, and their paths are absolute."""

    @property
    def runs(self) -> Sequence[Path]:
        """Run folders."""

    @property
    def device(self) -> Device:
        """Device for decoding."""

    @property
    def lexicon(self) -> Path | None:
        """File of --lexicon; None without one."""

    @property
    def needs_pair_ngram(self) -> bool:
        """False if the pair n-gram model of the runs takes no part."""

    def configure(self, predictor: "BasePredictor") -> "BasePredictor":
        """Return the predictor with the options of the command line.

        Args:
            predictor: Predictor of the runs.
        """

    def build_decoder(self, predictor: "BasePredictor", cells: TableCells, names: Sequence[str]) -> LineDecoder:
        """Return the decoder of a block.

        Args:
            predictor: Predictor of the runs.
            cells: Cells of the lines of the block.
            names: Names of the columns of the input, whose row is written already.
        """


class BlockCells(msgspec.Struct, frozen=True):
    """Cells of the lines of a block, for CSV."""

    names: list[str]
    """Names of the columns of the input, as the row of names has them."""
    delimiter: Delimiter
    source_position: int
    rows: list[Sequence[str]]


class LineBlock(msgspec.Struct, frozen=True):
    """A chunk of lines, and how it is decoded."""

    examples: list[Example | None]
    """Examples of the lines; None for bad lines."""
    bad_lines: dict[int, BadLine]
    """Bad lines, by their index."""
    first_line: int
    first_source: int
    prefixes: list[str] | None
    choice: BackendChoice
    header: str
    """Text before the output lines: the row of names of CSV in the first block, else ""."""
    cells: BlockCells | None
    """Cells for CSV; None for other formats."""

    def chunk(self) -> LineChunk:
        """Return the lines."""
        items = [self.bad_lines[index] if item is None else item for index, item in enumerate(self.examples)]
        return LineChunk(items, self.first_line, self.first_source, self.prefixes)


class FinishedLines(msgspec.Struct, frozen=True):
    """Output lines of a block, with their counts."""

    text: bytes
    """The lines in UTF-8."""
    notes: NoteCounts
    num_outputs: int = 0
    """Number of outputs among which --min-confidence accepts."""
    num_accepted: int = 0


class LineBlockProcessor:
    """Decodes blocks on a machine of the cluster."""

    def __init__(self, command: LineCommand, fingerprint: Mapping[str, str], threads: int) -> None:
        """Set the command; the runs are loaded when a block needs them.

        Args:
            command: The command.
            fingerprint: Its fingerprint, with which the loaded files are compared.
            threads: Number of threads.
        """
        self.command = command
        files = LoadedFiles(command.runs, command.lexicon, fingerprint)
        self.backends = ChosenBackends(
            *(command.runs, command.device, command.configure, threads, files.unchanged, command.needs_pair_ngram)
        )

    def __call__(self, content: bytes) -> bytes:
        """Return the finished block of a block.

        Args:
            content: The block, as `write_line_blocks` wrote it.

        Raises:
            InputError: As in decoding; or the runs have changed since the command began.
        """
        block = msgspec.msgpack.decode(content, type=LineBlock)
        cells, names = TableCells(), list[str]()
        if block.cells is not None:
            names, rows = block.cells.names, deque(block.cells.rows)
            cells = TableCells(names, block.cells.delimiter, block.cells.source_position, rows)
        with self.backends.predictor(block.choice) as predictor:
            decoder = self.command.build_decoder(predictor, cells, names)
            text = block.header + "".join(decoder.decode_lines(predictor, block.chunk()))
        accepted = decoder.acceptance
        finished = FinishedLines(
            text=text.encode("utf-8", "backslashreplace"),
            notes=decoder.notes.counts(),
            num_outputs=0 if accepted is None else accepted.total,
            num_accepted=0 if accepted is None else accepted.accepted,
        )
        return msgspec.msgpack.encode(finished)


class ClusterOutput(NamedTuple):
    """Output of a command on a cluster, with the fingerprint of the command."""

    file: Path
    """The output, which is written at the end."""
    fingerprint: Mapping[str, str]
    """Checksums of all that the outputs depend on (`command_fingerprint`)."""


def decode_on_cluster(
    command: LineCommand,
    chunks: Iterator[LineChunk],
    decoder: LineDecoder,
    backend: PredictionBackend,
    output: ClusterOutput,
) -> None:
    """Decode the lines of an input on a cluster, and write the outputs to a file.

    Args:
        command: The command.
        chunks: All lines of the input.
        decoder: Decoder of this process, which decodes nothing, and gets the counts of all lines.
        backend: Backend of this process, which decodes nothing.
        output: Output file.

    Raises:
        InputError: The input cannot be read, or as in decoding; or Ray is not installed, no cluster answers, or a
            machine of the cluster cannot decode. Finished blocks are kept.
    """
    with locked_block_folder(output.file.with_name(output.file.name + BLOCKS_ENDING), output.fingerprint) as folder:
        plan = BackendPlan(command.device != "cpu" or backend.is_pytorch, backend.has_pytorch)
        written = write_line_blocks(folder, chunks, decoder, plan, backend.predictor)
        if written.unfinished:
            resources = JobResources(backend.predictor.config.threads or 1)
            job = BlockJob(folder, partial(LineBlockProcessor, command, output.fingerprint), resources)
            process_on_cluster(job, command.device, written.unfinished, written.num_blocks)
        join_line_blocks(folder, written, decoder, output.file)
        folder.remove()


class WrittenBlocks(NamedTuple):
    """Numbers of blocks and lines of an input."""

    num_blocks: int
    num_lines: int
    unfinished: BlockNumbers
    """Numbers of the blocks that are not finished, from 0."""


def write_line_blocks(
    folder: BlockFolder,
    chunks: Iterator[LineChunk],
    decoder: LineDecoder,
    plan: BackendPlan,
    predictor: "BasePredictor",
) -> WrittenBlocks:
    """Write the blocks of an input that are not finished, and return their numbers, and those of all blocks and lines.

    Args:
        folder: Folder of the blocks.
        chunks: All lines of the input.
        decoder: Decoder of this process.
        plan: Choice of the backend of each block.
        predictor: Predictor of the runs.

    Raises:
        InputError: The input cannot be read, or a block cannot be written.
    """
    finished, unfinished = folder.finished_numbers(), BlockNumbers()
    num_blocks = num_lines = 0
    for number, chunk in enumerate(chunks):
        num_lines += len(chunk.items)
        hypotheses = decoder.count_hypotheses(predictor, chunk)
        block = _line_block(chunk, plan.choose(decoder.count_sources(chunk), hypotheses), decoder.table)
        if number not in finished:
            unfinished.add(number)
            folder.write_input(number, msgspec.msgpack.encode(block))
        num_blocks = number + 1
    return WrittenBlocks(num_blocks, num_lines, unfinished)


def _line_block(chunk: LineChunk, choice: BackendChoice, table: CsvOutput | None) -> LineBlock:
    """Return a chunk as a block, with the cells of its lines."""
    header, cells = "", None
    if table is not None:
        header = "" if table.names else table.begin()
        rows = [table.cells.rows.popleft() for _ in range(min(len(chunk.items), len(table.cells.rows)))]
        cells = BlockCells(table.names, table.cells.delimiter, table.cells.source_position, rows)
    return LineBlock(
        examples=[item if isinstance(item, Example) else None for item in chunk.items],
        bad_lines={
            index: item._replace(path=replace_surrogates(item.path))
            for index, item in enumerate(chunk.items)
            if isinstance(item, BadLine)
        },
        first_line=chunk.first_line,
        first_source=chunk.first_source,
        prefixes=chunk.prefixes,
        choice=choice,
        header=header,
        cells=cells,
    )


def join_line_blocks(folder: BlockFolder, written: WrittenBlocks, decoder: LineDecoder, file: Path) -> None:
    """Write the output lines of all blocks to a file, in their order, and add their counts.

    Args:
        folder: Folder with all blocks, which are finished.
        written: Numbers of blocks and lines of the input.
        decoder: Decoder of this process, which gets the counts.
        file: Output file, which is replaced at the end.

    Raises:
        RunError: A block is damaged, or has the outputs of other lines than those of the input; or the file cannot be
            written.
        DataError: A block cannot be read.
    """
    with open_atomic(follow_links(file)) as output:
        for number in range(written.num_blocks):
            finished = _decode_finished(folder, number)
            output.write(finished.text)
            decoder.notes.add(finished.notes)
            if decoder.acceptance is not None:
                decoder.acceptance.total += finished.num_outputs
                decoder.acceptance.accepted += finished.num_accepted
        if decoder.notes.num_lines != written.num_lines:
            raise RunError(
                f"{folder.path} has outputs of {decoder.notes.num_lines:,} lines, and the input has "
                f"{written.num_lines:,}: {START_AGAIN}"
            )


def _decode_finished(folder: BlockFolder, number: int) -> FinishedLines:
    """Return a finished block; `RunError` if it is damaged."""
    try:
        return msgspec.msgpack.decode(folder.read_output(number), type=FinishedLines)
    except msgspec.DecodeError:
        raise folder.damage_error(number) from None
