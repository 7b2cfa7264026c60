"""Twenty sentence pairs, written for this recipe in the form of the pairs of 2016, and their word ids.

N pairs, S source positions, T target positions, L positions of either side.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pellucid.shapes import Int

PAIRS = (
    (
        "My name is Clara and I live in a small village near the sea with my two brothers.",
        "Me llamo Clara y vivo en un pequeño pueblo cerca del mar con mis dos hermanos.",
    ),
    (
        "Every morning I get up at six and walk along the beach before breakfast.",
        "Cada mañana me levanto a las seis y camino por la playa antes del desayuno.",
    ),
    (
        "I study physics at the university, but in the evening I work in a little bookshop.",
        "Estudio física en la universidad, pero por la tarde trabajo en una pequeña librería.",
    ),
    (
        "My older brother builds wooden boats and my younger brother plays the violin.",
        "Mi hermano mayor construye barcos de madera y mi hermano menor toca el violín.",
    ),
    (
        "When it rains, we stay at home, drink hot chocolate and tell each other old stories.",
        "Cuando llueve, nos quedamos en casa, bebemos chocolate caliente y nos contamos viejas historias.",
    ),
    (
        "I have a black cat that sleeps all day and hunts all night in the garden.",
        "Tengo un gato negro que duerme todo el día y caza toda la noche en el jardín.",
    ),
    (
        "Last summer I went to Mexico with my best friend and we visited three cities in ten days.",
        "El verano pasado fui a México con mi mejor amiga y visitamos tres ciudades en diez días.",
    ),
    (
        "I like to read novels, write letters and listen to the radio in the kitchen.",
        "Me gusta leer novelas, escribir cartas y escuchar la radio en la cocina.",
    ),
    (
        "My mother is a doctor and my father teaches history in the school of our village.",
        "Mi madre es médica y mi padre enseña historia en la escuela de nuestro pueblo.",
    ),
    (
        "On Sundays the whole family eats fish with rice, and my grandmother always brings an orange cake.",
        "Los domingos toda la familia come pescado con arroz, y mi abuela siempre trae un pastel de naranja.",
    ),
    (
        "I do not like loud music, but I love to dance when my brother plays the violin.",
        "No me gusta la música fuerte, pero me encanta bailar cuando mi hermano toca el violín.",
    ),
    (
        "In winter I wear a red coat that my grandmother made for me many years ago.",
        "En invierno llevo un abrigo rojo que mi abuela me hizo hace muchos años.",
    ),
    (
        "I learn Spanish with a neighbour who was born in Peru and she learns English with me; we meet "
        "every Friday in the bookshop and talk for two hours.",
        "Aprendo español con una vecina que nació en Perú y ella aprende inglés conmigo; nos encontramos "
        "cada viernes por la tarde en la librería y hablamos durante dos horas.",
    ),
    (
        "My favourite place is the old lighthouse, where I can see the whole village and the boats.",
        "Mi lugar favorito es el viejo faro, donde puedo ver todo el pueblo y los barcos.",
    ),
    ("My cat loves neither the wide sea nor the rain.", "Mi gato no ama el ancho mar ni la lluvia."),
    (
        "Every summer we swim in the sea, eat fruit in the garden and sleep under the stars.",
        "Cada verano nadamos en el mar, comemos fruta en el jardín y dormimos bajo las estrellas.",
    ),
    (
        "Next year I want to work as an engineer in a big city and buy a bicycle.",
        "El próximo año quiero trabajar como ingeniera en una ciudad grande y comprar una bicicleta.",
    ),
    (
        "My brothers say that I read too much, but they borrow all my books.",
        "Mis hermanos dicen que leo demasiado, pero toman prestados todos mis libros.",
    ),
    (
        "Our neighbour has two dogs, a green parrot and a garden full of tomatoes.",
        "Nuestra vecina tiene dos perros, un loro verde y un jardín lleno de tomates.",
    ),
    (
        "When I am tired, I close my eyes and think of the quiet beach at six in the morning.",
        "Cuando estoy cansada, cierro los ojos y pienso en la playa tranquila a las seis de la mañana.",
    ),
)
"""English and Spanish sentences; the first sixteen are the training set, the last four the validation set."""
UNTRANSLATED = "I like to drink chocolate and dance on the beach."
"""English sentence outside the pairs, without unknown words."""
PAD, GO, EOS, UNK = range(4)
SPECIAL = ("_PAD", "_GO", "_EOS", "_UNK")
MAX_WORDS, TRAINING_PAIRS = 5_000, 16
PUNCTUATION = re.compile(r"""([.,!?"':;)(])""")


class WordVocabulary(NamedTuple):
    """Words of one language, special words first; a word's position is its id."""

    words: tuple[str, ...]

    def ids(self, tokens: Sequence[str]) -> list[int]:
        """Return the ids of tokens, with digits as 0; unknown tokens have the id of _UNK.

        Args:
            tokens: Tokens of a sentence.
        """
        word_ids = {word: index for index, word in enumerate(self.words)}
        return [word_ids.get(zero_digits(token), UNK) for token in tokens]


class SentenceIds(NamedTuple):
    """Word ids of N pairs: source, decoder inputs and targets, padded with _PAD."""

    source: Int[np.ndarray, "N S"]
    lengths: Int[np.ndarray, " N"]
    """Number of source words."""
    inputs: Int[np.ndarray, "N T"]
    """Decoder inputs: _GO, words, _EOS, padding."""
    targets: Int[np.ndarray, "N T"]
    """Targets: words, _EOS, padding."""

    def rows(self, first: int, stop: int) -> "SentenceIds":
        """Return a range of the pairs, padded to the same widths as all pairs.

        Args:
            first: Index of the first pair.
            stop: Index after the last pair.
        """
        return SentenceIds(*(column[first:stop] for column in self))


class SentenceCorpus(NamedTuple):
    """Pairs as ids, with both vocabularies."""

    source_vocabulary: WordVocabulary
    target_vocabulary: WordVocabulary
    data: SentenceIds


def tokenize(sentence: str) -> list[str]:
    """Split a sentence at white space and around punctuation, as the author does; case is kept.

    Args:
        sentence: The sentence.

    Returns:
        The tokens.
    """
    return [token for part in sentence.split() for token in PUNCTUATION.split(part) if token]


def zero_digits(token: str) -> str:
    """Replace each digit by 0.

    Args:
        token: A token.

    Returns:
        The token with zeros.
    """
    return re.sub(r"\d", "0", token)


def build_vocabulary(sentences: Sequence[Sequence[str]]) -> WordVocabulary:
    """Return the vocabulary: special words, then words by decreasing frequency (ties: first occurrence).

    The vocabulary has at most `MAX_WORDS` words.

    Args:
        sentences: Tokens of each sentence.
    """
    counts = Counter(zero_digits(token) for sentence in sentences for token in sentence)
    return WordVocabulary((*SPECIAL, *(word for word, _ in counts.most_common(MAX_WORDS - len(SPECIAL)))))


def build_corpus(pairs: Sequence[tuple[str, str]]) -> SentenceCorpus:
    """Return the vocabularies of the pairs, and the pairs as ids.

    Sources are padded to one more than the longest one, inputs and targets to two more than the longest translation.

    Args:
        pairs: English and Spanish sentences.
    """
    english, spanish = ([tokenize(pair[side]) for pair in pairs] for side in (0, 1))
    source_vocabulary, target_vocabulary = build_vocabulary(english), build_vocabulary(spanish)
    source = [source_vocabulary.ids(tokens) for tokens in english]
    targets = [[*target_vocabulary.ids(tokens), EOS] for tokens in spanish]
    S, T = max(map(len, source)) + 1, max(map(len, targets)) + 1
    data = SentenceIds(
        pad_sequences(source, S),
        np.array([len(ids) for ids in source]),
        pad_sequences([[GO, *ids] for ids in targets], T),
        pad_sequences(targets, T),
    )
    return SentenceCorpus(source_vocabulary, target_vocabulary, data)


def pad_sequences(sequences: Sequence[Sequence[int]], width: int) -> Int[np.ndarray, "N L"]:
    """Return sequences as rows of an array, padded with _PAD.

    Args:
        sequences: Ids of each row.
        width: Number of columns, at least the length of the longest sequence.
    """
    table = np.full((len(sequences), width), PAD, dtype=np.int64)
    for row, sequence in enumerate(sequences):
        table[row, : len(sequence)] = sequence
    return table
