"""Subcommand export: pellucid export RUN --onnx DIR [--int8] [--check FILE]"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from msgspec import Meta

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.input_flags import PairFileFlags
from pellucid.cli.search_flags import PathFlag
from pellucid.errors import ConfigError

RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
FolderFlag = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]


@dataclass(frozen=True)
class ExportArguments(PairFileFlags):
    """Export the network of a trained run to another format.

    --onnx writes a folder with the encoder and one decoder step as two graphs, the symbols and search settings as JSON,
    and a beam search in Python that needs NumPy and ONNX Runtime only. The export holds the network without the pair
    n-gram model of the run.
    """

    run: RunFolder
    """Folder of a trained run."""
    onnx: FolderFlag = None
    """Folder of the ONNX graphs, created if it does not exist. Requires the extra onnx."""
    opset: Annotated[int, Meta(ge=1, le=1000), tyro.conf.arg(metavar="N")] = 17
    """Version of the ONNX operators, from 17 to the newest of the installed package onnx."""
    int8: bool = False
    """Store the weight matrices as 8-bit integers, with one scale per row; all computation is in float32. The metric of
    the run is measured on the file of --check with both, and the export is refused if it loses more than --max-loss."""
    check: PathFlag = None
    """File of pairs on which the exported graphs are measured, with the columns of the training file. Default: the
    validation file of the run, if it is unchanged."""
    max_loss: Annotated[float, Meta(ge=0), tyro.conf.arg(metavar="POINTS")] = 0.2
    """Highest loss by --int8, in points of the metric of the run: percentage points of exact match, unless the run has
    another training.metric."""


def main(arguments: list[str]) -> int:
    """Write the files of an export, and print their sizes and the metric of the graphs.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: An argument, the run folder or the file of pairs is invalid, the network has a part that the format
            does not support, its metric is too low with 8-bit weights, or a file cannot be written.
    """
    args = parse_arguments(ExportArguments, "export", arguments)
    if args.onnx is None:
        raise ConfigError("export needs a format: --onnx DIR")
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.cli.export_onnx import OnnxExportRequest, export_onnx

    export_onnx(OnnxExportRequest(args.run, args.onnx, args.opset, args.int8, args.check, args.max_loss, args))
    return 0
