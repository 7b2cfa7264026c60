"""decoding/text_decoder.py: words of running text are replaced by their outputs, and all else stays as it is."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from task_cases import make_examples, make_task_config, make_untrained_predictor
from test_confidence import MODEL as CONFIDENCE
from test_transducer import transducer_of

from pellucid.data.context import EDGE, UNKNOWN_WORD
from pellucid.data.examples import Example, parse_sources
from pellucid.data.lines import strip_newline
from pellucid.data.text_words import WordRule
from pellucid.decoding import streaming, text_decoder
from pellucid.decoding.lexicon import Lexicon
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.text_decoder import TextDecoder, match_case
from pellucid.errors import ArgumentError, ConfigError, DataError

MODEL = transducer_of({"search": {"max_length": 4}})
CONTEXT_MODELS = [
    transducer_of({"data": {"context_words": count}, "search": {"max_length": 4}}, features=("a", "b", "ab", EDGE))
    for count in (1, 2)
]
"""Models that read one word, and two words, before and after a word."""
LINES = st.lists(st.text(alphabet="abcAB é.,-'\r\n1", max_size=20), max_size=5)


def output_of(word: str, model: Predictor = MODEL) -> str:
    """Return the output of a word through `predict`."""
    return model.predict([word])[0].output


@pytest.mark.slow
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


@settings(deadline=None, max_examples=20)
@given(LINES, st.sampled_from([1, 2]))
def test_outputs_in_context_are_those_of_a_file_with_a_word_per_line(lines: list[str], count: int) -> None:
    model, rule = CONTEXT_MODELS[count - 1], WordRule()
    words = [[line[start:end] for start, end in rule.find(strip_newline(line))] for line in lines]
    column = [word.lower() for line in words for word in [*line, ""]]  # the model knows a, b and c
    items = parse_sources([f"{word}\n".encode() for word in column], "input", model.config.data)
    traces = model.predict_examples([item for item in items if isinstance(item, Example)])
    expected = [trace.output for trace in traces if trace.text]
    decoded = TextDecoder(model).decode(lines)
    assert [word.output.source for line in decoded for word in line.words] == [word for word in column if word]
    assert [word.output.output for line in decoded for word in line.words] == expected
    assert [line.output for line in TextDecoder(model).stream(iter(lines))] == [line.output for line in decoded]
    assert [TextDecoder(model).decode([line])[0].output for line in lines] == [line.output for line in decoded]


@pytest.mark.parametrize("count", [1, 2])
def test_an_output_depends_on_the_words_next_to_it_only(count: int) -> None:
    model = CONTEXT_MODELS[count - 1]
    line, inside, outside = (
        [word.output.log_probability for word in TextDecoder(model).decode([text])[0].words]
        for text in ("c c c cab c c c", "c c a cab c c c", "a c c cab c c a")
    )
    assert line[3] != inside[3] and line[3] == (outside[3])
    assert line[count + 1 :] != inside[count + 1 :]
    near = range(count + 1, 6 - count)
    assert [line[index] for index in near] == [outside[index] for index in near]


def test_a_word_in_another_context_is_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[Example] = []
    model = CONTEXT_MODELS[0]
    original = type(model).predict_examples

    def predict_examples(self: Predictor, examples: list[Example]) -> object:
        decoded.extend(examples)
        return original(self, examples)

    monkeypatch.setattr(type(model), "predict_examples", predict_examples)
    decoder = TextDecoder(model)
    decoder.decode(["a B", "a b", "a"])
    decoder.decode(["A b, a b"])
    contexts = [("b", f"a {EDGE}"), ("a", f"{EDGE} b"), ("b", f"a {EDGE}"), ("a", f"{EDGE} {EDGE}")]
    later = [("a", f"{EDGE} b"), ("a", "b b"), ("b", "a a")]
    assert sorted((example.source, example.features) for example in decoded) == sorted(contexts + later)


def test_words_without_a_context_have_unknown_neighbors() -> None:
    model = CONTEXT_MODELS[1]
    [alone], [explicit] = model.predict(["ab"]), model.predict(["ab"], ["? ? ? ?"])
    assert alone.source == (UNKNOWN_WORD,) * 4 + ("a", "b")
    assert (alone.num_features, alone.unknown) == (4, ())
    assert alone.output == explicit.output and alone.score == explicit.score


def test_the_lexicon_precedes_the_context() -> None:
    decoder = TextDecoder(CONTEXT_MODELS[0].with_options(DecodingOptions(lexicon=Lexicon({"ab": ("vw",)}))))
    [line] = decoder.decode(["a ab b ab"])
    assert [word.output.origin for word in line.words] == ["search", "lexicon", "search", "lexicon"]
    assert {word.output.output for word in line.words if word.text == "ab"} == {"vw"}


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
    for template in ("a\n{output}", "{output}\r"):  # one line of the text would become two
        with pytest.raises(ConfigError, match="the template of a word: expected text without line breaks, got "):
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
    with pytest.raises(ArgumentError, match=r"lines\[1\]: expected text without unpaired surrogates"):
        TextDecoder(MODEL).decode(["a", "\ud800 a"])
    with pytest.raises(ArgumentError, match="predictor: expected a BasePredictor, got 5"):
        TextDecoder(5)  # type: ignore[arg-type]
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


def test_a_word_of_too_many_symbols_is_named() -> None:
    model = transducer_of({"search": {"max_length": 4}, "data": {"max_sequence_length": 5}})
    decoder = TextDecoder(model)
    assert decoder.line_error("abc cab\n") == decoder.line_error("") == ""
    message = "the word has 6 symbols, more than data.max_sequence_length = 5: 'abcabc'"
    assert decoder.line_error("abc abcabc\n") == message
    with pytest.raises(DataError, match=f"^line 2: {message}$"):
        decoder.decode(["abc", "ab abcabc"])


def test_labels_are_no_outputs_of_running_text() -> None:
    config = make_task_config("tag")
    with pytest.raises(ConfigError, match=r"running text: expected outputs written symbol by symbol, .* 'tag'"):
        TextDecoder(make_untrained_predictor(config, make_examples("tag", 5, 1)))


@pytest.mark.parametrize("pattern", [None, r"\w+"])
def test_a_line_of_very_many_words_is_refused(pattern: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_decoder, "MAX_LINE_WORDS", 500)
    decoder = TextDecoder(MODEL, rule=WordRule(pattern))
    assert decoder.line_error("ab " * 500) == ""
    assert decoder.line_error("ab " * 501) == "the line has more than 500 words: divide it"
