"""Trace: everything one decoding did. Evaluation, pictures and pages read this and nothing else."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from pellucid.config import Task
from pellucid.search.lattice import Lattice

FORMAT = 1
END = "⟨end⟩"
UNKNOWN = "⟨unknown⟩"


@dataclass(frozen=True, eq=False)
class Trace:
    """One source, its output, and how each output symbol came to be.

    T counts the steps, the end symbol's included where decoding reached it; S counts the source positions, the features
    (which are read first) included; k is how many candidates a step keeps.
    """

    text: str
    """The source as it was given."""
    source: tuple[str, ...]
    """S symbols the encoder read, in its order: the features, then the source."""
    features: int
    """How many of them, from the first, are features."""
    unknown: tuple[int, ...]
    """Positions in `source` whose symbol the model has never seen."""
    target: tuple[str, ...]
    """T symbols decoded, the last one `END` where decoding finished."""
    output: str
    """The decoded text, without `END`."""
    finished: bool
    """Whether `END` was decoded; if not, the output was cut at the greatest length."""
    log_probabilities: Float[np.ndarray, " T"]
    """ln p of each decoded symbol, given the source and the symbols before it."""
    attention: Float[np.ndarray, "T S"]
    """Weights: row t is where the decoder looked to write symbol t. Rows sum to one (to zero without attention).

    Each tag looks at its own position: that identity is not written to JSON.
    """
    top_symbols: tuple[tuple[str, ...], ...]
    """The k likeliest symbols of each step, likeliest first."""
    top_log_probabilities: Float[np.ndarray, "T k"]
    """ln p of each of them."""
    origin: Literal["search", "sample", "given", "lexicon"] = "search"
    """Found by search, drawn at random, given and only scored, or looked up in a table (then nothing was looked at)."""
    rank: int = 1
    """Its place among the outputs of its source, or its number among the samples."""
    probability: float | None = None
    """Its share of the probability of all outputs in its list; None where no list was asked for."""
    search_score: float | None = None
    """What search ranked it by, where that was not `score`."""
    unknown_target: tuple[int, ...] = ()
    """Positions in `target`, of a given output, whose symbol the model has never seen."""
    forced: tuple[int, ...] = ()
    """Steps of a search whose symbol was given, not chosen: those of a prefix."""
    painted: tuple[int, ...] = ()
    """Steps whose attention was given, not computed."""
    lattice: Lattice | None = None
    """Everything that the beam considered, where that was asked for."""
    heads: Float[np.ndarray, "N T S"] | None = None
    """Weights of each of N heads, of which `attention` is the mean; None where the model has one, or there are several
    models."""
    added: tuple[str, ...] = ()
    """Features that were added to the vector of every source symbol (encoder.features = "sum"): no positions."""
    task: Task = "transduce"
    """What the model does: other than "transduce", a step is a tag, a class or a position, and none is an end."""
    looks: Float[np.ndarray, "L S"] | None = None
    """Of a class that was told after several looks, the weights of each, the last of which are `attention`."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """What was written or answered, without the end."""
        ends = self.task == "transduce" and self.finished and bool(self.target)
        return self.target[:-1] if ends else self.target

    @property
    def score(self) -> float:
        """ln p of the whole output given the source: the sum over its steps."""
        return float(self.log_probabilities.sum(dtype=np.float64))

    def to_dict(self) -> dict[str, Any]:
        """The trace as plain values for JSON (format 1); weights and log-probabilities to six decimals.

        The keys of `_told` stand only where there is something to tell.
        """
        return {
            "format": FORMAT,
            "text": self.text,
            "output": self.output,
            "score": round(self.score, 6),
            "finished": self.finished,
            "source": list(self.source),
            "features": self.features,
            "unknown": list(self.unknown),
            "target": list(self.target),
            "log_probabilities": _rounded(self.log_probabilities),
            "attention": [] if self.task == "tag" else _rounded(self.attention),
            "top": [
                [[symbol, score] for symbol, score in zip(symbols, scores, strict=True)]
                for symbols, scores in zip(self.top_symbols, _rounded(self.top_log_probabilities), strict=True)
            ],
            **self._told(),
        }

    def _told(self) -> dict[str, Any]:
        """What the usual decoding has not: another origin, a place in a list, another score, heads, given steps."""
        told: dict[str, Any] = {} if self.origin == "search" else {"origin": self.origin}
        if self.probability is not None or self.rank > 1 or self.origin == "sample":
            told["rank"] = self.rank
        if self.probability is not None:
            told["probability"] = round(self.probability, 6)
        if self.search_score is not None:
            told["search_score"] = round(self.search_score, 6)
        if self.heads is not None:
            told["heads"] = _rounded(self.heads)
        if self.task != "transduce":
            told["task"] = self.task
        if self.looks is not None:
            told["looks"] = _rounded(self.looks)
        if self.added:
            told["added"] = list(self.added)
        if self.unknown_target:
            told["unknown_target"] = list(self.unknown_target)
        told.update(
            {name: list(steps) for name, steps in (("forced", self.forced), ("painted", self.painted)) if steps}
        )
        if self.lattice is not None:
            told["lattice"] = self.lattice.to_dict()
        return told

    def save(self, path: str | Path) -> None:
        """Write it as what the name ends with: .html (the page), .svg, .png, .json, or .tex (TikZ).

        `InputError` for another ending, and where the system refuses.
        """
        from pellucid.viewer.saving import save

        save(self, Path(path))

    def _repr_html_(self) -> str:
        """The page of this trace in a frame, in a notebook."""
        from pellucid.viewer.saving import framed

        return framed(self)

    def __str__(self) -> str:
        """The source and its output, on one line."""
        return f"{self.text} → {self.output}"


def _rounded(values: Float[np.ndarray, "..."]) -> list[Any]:
    """Nested lists of the values, to six decimals."""
    rounded: list[Any] = np.round(values.astype(np.float64), 6).tolist()
    return rounded
