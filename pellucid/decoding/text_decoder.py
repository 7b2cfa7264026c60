"""Decoding of running text: the words of each line are replaced by their outputs, and all else stays as it is."""

import string
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pellucid.argument_checks import SURROGATES, argument_error, check_arguments
from pellucid.data.context import sentence_contexts
from pellucid.data.examples import Example, length_error
from pellucid.data.lines import strip_newline
from pellucid.data.text_words import WordRule, WordSpan
from pellucid.decoding.base_predictor import BasePredictor
from pellucid.decoding.confidence import reaches_confidence
from pellucid.decoding.streaming import MAX_SOURCES, chunked
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import Origin
from pellucid.errors import ArgumentError, ConfigError, DataError, quote

MAX_LINE_WORDS = 2**20
"""Maximum number of words of a line: each takes some hundred bytes, with its output."""
MAX_CACHED_WORDS = 2**15
"""Maximum number of words whose outputs are kept for later lines."""
TEMPLATE_FIELDS = ("output", "word")
"""Names that a template may contain."""
LINE_ENDS = {ord(character): ascii(character)[1:-1] for character in "\r\n"}
"""Python escapes of the characters of a line end, by code point."""


class WordOutput(NamedTuple):
    """Output of a word, without the attention weights of its trace."""

    source: str
    """The word as it was decoded: as in the text, or in lower case."""
    output: str
    log_probability: float | None
    """Log-probability (natural logarithm) by the network; 0 for an entry of the lexicon, and None before the first
    validation of the network."""
    confidence: float | None
    """Estimated probability that the output is correct, 0 to 1; None without a fitted confidence."""
    origin: Origin
    """ "search", "lexicon" for an entry of the lexicon, or "pair_ngram" before the first validation of the network."""
    is_accepted: bool
    """False if the confidence is below the required one; the word then stays as it is."""
    finished: bool
    """False if the output was truncated at the maximum length."""
    unknown: tuple[str, ...]
    """Symbols of the word that are not in the vocabulary."""
    symbols: tuple[str, ...]
    """Symbols of the output."""


class TextWord(NamedTuple):
    """Word of a text with its output, and the positions of both in characters (Unicode code points)."""

    text: str
    """The word as in the text."""
    span: WordSpan
    """Position in the text."""
    output_span: WordSpan
    """Position of its replacement in the decoded text."""
    output: WordOutput


class DecodedText(NamedTuple):
    """A line of text with its words replaced by their outputs."""

    text: str
    output: str
    r"""The decoded text. The characters between the words are those of `text`.

    Line breaks in outputs, which a lexicon may have, are escaped (\n, \r): a line stays a line.
    """
    words: tuple[TextWord, ...]
    """Words in their order."""


class WordInContext(NamedTuple):
    """A word of a line, with the words around it."""

    text: str
    context: str
    """Context (data/context.py); empty for a model that reads none."""


