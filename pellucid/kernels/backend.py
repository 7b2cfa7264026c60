"""Backends, and the one description of what is asked of them.

A request lists all facts on which a result may depend. A backend lists, for every fact that it knows, the values for
which it computes exactly what the equations say. It declines a request that holds a fact, or a value, that it does not
list. So a new setting, a new decoding option or a new part of a value switches a backend off until somebody has decided
what the backend does with it; none is ignored without a word.
"""

import warnings
from collections.abc import Callable, Container, Hashable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, lru_cache
from typing import Any, Literal

from pellucid.errors import abbreviate_reason

Computation = Literal[
    "recurrence",  # recurrent cells over whole sequences
    "keys",  # of attention, projected from a memory
    "attention",  # of all queries
    "unroll",  # the decoder over known symbols
    "step",  # one decoder step
    "search",  # the options of a search, whatever network it is of
    "greedy",  # all steps of a greedy search
    "beam",  # all steps of a beam search
    "ranking",  # the best symbols of a step
    "cross_entropy",
    "adam",
]
Fact = tuple[str, Hashable]
Facts = tuple[Fact, ...]


@dataclass(frozen=True)
class Request:
    """One computation, described by all that the answer of a backend may depend on."""

    computation: Computation
    device: str
    """Type of the device that holds the operands: cpu or cuda."""
    dtype: str
    """Type of the operands' numbers, as float32."""
    gradients: bool
    """Whether gradients are to flow through the computation."""
    facts: Facts = ()
    """AllFacts else, by name: settings, kinds of layers, and which optional parts are there."""


class AnyValue:
    """All values: a computation that does not depend on the fact, or that computes it whatever it is."""

    def __contains__(self, value: object) -> bool:
        """Return True."""
        return True


class AllFacts(dict[str, Container[Any]]):
    """A table of all facts, whatever they are."""

    def get(self, name: str, default: object = None) -> AnyValue:
        """Return all values."""
        return ANYTHING


ANYTHING = AnyValue()
Table = Mapping[str, Container[Any]]


@dataclass(frozen=True, eq=False)
class Backend:
    """A way to compute: for each computation that it has, the values of all facts that it covers."""

    name: str
    tables: Mapping[Computation, Table] = field(repr=False)
    is_available: Callable[[], bool] = field(repr=False)
    """Whether this machine can run it; the first call may compile."""

    def supports(self, request: Request) -> bool:
        """Return whether the backend computes what is asked, exactly, with no fact left out."""
        return not self.unsupported(request)

    def unsupported(self, request: Request) -> Facts:
        """Return the facts for which the backend declines; all of them where it does not have the computation."""
        table: Table = self.tables.get(request.computation, {})
        return tuple((name, value) for name, value in _all_facts(request) if value not in table.get(name, ()))


def _all_facts(request: Request) -> Facts:
    """Return the facts of a request, with device, type of numbers and gradients."""
    always = (("device", request.device), ("dtype", request.dtype), ("gradients", request.gradients))
    return (*always, *request.facts)


SEARCH: Table = {
    "device": ANYTHING,
    "dtype": ANYTHING,
    "gradients": ANYTHING,
    "search.max_length": ANYTHING,
    "search.min_length": ANYTHING,
    "search.max_length_ratio": {0.0},
    "search.max_length_offset": ANYTHING,  # of the ratio
    "search.min_length_ratio": {0.0},
    "search.min_length_offset": ANYTHING,  # of the ratio
    "search.beam_size": ANYTHING,
    "search.length_normalization": {"none"},
    "search.length_penalty_alpha": ANYTHING,  # of the normalization
    "search.coverage_penalty": {0.0},
    "search.batch_size": ANYTHING,
    "options.prefix": ANYTHING,  # seen in the constraints
    "options.forbidden": ANYTHING,
    "options.required": ANYTHING,
    "options.lexicon": ANYTHING,  # asked before the search
    "options.lattice": {False},
    "options.painted": {False},
    "options.masked": {False},
    "constraints.forbidden": {False},
    "constraints.required": {False},
    "constraints.prefixes": {False},
}
"""What `greedy` and `beam` of search/ know, in PyTorch as in kernels: limits of length and the width of the beam."""


def settings_of(section: str, settings: Any) -> Facts:  # noqa: ANN401 (a frozen msgspec struct or dataclass)
    """Return every setting of a section with its value: a new one is a new fact."""
    return _settings_of(section, settings)


@lru_cache(maxsize=1024)
def _settings_of(section: str, settings: Any) -> Facts:  # noqa: ANN401
    """Return the facts of a section, decided once for each."""
    return tuple((f"{section}.{name}", getattr(settings, name)) for name in _names(type(settings)))


def parts_given(section: str, value: Any) -> Facts:  # noqa: ANN401 (a NamedTuple or a dataclass)
    """Return, for every optional part of a value, whether it is given: a new part is a new fact."""
    kind: Any = type(value)
    return tuple(
        [(fact, _is_given(getattr(value, name), default)) for name, fact, default in _optional_parts(section, kind)]
    )


def _is_given(part: Any, default: object) -> bool:  # noqa: ANN401
    """Return whether an optional part is there: no None, no empty sequence, and not what it is by default."""
    if part is None or part is default:
        return False
    if isinstance(part, str | tuple) or hasattr(part, "__array__"):
        return len(part) > 0
    return bool(part != default)


def _names(kind: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Return the names of all fields of a struct or dataclass."""
    return tuple(each.name for each in fields(kind)) if is_dataclass(kind) else tuple(kind.__struct_fields__)


@cache
def _optional_parts(section: str, kind: Hashable) -> tuple[tuple[str, str, object], ...]:
    """Return the fields of a class that have a default: their names, what they are called as facts, and the default."""
    if is_dataclass(kind):
        defaults: dict[str, object] = {each.name: each.default for each in fields(kind)}
    else:
        defaults = getattr(kind, "_field_defaults")  # noqa: B009 (of a class that is told as hashable)
    return tuple((name, f"{section}.{name}", default) for name, default in defaults.items())


def compiles(warm_up: Callable[[], None], otherwise: str) -> bool:
    """Return whether kernels compile; if not, warn why, beginning with what follows from it."""
    try:
        warm_up()
    except Exception as error:  # whatever a compiler may meet on a machine nobody has seen
        warnings.warn(f"{otherwise}, slower: {abbreviate_reason(error)}", stacklevel=3)
        return False
    return True
