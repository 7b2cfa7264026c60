"""Subcommand export: pellucid export RUN --onnx DIR [--int8] [--check FILE], or export RUN [RUN2] --html FILE"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro
from msgspec import Meta

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.input_flags import PairFileFlags
from pellucid.cli.output_files import check_output_files, check_output_folder
from pellucid.cli.search_flags import PathFlag
from pellucid.errors import ConfigError

RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
SecondRunFolder = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN2]")]
TextFlag = Annotated[str | None, tyro.conf.arg(metavar="TEXT")]
WeightsFlag = Annotated[Literal["float32", "float16", "int8"], tyro.conf.arg(metavar="{float32,float16,int8}")]
FolderFlag = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]


ONNX_FLAGS = (
    *("opset", "int8", "check", "max_drop"),
    *(field.name for field in fields(PairFileFlags)),
)
"""Flags that only --onnx reads."""
MAX_DROP = 0.2
"""Largest drop of the metric by 8-bit weights if --max-drop is not given, in points."""


@dataclass(frozen=True)
class ExportArguments(PairFileFlags):
    """Export the network of a trained run to another format.

    --onnx writes a folder with the encoder and one decoder step as two graphs, the symbols and search settings as JSON,
    and a beam search in Python that needs NumPy and ONNX Runtime only. The export holds the network without the pair
    n-gram model of the run.

    --html writes a web page, one file, that runs the network in the browser without a server: type a source to see
    outputs, attention weights and the beam; change attention or the first symbols of the output. With a second run, the
    page compares both. It shows the network without the pair n-gram model of the run.

    In the texts of --source-column, --target-column, --features-column, --class-column, --delimiter and --header, FILE
    is the file of --check.
    """

    run: RunFolder
    """Folder of a trained run."""
    run2: SecondRunFolder = None
    """With --html, folder of a second run, to compare with the first."""
    html: PathFlag = None
    """File of the web page, such as model.html."""
    weights: WeightsFlag = "float32"
    """With --html, number format of the stored weights: float32 (the outputs of the run), float16 (half the size), or
    int8 (8-bit integers with one scale per row). All computation is in float32."""
    source: TextFlag = None
    """With --html, first source on the page. Default: the first source of the validation file, if it is unchanged."""
    onnx: FolderFlag = None
    """Folder of the ONNX graphs, created if it does not exist. Requires the extra onnx."""
    opset: Annotated[int, Meta(ge=1, le=1000), tyro.conf.arg(metavar="N")] = 17
    """Version of the ONNX operators, from 17 to the newest of the installed package onnx."""
    int8: bool = False
    """With --onnx, store the weight matrices as 8-bit integers, with one scale per row; all computation is in float32.
    The metric of the run is measured on the file of --check with both, and the export is refused if it falls by more
    than --max-drop."""
    check: PathFlag = None
    """File of pairs on which the exported graphs are measured, with the columns of the training file. Default: the
    validation file of the run, if it is unchanged."""
    max_drop: Annotated[Annotated[float, Meta(ge=0)] | None, tyro.conf.arg(metavar="POINTS")] = None
    """With --int8, largest drop of the metric of the run (default: 0.2), in points: percentage points of exact match,
    unless the run has another training.metric."""


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
    _check_formats(args)
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    if args.onnx is not None:
        from pellucid.export.onnx_export import EXPORT_FILES

        check_output_folder(args, "onnx", EXPORT_FILES)
        from pellucid.cli.export_onnx import OnnxExportRequest, export_onnx

        max_drop = MAX_DROP if args.max_drop is None else args.max_drop
        export_onnx(OnnxExportRequest(args.run, args.onnx, args.opset, args.int8, args.check, max_drop, args))
    if args.html is not None:
        check_output_files(args, {"html": ""})
        from pellucid.cli.export_html import export_html

        folders = [args.run] if args.run2 is None else [args.run, args.run2]
        export_html(folders, args.html, args.weights, args.source)
    return 0


def _check_formats(args: ExportArguments) -> None:
    """Raise `ConfigError` unless the flags are those of one format."""
    if (args.onnx is None) == (args.html is None):
        raise ConfigError("export needs one format: --onnx DIR or --html FILE")
    if args.html is None and (args.run2 is not None or args.source is not None or args.weights != "float32"):
        raise ConfigError("a second run, --source and --weights need --html FILE")
    defaults = ExportArguments(run=args.run)
    if args.onnx is None and any(getattr(args, name) != getattr(defaults, name) for name in ONNX_FLAGS):
        raise ConfigError("--opset, --int8, --check, --max-drop and the columns of a file need --onnx DIR")
    if args.max_drop is not None and not args.int8:
        raise ConfigError("--max-drop limits the drop of the metric by 8-bit weights, and needs --int8")
