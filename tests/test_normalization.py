"""data/normalization.py: the results of Python's normalization, in linear time."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.data import normalization
from pellucid.data.normalization import NormalForm, is_normalized, normalize_text

MARKS = "\u0301\u0323\u0308\u0344\u0345\u0f71\u0f72\u0f73\u0f74\u0f75\u0f81\u3099\u093c\u094d\u05b0\u064b\u0c56"
OTHERS = "aAé\u1ea5\u1e69\u0d46\u0d3e\u09c7\u09be\u1100\u1161\u11a8\uac00\u212b\U0001d15e\ud800\u0f40"
TEXTS = st.lists(
    st.text(MARKS, min_size=0, max_size=12) | st.text(MARKS + OTHERS, max_size=6) | st.text(max_size=4)
).map("".join)


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sort all runs of marks, in blocks of three."""
    monkeypatch.setattr(normalization, "MAX_PLAIN_LENGTH", 0)
    monkeypatch.setattr(normalization, "MIN_LONG_RUN", 1)
    monkeypatch.setattr(normalization, "SORTED_BLOCK", 3)


@pytest.mark.usefixtures("short_runs")
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_every_text_has_the_normal_form_of_python(form: NormalForm) -> None:
    @given(TEXTS)
    def check(text: str) -> None:
        assert normalize_text(form, text) == unicodedata.normalize(form, text)
        assert is_normalized(form, text) == unicodedata.is_normalized(form, text)

    check()


@pytest.mark.usefixtures("short_runs")
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_every_mark_is_sorted_among_others(form: NormalForm) -> None:
    for code in range(0x300, 0x1F000):
        if unicodedata.combining(unicodedata.normalize("NFD", chr(code))[0]):
            text = f"e\u0345{chr(code)}\u0301\u0f72{chr(code)}\u0323"
            assert normalize_text(form, text) == unicodedata.normalize(form, text), hex(code)


@pytest.mark.parametrize("marks", ["\u0301\u0323", "\u0f73"])
def test_the_time_is_linear(marks: str) -> None:
    """Python's normalization alone takes more than 20 seconds for this text."""
    text = "a" + marks * 200_000
    start = time.process_time()
    assert len(normalize_text("NFD", text)) >= 400_000 and not is_normalized("NFC", text)
    assert time.process_time() - start < 5.0