class TextDecoder:
    """Decode running text word by word with a trained model.

    The words are found by a rule; each is looked up in the lexicon of the predictor (`DecodingOptions.lexicon`) and
    otherwise decoded. A word with upper-case letters is decoded in lower case if the lexicon has only that form or,
    where it has neither, if the vocabulary of the model has more symbols of that form.

    A model that was trained with contexts (data.context_words) reads the words before and after each word of its line.

    A word that occurs again, in the same context if the model reads contexts, is not decoded again: the last
    `MAX_CACHED_WORDS` outputs are kept.
    """

    @check_arguments
    def __init__(
        self,
        predictor: BasePredictor,
        rule: WordRule | None = None,
        template: str = "{output}",
        min_confidence: float | None = None,
        keep_case: bool = False,
    ) -> None:
        """Check the arguments.

        Args:
            predictor: Trained model.
            rule: Rule that finds the words; None for the word boundaries of Unicode.
            template: Replacement of a word, with {output} for its output and {word} for the word itself, such as
                "{word} [{output}]". Other braces are doubled.
            min_confidence: Lowest confidence of an accepted output, 0 to 1. Other words stay as they are. None accepts
                all outputs.
            keep_case: Whether an output whose word was decoded in lower case gets the case of the word in the text
                (`match_case`).

        Raises:
            ArgumentError: An argument has a wrong type, or the confidence is out of range.
            ConfigError: The template has another field, outputs have no confidence, the model does not write outputs
                symbol by symbol (tags, classes), or it was trained with features other than contexts, which the words
                of a text do not have.
        """
        self.predictor = predictor
        self.rule = WordRule() if rule is None else rule
        self.template = template
        self.min_confidence = min_confidence
        self.keep_case = keep_case
        self._parts = _parse_template(self.template)
        self._outputs = OrderedDict[WordInContext, WordOutput]()
        if not predictor.autoregressive:
            raise predictor.unsupported_error("running text")
        if predictor.config.data.features_column and not predictor.config.data.context_words:
            raise ConfigError(
                "the model was trained with features (data.features_column), which the words of a text do not have: "
                "predict them as a file with columns"
            )
        if self.min_confidence is not None:
            if not 0 <= self.min_confidence <= 1:
                raise ArgumentError(f"min_confidence: expected a number from 0 to 1, got {self.min_confidence}")
            if obstacle := predictor.no_confidence_reason():
                raise ConfigError(f"min_confidence: {obstacle}")
        predictor.check_search(1, has_example_prefixes=False)

    @check_arguments
    def decode(self, lines: Iterable[str]) -> list[DecodedText]:
        """Decode lines of text together.

        Args:
            lines: Lines with or without their ends, which stay as they are.

        Returns:
            One decoded text per line. The outputs do not depend on the other lines.

        Raises:
            ArgumentError: A line is not a string, or has an unpaired surrogate.
            DataError: A word has too many symbols; see `line_error`.
            ConfigError: As in `WordRule.find`.
            InputError: As in `Predictor.predict`.
        """
        texts = list(lines)
        for index, text in enumerate(texts):
            if SURROGATES.search(text):
                raise argument_error(f"lines[{index}]", "text without unpaired surrogates", text)
        spans = [self.rule.find(strip_newline(text)) for text in texts]
        for number, (text, found) in enumerate(zip(texts, spans, strict=True), 1):
            if error := self._length_error(text, found):
                raise DataError(f"line {number}: {error}")
        words = [self._find_contexts(text, found) for text, found in zip(texts, spans, strict=True)]
        outputs = self._decode_words(sorted({word for line in words for word in line}))
        return [
            self._replace_words(text, found, [outputs[word] for word in line])
            for text, found, line in zip(texts, spans, words, strict=True)
        ]

    def stream(self, lines: Iterable[str]) -> Iterator[DecodedText]:
        """Decode lines as they are read, in groups of limited size.

        Args:
            lines: Lines of a stream, as in `decode`.

        Yields:
            One decoded text per line, in order.

        Raises:
            InputError: As in `decode`.
        """
        for group in chunked(lines, 1, len):
            yield from self.decode(group)

    @check_arguments
    def line_error(self, line: str) -> str:
        """Return why a line cannot be decoded, or "" if it can.

        A word may have too many symbols (data.max_sequence_length), a line more than `MAX_LINE_WORDS` words, or a
        pattern may take too long (`WordRule.find`).

        Args:
            line: A line of text.

        Raises:
            ArgumentError: The line is not a string.
        """
        # Normalization at most quadruples the length.
        is_short = 4 * len(line) < self.predictor.config.data.max_sequence_length
        if is_short and self.rule.pattern is None:
            return ""
        try:
            spans = self.rule.find(strip_newline(line), MAX_LINE_WORDS + 1)
        except ConfigError as error:
            return str(error)
        if len(spans) > MAX_LINE_WORDS:
            return f"the line has more than {MAX_LINE_WORDS:,} words: divide it"
        return self._length_error(line, spans)

    def _length_error(self, text: str, spans: Sequence[WordSpan]) -> str:
        """Return which word of a line has too many symbols; "" if there is none."""
        tokenizer = self.predictor.tokenizers.source
        limit = self.predictor.config.data.max_sequence_length
        for start, end in spans:
            word = text[start:end]
            if 4 * len(word) >= limit:
                error = length_error("word", self._decoded_form(word), tokenizer, limit, 0)
                if error:
                    return f"{error}: {quote(word)}"
        return ""

    def _find_contexts(self, text: str, spans: Sequence[WordSpan]) -> list["WordInContext"]:
        """Return the words of a line with their contexts, which are empty for a model without."""
        words = [text[start:end] for start, end in spans]
        count = self.predictor.config.data.context_words
        contexts = sentence_contexts(words, count) if count else [""] * len(words)
        return list(map(WordInContext, words, contexts))

    def _decode_words(self, words: Sequence["WordInContext"]) -> dict["WordInContext", WordOutput]:
        """Return the output of each word; those that were not decoded before are decoded together."""
        outputs = {word: self._outputs[word] for word in words if word in self._outputs}
        missing = [word for word in words if word not in outputs]
        for start in range(0, len(missing), MAX_SOURCES):
            group = missing[start : start + MAX_SOURCES]
            examples = [Example(self._decoded_form(word), "", context) for word, context in group]
            for word, trace in zip(group, self.predictor.predict_examples(examples), strict=True):
                outputs[word] = self._word_output(trace)
        self._outputs.update(outputs)
        for word in words:
            self._outputs.move_to_end(word)
        while len(self._outputs) > MAX_CACHED_WORDS:
            self._outputs.popitem(last=False)
        return outputs

    def _decoded_form(self, word: str) -> str:
        """Return the form in which a word is decoded: the word, or the word in lower case."""
        lower = word.lower()
        lexicon = self.predictor.options.lexicon
        if lower == word:
            return word
        known_words = {} if lexicon is None else lexicon.targets
        for form in (word, lower):
            if self.predictor.tokenizers.source.normalize(form) in known_words:
                return form
        return lower if self._num_unknown(lower) < self._num_unknown(word) else word

    def _num_unknown(self, word: str) -> int:
        """Return the number of symbols of a word that are not in the vocabulary."""
        known = self.predictor.vocabularies.source.ids
        return sum(symbol not in known for symbol in self.predictor.tokenizers.source.split(word))

    def _word_output(self, trace: Trace) -> WordOutput:
        """Return the output of a trace, compared with the required confidence."""
        return WordOutput(
            source=trace.text,
            output=trace.output,
            log_probability=trace.score if trace.has_trained_network else None,
            confidence=trace.confidence,
            origin=trace.origin,
            is_accepted=self.min_confidence is None or reaches_confidence(trace, self.min_confidence),
            finished=trace.finished,
            unknown=tuple(trace.source[index] for index in trace.unknown) if trace.origin != "lexicon" else (),
            symbols=trace.symbols,
        )

    def _replace_words(self, text: str, spans: Sequence[WordSpan], outputs: Sequence[WordOutput]) -> DecodedText:
        """Return a text with its words replaced by their outputs."""
        parts = list[str]()
        words = list[TextWord]()
        end = 0
        length = 0
        for span, output in zip(spans, outputs, strict=True):
            word = text[span.start : span.end]
            replacement = self._fill_template(word, self._cased(word, output)) if output.is_accepted else word
            parts += [text[end : span.start], replacement]
            output_start = length + span.start - end
            length = output_start + len(replacement)
            end = span.end
            words.append(TextWord(word, span, WordSpan(output_start, length), output))
        return DecodedText(text, "".join([*parts, text[end:]]), tuple(words))

    def _cased(self, word: str, output: WordOutput) -> str:
        """Return an output, in the case of its word if that was decoded in lower case and the case is kept."""
        return match_case(output.output, word) if self.keep_case and output.source != word else output.output

    def _fill_template(self, word: str, output: str) -> str:
        """Return the replacement of a word."""
        values = {"output": output.translate(LINE_ENDS), "word": word, "": ""}
        return "".join(literal + values[name] for literal, name in self._parts)


