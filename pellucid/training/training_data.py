"""Training data: pairs from files or from their corpus, pretrained embeddings, augmentation, warnings."""

import hashlib
import os
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import torch
from rapidfuzz.distance import Levenshtein

from pellucid.config.settings import Config, DataConfig
from pellucid.data.corpus import CorpusError, EncodedCorpus, ReadingReport, map_corpus, write_corpus
from pellucid.data.examples import (
    BadLine,
    Example,
    column_note,
    count_columns,
    has_header,
    is_header_unknown,
    read_examples,
)
from pellucid.data.headers import HeaderError, check_shared_header, header_note
from pellucid.data.readers import resolve_format
from pellucid.data.tokenizers import Tokenizers, build_tokenizers
from pellucid.data.vectors import read_vectors
from pellucid.data.vocabulary import Vocabularies, learn_tokenizers
from pellucid.decoding.predictor import Predictor
from pellucid.errors import DataError, RunError, quote
from pellucid.files import remove_file
from pellucid.model.network import Network, writing
from pellucid.tasks.registry import configured_task
from pellucid.version import __version__


def foreseen(transducer: Predictor, development: Sequence[Example]) -> Iterator[str]:
    """A sentence for each: one label alone where labels are told apart, and development targets out of reach.

    Out of reach is a target with a symbol that the vocabulary lacks, but where symbols of the source can be copied.
    """
    config, known = transducer.config, frozenset(transducer.vocabularies.target.symbols)
    if (what := configured_task(config).labels.label) and len(known) == 1:
        yield f"every training example has the same {what}, {quote(next(iter(known)))}: there is nothing to tell apart"
    if not config.decoder.pointer_generator:
        cut, known = transducer.tokenizers.target.split, known | {config.data.ignored_tag}
        strange = [symbol for example in development for symbol in sorted(set(cut(example.target)) - known)[:1]]
        if strange:
            others = " or others" if len(set(strange)) > 1 else ""
            held = f"hold {quote(strange[0])}{others}, which training does not teach"
            yield f"{len(strange):,} of {len(development):,} development examples cannot be right: they {held}"


class Covered(NamedTuple):
    """How many of the symbols of a side a file of vectors had."""

    path: Path
    side: str
    found: int
    symbols: int


def adopt_vectors(network: Network, config: Config, vocabularies: Vocabularies) -> tuple[Covered, ...]:
    """Give a new network the vectors that the configuration names; symbols that a file has not keep their random ones.

    They are the network's own from then on, and are saved with it. Errors: `DataError` for a file that does not fit.
    """
    covered: list[Covered] = []
    for side, vocabulary, settings in (
        ("source", vocabularies.source, config.encoder),
        ("target", vocabularies.target, config.decoder),
    ):
        if settings.pretrained:
            half = network.encoder if side == "source" else writing(network).decoder
            path, key = Path(settings.pretrained), "encoder" if side == "source" else "decoder"
            vectors = read_vectors(path, vocabulary, half.table.size, f"{key}.embedding_size")
            half.table.adopt(vectors.ids, torch.from_numpy(vectors.values))
            covered.append(Covered(path, side, len(vectors.ids), len(vocabulary.symbols)))
    return tuple(covered)


WORTH_KEEPING = 1 << 23
"""Symbols from which on a corpus is kept: fewer are read and encoded in the time it takes to load Arrow."""


class Files(NamedTuple):
    """Where the pairs are; the targets apart where source and target are two parallel files."""

    train: Path
    valid: Path
    train_target: Path | None = None
    valid_target: Path | None = None


class Read(NamedTuple):
    """A file was read."""

    path: Path
    examples: int
    bad: Sequence[BadLine]
    blank: int
    note: str
    """What a person should know of it; empty if nothing."""
    target: Path | None = None
    """The file of the targets, where it is another one."""


class Data(NamedTuple):
    """What the files hold: the training examples as texts, or as ids in a corpus that was kept."""

    key: str
    found: ReadingReport
    training: Sequence[Example]
    corpus: EncodedCorpus | None
    development: Sequence[Example]
    reads: tuple[Read, Read]
    columns: int
    """How many columns the training file has; 0 for a corpus, which knows it, and for a file that has none."""


