"""Lexicon: sources whose targets are known beforehand, and need no model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec

from pellucid.arguments import CheckedFields, convert_argument
from pellucid.config import DataConfig
from pellucid.data.columns import BadLine
from pellucid.data.examples import read_examples
from pellucid.data.symbols import segmenters


@dataclass(frozen=True)
class Lexicon(CheckedFields):
    """The targets of each source, in the file's order; a target that stands twice counts once."""

    targets: Mapping[str, tuple[str, ...]]
    bad: tuple[BadLine, ...] = ()
    """Lines that could not be read, where they are skipped."""

    def __post_init__(self) -> None:
        """Keep a view of the targets that nobody can change: the hash is that of the content."""
        super().__post_init__()
        object.__setattr__(self, "targets", MappingProxyType(self.targets))

    def __reduce__(self) -> tuple[type["Lexicon"], tuple[dict[str, tuple[str, ...]], tuple[BadLine, ...]]]:
        """Return how a copy is made, which a view of a dict alone cannot be."""
        return type(self), (dict(self.targets), self.bad)

    def __hash__(self) -> int:
        """Return the hash of the content, in which the order of the sources does not count, as in `==`."""
        return hash((frozenset(self.targets.items()), self.bad))


def load_lexicon(path: str | Path, config: DataConfig) -> Lexicon:
    """Pairs of a file: source and target in its first two columns, whatever the training file was like.

    Sources are compared in the Unicode form that the model reads. Errors and bad lines are those of a training file:
    `DataError` for the first unless `config.on_bad_line` is "skip".
    """
    file: Path = convert_argument("path", path, str | Path)
    config = convert_argument("config", config, DataConfig)
    own = msgspec.structs.replace(
        config, format="auto", header=False, source_column="1", target_column="2", features_column=""
    )
    reading, source = read_examples(file, own), segmenters(config).source
    targets: dict[str, dict[str, None]] = {}
    for example in reading.examples:
        targets.setdefault(source.normalised(example.source), {})[example.target] = None
    return Lexicon({source: tuple(each) for source, each in targets.items()}, tuple(reading.bad))
