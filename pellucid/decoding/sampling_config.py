"""Settings of sampling."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from pellucid.argument_checks import CheckedFields
from pellucid.config.settings import Limit, Seed


@dataclass(frozen=True, kw_only=True)
class SamplingConfig(CheckedFields):
    """Parameters of sampling. `top_k` is applied before `top_p`.

    Raises:
        ArgumentError: A value has a wrong type or is out of range.
    """

    samples: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Number of samples per source, 1 to 1,024."""
    temperature: Annotated[float, Meta(gt=0.0, le=1e6)] = 1.0
    """Temperature, above 0, by which log-probabilities are divided: below 1 is sharper, above 1 is flatter."""
    top_k: Limit = 0
    """Sample from the k most probable symbols; 0 = no limit."""
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    """Nucleus sampling: sample from the fewest most probable symbols with this probability mass, above 0 to 1."""
    seed: Seed = 1
    """Random seed."""
