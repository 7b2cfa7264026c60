"""Page data of three kinds of runs: spelled digits, grapheme-to-phoneme conversion, long sources."""

import random
from functools import cache
from pathlib import Path
from typing import Any

from page_data import digits_page_data
from trained_runs import DataFiles, shared_folder, train_to_end, write_pairs

from pellucid.config.toml import build_config
from pellucid.data.examples import Example
from pellucid.viewer.inputs import open_run, read_example_file
from pellucid.viewer.page_contents import PageData, assemble_page

RUN_KINDS = ("digits", "pronunciation", "long")
SPELLING_PHONES = {"sci": "ʃ i", "sce": "ʃ e", "ci": "t͡ʃ i", "ce": "t͡ʃ e", "chi": "k i", "che": "k e", "gn": "ɲ"}
"""Phones of spellings of several letters."""
LETTER_PHONES = {
    **dict(zip("abdefilmnoprstuv", "abdefilmnoprstuv", strict=True)),
    "c": "k",
    "g": "ɡ",
    "z": "t͡s",
    "h": "",
}
MAX_SOURCE_LENGTH = 1000


def transcribe_word(word: str) -> str:
    """Return the phones of a word of an invented language, separated by spaces."""
    phones, position = list[str](), 0
    while position < len(word):
        spelling = next((key for key in SPELLING_PHONES if word.startswith(key, position)), word[position])
        phones.append(SPELLING_PHONES.get(spelling, LETTER_PHONES.get(spelling, "")))
        position += len(spelling)
    return " ".join(phone for phone in phones if phone)


def make_pronunciation_examples(count: int, seed: int) -> list[Example]:
    """Return words of two or three syllables with their phones."""
    generator = random.Random(seed)
    onsets = ["c", "ch", "sc", "gn", "g", "z", *"bdflmnprstv"]
    syllables = [f"{onset}{vowel}" for onset in onsets for vowel in "aeiou" if not (onset == "ch" and vowel in "aou")]
    words = ["".join(generator.choices(syllables, k=generator.randint(2, 3))) for _ in range(count)]
    return [Example(word, transcribe_word(word)) for word in words]


def make_long_examples(count: int, seed: int) -> list[Example]:
    """Return strings of 300 to 600 letters, and one of 1,000, with their first letter as the target."""
    generator = random.Random(seed)
    lengths = [MAX_SOURCE_LENGTH, 300, *(generator.randint(300, 600) for _ in range(count - 2))]
    sources = ["".join(generator.choices("ACDEFGHIKLMNPQRSTVWY", k=length)) for length in lengths]
    return [Example(source, source[0]) for source in sources]


@cache
def pronunciation_page_data(served: bool = True) -> PageData:
    """Return the page data of grapheme-to-phoneme conversion with beam size 3; the model makes errors."""
    training = {"epochs": 8, "batch_size": 20, "learning_rate": 0.01, "eval_interval": 2, "pair_ngram": False}
    settings = {"size": "tiny", "training": training, "data": {"target_symbols": "words"}, "search": {"beam_size": 3}}
    return _trained_page_data(
        "pronunciation",
        make_pronunciation_examples(300, seed=1),
        make_pronunciation_examples(60, seed=2),
        settings,
        served,
    )


@cache
def long_page_data(served: bool = True) -> PageData:
    """Return the page data of a barely trained run with sources of 300 to 1,000 symbols and targets of one symbol."""
    training = {"epochs": 1, "batch_size": 4, "learning_rate": 0.01, "pair_ngram": False}
    settings = {"size": "tiny", "training": training, "encoder": {"hidden_size": 8, "embedding_size": 8}}
    settings["search"] = {"beam_size": 1}
    return _trained_page_data("long", make_long_examples(16, seed=1), make_long_examples(6, seed=2), settings, served)


def make_page_data(kind: str, served: bool = True) -> PageData:
    """Return the page data of one of `RUN_KINDS`."""
    if kind == "digits":
        return digits_page_data(served, beam_size=3)
    return pronunciation_page_data(served) if kind == "pronunciation" else long_page_data(served)


def _trained_page_data(
    name: str, train: list[Example], valid: list[Example], settings: dict[str, Any], served: bool
) -> PageData:
    """Train a run, unless its folder exists, and return its page data on its validation file."""
    folder = shared_folder() / name
    run = folder / "run"
    files = DataFiles(folder / "train.tsv", folder / "dev.tsv")
    config = build_config(settings, origin="test")
    if not run.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_pairs(Path(files.train), train)
        write_pairs(Path(files.valid), valid)
        train_to_end(files, run, config)
    return assemble_page([open_run(run, name, "cpu", None)], [read_example_file(files.valid, config.data)], 200, served)
