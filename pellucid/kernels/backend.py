"""Backends, and the description of the computations requested of them.

A request lists all properties on which a result may depend: pairs of a name and a value, such as
("decoder.num_layers", 1) or ("memory.ignored", False). A backend lists, for every property that it knows, the values
for which it computes exactly what the equations say. It declines a request that has a property, or a value, that it
does not list. So a new setting, a new decoding option or a new optional field switches a backend off until somebody has
decided what the backend does with it; none is ignored silently.
"""

from collections.abc import Callable, Container, Hashable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, lru_cache
from typing import Any, Literal

Computation = Literal[
    "recurrence",  # recurrent cells over whole sequences
    "linear",  # W x + b of the rows of a matrix
    "keys",  # of attention, projected from a memory
    "attention",  # of all queries
    "unroll",  # the decoder over known symbols
    "step",  # one decoder step
    "greedy",  # all steps of a greedy search
    "beam",  # all steps of a beam search
    "ranking",  # the best symbols of a step
    "cross_entropy",
    "adam",
]
Property = tuple[str, Hashable]
Properties = tuple[Property, ...]


@dataclass(frozen=True)
class ComputationRequest:
    """One computation, described by all properties on which a backend's result may depend; it holds no tensors."""

    computation: Computation
    device: str
    """Type of the device that holds the operands: cpu or cuda."""
    dtype: str
    """Type of the operands' numbers without "torch.", as float32."""
    gradients: bool
    """True if PyTorch's autograd is enabled, so that gradients may flow through the computation."""
    properties: Properties = ()
    """All other properties by name: settings, kinds of layers, and which optional fields are present."""


class AnyValue:
    """A container of all values: the computation does not depend on the property, or computes every value of it."""

    def __contains__(self, value: object) -> bool:
        """Return True.

        Args:
            value: Value of a property.
        """
        return True


class AllProperties(dict[str, Container[Any]]):
    """Supported values of a backend that supports every value of every property."""

    def get(self, name: str, default: object = None) -> AnyValue:
        """Return `ANYTHING` for every name.

        Args:
            name: Name of a property.
            default: Ignored.
        """
        return ANYTHING


ANYTHING = AnyValue()
SupportedValues = Mapping[str, Container[Any]]
"""The supported values of each property, by its name. A property that is not listed has none."""


@dataclass(frozen=True, eq=False)
class Backend:
    """An implementation of some computations, and the properties with which it computes each of them."""

    name: str
    """Torch, Numba or Triton."""
    supported_values: Mapping[Computation, SupportedValues] = field(repr=False)
    load: Callable[[], bool] = field(repr=False)
    """Loads or compiles the kernels at its first call, and returns whether this machine can run them; warns if not."""

    def supports(self, request: ComputationRequest) -> bool:
        """Return whether the backend lists every property of the request with its value; loads nothing.

        Args:
            request: The computation and its properties.
        """
        return not self.unsupported_properties(request)

    def unsupported_properties(self, request: ComputationRequest) -> Properties:
        """Return the properties, device, type of numbers and gradients included, whose value is not supported.

        These are all properties if the backend lacks the computation.

        Args:
            request: The computation and its properties.
        """
        supported: SupportedValues = self.supported_values.get(request.computation, {})
        return tuple((name, value) for name, value in _all_properties(request) if value not in supported.get(name, ()))


def _all_properties(request: ComputationRequest) -> Properties:
    """Return the properties of a request, with device, type of numbers and gradients."""
    always = (("device", request.device), ("dtype", request.dtype), ("gradients", request.gradients))
    return (*always, *request.properties)


def settings_of(section: str, settings: Any) -> Properties:  # noqa: ANN401 (a frozen msgspec struct or dataclass)
    """Return all settings of a section as properties, named "section.setting". A new setting is a new property.

    Args:
        section: Name of the section.
        settings: The settings, a frozen msgspec struct or dataclass.
    """
    return _settings_of(section, settings)


@lru_cache(maxsize=1024)
def _settings_of(section: str, settings: Any) -> Properties:  # noqa: ANN401
    """Return the properties of a section; cached."""
    return tuple((f"{section}.{name}", getattr(settings, name)) for name in _names(type(settings)))


def present_fields(section: str, value: Any) -> Properties:  # noqa: ANN401 (a NamedTuple or a dataclass)
    """Return, for every optional field of a value, the property "section.field", which is True if it is present.

    A field is present if it is not None, not its default, and not an empty string, tuple or array. A new optional field
    is a new property.

    Args:
        section: Prefix of the properties' names.
        value: A NamedTuple or a dataclass; its optional fields are those that have a default.
    """
    value_type: Any = type(value)
    return tuple(
        [
            (property_name, _is_present(getattr(value, name), default))
            for name, property_name, default in _optional_fields(section, value_type)
        ]
    )


def _is_present(content: Any, default: object) -> bool:  # noqa: ANN401
    """Return whether an optional field is present: it is not None, not an empty sequence, and not its default."""
    if content is None or content is default:
        return False
    if isinstance(content, str | tuple) or hasattr(content, "__array__"):
        return len(content) > 0
    return bool(content != default)


def _names(settings_type: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Return the names of all fields of a struct or dataclass."""
    return (
        tuple(member.name for member in fields(settings_type))
        if is_dataclass(settings_type)
        else tuple(settings_type.__struct_fields__)
    )


@cache
def _optional_fields(section: str, value_type: Hashable) -> tuple[tuple[str, str, object], ...]:
    """Return the fields of a class that have a default: names, names of properties, defaults."""
    if is_dataclass(value_type):
        defaults: dict[str, object] = {member.name: member.default for member in fields(value_type)}
    else:
        defaults = getattr(value_type, "_field_defaults")  # noqa: B009 (the class is typed as hashable)
    return tuple((name, f"{section}.{name}", default) for name, default in defaults.items())
