"""Types and shapes of every call within the package are checked in tests, as jaxtyping does, at a fraction of the cost.

`--jaxtyping-packages` puts `jaxtyping.jaxtyped(typechecker=...)` before every function of the package. That decorator
binds the arguments of each call to the signature, and checks them once before the call and once more together with
the result: more than half of the time of a test that trains. The one below checks arguments, then the result, within
the same scope of dimensions, and leaves out the binding, which is only for annotations that name arguments.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import jaxtyping

JAXTYPED: Any = jaxtyping.jaxtyped
SCOPE = JAXTYPED("context")
"""Within, dimensions of the same name have one size, whatever it was outside."""


def jaxtyped(decorated: Any = None, *, typechecker: Any) -> Any:  # noqa: ANN401 (a function, class or descriptor)
    """As `jaxtyping.jaxtyped`, for what the import hook decorates."""
    if decorated is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    if isinstance(decorated, classmethod | staticmethod):
        return type(decorated)(jaxtyped(decorated.__func__, typechecker=typechecker))
    if isinstance(decorated, property):
        parts = (decorated.fget, decorated.fset, decorated.fdel)
        return property(*(part and jaxtyped(part, typechecker=typechecker) for part in parts))
    if inspect.isclass(decorated):
        if is_dataclass(decorated) and not hasattr(decorated.__init__, "__wrapped__"):
            decorated.__init__ = jaxtyped(decorated.__init__, typechecker=typechecker)  # type: ignore[method-assign]
        return decorated
    if _is_lazy(decorated):
        return JAXTYPED(decorated, typechecker=typechecker)
    quoted = decorated.__annotations__
    decorated.__annotations__ = known = {name: _meant(hint, decorated) for name, hint in quoted.items()}
    checked = typechecker(decorated)
    decorated.__annotations__ = checked.__annotations__ = quoted
    return _scoped(checked) if any(map(_has_shape, known.values())) else checked


def _meant(hint: Any, function: Any) -> Any:  # noqa: ANN401
    """The annotation, out of its quotes; anything, as for jaxtyping, where its names are not there yet or never."""
    if not isinstance(hint, str):
        return hint
    it = SimpleNamespace(__annotations__={"hint": hint})
    try:
        return get_type_hints(it, function.__globals__, include_extras=True)["hint"]
    except Exception:  # whatever it is that the names come to
        return Any


def _is_lazy(function: Any) -> bool:  # noqa: ANN401
    """Whether a call only makes an object that runs later: its arguments are to be checked at once."""
    inner = inspect.unwrap(function)
    return inspect.isgeneratorfunction(inner) or inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)


def _has_shape(hint: Any) -> bool:  # noqa: ANN401
    """Whether a shape stands somewhere in an annotation."""
    if inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(_has_shape(inner) for inner in get_args(hint))


def _scoped(checked: Callable[..., object]) -> Callable[..., object]:
    """The function in a scope of dimensions of its own."""

    @functools.wraps(checked)
    def call(*args: object, **kwargs: object) -> object:
        __tracebackhide__ = True
        with SCOPE:
            return checked(*args, **kwargs)

    return call


jaxtyping.jaxtyped = jaxtyped  # type: ignore[assignment]
