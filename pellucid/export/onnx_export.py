"""Export of the network of a run to a folder with ONNX graphs, settings and a beam search."""

from collections.abc import Mapping
from pathlib import Path

from pellucid.config.task_settings import uses_pair_ngram
from pellucid.decoding.hypothesis_scorer import allows_pair_ngram_ranking
from pellucid.export.onnx_settings import EXPORT_FORMAT, ExportedSettings, Weights, exported_settings
from pellucid.export.readme import export_readme
from pellucid.files import file_exists, make_folder, read_bytes, write_together
from pellucid.run_folder.log import load_run_log
from pellucid.run_folder.pair_ngram_file import load_pair_ngram
from pellucid.run_folder.provisional_weight import provisional_weight
from pellucid.run_folder.run_files import PAIR_NGRAM
from pellucid.runtime.run_reader import RunArrays

ENCODER, DECODER_STEP, SETTINGS = "encoder.onnx", "decoder_step.onnx", "pellucid.json"
BEAM_SEARCH, README = "beam_search.py", "README.md"
EXPORT_FILES = (ENCODER, DECODER_STEP, SETTINGS, BEAM_SEARCH, README)
"""Names of the files of an export."""


def export_files(run: RunArrays, opset: int, weights: Weights, pair_ngram_weight: float) -> dict[str, bytes]:
    """Return the files of an export by name.

    Args:
        run: Run whose network is exported, which `check_exportable` accepts.
        opset: Version of the ONNX operators, which `check_opset` accepts.
        weights: Type of the stored weights.
        pair_ngram_weight: Weight of the pair n-gram model in the predictions of the run; 0 for none.

    Raises:
        ConfigError: The length limits of the run contradict each other.
    """
    settings = exported_settings(run, opset, weights, pair_ngram_weight)
    return {
        **_graphs(run, settings),
        SETTINGS: f"{settings.to_json()}\n".encode(),
        BEAM_SEARCH: Path(__file__).with_name(BEAM_SEARCH).read_bytes(),
        README: export_readme(settings).encode(),
    }


def _graphs(run: RunArrays, settings: ExportedSettings) -> dict[str, bytes]:
    """Return the two graphs, with the settings in their metadata."""
    # onnx is an optional dependency.
    from pellucid.export.onnx_decoder import DecoderStepGraph
    from pellucid.export.onnx_encoder import EncoderGraph
    from pellucid.export.onnx_graph import GraphOptions

    options = GraphOptions(settings.opset, settings.weights == "int8")
    metadata = {"pellucid": settings.to_json()}
    return {
        ENCODER: EncoderGraph(run.config, run.network, options).build(metadata).SerializeToString(),
        DECODER_STEP: DecoderStepGraph(run.config, run.network, options).build(metadata).SerializeToString(),
    }


def write_export(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of an export. None is replaced unless all can be written, and the settings are complete last.

    Args:
        folder: Folder, created if it does not exist.
        files: Contents by file name.

    Raises:
        RunError: The folder or a file cannot be written.
    """
    make_folder(folder)
    write_together({folder / name: content for name, content in files.items()}, mark=folder / SETTINGS)


def is_export(folder: Path) -> bool:
    """Return whether a folder holds an export, which another one may replace.

    Args:
        folder: The folder.

    Raises:
        RunError: Its file of settings cannot be read.
    """
    path = folder / SETTINGS
    return file_exists(path) and f'"format": "{EXPORT_FORMAT}"'.encode() in read_bytes(path)


def graph_size(files: Mapping[str, bytes]) -> int:
    """Return the size of both graphs in bytes.

    Args:
        files: Files of an export.
    """
    return len(files[ENCODER]) + len(files[DECODER_STEP])


def pair_ngram_weight(run: RunArrays) -> float:
    """Return the weight of the pair n-gram model in the predictions of a run; 0 if it takes no part in them.

    Args:
        run: The run.

    Raises:
        RunError: The file of the model is damaged.
    """
    path = run.folder / PAIR_NGRAM
    if not (allows_pair_ngram_ranking(run.config.search) and uses_pair_ngram(run.config) and file_exists(path)):
        return 0.0
    weight = load_pair_ngram(path, run.vocabularies).weight
    return provisional_weight(run.identity, load_run_log(run.folder)) if weight is None else weight
