"""The search of pair n-gram models in Python: outputs and scores equal those in Numba."""

import copy
import pickle
import subprocess
import sys

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from test_pair_ngram_search import EXAMPLES, Pair, fit

from pellucid.pair_ngram.numba_search import search_outputs
from pellucid.pair_ngram.python_search import PythonSearch
from pellucid.pair_ngram.types import SearchSettings, given_target

SETTINGS = SearchSettings(beam_size=64, margin=10.0, num_outputs=4)
SOURCES = st.lists(st.integers(3, 6), max_size=5)
TARGETS = st.lists(st.integers(4, 5), max_size=5)


@example([((3,), (4,)), ((3,), (5,)), ((4,), (5,)), ((4,), (4,))], [3, 4, 3])  # equal scores
@example([((3, 4), (4, 5)), ((4, 3), (5, 4)), ((5, 6), (4, 4)), ((6, 5), (5, 5))], [3, 4, 5, 6, 3])
@given(EXAMPLES, SOURCES)
def test_free_searches_have_the_outputs_and_scores_of_numba(examples: list[Pair], source: list[int]) -> None:
    """Regression test: of outputs with equal scores, each backend had another one first, so that the output of a source
    depended on the number of sources of the file."""
    model = fit(examples)
    arguments = (np.array(source, np.int64), given_target(None), SETTINGS)
    expected_outputs, expected = search_outputs(model.model, model.table, *arguments)
    outputs, scores = PythonSearch(model.model, model.table).search_outputs(source, None, SETTINGS)
    np.testing.assert_allclose(scores, expected, rtol=1e-9)
    assert outputs.tolist() == expected_outputs.tolist()


@example([((6,), ())], [4, 6], [5, 4])
@example([((4, 6), ()), ((4, 4), (5, 5, 5, 4)), ((5, 4, 4), (5, 4, 4))], [4, 5, 6, 5], [5, 5, 5, 5])  # equal scores
@given(EXAMPLES, SOURCES, TARGETS)
def test_given_targets_have_the_scores_and_alignments_of_numba(
    examples: list[Pair], source: list[int], target: list[int]
) -> None:
    """Regression test: the alignment of a pair changed when Numba was loaded, within one file of pairs."""
    model = fit(examples)
    arguments = (np.array(source, np.int64), given_target(target), SETTINGS)
    expected_outputs, expected = search_outputs(model.model, model.table, *arguments)
    outputs, scores = PythonSearch(model.model, model.table).search_outputs(source, target, SETTINGS)
    np.testing.assert_allclose(scores, expected, rtol=1e-9)
    assert outputs.tolist() == expected_outputs.tolist()


def test_a_model_that_has_searched_in_python_is_copied_and_pickled() -> None:
    """Regression test: views of its arrays cannot be pickled, so a predictor was sent to other processes only
    before its first prediction."""
    model = fit([((3, 4), (4, 5)), ((4, 3), (5, 4)), ((5, 6), (4, 4))])
    expected = model._python_search.search_outputs([3, 4], None, SETTINGS)
    for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        outputs, scores = copied._python_search.search_outputs([3, 4], None, SETTINGS)
        assert (outputs.tolist(), scores.tolist()) == (expected[0].tolist(), expected[1].tolist())
        np.testing.assert_array_equal(copied.model.token, model.model.token)


PROGRAM = """
import sys
import numpy as np
from pellucid.pair_ngram import model as pair_ngram_model
print([pair_ngram_model._use_numba(8) for _ in range(501)][-2:], pair_ngram_model._use_numba(0), "numba" in sys.modules)
pair_ngram_model._python_work = pair_ngram_model._PythonWork()
print([pair_ngram_model._use_numba(length) for length in (100, 200, 100)])
"""


def test_numba_is_used_after_many_searches_and_for_long_sources() -> None:
    """Regression test: a source of 300 symbols took three seconds in Python, and 0.1 seconds in Numba."""
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert result.stdout == "[False, True] False False\n[False, True, False]\n"
