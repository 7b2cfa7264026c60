"""Arrays as the page reads them."""

import base64
import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pellucid.viewer.blocks import LEAST, block, plain, unblocked


@given(arrays.arrays(np.float32, arrays.array_shapes(max_dims=3, min_side=0), elements=st.floats(-1e6, 1e6, width=32)))
def test_numbers_come_back_bit_for_bit(values: np.ndarray) -> None:
    again = unblocked(block(values))
    assert again.shape == values.shape
    np.testing.assert_array_equal(again, values)


def test_rows_follow_each_other_in_little_endian() -> None:
    told = block(np.array([[1.5, -2.0], [0.25, 4.0]]))
    assert told.shape == [2, 2]
    assert struct.unpack("<4f", base64.b64decode(told.data)) == (1.5, -2.0, 0.25, 4.0)


def test_a_page_never_meets_what_is_not_a_number() -> None:
    assert np.isfinite(unblocked(block(np.array([np.nan, -np.inf, np.inf])))).all()
    assert plain(float("-inf")) == LEAST and plain(float("nan")) == 0 and plain(-3.5) == -3.5
