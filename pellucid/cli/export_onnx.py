"""The export of a run to ONNX graphs: messages, measurement, and the refusal of a lossy export."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pellucid.cli.input_flags import PairFileFlags, file_data_config
from pellucid.cli.messages import print_message
from pellucid.cli.sources import is_run, print_result
from pellucid.data.examples import Example, pair_config
from pellucid.data.tokenizers import build_tokenizers
from pellucid.errors import InputError, count_noun
from pellucid.export.export_check import (
    METRIC_NAMES,
    ExportScore,
    decode_with_graphs,
    decode_with_run,
    export_metric,
    score_outputs,
)
from pellucid.export.onnx_export import (
    EXPORT_FILES,
    export_files,
    graph_size,
    is_export,
    pair_ngram_weight,
    write_export,
)
from pellucid.export.support import check_exportable, check_opset, check_packages
from pellucid.files import file_exists
from pellucid.run_evaluation import evaluation_data_config, read_evaluation_blocks
from pellucid.run_folder.advice import check_folder_exists
from pellucid.run_folder.run_files import load_run_config
from pellucid.runtime.run_reader import RunArrays, read_run
from pellucid.viewer.inputs import ValidationFileError, find_validation_file

MIN_CORRECT = 50
"""Number of correct outputs below which the exact match of 8-bit weights says little."""


class OnnxExportRequest(NamedTuple):
    """Flags of an export to ONNX."""

    run: Path
    """Run folder."""
    folder: Path
    """Folder of the export."""
    opset: int
    """Version of the ONNX operators."""
    int8: bool
    """Store matrices in 8 bits."""
    check: Path | None
    """File of pairs to measure the graphs on; None for the validation file."""
    max_drop: float
    """Largest drop of the metric by 8-bit weights, in points."""
    reading: PairFileFlags
    """Flags for reading the file of pairs."""


class MeasuredPairs(NamedTuple):
    """Pairs on which an export is measured."""

    name: str
    """Path of their file."""
    examples: list[Example]


def export_onnx(request: OnnxExportRequest) -> None:
    """Build the graphs, measure them, and write the files of the export.

    Args:
        request: Flags.

    Raises:
        InputError: A package is missing, the network or a flag is not supported, a file cannot be read or written, or
            the metric falls by too much with 8-bit weights.
    """
    check_packages()
    check_opset(request.opset)
    check_folder_exists(request.run)
    check_exportable(request.run)
    _check_folder(request.folder)
    run, pairs = read_run(request.run), _read_pairs(request)
    weight = pair_ngram_weight(run)
    if weight:
        print_message(
            f"the export holds the network without the pair n-gram model of {request.run}, which ranks outputs with a "
            f"weight of {weight:g}: its outputs are those of pellucid predict --no-pair-ngram"
        )
    exports = {"float32": export_files(run, request.opset, "float32", weight)}
    if request.int8:
        exports["int8"] = export_files(run, request.opset, "int8", weight)
    lines = [f"{name}: {graph_size(files):,} bytes in two graphs" for name, files in exports.items()]
    if pairs is not None:
        print_message(f"decoding {pairs.name}, {count_noun(len(pairs.examples), 'pair')}")
        scores = _score_exports(run, exports, pairs)
        lines += _score_lines(scores, pairs)
        if request.int8:
            _report_few_correct(scores, pairs)
            _check_drop(scores, pairs, request.max_drop)
        if weight:
            lines.append(_pair_ngram_line(run, pairs))
    files = list(exports.values())[-1]
    write_export(request.folder, files)
    print_message(f"wrote {request.folder}: {', '.join(files)}")
    print_result(*lines)


def _check_folder(folder: Path) -> None:
    """Raise `InputError` if the files of an export cannot be written to a folder, or would replace other files."""
    if is_run(folder):
        raise InputError(f"--onnx {folder} is a run folder: name another folder for the graphs")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--onnx {folder} is a file: name a folder for the graphs")
    existing = next((name for name in EXPORT_FILES if file_exists(folder / name)), None)
    if existing is not None and not is_export(folder):
        raise InputError(
            f"--onnx {folder} has a file {existing}, which no export has written: name another folder for the graphs"
        )


def _read_pairs(request: OnnxExportRequest) -> MeasuredPairs | None:
    """Return the pairs of --check, or of the validation file; None, with a message, if that file is not there.

    Raises:
        InputError: The file cannot be read, or --int8 has no file to measure.
    """
    data, target, file = load_run_config(request.run).data, None, request.check
    if file is not None:
        data = evaluation_data_config(file_data_config(pair_config(data), request.reading, file), file, "auto")
    else:
        try:
            file, target, data = find_validation_file(request.run, data)
        except ValidationFileError as error:
            if request.int8:
                raise InputError(f"--int8 is measured on a file of pairs: give --check FILE ({error})") from error
            print_message(f"the graphs are not measured: {error.args[0]} by --check")
            return None
    blocks = [block for block, _ in read_evaluation_blocks(file, target, data, None, print_message)]
    for block in blocks:
        for line in block.bad_lines:
            print_message(f"skipped {line}")
    return MeasuredPairs(str(file), [example for block in blocks for example in block.examples])


def _score_exports(
    run: RunArrays, exports: Mapping[str, Mapping[str, bytes]], pairs: MeasuredPairs
) -> dict[str, ExportScore]:
    """Return the metric of each export."""
    outputs = {name: decode_with_graphs(files, pairs.examples) for name, files in exports.items()}
    return {name: _score(run, pairs, decoded) for name, decoded in outputs.items()}


def _score(run: RunArrays, pairs: MeasuredPairs, outputs: Sequence[tuple[str, ...]]) -> ExportScore:
    """Return the metric of outputs of all pairs."""
    tokenizers = build_tokenizers(run.config.data, run.vocabularies.pieces)
    return score_outputs(pairs.examples, outputs, tokenizers, export_metric(run.config))


def _score_lines(scores: Mapping[str, ExportScore], pairs: MeasuredPairs) -> list[str]:
    """Return a line with the metric of each export; that of 8-bit weights is compared with float32."""
    reference = scores["float32"]
    lines = [f"{METRIC_NAMES[reference.metric]} on {pairs.name}, {count_noun(len(pairs.examples), 'pair')}:"]
    lines.append(f"  float32: {reference.value:.2f} %")
    if "int8" in scores:
        score = scores["int8"]
        changed = count_noun(score.num_changed(reference), "output")
        lines.append(f"  int8: {score.value:.2f} % ({score.value - reference.value:+.2f} points, {changed} changed)")
    return lines


def _report_few_correct(scores: Mapping[str, ExportScore], pairs: MeasuredPairs) -> None:
    """Print a message if so few outputs are correct that a drop of exact match can hardly show."""
    reference, count = scores["float32"], len(pairs.examples)
    correct = round(reference.value * count / 100)
    if reference.metric == "exact_match" and correct < MIN_CORRECT:
        changed = count_noun(scores["int8"].num_changed(reference), "output")
        print_message(
            f"only {correct} of {count_noun(count, 'output')} correct with float32, so a drop of exact match can "
            f"hardly show, and one pair is {100 / count:.2g} points; 8-bit weights change {changed}: train longer, or "
            "give a file of more pairs by --check"
        )


def _check_drop(scores: Mapping[str, ExportScore], pairs: MeasuredPairs, max_drop: float) -> None:
    """Raise `InputError` if the metric falls by more than `max_drop` points with 8-bit weights."""
    reference, score = scores["float32"], scores["int8"]
    drop = score.metric_drop(reference)
    if round(drop, 6) > max_drop:
        raise InputError(
            f"--int8 changes the {METRIC_NAMES[score.metric]} on {pairs.name} from {reference.value:.2f} % to "
            f"{score.value:.2f} %, and the largest drop is {max_drop:g} points: nothing is written; export without "
            f"--int8, or accept the drop by --max-drop {drop:.2f}"
        )


def _pair_ngram_line(run: RunArrays, pairs: MeasuredPairs) -> str:
    """Return a line with the metric of the run itself, whose pair n-gram model is not exported."""
    score = _score(run, pairs, decode_with_run(run.folder, pairs.examples))
    return f"  pellucid predict, with the pair n-gram model: {score.value:.2f} %"
