"""pair_ngram/kneser_ney.py: probabilities compared with an implementation over dictionaries, from the definition."""

import tracemalloc
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.pair_ngram import kneser_ney
from pellucid.pair_ngram.kneser_ney import NgramModel, fit_ngram_model

BEGIN, END = 4, 5
SEQUENCES = st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=8)
Ngram = tuple[int, ...]


def fit(sequences: list[list[int]], order: int) -> NgramModel:
    """Fit the model to sequences of the tokens 0 to 3, with begin and end."""
    tokens = [token for sequence in sequences for token in (BEGIN, *sequence, END)]
    begins = [is_begin for sequence in sequences for is_begin in (True, *[False] * (len(sequence) + 1))]
    # The tokens that occur are numbered without gaps, as in `DictionaryModel`.
    names = sorted(set(tokens))
    return fit_ngram_model(np.array([names.index(token) for token in tokens]), np.array(begins), len(names), order)


class DictionaryModel:
    """Modified Kneser-Ney smoothing by its definition, in dictionaries."""

    def __init__(self, sequences: list[list[int]], order: int) -> None:
        self.size = len({token for sequence in sequences for token in sequence}) + 1  # with the end
        counts, preceding = defaultdict[int, Counter[Ngram]](Counter), defaultdict[Ngram, set[int]](set)
        for sequence in sequences:
            whole = (BEGIN, *sequence, END)
            for n in range(1, order + 1):
                for start in range(len(whole) - n + 1):
                    counts[n][whole[start : start + n]] += 1
                    if start:
                        preceding[whole[start : start + n]].add(whole[start - 1])
        self.order = max(n for n in counts if counts[n])
        self.counts = dict[int, dict[Ngram, int]]()
        for n in range(1, self.order + 1):
            self.counts[n] = {
                ngram: count if n == self.order or ngram[0] == BEGIN else len(preceding[ngram])
                for ngram, count in counts[n].items()
            }
        self.counts[1][(BEGIN,)] = 0
        self.discounts = {n: self.find_discounts(n) for n in self.counts}

    def find_discounts(self, n: int) -> list[float]:
        """Return the discounts of counts 0 to 3."""
        number = {count: max(sum(value == count for value in self.counts[n].values()), 1) for count in range(1, 5)}
        share = number[1] / (number[1] + 2 * number[2])
        values = [count - (count + 1) * share * number[count + 1] / number[count] for count in (1, 2, 3)]
        return [0.0, *(value if 0 < value < count else count / 2 for count, value in enumerate(values, 1))]

    def probability(self, token: int, history: Ngram) -> float:
        """Return p(token | history)."""
        n = len(history) + 1
        if n > self.order:
            return self.probability(token, history[1:])
        following = {ngram[-1]: count for ngram, count in self.counts[n].items() if ngram[:-1] == history}
        lower = self.probability(token, history[1:]) if history else 1 / self.size
        total = sum(following.values())
        if not total:
            return lower
        discount = self.discounts[n]
        weight = sum(discount[min(count, 3)] for count in following.values()) / total
        count = following.get(token, 0)
        return (count - discount[min(count, 3)]) / total + weight * lower


def probability(model: NgramModel, token: int, history: Ngram) -> float:
    """Return p(token | history) by the nodes of the trie."""
    node, walked = 0, list(history)
    while walked:  # the longest suffix of the history that is a node
        node, found = 0, True
        for symbol in walked:
            children = range(model.first_child[node], model.first_child[node + 1])
            node = next((child for child in children if model.token[child] == symbol), -1)
            if node < 0:
                found = False
                break
        if found:
            break
        walked, node = walked[1:], 0
    log_weight = 0.0
    while True:
        children = range(model.first_child[node], model.first_child[node + 1])
        child = next((child for child in children if model.token[child] == token), None)
        if child is not None:
            return float(np.exp(log_weight + model.log_probability[child]))
        assert node, "every token has a unigram"
        log_weight, node = log_weight + float(model.backoff[node]), int(model.suffix[node])