def match_case(output: str, word: str) -> str:
    """Return an output in the case of a word: all capitals, an initial capital, or unchanged.

    A word of one letter, such as "I", has an initial capital. Of an output, the first character that has an upper case
    becomes the capital.

    Args:
        output: Output of the model.
        word: Word as in the text.
    """
    letters = [character for character in word if character.lower() != character.upper()]
    if len(letters) > 1 and word == word.upper():
        return output.upper()
    if not letters or letters[0] == letters[0].lower():
        return output
    first = next((index for index, character in enumerate(output) if character.upper() != character), len(output))
    return output[:first] + output[first : first + 1].title() + output[first + 1 :]


def _parse_template(template: str) -> list[tuple[str, str]]:
    """Return the parts of a template: a literal text, and the name of the field after it; "" if there is none.

    `ConfigError` for a malformed template, and for one without {output}.
    """
    advice = f"expected text with {{output}} and perhaps {{word}}, got {quote(template)}; other braces are doubled"
    if not LINE_ENDS.keys().isdisjoint(map(ord, template)):
        raise ConfigError(f"the template of a word: expected text without line breaks, got {quote(template)}")
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError:
        raise ConfigError(f"the template of a word: {advice}") from None
    parts = []
    for literal, name, format_spec, conversion in parsed:
        if format_spec or conversion or (name is not None and name not in TEMPLATE_FIELDS):
            raise ConfigError(f"the template of a word: {advice}")
        parts.append((literal, name or ""))
    if not any(name == "output" for _, name in parts):
        raise ConfigError(f"the template of a word: {advice}")
    return parts
