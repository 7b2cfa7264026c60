"""The sentence pairs of the Spanish post are tokenized and encoded."""

from spanish_cases import CORPUS

from pellucid.recipes.spanish.sentences import (
    EOS,
    GO,
    PAD,
    PAIRS,
    SPECIAL,
    TRAINING_PAIRS,
    UNK,
    UNTRANSLATED,
    build_vocabulary,
    tokenize,
)


def test_pairs_have_the_lengths_of_the_authors_pairs() -> None:
    english, spanish = ([len(tokenize(pair[side])) for pair in PAIRS] for side in (0, 1))
    assert len(PAIRS) == 20 and TRAINING_PAIRS == 16
    assert (min(english), max(english)) == (11, 31)
    assert (min(spanish) + 1, max(spanish) + 1) == (12, 32)
    assert [column.shape for column in CORPUS.data] == [(20, 32), (20,), (20, 33), (20, 33)]


def test_ids_are_sorted_by_frequency_after_the_special_words() -> None:
    vocabulary = build_vocabulary([["b", "a", "a"], ["c", "a", "b", "12"]])
    assert vocabulary.words == (*SPECIAL, "a", "b", "c", "00")
    assert vocabulary.ids(["a", "zzz", "37"]) == [4, UNK, 7]
    assert (PAD, GO, EOS, UNK) == (0, 1, 2, 3)


def test_punctuation_is_separated_and_case_is_kept() -> None:
    assert tokenize('He said: "Go, (now)!" Don\'t?') == [
        *("He", "said", ":", '"', "Go", ",", "(", "now", ")", "!", '"', "Don", "'", "t", "?"),
    ]
    assert UNK in CORPUS.source_vocabulary.ids(tokenize(UNTRANSLATED))


def test_decoder_inputs_are_the_targets_shifted_by_one_step() -> None:
    data = CORPUS.data
    assert (data.inputs[:, 0] == GO).all()
    assert (data.inputs[:, 1:] == data.targets[:, :-1]).all()
    assert (data.targets[:, -1] == PAD).all() and ((data.targets == EOS).sum(axis=1) == 1).all()
