"""The type and shape checks of all tests refuse the same calls as the decorator of jaxtyping."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jaxtyping
import numpy as np
import pytest
import shape_checks
import torch
from beartype import beartype
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float, Int
from small_networks import make_vocabulary
from torch import Tensor, zeros

INT64 = torch.int64


def compute_scores(states: Float[Tensor, "B S H"], weights: Float[Tensor, "B H"]) -> Float[Tensor, "B S"]:
    """Return one score per position, or a wrong shape if the weights sum to 9."""
    return zeros(len(states), 9) if float(weights.sum()) == 9 else (states @ weights[:, :, None]).squeeze(2)


def count_ids(rows: Int[Tensor, "B S"], *more: Int[Tensor, "B S"], after: Int[Tensor, " B"] | None = None) -> int:
    """Return the number of ids."""
    return rows.numel() * (1 + len(more)) + (0 if after is None else len(after))


def equal_shares(count: int, names: list[str]) -> dict[str, float]:
    """Return equal shares of the names, or a string if there are no names."""
    return {name: 1 / count for name in names} if names else "none"  # type: ignore[return-value]


def iterate_columns(rows: Float[Tensor, "B S"]) -> Iterator[Tensor]:
    """Return an iterator over the columns."""
    return iter(rows.unbind(1))


def yield_columns(rows: Float[Tensor, "B S"]) -> Iterator[Tensor]:
    """Yield the columns."""
    yield from rows.unbind(1)


def add_columns(rows: Float[Tensor, "B S"], other: Float[Tensor, "B S"]) -> Float[Tensor, "B S"]:
    """Call a decorated function whose dimensions have other sizes."""
    return rows + torch.stack(list(DECORATED_COLUMNS(zeros(7, 3))), dim=1)[:1, :1] + other


@dataclass
class IdRow:
    """Ids and their number."""

    ids: Int[Tensor, " S"]
    length: int


class VectorTable:
    """One vector for each symbol."""

    def __init__(self, vectors: Float[Tensor, "V E"]) -> None:
        """Store the vectors."""
        self.vectors = vectors

    @classmethod
    def of(cls, size: int) -> "VectorTable":
        """Return a table of zeros."""
        return cls(zeros(size, 2))

    @staticmethod
    def width(vectors: Float[Tensor, "V E"]) -> int:
        """Return E."""
        return vectors.shape[1]

    @property
    def first(self) -> Float[Tensor, " E"]:
        """Return the first vector, or the whole table if it has only one vector."""
        return self.vectors[0] if len(self.vectors) > 1 else self.vectors


VALID_CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (compute_scores, (zeros(2, 3, 4), zeros(2, 4)), {}),
    (count_ids, (zeros(2, 3, dtype=INT64),), {}),
    (count_ids, (zeros(2, 3, dtype=INT64), zeros(2, 3, dtype=INT64)), {"after": zeros(2, dtype=INT64)}),
    (equal_shares, (2, ["a", "b"]), {}),
    (iterate_columns, (zeros(2, 3),), {}),
    (yield_columns, (zeros(2, 3),), {}),
    (add_columns, (zeros(2, 3),), {"other": zeros(2, 3)}),
    (IdRow, (zeros(3, dtype=INT64), 3), {}),
]
INVALID_CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (compute_scores, (zeros(2, 3), zeros(2, 4)), {}),
    (compute_scores, (zeros(2, 3, 4), zeros(2, 5)), {}),
    (compute_scores, (zeros(2, 3, 4), zeros(3, 4)), {}),
    (compute_scores, (zeros(2, 3, 4, dtype=INT64), zeros(2, 4)), {}),
    (compute_scores, (zeros(2, 3, 1), torch.full((2, 1), 4.5)), {}),
    (compute_scores, (zeros(2, 3, 4).numpy(), zeros(2, 4)), {}),
    (count_ids, (zeros(2, 3),), {}),
    (count_ids, (zeros(2, 3, dtype=INT64), zeros(2, 4, dtype=INT64)), {}),
    (count_ids, (zeros(2, 3, dtype=INT64),), {"after": zeros(3, dtype=INT64)}),
    (count_ids, (zeros(2, 3, dtype=INT64),), {"after": 2}),
    (equal_shares, ("2", ["a", "b"]), {}),
    (equal_shares, (2, [1, 2]), {}),
    (equal_shares, (2, []), {}),
    (iterate_columns, (zeros(2),), {}),
    (yield_columns, (zeros(2),), {}),
    (add_columns, (zeros(2, 3),), {"other": zeros(3, 2)}),
    (IdRow, (zeros(3, dtype=INT64), "3"), {}),
    (IdRow, (zeros(3, 1, dtype=INT64), 3), {}),
]


def decorate(decorator: Callable[..., Any], function: Any) -> Any:  # noqa: ANN401 (a function or class)
    """Return the decorated function, or a decorated copy of the class, as the import hook does."""
    if inspect.isclass(function):
        function = dataclass(type(function.__name__, (), {"__annotations__": function.__annotations__}))
    return decorator(function, typechecker=beartype)


DECORATED_COLUMNS = decorate(shape_checks.jaxtyped, iterate_columns)
EACH_DECORATOR = pytest.mark.parametrize(
    "decorator", [shape_checks.jaxtyped, shape_checks.JAXTYPED], ids=["pellucid", "jaxtyping"]
)


@EACH_DECORATOR
@pytest.mark.parametrize(("function", "positional", "keywords"), VALID_CALLS)
def test_valid_calls_return_the_result_of_the_function(
    decorator: Callable[..., Any], function: Callable[..., Any], positional: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    actual, expected = decorate(decorator, function)(*positional, **keywords), function(*positional, **keywords)
    assert str(list(actual) if isinstance(actual, Iterator) else actual) == str(
        list(expected) if isinstance(expected, Iterator) else expected
    )


@EACH_DECORATOR
@pytest.mark.parametrize(("function", "positional", "keywords"), INVALID_CALLS)
def test_invalid_calls_are_refused(
    decorator: Callable[..., Any], function: Callable[..., Any], positional: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    with pytest.raises(Exception, match=r"(?s)violates type hint|[Tt]ype-check error"):
        decorate(decorator, function)(*positional, **keywords)


METHODS = ("__init__", "of", "width", "first")


@EACH_DECORATOR
def test_methods_of_every_kind_are_checked(decorator: Callable[..., Any]) -> None:
    parts = {name: decorator(part, typechecker=beartype) for name, part in vars(VectorTable).items() if name in METHODS}
    checked: Any = type("VectorTable", (VectorTable,), parts)
    assert checked.of(3).first.shape == (2,) and checked.width(zeros(3, 2)) == 2
    invalid_calls: list[Callable[[], object]] = [
        lambda: checked(zeros(3)),
        lambda: checked.of("3"),
        lambda: checked.width(3),
        lambda: checked.of(1).first,
    ]
    for call in invalid_calls:
        with pytest.raises(Exception, match=r"(?s)violates type hint|[Tt]ype-check error"):
            call()


def test_functions_of_the_package_are_checked() -> None:
    assert jaxtyping.jaxtyped is shape_checks.jaxtyped
    known = make_vocabulary("ab")
    invalid_calls: list[Callable[[], object]] = [
        lambda: known.encode(5),  # type: ignore[arg-type]
        lambda: known.encode_points(np.zeros(3)),
        lambda: known.encode_points(np.zeros((3, 1), dtype=np.uint32)),
    ]
    for call in invalid_calls:
        with pytest.raises(BeartypeCallHintViolation):
            call()