def read_files(files: Files, config: DataConfig, kept: Path) -> Data:
    """Read the files, the training file only where `kept` is no corpus of these very files and settings.

    `DataError` for what cannot be read, and for development data that is the training data.
    """
    key, corpus, note = _key(files, config), None, ""
    if key and kept.exists():
        try:
            corpus = map_corpus(kept, key, bool(config.features_column))
        except CorpusError as error:
            note = f"{kept} is not used, for {error}"
    if corpus is None:
        training, bad, blank = _examples(files.train, config, files.train_target)
    else:
        training, bad, blank = [], list(corpus.found.bad), corpus.found.blank
    try:
        development, valid_bad, valid_blank = _examples(files.valid, config, files.valid_target)
    except HeaderError as error:
        raise HeaderError(f"{error}; {files.train}, which is read in the same way, seems to have none") from error
    shared = _shared(training, development, files) if corpus is None else corpus.found.shared
    overlap = f"{shared:,} of {len(development):,} examples are also in {files.train}" if shared else ""
    count = len(training) if corpus is None else corpus.encoded.source.num_sequences
    header = _header_note(training, development, files, config) if corpus is None else ""
    ignored = column_note(files.train, config, files.train_target) if corpus is None else ""
    reads = (
        Read(files.train, count, bad, blank, "; ".join(filter(None, [note, header, ignored])), files.train_target),
        Read(files.valid, len(development), valid_bad, valid_blank, overlap, files.valid_target),
    )
    columns = count_columns(files.train, config) if corpus is None and not files.train_target else 0
    return Data(key, ReadingReport(tuple(bad), blank, shared), training, corpus, development, reads, columns)


def resolve_data(files: Files, config: DataConfig) -> DataConfig:
    """Return the settings as the run folder keeps them: with what the training file is where nobody has said it.

    That is its format, in which standard input is read at prediction, and whether it has a header.
    """
    format = "text" if files.train_target else resolve_format(files.train, config)
    return msgspec.structs.replace(config, format=format, header=has_header(config))


def encoded(data: Data, config: Config) -> EncodedCorpus:
    """The training examples as ids, as they were kept, or encoded now as the model needs them."""
    if data.corpus is not None:
        return data.corpus
    cut, task = learn_tokenizers(data.training, config.data), configured_task(config)
    vocabularies = msgspec.structs.replace(task.learn_vocabularies(data.training, cut, config), columns=data.columns)
    return EncodedCorpus(
        data.key, data.found, vocabularies, task.example_encoder(config)(data.training, cut, vocabularies)
    )


def keep(path: Path, corpus: EncodedCorpus, files: Files, config: DataConfig) -> EncodedCorpus:
    """Write a corpus that is worth it to the disk, and give up its memory for pages of the file.

    A corpus whose files have changed while they were read, or cannot be read twice, has no key that will be found.
    """
    if sum(len(column.values) for column in corpus.encoded) < WORTH_KEEPING:
        return corpus
    if corpus.key != _key(files, config):
        corpus = corpus._replace(key="")
    try:
        remove_file(path)
        write_corpus(path, corpus)
        return map_corpus(path, corpus.key, bool(config.features_column))
    except (CorpusError, RunError):  # of a disk that is full, or that cannot map: memory has it all the same
        with suppress(RunError):
            remove_file(path)
        return corpus


def _examples(path: Path, config: DataConfig, target: Path | None) -> tuple[list[Example], list[BadLine], int]:
    """The examples of a file, its bad lines, and how many of its lines were blank."""
    reading = read_examples(path, config, target)
    return reading.examples, reading.bad, reading.blank


def _header_note(training: Sequence[Example], development: Sequence[Example], files: Files, config: DataConfig) -> str:
    """What a person should know where a file may begin with a header; `HeaderError` where there is no doubt of it."""
    if not is_header_unknown(files.train, config, files.train_target):
        return ""
    both = is_header_unknown(files.valid, config, files.valid_target)
    note = check_shared_header(training, development, str(files.valid)) if both else ""
    return note or header_note(training)


def _key(files: Files, config: DataConfig) -> str:
    """A hash of all that decides what is read: program, settings, names, and every byte.

    Empty for a pipe, which can be read only once, and for what cannot be read at all.
    """
    digest = hashlib.sha256(msgspec.json.encode((__version__, unicodedata.unidata_version, config)))
    for path in files:
        digest.update(b"\0" if path is None else os.fsencode(path) + b"\0")
        if path is None:
            continue
        if not os.path.isfile(path):
            return ""
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError:
            return ""
    return digest.hexdigest()


