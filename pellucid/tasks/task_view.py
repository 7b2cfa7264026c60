"""What the page is told of a task: declarative fields, from which it takes its words and its layout."""

import msgspec


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """How outputs of a task are shown. The page branches on these fields, and never on the name of a task."""

    autoregressive: bool
    """Outputs are written symbol by symbol, and have beams, prefixes and states."""
    per_position: bool
    """Each source position has one output symbol, and there are no attention weights."""
    points: bool
    """Output symbols are source positions, and attention weights their probabilities."""
    texts: bool
    """Output symbols are texts, such as the names of classes."""
    symbol: str
    """What one output symbol is called."""
    symbols: str
    """The plural."""
    output: str
    """What a whole output is called."""
    scores: dict[str, str | None]
    """Names of validation scores by their keys in the log; null hides one, and a missing one is called by its key."""
