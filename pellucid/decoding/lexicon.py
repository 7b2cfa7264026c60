"""Lexicons: targets of known sources, from a file of pairs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pellucid.argument_checks import CheckedFields, convert_argument
from pellucid.config.settings import DataConfig
from pellucid.data.examples import read_lexicon_examples
from pellucid.data.readers import BadLine
from pellucid.data.tokenizers import build_tokenizers
from pellucid.errors import quote


@dataclass(frozen=True)
class Lexicon(CheckedFields):
    """Targets of known sources, which a search returns without asking the model. It is immutable and hashable.

    Raises:
        ArgumentError: A field has a wrong type.
    """

    targets: Mapping[str, tuple[str, ...]]
    """Target texts by source text, the best first; duplicates are removed.

    Sources are in the Unicode normalization of the model.
    """
    bad_lines: tuple[BadLine, ...] = ()
    """Malformed lines of the file that were skipped."""
    notes: tuple[str, ...] = ()
    """Notes about rows of the file that can decode no source, or few."""

    def __post_init__(self) -> None:
        """Check the types, remove duplicate targets, and make the mapping read-only, as the hash needs."""
        super().__post_init__()
        targets = {source: tuple(dict.fromkeys(texts)) for source, texts in self.targets.items()}
        object.__setattr__(self, "targets", MappingProxyType(targets))

    def __reduce__(
        self,
    ) -> tuple[type["Lexicon"], tuple[dict[str, tuple[str, ...]], tuple[BadLine, ...], tuple[str, ...]]]:
        """Return the pickle form; a view of a dict cannot be pickled."""
        return type(self), (dict(self.targets), self.bad_lines, self.notes)

    def __hash__(self) -> int:
        """Return the hash of the content. Like equality, it ignores the order of the sources."""
        return hash((frozenset(self.targets.items()), self.bad_lines, self.notes))


def load_lexicon(path: str | Path, config: DataConfig, num_columns: int = 0) -> Lexicon:
    """Read a lexicon from a file of pairs: with the columns of the training file, or of two columns without header.

    A header that contains the names of the source and target columns of the training file selects them; for columns
    that were selected by number, the numbers do. Otherwise, a file of two columns has the source in the first and the
    target in the second. Any other file is refused. Sources are compared in the Unicode normalization of the model.

    Args:
        path: File of pairs; its ending selects the format, else it is TSV.
        config: Data settings of the model, `model.config.data`. Features are not read.
        num_columns: Number of columns of the training file, `model.vocabularies.columns`: where columns were selected
            by number, a file of more than two columns needs this number; 0, the default, allows any.

    Returns:
        The lexicon; its field `bad_lines` holds the malformed lines that were skipped. Rows without a target are not
        read, and counted in `notes`.

    Raises:
        ArgumentError: An argument has a wrong type.
        DataError: The file cannot be read, holds no pair, or has neither the columns of the training file nor two
            columns; or a line is malformed, and `config.on_bad_line` is "stop".
    """
    lexicon_path: Path = convert_argument("path", path, str | Path)
    config = convert_argument("config", config, DataConfig)
    num_columns = convert_argument("num_columns", num_columns, int)
    result, num_without_target = read_lexicon_examples(lexicon_path, config, num_columns)
    source_tokenizer = build_tokenizers(config).source
    targets: dict[str, dict[str, None]] = {}
    for example in result.examples:
        targets.setdefault(source_tokenizer.normalize(example.source), {})[example.target] = None
    notes = list[str]()
    if num_without_target:
        notes.append(f"{lexicon_path}: rows without a target, which are not used: {num_without_target:,}")
    spaced = [example.source for example in result.examples if example.source != example.source.strip()]
    if spaced:
        notes.append(
            f"{lexicon_path}: sources that begin or end with a space, and match inputs with the same spaces only: "
            f"{len(spaced):,}, such as {quote(spaced[0])}"
        )
    several = [source for source, texts in targets.items() if len(texts) > 1]
    if several:
        notes.append(
            f"{lexicon_path}: sources with several targets, of which the first one is the output: {len(several):,}, "
            f"such as {quote(several[0])}"
        )
    return Lexicon({source: tuple(texts) for source, texts in targets.items()}, tuple(result.bad_lines), tuple(notes))