def _shared(training: Sequence[Example], development: Sequence[Example], files: Files) -> int:
    """How many development examples are training examples too; `DataError` where the two files hold the same."""
    both = set(development).intersection(training)
    shared = sum(example in both for example in development)
    if shared == len(development) and all(example in both for example in training):
        raise DataError(
            f"{files.valid} holds the same examples as {files.train}: a model judged by what it was trained on "
            f"says nothing; give examples that are not in the training file"
        )
    return shared


TAG = "⟨copy⟩"
"""The tag beside a word that is to be written as it is read."""
STEM = 3
"""Symbols in a row that source and target share, from which on they count as a stem."""
STREAM = 0x61756700
"""What tells this use of the seed from the others."""


class Augmented(NamedTuple):
    """Pairs were made up."""

    kind: Literal["copy", "hallucinate"]
    examples: int
    """Those of the file."""
    made: int


def augmented(data: Data, config: Config) -> tuple[Data, Augmented]:
    """The training examples with made-up ones behind them; `DataError` where none can be made.

    They then pass through everything as the others do, the vocabularies included. A made-up text longer than
    `data.max_length` is left out, as a bad line would be.
    """
    kind, examples = config.training.augmentation, data.training
    assert kind != "none", "augmentation was asked for"
    generator = np.random.default_rng([config.seed, STREAM])
    wanted = round(config.training.augmentation_ratio * len(examples))
    cut, limit = build_tokenizers(config.data), config.data.max_length
    if kind == "copy":
        made = copied(examples, cut, wanted, generator)
    else:
        made = hallucinated(examples, cut, wanted, generator)
    made = [each for each in made if each.source and len(cut.source.split(each.source)) <= limit]
    return data._replace(training=[*examples, *made]), Augmented(kind, len(examples), len(made))


def copied(examples: Sequence[Example], cut: Tokenizers, wanted: int, generator: np.random.Generator) -> list[Example]:
    """Targets to be written as they are read, with `TAG` in place of features, each as often as any other.

    As Liu & Hulden 2022, section 3, do with the forms of a training set. The symbols of the target are joined as those
    of a source are: phones between spaces become a word.
    """
    texts = [cut.source.join(cut.target.split(example.target)) for example in examples]
    rounds = -(-wanted // len(examples))
    rows = [row for _ in range(rounds) for row in generator.permutation(len(examples)).tolist()]
    return [Example(texts[row], examples[row].target, TAG) for row in rows[:wanted]]


def hallucinated(
    examples: Sequence[Example], cut: Tokenizers, wanted: int, generator: np.random.Generator
) -> list[Example]:
    """Examples whose stems, runs of `STEM` or more symbols that source and target share, are random symbols instead.

    The same ones on both sides, drawn from all symbols that stand on both. Anastasopoulos & Neubig 2019, section 3.2;
    aligned here by the fewest edits.
    """
    pairs = [(cut.source.split(example.source), cut.target.split(example.target)) for example in examples]
    stems = [_stems(*pair) for pair in pairs]
    rows = [row for row, found in enumerate(stems) if found]
    if not rows:
        raise DataError(
            f'training.augmentation = "hallucinate" needs pairs whose sides share {STEM} symbols in a row; none here do'
        )
    read, written = ({symbol for pair in pairs for symbol in pair[side]} for side in (0, 1))
    alphabet, made = sorted(read & written), list[Example]()
    for row in generator.choice(rows, wanted).tolist():
        source, target = (list(side) for side in pairs[row])
        for stem in stems[row]:
            drawn = [alphabet[at] for at in generator.integers(len(alphabet), size=stem.size).tolist()]
            source[stem.a : stem.a + stem.size] = target[stem.b : stem.b + stem.size] = drawn
        joined = cut.source.join(source), cut.target.join(target)
        made.append(Example(*joined, examples[row].features))
    return made


def _stems(source: Sequence[str], target: Sequence[str]) -> list["_Stem"]:
    """Where the two share `STEM` or more symbols in a row."""
    blocks = Levenshtein.opcodes(source, target).as_matching_blocks()
    return [_Stem(*block) for block in blocks if block[2] >= STEM]


class _Stem(NamedTuple):
    """A run of symbols from place a of the source and place b of the target."""

    a: int
    b: int
    size: int
