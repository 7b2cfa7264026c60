"""Covering arrays: few rows that hold every pair of values of any two factors."""

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations, product

Row = dict[str, Hashable]
Pair = tuple[tuple[str, Hashable], tuple[str, Hashable]]
ATTEMPTS = 5
"""Completions of a pair from which the best is taken."""


def covering_array(
    factors: Mapping[str, Sequence[Hashable]], is_valid: Callable[[Row], bool] = lambda row: True, seed: int = 1
) -> list[Row]:
    """Return rows that hold all pairs of values that are valid together; `is_valid` also judges parts of rows.

    Greedy: each row begins with a pair that no row holds yet, and each other factor, in random order, takes the valid
    value that adds the most such pairs; of several rows so made the best is kept (Cohen et al. 1997, section 5).
    """
    draw = random.Random(seed)
    left = dict.fromkeys(
        ((one, value), (other, its))
        for one, other in combinations(factors, 2)
        for value, its in product(factors[one], factors[other])
    )
    rows = list[Row]()
    while left:
        first = next(iter(left))
        left.pop(first)
        if is_valid(dict(first)):
            made = [_completed(dict(first), factors, (left, is_valid), draw) for _ in range(ATTEMPTS)]
            rows.append(max(made, key=lambda row: sum(pair in left for pair in list_pairs(row))))
            for pair in list_pairs(rows[-1]):
                left.pop(pair, None)
    return rows


def list_pairs(row: Row) -> list[Pair]:
    """Return all pairs of a row, in the order of its factors."""
    return list(combinations(row.items(), 2))


def _completed(
    given: Row,
    factors: Mapping[str, Sequence[Hashable]],
    rules: tuple[Mapping[Pair, None], Callable[[Row], bool]],
    draw: random.Random,
) -> Row:
    """Return a valid row that holds what is given."""
    (left, is_valid), row = rules, dict(given)
    order = [name for name in factors if name not in given]
    draw.shuffle(order)
    places = {name: at for at, name in enumerate(factors)}
    for name in order:
        gains = {
            value: sum(_pair(name, value, item, places) in left for item in row.items())
            for value in draw.sample(factors[name], len(factors[name]))
        }
        best_first = sorted(gains, key=lambda value: -gains[value])
        row[name] = next(value for value in best_first if is_valid({**row, name: value}))
    return {name: row[name] for name in factors}


def _pair(name: str, value: Hashable, other: tuple[str, Hashable], places: Mapping[str, int]) -> Pair:
    """Return two values in the order of their factors."""
    return ((name, value), other) if places[name] < places[other[0]] else (other, (name, value))
