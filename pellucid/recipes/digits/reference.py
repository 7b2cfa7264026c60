"""What the lessons' authors saw: their validation curves as stored, and two plots read off."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from pellucid.errors import DataError

POSITIONS_REPEAT = (
    *(0.78, 0.67, 0.33, 0.19, 0.15, 0.16, 0.16, 0.17, 0.17, 0.19, 0.18),
    *(0.20, 0.20, 0.21, 0.21, 0.21, 0.24, 0.35, 0.83, 0.98, 1.00),
)
"""Accuracy at each target position without attention, after 3 million samples (the blog of 2015)."""
POSITIONS_ATTENTION = (
    *(1.0, 1.0, 0.986, 0.935, 0.964, 0.991, 0.992, 0.983, 0.965, 0.946, 0.931),
    *(0.903, 0.897, 0.863, 0.823, 0.81, 0.855, 0.813, 0.27, 0.968, 0.82),
)
"""Accuracy at each target position with attention, after 150,000 samples (the better notebook of 2016)."""


class Curve(NamedTuple):
    """An author's validation accuracy over the samples seen."""

    name: str
    points: list[tuple[float, float]]

    def at(self, samples: int) -> float:
        """The accuracy at the last validation up to so many samples."""
        return [accuracy for seen, accuracy in self.points if seen <= samples][-1]

    def until(self, samples: int) -> "Curve":
        """The curve's beginning."""
        return Curve(self.name, [point for point in self.points if point[0] <= samples])


STORED = {
    "repeat": {
        "nv_624843e_gru_valacc(9.1e5)": "notebook 624843e (2016)",
        "blog/day3_85d4f0d_gru_valacc(3e6)": "blog (2015)",
        "sk_a27c9d1_gru_valacc(1e6)": "notebook a27c9d1",
    },
    "attention": {
        "nv_a3fe320_attn_valacc(1.5e5,complete)": "notebook a3fe320 (2016)",
        "nv_624843e_attn_valacc(1.5e5,complete)": "notebook 624843e (2016)",
    },
}
"""The complete runs, and where each comes from."""


def curves(data: Path, kind: str) -> list[Curve]:
    """The authors' curves of a kind of network ("repeat" or "attention"); `DataError` where they are not at hand."""
    path = data / "digits-curves" / "curves.json"
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=dict[str, list[tuple[float, float]]])
        return [Curve(name, stored[key]) for key, name in STORED[kind].items()]
    except FileNotFoundError:
        raise DataError(
            f"{path} is not there: the authors' curves stand in the folder given with --data, or in PELLUCID_DATA"
        ) from None
    except (OSError, msgspec.DecodeError, KeyError) as error:
        raise DataError(f"{path} does not hold the authors' curves: {error}") from None
