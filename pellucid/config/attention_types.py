"""Types of attention by name, and the properties of each on which other settings depend.

The classes are in model/attention.py. Types of other packages are classes declared as an entry point of the group
`pellucid.attentions`, whose name is that of the type, or registered with `pellucid.register_attention`.
"""

from typing import NamedTuple, Protocol, runtime_checkable

from pellucid.config.extensions import ExtensionRegistry, is_class
from pellucid.config.settings import AttentionConfig


class BuiltInProperties(NamedTuple):
    """Properties of a built-in attention, as its class has them."""

    has_weights: bool = True
    """False if the attention has no weights."""
    uses_softmax: bool = True
    """True if the weights are a softmax of scores."""


BUILT_IN_TYPES = {
    "additive": BuiltInProperties(),
    "location": BuiltInProperties(),
    "monotonic": BuiltInProperties(uses_softmax=False),
    "dot": BuiltInProperties(),
    "general": BuiltInProperties(),
    "scaled-dot": BuiltInProperties(),
    "none": BuiltInProperties(has_weights=False, uses_softmax=False),
}
"""Types of attention that Pellucid has, by their names in `ATTENTIONS` of model/attention.py."""
TYPE_OF_SETTING = {"filters": "location", "filter_radius": "location", "num_heads": "additive"}
"""Built-in type of each setting of the attention that only one of them has; classes of other packages may have all."""


@runtime_checkable  # for the checks of types in tests
class AttentionProperties(Protocol):
    """Properties of a built-in attention, or of a class derived from `Attention`: the class itself has them."""

    @property
    def has_weights(self) -> bool:
        """False if the attention has no weights."""

    @property
    def uses_softmax(self) -> bool:
        """True if the weights are a softmax of scores."""


def _has_attention_properties(value: object) -> bool:
    """Return whether a value is a class with the properties of an attention."""
    names = ("has_weights", "uses_softmax")
    return is_class(value) and all(isinstance(getattr(value, each, None), bool) for each in names)


ATTENTION_TYPES = ExtensionRegistry[AttentionProperties](
    kind="attention type",
    group="pellucid.attentions",
    register_call="pellucid.register_attention(name, class)",
    built_in=BUILT_IN_TYPES,
    provided="a subclass of pellucid.Attention",
    is_extension=_has_attention_properties,
)
"""All values of the setting `attention.type`."""


def is_custom_attention(attention: AttentionConfig) -> bool:
    """Return whether the attention is not built in; its class may then use every setting of the section.

    Args:
        attention: Settings of the attention.
    """
    return attention.type not in BUILT_IN_TYPES


def has_weights(attention: AttentionConfig) -> bool:
    """Return whether the attention has weights.

    Args:
        attention: Settings of the attention.

    Raises:
        ConfigError: There is no such type, or its entry point does not provide it.
    """
    return _properties(attention).has_weights


def uses_softmax(attention: AttentionConfig) -> bool:
    """Return whether the weights of the attention are a softmax of scores.

    Args:
        attention: Settings of the attention.

    Raises:
        ConfigError: There is no such type, or its entry point does not provide it.
    """
    return _properties(attention).uses_softmax


def _properties(attention: AttentionConfig) -> AttentionProperties:
    """Return the properties of a built-in attention, or the class of another one."""
    return BUILT_IN_TYPES.get(attention.type) or ATTENTION_TYPES.get(attention.type)
