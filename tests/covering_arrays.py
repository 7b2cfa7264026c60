"""Covering arrays: small sets of rows that contain every pair of values of any two factors."""

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations, product

Row = dict[str, Hashable]
Pair = tuple[tuple[str, Hashable], tuple[str, Hashable]]
NUM_CANDIDATES = 5
"""Number of candidate rows per uncovered pair; the best one is added."""


def covering_array(
    factors: Mapping[str, Sequence[Hashable]], is_valid: Callable[[Row], bool] = lambda row: True, seed: int = 1
) -> list[Row]:
    """Return rows that contain all valid pairs of values.

    The algorithm is greedy (Cohen et al. 1997, section 5). Each row begins with an uncovered pair. Each other factor,
    in random order, takes the valid value that covers the most uncovered pairs. The best of several such rows is added.

    Args:
        factors: Values of each factor.
        is_valid: Whether a row, or a part of a row, is allowed.
        seed: Seed of the random order.
    """
    generator = random.Random(seed)
    uncovered = dict.fromkeys(
        ((first, first_value), (second, second_value))
        for first, second in combinations(factors, 2)
        for first_value, second_value in product(factors[first], factors[second])
    )
    rows = list[Row]()
    while uncovered:
        pair = next(iter(uncovered))
        uncovered.pop(pair)
        if is_valid(dict(pair)):
            candidates = [
                _complete_row(dict(pair), factors, (uncovered, is_valid), generator) for _ in range(NUM_CANDIDATES)
            ]
            rows.append(max(candidates, key=lambda row: sum(pair in uncovered for pair in list_pairs(row))))
            for covered in list_pairs(rows[-1]):
                uncovered.pop(covered, None)
    return rows


def list_pairs(row: Row) -> list[Pair]:
    """Return all pairs of values of a row, in the order of its factors."""
    return list(combinations(row.items(), 2))


def _complete_row(
    partial_row: Row,
    factors: Mapping[str, Sequence[Hashable]],
    rules: tuple[Mapping[Pair, None], Callable[[Row], bool]],
    generator: random.Random,
) -> Row:
    """Return a valid row that contains the values of `partial_row`."""
    (uncovered, is_valid), row = rules, dict(partial_row)
    order = [name for name in factors if name not in partial_row]
    generator.shuffle(order)
    positions = {name: position for position, name in enumerate(factors)}
    for name in order:
        gains = {
            value: sum(_order_pair(name, value, item, positions) in uncovered for item in row.items())
            for value in generator.sample(factors[name], len(factors[name]))
        }
        best_first = sorted(gains, key=lambda value: -gains[value])
        row[name] = next(value for value in best_first if is_valid({**row, name: value}))
    return {name: row[name] for name in factors}


def _order_pair(name: str, value: Hashable, other: tuple[str, Hashable], positions: Mapping[str, int]) -> Pair:
    """Return two values in the order of their factors."""
    return ((name, value), other) if positions[name] < positions[other[0]] else (other, (name, value))
