"""The paths of a search tree are the outputs, and its nodes have the log-probabilities of the network."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_networks import SEEDS, batches, few_examples
from small_searches import HYPOTHESIS_SCORERS, NETWORK_KINDS, SearchCase, make_small_network, run_search, score_outputs
from test_transducer import transducer_of

from pellucid.data.batches import Batch
from pellucid.data.vocabulary import EOS
from pellucid.decoding.hypothesis_scorer import HypothesisScorer
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.search_tree import SearchTreeIds


def path_ids(tree: SearchTreeIds, node: int) -> list[int]:
    """Return the ids on the path from the root to a node."""
    ids: list[int] = []
    while node >= 0:
        ids, node = [int(tree.ids[node]), *ids], int(tree.parents[node])
    return ids


@few_examples
@given(st.sampled_from(NETWORK_KINDS), batches(), SEEDS, HYPOTHESIS_SCORERS, st.integers(1, 4))
def test_every_node_has_the_log_probability_of_its_path(
    kind: tuple[str, str], batch: Batch, seed: int, score: HypothesisScorer, beam_size: int
) -> None:
    network, case = (
        make_small_network(kind, seed),
        SearchCase(beam_size=beam_size, nbest=beam_size, score=score, search_tree=True),
    )
    without = run_search(network, batch, case._replace(search_tree=False))
    for row, result in enumerate(run_search(network, batch, case)):
        assert [each.decoded.ids.tolist() for each in result] == [each.decoded.ids.tolist() for each in without[row]]
        tree = result[0].tree
        assert tree is not None and len(tree.ids) > len(tree.attention) > 0
        assert all(parent < node for node, parent in enumerate(tree.parents.tolist()))
        assert [status == "ended" for status in tree.statuses] >= [False] * len(tree.statuses)
        for each in result:
            assert path_ids(tree, each.leaf) == each.decoded.ids.tolist()
        nodes = range(0, len(tree.ids), 5)
        for node, scored in zip(
            nodes, score_outputs(network, batch, row, [path_ids(tree, n) for n in nodes]), strict=True
        ):
            np.testing.assert_allclose(tree.cumulative_log_probs[node], scored.log_probabilities.sum(), atol=1e-4)
            np.testing.assert_allclose(tree.log_probabilities[node], scored.log_probabilities[-1], atol=1e-4)
            np.testing.assert_allclose(tree.attention[tree.attention_rows[node]], scored.weights[-1], atol=1e-5)
        parents = {int(parent) for parent in tree.parents}
        assert all(tree.statuses[parent] == "kept" for parent in parents if parent >= 0)
        assert all(status != "kept" for status, node in zip(tree.statuses, tree.ids, strict=True) if node == EOS)


def test_a_trace_has_its_search_tree_if_requested() -> None:
    transducer = transducer_of({"search": {"max_length": 5, "beam_size": 3}})
    plain, with_tree = (
        transducer.predict(["abc"])[0],
        transducer.with_options(DecodingOptions(search_tree=True)).predict(["abc"])[0],
    )
    assert plain.search_tree is None and "search_tree" not in json.loads(plain.to_json())
    assert with_tree.search_tree is not None and with_tree.target == plain.target
    record = json.loads(with_tree.to_json())["search_tree"]
    assert [record["symbols"][node] for node in with_tree.search_tree.path()] == list(plain.target)
    assert record["scores"][record["leaf"]] == pytest.approx(plain.score, abs=1e-4)
    assert {*record["statuses"]} == {"kept", "ended", "pruned"} and len(record["attention"][0]) == 3
