"""Write the files of this folder: the numbers from 1 to 3,999 with their Roman numerals, and a CSV file of new ones."""

import random
from pathlib import Path

NUMERALS = [
    *((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L")),
    *((40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")),
]
NEW_ROWS = """id,number,note
P-17,1984,"a year, and a novel"
P-18,2026,
P-19,49,fifty without one
"""
"""A file without numerals, with columns that Pellucid keeps."""
SPLITS = {"test": slice(0, 400), "dev": slice(400, 800), "train": slice(800, None)}


def roman_numeral(number: int) -> str:
    """Return a number as a Roman numeral.

    Args:
        number: Number from 1 to 3,999.
    """
    text = ""
    for value, numeral in NUMERALS:
        text += numeral * (number // value)
        number %= value
    return text


if __name__ == "__main__":
    numbers = list(range(1, 4000))
    random.Random(1).shuffle(numbers)
    for name, split in SPLITS.items():
        lines = (f"{number}\t{roman_numeral(number)}\n" for number in numbers[split])
        Path(__file__).with_name(f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    Path(__file__).with_name("new.csv").write_text(NEW_ROWS, encoding="utf-8")
