"""The file pellucid.json of an export: symbols, normalization and search settings of the network.

It is also in the metadata of both graphs, under the key "pellucid".
"""

from typing import Final, Literal

import msgspec

from pellucid.config.settings import DataConfig, Normalization, SearchConfig
from pellucid.data.vocabulary import Vocabularies, Vocabulary
from pellucid.decoding.length_limits import max_output_length
from pellucid.runtime.run_reader import RunArrays
from pellucid.version import __version__

Weights = Literal["float32", "int8"]
EXPORT_FORMAT: Final = "pellucid-onnx"
"""Name of the format, in the settings of every export."""


class ExportedColumn(msgspec.Struct, frozen=True):
    """Symbols of a column: the division of its text, and their ids."""

    kind: str
    """characters, words, whole (the text is one symbol), subwords (of targets: joined without space), or a separator.
    """
    normalization: Normalization
    """Unicode normalization before the division: nfc, nfd or none."""
    symbols: tuple[str, ...]
    """Symbol i has the id i + 4. Ids of features begin with the number of source ids. Ids 0 to 3 are padding, begin,
    end and unknown symbol."""


class ExportedSearch(msgspec.Struct, frozen=True):
    """Settings of beam search: those of the section `search` of a run."""

    beam_size: int
    max_length: int
    """Maximum output length in symbols, without the end symbol."""
    min_length: int
    max_length_ratio: float
    max_length_offset: int
    min_length_ratio: float
    min_length_offset: int
    length_normalization: str
    length_penalty_alpha: float
    coverage_penalty: float


class ExportedSettings(msgspec.Struct, frozen=True):
    """Content of pellucid.json."""

    weights: Weights
    """Type of the stored weights; all computation is in float32."""
    opset: int
    source: ExportedColumn
    features: ExportedColumn
    target: ExportedColumn
    copies: bool
    """True if the decoder copies source symbols (pointer-generator)."""
    max_source_symbols: int
    search: ExportedSearch
    pair_ngram_weight: float
    """Weight of the pair n-gram model in the predictions of the run, which the export lacks; 0 for none."""
    format: Literal["pellucid-onnx"] = EXPORT_FORMAT
    version: Literal[1] = 1
    created_by: str = f"pellucid {__version__}"

    def to_json(self) -> str:
        """Return the settings as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()


def exported_settings(run: RunArrays, opset: int, weights: Weights, pair_ngram_weight: float) -> ExportedSettings:
    """Return the settings of an export.

    Args:
        run: Run whose network is exported.
        opset: Version of the ONNX operators.
        weights: Type of the stored weights.
        pair_ngram_weight: Weight of the pair n-gram model in the predictions of the run; 0 for none.

    Raises:
        ConfigError: The length limits of the run contradict each other.
    """
    config, vocabularies = run.config, run.vocabularies
    return ExportedSettings(
        weights=weights,
        opset=opset,
        source=_column(config.data, "source", vocabularies.source),
        features=_column(config.data, "features", vocabularies.features),
        target=_column(config.data, "target", vocabularies.target),
        copies=config.decoder.pointer_generator,
        max_source_symbols=config.data.max_sequence_length,
        search=_search(config.search, vocabularies),
        pair_ngram_weight=pair_ngram_weight,
    )


def _column(data: DataConfig, name: str, vocabulary: Vocabulary) -> ExportedColumn:
    """Return the symbols of a column; features have the normalization of sources."""
    normalization = data.target_normalization if name == "target" else data.source_normalization
    return ExportedColumn(getattr(data, f"{name}_symbols"), normalization, vocabulary.symbols)


def _search(search: SearchConfig, vocabularies: Vocabularies) -> ExportedSearch:
    """Return the search settings, with the maximum length that the run derives."""
    values = {name: getattr(search, name) for name in ExportedSearch.__struct_fields__}
    return ExportedSearch(**{**values, "max_length": max_output_length(search, vocabularies)})