@given(SEQUENCES, st.integers(1, 4))
def test_probabilities_equal_those_of_the_definition(sequences: list[list[int]], order: int) -> None:
    model, expected = fit(sequences, order), DictionaryModel(sequences, order)
    names = sorted({token for sequence in sequences for token in sequence} | {BEGIN, END})
    histories = {
        (BEGIN, *sequence, END)[max(0, end - order + 1) : end]
        for sequence in sequences
        for end in range(1, len(sequence) + 2)
    }
    for history in histories:
        numbered = tuple(names.index(token) for token in history)
        found = {token: probability(model, names.index(token), numbered) for token in names if token != BEGIN}
        assert sum(found.values()) == pytest.approx(1, abs=1e-5)
        for token, value in found.items():
            assert value == pytest.approx(expected.probability(token, history), rel=1e-5)


@pytest.mark.parametrize("names", [[0, 2, 5], [2, 3, 5], [5, 0, 2]])
def test_numbers_of_tokens_may_have_gaps(names: list[int]) -> None:
    """Regression test: the count of another token was removed instead of that of the first token, or an index error."""
    tokens, begins = np.array([2, 0, 1, 2, 1, 1, 2, 0, 0]), np.array([1, 0, 0, 1, 0, 0, 1, 0, 0], bool)
    # Numbers in the same order without gaps, and a seventh that occurs nowhere.
    order = np.argsort(np.argsort(names))
    without_gaps = fit_ngram_model(order[tokens], begins, 7, 3)
    with_gaps = fit_ngram_model(np.array(names)[tokens], begins, 7, 3)
    assert with_gaps.token[1:].tolist() == np.array(sorted(names))[without_gaps.token[1:]].tolist()
    for values, expected in list(zip(with_gaps, without_gaps, strict=True))[1:]:
        assert values.tolist() == expected.tolist()


def test_memory_does_not_hold_the_text_of_each_order() -> None:
    """Regression test: fitting took 265 bytes a token, since each order kept a number for every token of the text."""
    tokens = np.random.default_rng(1).integers(0, 30, (10_000, 10))
    tokens[:, 0], tokens[:, -1] = 30, 31
    begins = np.zeros(tokens.shape, bool)
    begins[:, 0] = True
    tracemalloc.start()
    fit_ngram_model(tokens.reshape(-1), begins.reshape(-1), 32, 8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 170 * tokens.size


@given(SEQUENCES, st.integers(1, 4))
def test_the_first_token_has_the_probability_of_a_token_that_occurs_nowhere(
    sequences: list[list[int]], order: int
) -> None:
    model = fit(sequences, order)
    unigrams, size = (
        model.token[1 : model.first_child[1]],
        len({token for sequence in sequences for token in sequence}) + 1,
    )
    begin = 1 + int(np.flatnonzero(unigrams == unigrams.max() - 1)[0])
    assert model.log_probability[begin] == pytest.approx(model.backoff[0] - np.log(size), abs=1e-5)


@given(SEQUENCES, st.integers(1, 4))
def test_children_are_sorted_and_suffixes_are_shorter(sequences: list[list[int]], order: int) -> None:
    model = fit(sequences, order)
    assert model.first_child[0] == 1 and model.first_child[-1] == len(model.token)
    assert (np.diff(model.first_child) >= 0).all()
    for node in range(len(model.token)):
        children = model.token[model.first_child[node] : model.first_child[node + 1]]
        assert (np.diff(children) > 0).all()
        assert node == 0 or model.suffix[node] < node
        assert model.token[model.suffix[node]] == model.token[node] or model.suffix[node] == 0


@given(SEQUENCES, st.integers(1, 4))
def test_a_pruned_model_keeps_repeated_ngrams_and_sums_to_one(sequences: list[list[int]], order: int) -> None:
    whole = fit(sequences, order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kneser_ney, "MAX_NODES", 0)
        pruned = fit(sequences, order)
    names = sorted({token for sequence in sequences for token in sequence} | {BEGIN, END})
    assert pruned.first_child[-1] == len(pruned.token) <= len(whole.token)
    for sequence in sequences:
        history = tuple(names.index(token) for token in (BEGIN, *sequence))[-order + 1 :] if order > 1 else ()
        total = sum(probability(pruned, names.index(token), history) for token in names if token != BEGIN)
        assert total == pytest.approx(1, abs=1e-5)
