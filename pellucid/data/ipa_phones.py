"""Phones of texts in the International Phonetic Alphabet (IPA) that are written without spaces between them."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

TIE_BARS = "\u035c\u0361"
"""Combining marks that join two letters to one phone."""
BOUNDARY_MARKS = "ˈˌ\ua71b\ua71c\ua71d\ua71e"
"""Marks of stress, upstep and downstep: modifier letters of Unicode that precede a syllable."""
MODIFIER_RANGES = (
    ("\u02b0", "\u02ff"),
    ("\u2070", "\u207f"),
    ("\ua700", "\ua71f"),
    ("\ua789", "\ua789"),
    ("\u00b2", "\u00b3"),
    ("\u00b9", "\u00b9"),
)
"""Blocks and characters whose members modify a letter, also those that Unicode does not call modifier letters: ˞, tone
letters, superscripts, and the colon for length."""
IPA_SIGNS = frozenset(f"{TIE_BARS}ːˑˈˌɐɒɕɘɚɜɝɞɟɡɥɦɧɪɫɮɯɰɱɳɵɸɹɺɻɽɾʀʁʂʃʈʊʍʎʏʐʑʙʝʟ")
"""Signs of the IPA that hardly any orthography has. Letters of some alphabets, such as ə, ŋ, ʒ, ɛ and ɔ, are left
out."""
MIN_SIGN_FRACTION = 0.2
"""Minimum share of texts with a sign of the IPA for which texts look like IPA."""
MIN_COMBINED_FRACTION = 0.02
"""Minimum share of texts with a phone of several characters for which phones as symbols are worth advice."""
NUM_EXAMPLES = 2
"""Number of phones that advice names."""

MARK, TIE_BAR, LETTER, MODIFIER, OTHER = "MTLDO"
"""Classes of characters: combining marks, tie bars, letters, modifiers of letters, and all others."""
PHONE_PATTERN = re.compile(f"[{LETTER}{MODIFIER}][MD]*(?:T[MTD]*L?[MD]*)*|[{MARK}{TIE_BAR}{OTHER}][MT]*")
"""Pattern of a phone in the classes of its characters: a letter with its marks and modifiers, a tie bar with the next
letter; or another character with its marks. It matches at every position, so that no character is lost."""


class _CharacterClasses(dict[int, str]):
    """Class of each code point, found when it is first read: a table for `str.translate`."""

    def __missing__(self, point: int) -> str:
        """Add the class of a code point."""
        self[point] = result = _character_class(chr(point))
        return result


def _character_class(character: str) -> str:
    """Return the class of a character."""
    category = unicodedata.category(character)
    if character in BOUNDARY_MARKS:
        return OTHER
    if category == "Lm" or any(first <= character <= last for first, last in MODIFIER_RANGES):
        return MODIFIER
    if category.startswith("L"):
        return LETTER
    if category.startswith("M"):
        return TIE_BAR if character in TIE_BARS else MARK
    return OTHER


_CLASSES = _CharacterClasses()


def split_phones(text: str) -> list[str]:
    """Return the phones of a text in IPA: t͡ʃˈeɪnd͡ʒ has t͡ʃ, ˈ, e, ɪ, n and d͡ʒ. Concatenated, they are the text.

    A letter is one symbol with the combining marks and modifiers that follow it (ʰ ʲ ʷ ː ˑ ˞ ⁿ, tone letters,
    superscripts), and with the next letter if a tie bar joins them. Every other character, such as a stress mark or a
    space, is a symbol with its combining marks; so is a modifier that follows no letter.

    Args:
        text: Any text.
    """
    matches = PHONE_PATTERN.finditer(text.translate(_CLASSES))
    return [text[match.start() : match.end()] for match in matches]


def count_phones(text: str) -> int:
    """Return the number of phones of a text, without a list of them.

    Args:
        text: Any text.
    """
    return sum(1 for _ in PHONE_PATTERN.finditer(text.translate(_CLASSES)))


def find_combined_phones(texts: Sequence[str]) -> list[str]:
    """Return the most frequent phones of several characters, at most `NUM_EXAMPLES`, if texts look like IPA; else none.

    Texts look like IPA by its signs, not by combining marks, which the texts of many languages have.

    Args:
        texts: Sources or targets.
    """
    if sum(not IPA_SIGNS.isdisjoint(text) for text in texts) < MIN_SIGN_FRACTION * len(texts):
        return []
    counts = Counter[str]()
    num_combined = 0
    for text in texts:
        combined = [phone for phone in split_phones(text) if len(phone) > 1]
        counts.update(combined)
        num_combined += bool(combined)
    if num_combined < MIN_COMBINED_FRACTION * len(texts):
        return []
    return [phone for phone, _ in counts.most_common(NUM_EXAMPLES)]
