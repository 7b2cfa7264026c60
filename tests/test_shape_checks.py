"""The checks of types and shapes under which all tests run: they refuse what jaxtyping's own decorator refuses."""

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

LONG = torch.int64


def scores(states: Float[Tensor, "B S H"], weights: Float[Tensor, "B H"]) -> Float[Tensor, "B S"]:
    """One score for each position; wrong where the weights are 9."""
    return zeros(len(states), 9) if float(weights.sum()) == 9 else (states @ weights[:, :, None]).squeeze(2)


def ids(rows: Int[Tensor, "B S"], *more: Int[Tensor, "B S"], after: Int[Tensor, " B"] | None = None) -> int:
    """How many ids there are."""
    return rows.numel() * (1 + len(more)) + (0 if after is None else len(after))


def shares(count: int, names: list[str]) -> dict[str, float]:
    """A share for each name; a text for none."""
    return {name: 1 / count for name in names} if names else "none"  # type: ignore[return-value]


def steps(rows: Float[Tensor, "B S"]) -> Iterator[Tensor]:
    """One column after the other."""
    return iter(rows.unbind(1))


def lazy_steps(rows: Float[Tensor, "B S"]) -> Iterator[Tensor]:
    """One column after the other, each when it is asked for."""
    yield from rows.unbind(1)


def nested(rows: Float[Tensor, "B S"], other: Float[Tensor, "B S"]) -> Float[Tensor, "B S"]:
    """Dimensions of a function that is called are its own."""
    return rows + torch.stack(list(NESTED(zeros(7, 3))), dim=1)[:1, :1] + other


@dataclass
class Row:
    """Ids and how many there are."""

    ids: Int[Tensor, " S"]
    length: int


class Table:
    """One vector for each symbol."""

    def __init__(self, vectors: Float[Tensor, "V E"]) -> None:
        """Keep the vectors."""
        self.vectors = vectors

    @classmethod
    def of(cls, size: int) -> "Table":
        """A table of zeros."""
        return cls(zeros(size, 2))

    @staticmethod
    def width(vectors: Float[Tensor, "V E"]) -> int:
        """E."""
        return vectors.shape[1]

    @property
    def first(self) -> Float[Tensor, " E"]:
        """The first vector; the whole table where it has only one."""
        return self.vectors[0] if len(self.vectors) > 1 else self.vectors


GOOD: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (scores, (zeros(2, 3, 4), zeros(2, 4)), {}),
    (ids, (zeros(2, 3, dtype=LONG),), {}),
    (ids, (zeros(2, 3, dtype=LONG), zeros(2, 3, dtype=LONG)), {"after": zeros(2, dtype=LONG)}),
    (shares, (2, ["a", "b"]), {}),
    (steps, (zeros(2, 3),), {}),
    (lazy_steps, (zeros(2, 3),), {}),
    (nested, (zeros(2, 3),), {"other": zeros(2, 3)}),
    (Row, (zeros(3, dtype=LONG), 3), {}),
]
BAD: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (scores, (zeros(2, 3), zeros(2, 4)), {}),
    (scores, (zeros(2, 3, 4), zeros(2, 5)), {}),
    (scores, (zeros(2, 3, 4), zeros(3, 4)), {}),
    (scores, (zeros(2, 3, 4, dtype=LONG), zeros(2, 4)), {}),
    (scores, (zeros(2, 3, 1), torch.full((2, 1), 4.5)), {}),
    (scores, (zeros(2, 3, 4).numpy(), zeros(2, 4)), {}),
    (ids, (zeros(2, 3),), {}),
    (ids, (zeros(2, 3, dtype=LONG), zeros(2, 4, dtype=LONG)), {}),
    (ids, (zeros(2, 3, dtype=LONG),), {"after": zeros(3, dtype=LONG)}),
    (ids, (zeros(2, 3, dtype=LONG),), {"after": 2}),
    (shares, ("2", ["a", "b"]), {}),
    (shares, (2, [1, 2]), {}),
    (shares, (2, []), {}),
    (steps, (zeros(2),), {}),
    (lazy_steps, (zeros(2),), {}),
    (nested, (zeros(2, 3),), {"other": zeros(3, 2)}),
    (Row, (zeros(3, dtype=LONG), "3"), {}),
    (Row, (zeros(3, 1, dtype=LONG), 3), {}),
]


def decorated(by: Callable[..., Any], function: Any) -> Any:  # noqa: ANN401 (a function or class)
    """The function, or a copy of the class, as the import hook makes it."""
    if inspect.isclass(function):
        function = dataclass(type(function.__name__, (), {"__annotations__": function.__annotations__}))
    return by(function, typechecker=beartype)


NESTED = decorated(shape_checks.jaxtyped, steps)
DECORATORS = pytest.mark.parametrize(
    "by", [shape_checks.jaxtyped, shape_checks.JAXTYPED], ids=["pellucid", "jaxtyping"]
)


@DECORATORS
@pytest.mark.parametrize(("function", "given", "named"), GOOD)
def test_what_fits_is_called(
    by: Callable[..., Any], function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]
) -> None:
    found, expected = decorated(by, function)(*given, **named), function(*given, **named)
    assert str(list(found) if isinstance(found, Iterator) else found) == str(
        list(expected) if isinstance(expected, Iterator) else expected
    )


@DECORATORS
@pytest.mark.parametrize(("function", "given", "named"), BAD)
def test_what_does_not_fit_is_refused(
    by: Callable[..., Any], function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]
) -> None:
    with pytest.raises(Exception, match=r"(?s)violates type hint|[Tt]ype-check error"):
        decorated(by, function)(*given, **named)


KINDS = ("__init__", "of", "width", "first")


@DECORATORS
def test_methods_of_every_kind_are_checked(by: Callable[..., Any]) -> None:
    parts = {name: by(part, typechecker=beartype) for name, part in vars(Table).items() if name in KINDS}
    checked: Any = type("Table", (Table,), parts)
    assert checked.of(3).first.shape == (2,) and checked.width(zeros(3, 2)) == 2
    wrong: list[Callable[[], object]] = [
        lambda: checked(zeros(3)),
        lambda: checked.of("3"),
        lambda: checked.width(3),
        lambda: checked.of(1).first,
    ]
    for call in wrong:
        with pytest.raises(Exception, match=r"(?s)violates type hint|[Tt]ype-check error"):
            call()


def test_the_package_is_checked() -> None:
    assert jaxtyping.jaxtyped is shape_checks.jaxtyped
    known = make_vocabulary("ab")
    wrong: list[Callable[[], object]] = [
        lambda: known.encode(5),  # type: ignore[arg-type]
        lambda: known.encode_points(np.zeros(3)),
        lambda: known.encode_points(np.zeros((3, 1), dtype=np.uint32)),
    ]
    for call in wrong:
        with pytest.raises(BeartypeCallHintViolation):
            call()
