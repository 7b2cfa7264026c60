"""What a training, or the ensemble of several, has come to."""

from typing import Any, NamedTuple

from pellucid.config import Config
from pellucid.recipes.reference.judging import Worths
from pellucid.viewer.report import Report


class Run(NamedTuple):
    """One experiment with one seed."""

    experiment: str
    config: Config
    worths: Worths
    stopped: dict[str, Any]
    """The last record of the log: updates, samples, seconds of training."""
    epochs: float
    """Passes over the training set."""
    parameters: int
    report: Report

    @property
    def who(self) -> str:
        """Its seed."""
        return f"seed {self.config.seed}"


class Together(NamedTuple):
    """The runs of all seeds of one experiment, as an ensemble."""

    experiment: str
    members: int
    worths: Worths

    @property
    def who(self) -> str:
        """How many they are."""
        return f"ensemble of {self.members}"
