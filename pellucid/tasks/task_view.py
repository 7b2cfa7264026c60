"""Task view: the fields by which the page displays the outputs of a task."""

import msgspec


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """Properties and names of a task's outputs, by which the page displays them; it never reads the name of a task."""

    autoregressive: bool
    """Outputs are generated symbol by symbol, and have beams, prefixes and decoder states."""
    per_position: bool
    """Each source position has one output symbol, and there are no attention weights."""
    points: bool
    """Output symbols are source positions, and attention weights their probabilities."""
    texts: bool
    """Output symbols are texts, such as the names of classes."""
    symbol: str
    """Name of an output symbol: "symbol", "tag", "class" or "position"."""
    symbols: str
    """Its plural."""
    output: str
    """Name of a whole output."""
    scores: dict[str, str | None]
    """Display names of validation metrics by their keys in the log; null hides a metric, and a missing one uses its
    key."""
