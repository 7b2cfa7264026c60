"""decoding/text_decoder.py: words of running text are replaced by their outputs, and all else stays as it is."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_confidence import MODEL as CONFIDENCE
from test_transducer import transducer_of

from pellucid.data.examples import Example
from pellucid.data.text_words import WordRule
from pellucid.decoding import streaming, text_decoder
from pellucid.decoding.constraints import Lexicon
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.text_decoder import TextDecoder, match_case
from pellucid.errors import ArgumentError, ConfigError

MODEL = transducer_of({"search": {"max_length": 4}})
LINES = st.lists(st.text(alphabet="abcAB é.,-'\r\n1", max_size=20), max_size=5)


def output_of(word: str, model: Predictor = MODEL) -> str:
    """Return the output of a word through `predict`."""
    return model.predict([word])[0].output


@settings(deadline=None, max_examples=40)
@given(LINES)
def test_all_characters_between_words_stay_and_outputs_are_those_of_predict(lines: list[str]) -> None:
    for line, decoded in zip(lines, TextDecoder(MODEL).decode(lines), strict=True):
        assert decoded.text == line
        assert [word.span for word in decoded.words] == WordRule().find(line)
        end = output_end = 0
        for word in decoded.words:
            assert line[end : word.span.start] == decoded.output[output_end : word.output_span.start]
            assert word.text == line[word.span.start : word.span.end]
            written = decoded.output[word.output_span.start : word.output_span.end]
            assert written == word.output.output == output_of(word.output.source)
            end, output_end = word.span.end, word.output_span.end
        assert line[end:] == decoded.output[output_end:]


@settings(deadline=None, max_examples=20)
@given(LINES)
def test_lines_do_not_depend_on_others_nor_on_the_cache(lines: list[str]) -> None:
    together = TextDecoder(MODEL).decode(lines)
    one_by_one, decoder = [TextDecoder(MODEL).decode([line])[0] for line in lines], TextDecoder(MODEL)
    in_sequence = [decoder.decode([line])[0] for line in lines]
    outputs = [[line.output for line in decoded] for decoded in (together, one_by_one, in_sequence)]
    assert outputs[0] == outputs[1] == outputs[2]


def test_a_word_that_occurs_again_is_not_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []
    original = type(MODEL).predict_examples

    def predict_examples(self: Predictor, examples: list[Example]) -> object:
        decoded.extend(example.source for example in examples)
        return original(self, examples)

    monkeypatch.setattr(type(MODEL), "predict_examples", predict_examples)
    decoder = TextDecoder(MODEL)
    decoder.decode(["a b a", "b"])
    decoder.decode(["a c"])
    assert decoded == ["a", "b", "c"]
    monkeypatch.setattr(text_decoder, "MAX_CACHED_WORDS", 1)
    decoder.decode(["b"])
    decoder.decode(["a b"])
    assert decoded == ["a", "b", "c", "a"], "only the last word was kept"


def test_known_words_come_from_the_lexicon_in_the_case_of_the_text_or_in_lower_case() -> None:
    lexicon = Lexicon({"ab": ("vw",), "Ab": ("wv",), "b": ("x",)})
    decoder = TextDecoder(MODEL.with_options(DecodingOptions(lexicon=lexicon)))
    [line] = decoder.decode(["Ab aB B c"])
    assert line.output == f"wv vw x {output_of('c')}"
    assert [word.output.origin for word in line.words] == ["lexicon"] * 3 + ["search"]
    assert [word.output.source for word in line.words] == ["Ab", "ab", "b", "c"]


def test_words_are_decoded_in_lower_case_if_the_model_knows_more_symbols_of_it() -> None:
    [line] = TextDecoder(MODEL).decode(["Abc CAé É"])
    assert [word.output.source for word in line.words] == ["abc", "caé", "É"]
    assert line.words[1].output.unknown == ("é",)


@pytest.mark.parametrize(
    ("word", "output", "expected"),
    [
        ("Inu", "in", "In"),
        ("GOSPUD", "gospod", "GOSPOD"),
        ("I", "jaz", "Jaz"),
        ("gospud", "gospod", "gospod"),
        ("McDonald", "mac", "Mac"),
        ("’Tis", "’tis", "’Tis"),
        ("Xxx", "", ""),
        ("Xxx", "12", "12"),
        ("Dz", "ǆ", "ǅ"),  # the title case of a letter that stands for two
        ("中", "abc", "abc"),
    ],
)
def test_an_output_gets_the_case_of_its_word(word: str, output: str, expected: str) -> None:
    assert match_case(output, word) == expected


def test_the_case_of_words_that_were_decoded_in_lower_case_is_kept_on_request() -> None:
    lexicon = Lexicon({"ab": ("ba",)})
    model = MODEL.with_options(DecodingOptions(lexicon=lexicon))
    for keep_case, expected in ((False, "ba, ba. ba!"), (True, "Ba, BA. ba!")):
        (decoded,) = TextDecoder(model, keep_case=keep_case).decode(["Ab, AB. ab!"])
        assert decoded.output == expected
        words = [decoded.output[word.output_span.start : word.output_span.end] for word in decoded.words]
        assert words == [word.strip(",.!") for word in expected.split()]
        assert {word.output.output for word in decoded.words} == {"ba"}


def test_the_template_replaces_words() -> None:
    [line] = TextDecoder(MODEL, template="{word} {{{output}}}").decode(["a, b\n"])
    assert line.output == f"a {{{output_of('a')}}}, b {{{output_of('b')}}}\n"
    for template in ("x", "{word}", "{output", "{other} {output}", "{output!r}", "{output:>9}", "{}"):
        with pytest.raises(ConfigError, match=r"expected text with \{output\} and perhaps \{word\}"):
            TextDecoder(MODEL, template=template)


def test_words_below_the_required_confidence_stay_as_they_are() -> None:
    model = replace(MODEL, confidence=replace(CONFIDENCE, intercept=2.0, search=MODEL.config.search))
    plain = TextDecoder(model).decode(["ab abc b ca"])[0]
    confidences = [word.output.confidence for word in plain.words]
    numbers = [confidence for confidence in confidences if confidence is not None]
    assert len(numbers) == 4
    threshold = sorted(numbers)[2]
    [line] = TextDecoder(model, min_confidence=threshold).decode(["ab abc b ca"])
    for word, confidence in zip(line.words, numbers, strict=True):
        written = line.output[word.output_span.start : word.output_span.end]
        assert word.output.is_accepted == (confidence >= threshold)
        assert written == (word.output.output if word.output.is_accepted else word.text)
    assert {word.output.is_accepted for word in line.words} == {True, False}


def test_a_required_confidence_needs_one() -> None:
    with pytest.raises(ConfigError, match="min_confidence: the run has no fitted confidence"):
        TextDecoder(MODEL, min_confidence=0.5)
    with pytest.raises(ArgumentError, match=r"expected a number from 0 to 1, got 2\.0"):
        TextDecoder(MODEL, min_confidence=2.0)


def test_a_stream_is_decoded_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_CHARACTERS", 10)
    consumed = []

    def lines() -> Iterator[str]:
        for number in range(20):
            consumed.append(number)
            yield "ab cb\n"

    stream = TextDecoder(MODEL).stream(lines())
    first = next(stream)
    assert len(consumed) == 2 and first.output.endswith("\n")
    assert len(list(stream)) == 19


def test_a_text_in_place_of_lines_is_refused() -> None:
    with pytest.raises(ArgumentError, match="lines"):
        TextDecoder(MODEL).decode("a b")
    with pytest.raises(ArgumentError, match=r"lines\[1\]"):
        TextDecoder(MODEL).decode(["a", None])  # type: ignore[list-item]


@pytest.mark.parametrize("pattern", ["[^ ]+", r"(?s).+", "[^,]+"])
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_the_end_of_a_line_is_not_part_of_a_word(pattern: str, end: str) -> None:
    [line] = TextDecoder(MODEL, WordRule(pattern)).decode([f"a b{end}"])
    assert line.output.endswith(end) and "\n" not in line.output.removesuffix("\n")
    assert not any(character in word.text for word in line.words for character in "\r\n")


def test_a_model_with_features_is_refused() -> None:
    model = transducer_of({"data": {"features_column": "3"}, "search": {"max_length": 4}}, features="VN")
    with pytest.raises(ConfigError, match="the model was trained with features"):
        TextDecoder(model)
