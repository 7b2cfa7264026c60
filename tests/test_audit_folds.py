"""auditing/folds.py: folds never share a source."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.auditing.folds import assign_folds, source_key
from pellucid.data.examples import Example
from pellucid.errors import DataError


@given(st.lists(st.text("abcé\u0301e", min_size=1, max_size=2), min_size=2), st.integers(2, 7), st.integers(0, 9))
def test_folds_never_share_a_source(sources: list[str], num_folds: int, seed: int) -> None:
    examples = [Example(source, "x") for source in sources]
    keys = [source_key(example) for example in examples]
    if len(set(keys)) < 2:
        return
    folds = assign_folds(examples, num_folds, seed)
    assert folds == assign_folds(examples, num_folds, seed)
    assert len(set(zip(keys, folds, strict=True))) == len(set(keys))
    sizes = [
        sum(fold == number for fold in dict(zip(keys, folds, strict=True)).values()) for number in range(num_folds)
    ]
    assert sum(sizes) == len(set(keys)) and max(sizes) - min(sizes) <= 1


def test_a_single_source_cannot_be_audited() -> None:
    with pytest.raises(DataError, match="two different sources"):
        assign_folds([Example("é", "x"), Example("e\u0301", "y")], 5, 1)
