"""Check of types and shapes in every call within the package, as jaxtyping does, at a fraction of the cost.

`--jaxtyping-packages` puts `jaxtyping.jaxtyped(typechecker=...)` before every function of the package. That decorator
binds the arguments of each call to the signature, and checks them once before the call and once more together with
the result. This takes more than half of the time of a test that trains. The decorator of this module checks the
arguments, then the result, within the same scope of dimensions. It omits the binding, which only annotations that name
arguments need.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any, ForwardRef, TypeVar, get_args, get_type_hints

import jaxtyping

JAXTYPED: Any = jaxtyping.jaxtyped
SCOPE = JAXTYPED("context")
"""Context in which dimensions of the same name have the same size, independent of the size outside."""


def jaxtyped(decorated: Any = None, *, typechecker: Any) -> Any:  # noqa: ANN401 (a function, class or descriptor)
    """Decorate a function, class or descriptor as `jaxtyping.jaxtyped` does, for the import hook of jaxtyping."""
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
    annotations = decorated.__annotations__
    decorated.__annotations__ = hints = {name: _resolve_hint(hint, decorated) for name, hint in annotations.items()}
    checked = typechecker(decorated)
    decorated.__annotations__ = checked.__annotations__ = annotations
    return _with_scope(checked) if any(map(_has_shape, hints.values())) else checked


def _resolve_hint(hint: Any, function: Any) -> Any:  # noqa: ANN401
    """Return the type of a string annotation, or `Any` if one of its names is not defined, as jaxtyping does.

    A type variable whose bound is such an annotation is replaced by the type of its bound.
    """
    if isinstance(hint, TypeVar) and isinstance(hint.__bound__, ForwardRef):
        return _resolve_hint(hint.__bound__.__forward_arg__, function)
    if not isinstance(hint, str):
        return hint
    holder = SimpleNamespace(__annotations__={"hint": hint})
    try:
        return get_type_hints(holder, function.__globals__, include_extras=True)["hint"]
    except Exception:  # evaluation of the names may raise any error
        return Any


def _is_lazy(function: Any) -> bool:  # noqa: ANN401
    """Return whether a function is a generator or coroutine, whose call must check its arguments at once."""
    unwrapped = inspect.unwrap(function)
    return (
        inspect.isgeneratorfunction(unwrapped)
        or inspect.iscoroutinefunction(unwrapped)
        or inspect.isasyncgenfunction(unwrapped)
    )


def _has_shape(hint: Any) -> bool:  # noqa: ANN401
    """Return whether an annotation contains a shape."""
    if inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(_has_shape(argument) for argument in get_args(hint))


def _with_scope(checked: Callable[..., object]) -> Callable[..., object]:
    """Return the function, run in its own scope of dimensions."""

    @functools.wraps(checked)
    def call(*args: object, **kwargs: object) -> object:
        __tracebackhide__ = True
        with SCOPE:
            return checked(*args, **kwargs)

    return call


jaxtyping.jaxtyped = jaxtyped  # type: ignore[assignment]
