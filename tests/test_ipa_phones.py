"""Texts in IPA are split into phones; the exported search and the page split them in the same way."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from trained_runs import make_small_config

import pellucid
from pellucid.data.examples import Example
from pellucid.data.ipa_phones import find_combined_phones, split_phones
from pellucid.decoding.options import DecodingOptions
from pellucid.errors import ConstraintError
from pellucid.export.beam_search import _split_phones
from pellucid.export.web_page import build_model_page
from pellucid.run_folder.log import RunLog
from pellucid.runtime import loader
from pellucid.viewer.inputs import ViewedRun

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent.parent / "web/tests/phones.json").read_text("utf-8"))
"""Texts and their phones; web/tests/text.test.ts reads them, too."""
IPA_TEXTS = st.text(st.sampled_from("atʃʰːˈˌ.| \u035c\u0361\u0329˥²\ua71cⁿ1\U0001f600\ud800\u0301"))
ANY_TEXTS = st.text(st.characters(codec=None)) | IPA_TEXTS


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(case["text"]))
def test_phones_of_a_text(case: dict[str, Any]) -> None:
    assert split_phones(case["text"]) == case["phones"]
    assert _split_phones(case["text"]) == case["phones"]


@given(ANY_TEXTS)
@example("\u0361")
def test_phones_join_to_the_same_text_and_are_not_split_further(text: str) -> None:
    phones = split_phones(text)
    assert "".join(phones) == text
    assert all(split_phones(phone) == [phone] for phone in phones)


@given(ANY_TEXTS)
def test_the_exported_search_has_the_same_phones(text: str) -> None:
    assert _split_phones(text) == split_phones(text)


@pytest.mark.parametrize("part", ["a\u0329", "a\u0361", "\u0361", "aː", "t\u0361ʃ"])
def test_long_texts_are_split_in_one_pass(part: str) -> None:
    text = part * 100_000
    assert "".join(split_phones(text)) == text


@pytest.mark.slow
def test_every_character_is_split() -> None:
    for first in range(0, 0x110000, 0x1000):
        text = "".join(map(chr, range(first, first + 0x1000)))
        assert "".join(split_phones(text)) == text


def test_the_most_frequent_phones_of_several_characters_are_found() -> None:
    assert find_combined_phones(["t͡ʃˈeɪnd͡ʒ", "d͡ʒˈɔɪ", "bˈɔɪ"]) == ["d͡ʒ", "t͡ʃ"]
    assert find_combined_phones(["baː", "bɐ"]) == ["aː"]
    assert find_combined_phones(["bˈɔɪ", "kˈɪd"]) == []
    assert find_combined_phones([]) == []


OTHER_TEXTS = {
    "Hindi": ["हिन्दी", "किताब", "पानी"],
    "decomposed Vietnamese": ["tie\u0302\u0301ng", "vie\u0323\u0302t"],
    "Azerbaijani": ["əl", "göz", "dəniz"],
    "Skolt Sámi": ["sääʹmǩiõll", "kueʹll", "ǩeʹrjj", "põŋŋeed"],
    "Ewe": ["ŋkɔ\u0301", "ɖevi", "ɛ\u0301"],
    "Ukrainian": ["м\u02bcята", "п\u02bcять"],
    "Hawaiian": ["ʻokina", "Hawaiʻi"],
    "Arabic": ["كِتَاب", "بَيْت"],
}


@pytest.mark.parametrize("texts", OTHER_TEXTS.values(), ids=OTHER_TEXTS)
def test_combining_marks_of_other_orthographies_do_not_look_like_ipa(texts: list[str]) -> None:
    assert find_combined_phones(texts) == []


def test_a_few_signs_among_many_texts_do_not_look_like_ipa() -> None:
    assert find_combined_phones(["aː", *["a"] * 5]) == []
    assert find_combined_phones(["aː", *["ˈa"] * 100]) == []
    assert find_combined_phones(["aː", *["ˈa"] * 40]) == ["aː"]


def test_a_run_reads_and_writes_phones(tmp_path: Path) -> None:
    """Training, search with constraints, alignment, and prediction without PyTorch divide texts into phones."""
    pairs = [Example("t͡ʃaː", "aːt͡ʃ"), Example("d͡ʒe\u0303ː", "e\u0303ːd͡ʒ"), Example("ˈaː", "aːˈ")] * 8
    data = {"source_symbols": "ipa", "target_symbols": "ipa", "target_normalization": "nfc"}
    config = make_small_config({"epochs": 2, "pair_ngram": True}, data=data)
    model = pellucid.train(pairs, pairs[:2], tmp_path / "run", config)
    assert set(model.vocabularies.source.symbols) == {"t͡ʃ", "d͡ʒ", "ˈ", "aː", "ẽː"}
    texts = ["t͡ʃaːˈ", "d͡ʒ", "t"]
    traces = model.predict(texts)
    assert [trace.source for trace in traces] == [("t͡ʃ", "aː", "ˈ"), ("d͡ʒ",), ("t",)]
    assert traces[2].unknown == (0,) and all(trace.output == "".join(trace.symbols) for trace in traces)
    runtime = loader.load_without_warnings(tmp_path / "run")
    assert [trace.output for trace in runtime.predict(texts)] == [trace.output for trace in traces]
    prefixed = model.with_options(DecodingOptions(prefix="t͡ʃe\u0303ː", forbidden=("aː",))).predict(texts[:1])[0]
    assert prefixed.symbols[:2] == ("t͡ʃ", "ẽː") and "aː" not in prefixed.symbols
    with pytest.raises(ConstraintError, match=r"the model never writes the symbol 't', .*"):
        model.with_options(DecodingOptions(prefix="t")).predict(texts[:1])
    (alignment,) = pellucid.align(pairs[:1], tmp_path / "run")
    assert alignment is not None and alignment.target == ("aː", "t͡ʃ")
    page = build_model_page(
        [ViewedRun("run", tmp_path / "run", model, RunLog(tmp_path / "log.jsonl"), False)], "float32", texts[0]
    )
    assert page.models[0].settings["data"]["source_symbols"] == "ipa"
