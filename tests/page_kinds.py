"""Three kinds of run for the page: spelled digits, grapheme-to-phoneme conversion, long sources."""

import random
from functools import cache
from pathlib import Path
from typing import Any

from page_data import digits_shown
from trained_runs import shared_folder, train_to_end, write_pairs

from pellucid.config.toml import build_config
from pellucid.data.examples import Example
from pellucid.training.training_data import TrainingFiles
from pellucid.viewer.inputs import open_run, read_example_file
from pellucid.viewer.page_contents import PageData, assemble_page

KINDS = ("digits", "sounds", "long")
SPELLINGS = {"sci": "ʃ i", "sce": "ʃ e", "ci": "t͡ʃ i", "ce": "t͡ʃ e", "chi": "k i", "che": "k e", "gn": "ɲ"}
"""Of more letters than one; the longest first, for they are looked for in this order."""
LETTERS = {**dict(zip("abdefilmnoprstuv", "abdefilmnoprstuv", strict=True)), "c": "k", "g": "ɡ", "z": "t͡s", "h": ""}
LONGEST = 1000


def sounds(word: str) -> str:
    """The phones of a word of an invented language, with spaces between them."""
    found, at = list[str](), 0
    while at < len(word):
        spelling = next((each for each in SPELLINGS if word.startswith(each, at)), word[at])
        found.append(SPELLINGS.get(spelling, LETTERS.get(spelling, "")))
        at += len(spelling)
    return " ".join(phone for phone in found if phone)


def words(count: int, seed: int) -> list[Example]:
    """Words of two or three syllables, each with its phones."""
    generator = random.Random(seed)
    starts = ["c", "ch", "sc", "gn", "g", "z", *"bdflmnprstv"]
    syllables = [f"{start}{vowel}" for start in starts for vowel in "aeiou" if not (start == "ch" and vowel in "aou")]
    made = ["".join(generator.choices(syllables, k=generator.randint(2, 3))) for _ in range(count)]
    return [Example(word, sounds(word)) for word in made]


def chains(count: int, seed: int) -> list[Example]:
    """Chains of 300 to 1,000 letters, one of the longest, and how they begin."""
    generator = random.Random(seed)
    lengths = [LONGEST, 300, *(generator.randint(300, 600) for _ in range(count - 2))]
    chained = ["".join(generator.choices("ACDEFGHIKLMNPQRSTVWY", k=length)) for length in lengths]
    return [Example(chain, chain[0]) for chain in chained]


@cache
def sounds_shown(served: bool = True) -> PageData:
    """A few hundred words to their phones, with a beam of three; it still errs."""
    training = {"epochs": 8, "batch_size": 20, "learning_rate": 0.01, "eval_interval": 2}
    settings = {"size": "tiny", "training": training, "data": {"target_symbols": "words"}, "search": {"beam_size": 3}}
    return _shown("sounds", words(300, seed=1), words(60, seed=2), settings, served)


@cache
def long_shown(served: bool = True) -> PageData:
    """Sources of 300 to 1,000 symbols and outputs of one, after a few updates."""
    training = {"epochs": 1, "batch_size": 4, "learning_rate": 0.01}
    settings = {"size": "tiny", "training": training, "encoder": {"hidden_size": 8, "embedding_size": 8}}
    return _shown("long", chains(16, seed=1), chains(6, seed=2), settings, served)


def shown(kind: str, served: bool = True) -> PageData:
    """A run of one of `KINDS`."""
    if kind == "digits":
        return digits_shown(served, beam=3)
    return sounds_shown(served) if kind == "sounds" else long_shown(served)


def _shown(
    name: str, training: list[Example], development: list[Example], settings: dict[str, Any], served: bool
) -> PageData:
    """Train a run where that was not done, and show it on its development file."""
    folder = shared_folder() / name
    run = folder / "run"
    files = TrainingFiles(folder / "train.tsv", folder / "dev.tsv")
    config = build_config(settings, origin="test")
    if not run.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_pairs(Path(files.train), training)
        write_pairs(Path(files.valid), development)
        train_to_end(files, run, config)
    return assemble_page([open_run(run, name, "cpu", None)], [read_example_file(files.valid, config.data)], 200, served)
