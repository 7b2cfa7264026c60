"""Warnings and notes about data: targets that a model cannot produce, repeated examples, spaces, overlap of sets."""

from collections.abc import Iterator, Sequence

from pellucid.config.settings import Config, DataConfig
from pellucid.data.examples import Example, ExampleFile
from pellucid.data.tokenizers import build_tokenizers, symbol_kind_warnings
from pellucid.data.validation_split import describe_overlap, has_large_overlap
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.predictor import Predictor
from pellucid.errors import DataError, count_noun, list_lines, quote
from pellucid.tasks.registry import get_task

MIN_FORGETTING_CHECK = 100
"""Minimum number of validation examples of a fine-tuning without earlier pairs that has no warning."""
OVERLAP_ADVICE = "give a file of other examples, or leave out --valid to hold some out"


def check_vocabularies(vocabularies: Vocabularies, config: Config) -> None:
    """Check that `data.min_count` leaves symbols to learn from; a pointer-generator needs no target symbols.

    Args:
        vocabularies: Vocabularies of the training examples.
        config: Configuration.

    Raises:
        DataError: No source symbol, or no target symbol, occurs so often.
    """
    needed = ["source"] if config.decoder.pointer_generator else ["source", "target"]
    for name in needed:
        if getattr(vocabularies, f"longest_{name}") and not getattr(vocabularies, name).symbols:
            raise DataError(
                f"data.min_count = {config.data.min_count:,}: no {name} symbol of the training examples occurs so "
                "often; lower data.min_count (--min-count)"
            )


def data_warnings(
    predictor: Predictor, validation_examples: Sequence[Example], line_numbers: Sequence[int]
) -> Iterator[str]:
    """Yield warnings about data on which a training cannot succeed, or hardly, or on which a setting gains nothing.

    All training examples of a classification have one label; a side is split into characters, but has spaces between
    short symbols, as phones have, or looks like IPA; or validation targets cannot be produced. A target cannot be
    produced if it has a symbol outside the vocabulary, other than the ignored tag; a pointer-generator is not checked,
    since it may copy the symbol from the source. A sampled softmax gains nothing if it samples half of the target
    symbols or more. A training that begins from another run without its pairs may forget them, which a small validation
    set does not show.

    Args:
        predictor: The model, for its configuration, vocabularies and tokenizers.
        validation_examples: Validation examples.
        line_numbers: Number of the line of each validation example.

    Yields:
        Sentences.
    """
    config, target_symbols = predictor.config, frozenset(predictor.vocabularies.target.symbols)
    if (noun := get_task(config.task).labels.constant_output_noun) and len(target_symbols) == 1:
        only = quote(next(iter(target_symbols)))
        yield f"every training example has the same {noun}, {only}: there is nothing to learn"
    sources, targets = ([getattr(example, side) for example in validation_examples] for side in ("source", "target"))
    yield from symbol_kind_warnings(sources, targets, config.data)
    if config.training.init_from and not config.training.mix_in and len(validation_examples) < MIN_FORGETTING_CHECK:
        yield (
            f"the model may forget earlier pairs, and {count_noun(len(validation_examples), 'validation example')} may "
            "not show it: use --mix-in FILE to repeat earlier pairs, or include some of them in the file of --valid"
        )
    num_sampled = config.training.sampled_softmax
    if 2 * num_sampled >= len(predictor.vocabularies.target):  # special symbols are sampled as well
        num_targets = len(predictor.vocabularies.target.symbols)
        yield (
            f"training.sampled_softmax = {num_sampled:,} saves no time: there are only {num_targets:,} target symbols; "
            f"without it, the softmax is exact"
        )
    if not config.decoder.pointer_generator:
        tokenize, target_symbols = predictor.tokenizers.target.split, target_symbols | {config.data.ignored_tag}
        unknown = [
            (symbol, line, len(symbols) == 1)
            for example, line in zip(validation_examples, line_numbers, strict=True)
            for symbols in [tokenize(example.target)]
            for symbol in sorted(set(symbols) - target_symbols)[:1]
        ]
        if unknown:
            others = " or others" if len({symbol for symbol, *_ in unknown}) > 1 else ""
            reason = f"no training target contains {quote(unknown[0][0])}{others}"
            places = list_lines([line for _, line, _ in unknown])
            num_single = sum(is_single for *_, is_single in unknown)
            is_split_wrongly = config.data.target_symbols == "words" and 2 * num_single > len(validation_examples)
            advice = "; most targets are one word: leave out --target-symbols words" if is_split_wrongly else ""
            yield (
                f"{len(unknown):,} of {len(validation_examples):,} validation targets cannot be produced by the model: "
                f"{reason} ({places} of the validation file){advice}"
            )


def text_note(reading: ExampleFile, config: DataConfig, treatment: str, unit: str) -> str:
    """Return a note about exact duplicates, and about spaces at the ends of texts that are symbols; "" if none are.

    Args:
        reading: Content of a file.
        config: Data settings.
        treatment: What happens with each duplicate: "trained on".
        unit: Noun of a row.
    """
    notes, tokenizers, examples = list[str](), build_tokenizers(config), reading.examples
    num_repeated = len(examples) - len(set(examples))
    if num_repeated:
        are = "example repeats" if num_repeated == 1 else "examples repeat"
        places = list_lines(_repeated_lines(reading), unit=unit)
        notes.append(f"{num_repeated:,} {are} an earlier one exactly ({places}): each is {treatment}")
    for side, tokenizer in (("source", tokenizers.source), ("target", tokenizers.target)):
        texts = ((line, getattr(example, side)) for line, example in zip(reading.line_numbers, examples, strict=True))
        spaced = [(line, text) for line, text in texts if text != text.strip()]
        # Tokenizers of words ignore such spaces; the others do not.
        lines = [line for line, text in spaced if tokenizer.split(text) != tokenizer.split(text.strip())]
        if lines:
            kept = "is a symbol" if tokenizer.kind in ("characters", "subwords") else "is a part of a symbol"
            notes.append(_space_note(side, lines, unit, kept))
    return "; ".join(notes)


def _space_note(side: str, lines: Sequence[int], unit: str, kept: str) -> str:
    """Return a note about the texts of some lines, which begin or end with a space."""
    begin = f"{side} begins or ends" if len(lines) == 1 else f"{side}s begin or end"
    places = list_lines(lines, unit=unit)
    return f"{len(lines):,} {begin} with a space, which {kept} ({places}): remove such spaces if they mean nothing"


def _repeated_lines(reading: ExampleFile) -> list[int]:
    """Return the numbers of the lines whose example occurs before, in order."""
    known, lines = set[Example](), list[int]()
    for line, example in zip(reading.line_numbers, reading.examples, strict=True):
        if example in known:
            lines.append(line)
        known.add(example)
    return lines


def overlap_note(num_shared: int, num_examples: int, training_set: str) -> str:
    """Return a note on validation examples that are training examples, too, with advice; "" if there is none.

    Args:
        num_shared: Number of validation examples that are training examples.
        num_examples: Number of validation examples.
        training_set: Name of the training set.
    """
    note = describe_overlap(num_shared, num_examples, training_set)
    return f"{note}; {OVERLAP_ADVICE}" if has_large_overlap(num_shared, num_examples) else note
