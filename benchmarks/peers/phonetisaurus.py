"""Phonetisaurus 0.3.0: a joint n-gram model of letters and phones, trained with its defaults."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from benchmarks.peers.measure import Command

VERSION = "0.3.0"


class Phonetisaurus:
    """Installation, training and decoding of Phonetisaurus through its command line."""

    name: ClassVar[str] = "phonetisaurus"
    title: ClassVar[str] = f"Phonetisaurus {VERSION}"
    pip: ClassVar[Sequence[Sequence[str]]] = (("install", f"phonetisaurus=={VERSION}"),)

    def probe_command(self, python: Path) -> list[str]:
        """Return a command that prints the help of the system.

        Args:
            python: Python interpreter of the system's environment.
        """
        return [str(python.parent / "phonetisaurus"), "--help"]

    def train_command(self, python: Path, pairs: Sequence[tuple[str, str]], folder: Path) -> Command:
        """Write the lexicon of a training.

        Args:
            python: Python interpreter of the system's environment.
            pairs: Words and phones with spaces between.
            folder: Folder of the lexicon and the model.

        Returns:
            The command of the training.
        """
        lexicon = folder / "train.dict"
        lexicon.write_text("".join(f"{word} {phones}\n" for word, phones in pairs), "utf-8")
        program = str(python.parent / "phonetisaurus")
        return Command([program, "train", "--model", str(folder / "model.fst"), str(lexicon)], folder)

    def decode_command(self, python: Path, words: Sequence[str], folder: Path) -> Command:
        """Write the words to decode.

        Args:
            python: Python interpreter of the system's environment.
            words: The words.
            folder: Folder of the trained model.

        Returns:
            The command of decoding, which writes the file "output" of the folder.
        """
        (folder / "words").write_text("".join(f"{word}\n" for word in words), "utf-8")
        arguments = [str(python.parent / "phonetisaurus"), "predict", "--model", str(folder / "model.fst")]
        return Command(arguments, folder, stdin=folder / "words", stdout=folder / "output")

    def read_outputs(self, folder: Path) -> dict[str, str]:
        """Return the first output of each word; a word without an output is missing.

        Args:
            folder: Folder of the outputs.
        """
        outputs = dict[str, str]()
        for line in (folder / "output").read_text("utf-8").splitlines():
            word, _, phones = line.partition(" ")
            outputs.setdefault(word, phones.strip())
        return outputs
