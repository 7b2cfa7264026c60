"""Types of attention by name, and the properties of each on which other settings depend.

The classes are in model/attention.py. Types of other packages are classes declared as an entry point of the group
`pellucid.attentions`, whose name is that of the type, or registered with `pellucid.register_attention`.
"""

from typing import Protocol

from pellucid.config.extensions import ExtensionRegistry
from pellucid.config.settings import AttentionConfig

BUILT_IN_TYPES = ("additive", "location", "monotonic", "dot", "general", "scaled-dot", "none")
"""Types of attention that Pellucid has, by their names in `ATTENTIONS` of model/attention.py."""
TYPES_WITHOUT_WEIGHTS = ("none",)
"""Built-in types whose class has no weights."""
TYPES_WITHOUT_SOFTMAX = ("none", "monotonic")
"""Built-in types whose weights are not a softmax of scores."""


class RegisteredAttention(Protocol):
    """A class of attention as far as this module needs it, without torch; its base is `Attention`."""

    @property
    def has_weights(self) -> bool:
        """False if the attention has no weights."""

    @property
    def uses_softmax(self) -> bool:
        """True if the weights are a softmax of scores."""


def _is_attention(name: str, value: object) -> bool:
    """Return whether a value is a class with the properties of an attention."""
    names = ("has_weights", "uses_softmax")
    return isinstance(value, type) and all(isinstance(getattr(value, each, None), bool) for each in names)


ATTENTION_TYPES = ExtensionRegistry[RegisteredAttention](
    key="attention.type",
    noun="attention type",
    group="pellucid.attentions",
    function="pellucid.register_attention(name, class)",
    built_in=BUILT_IN_TYPES,
    provides=_is_attention,
)
"""All values of the setting `attention.type`."""


def is_custom(attention: AttentionConfig) -> bool:
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
    if is_custom(attention):
        return ATTENTION_TYPES.get(attention.type).has_weights
    return attention.type not in TYPES_WITHOUT_WEIGHTS


def uses_softmax(attention: AttentionConfig) -> bool:
    """Return whether the weights of the attention are a softmax of scores.

    Args:
        attention: Settings of the attention.

    Raises:
        ConfigError: There is no such type, or its entry point does not provide it.
    """
    if is_custom(attention):
        return ATTENTION_TYPES.get(attention.type).uses_softmax
    return attention.type not in TYPES_WITHOUT_SOFTMAX
