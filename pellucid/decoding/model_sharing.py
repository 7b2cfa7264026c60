"""Options of a model card, and the functions that `save_pretrained` and `push_to_hub` of a predictor call."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.argument_checks import CheckedFields, argument_error

MAX_CARD_TEXT = 20_000
"""Maximum length of a text of the card, in characters."""
LICENSE_ID = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}")
LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}")
DATASET_ID = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class CardOptions(CheckedFields):
    """Texts and identifiers on the model card of a shared model, beside the facts in its run folder.

    Raises:
        ArgumentError: A field has a wrong type, or is not an identifier of the expected form; the message names it.
    """

    title: str = ""
    """Title of the card; "" for the name of the folder or of the repository."""
    license: str = ""
    """License of the model, as the hub names it: "apache-2.0", "cc-by-4.0". "" if there is none, and the card says
    so."""
    languages: tuple[str, ...] = ()
    """Codes of the languages: "en", "gsw"."""
    datasets: tuple[str, ...] = ()
    """Data sets on the hub of which the model was trained: "user/data"."""
    intended_use: str = ""
    """Intended use, in Markdown; "" for a sentence on inputs like those of the training."""
    example: str = ""
    """Source text that the card shows with its output and attention weights; "" if there is none. No text of the
    training or validation data is on the card unless it is given here."""
    example_features: str = ""
    """Features of the example, for a model with features: "V;PST"."""

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        if self.license and not LICENSE_ID.fullmatch(self.license):
            raise argument_error("license", "an identifier such as 'apache-2.0' or 'cc-by-4.0'", self.license)
        for name, pattern, expected in (
            ("languages", LANGUAGE_CODE, "a code such as 'en'"),
            ("datasets", DATASET_ID, "an identifier such as 'user/data'"),
        ):
            for value in getattr(self, name):
                if not pattern.fullmatch(value):
                    raise argument_error(name, expected, value)
        for name in ("title", "intended_use", "example", "example_features"):
            if len(getattr(self, name)) > MAX_CARD_TEXT:
                raise argument_error(name, f"at most {MAX_CARD_TEXT:,} characters", getattr(self, name))
        if self.example_features and not self.example:
            raise argument_error("example_features", "'' without an example", self.example_features)


DEFAULT_CARD = CardOptions()


class HubCommit(NamedTuple):
    """Commit that `push_to_hub` made."""

    repo_id: str
    """Repository: "user/model"."""
    commit: str
    """Hash of the commit, with which `from_pretrained(repo_id, revision=commit)` loads exactly this model."""
    url: str
    """Address of the commit."""


class HubRequest(NamedTuple):
    """Destination of `push_to_hub`."""

    repo_id: str
    private: bool
    message: str
    """Message of the commit."""
    token: str | None
    """Access token; None for that of the environment or of the login."""


class ModelSharing(NamedTuple):
    """Functions that share a model. Their first argument is a predictor."""

    save: Callable[[Any, Path, CardOptions], None]
    """Write the folder of `save_pretrained`."""
    push: Callable[[Any, HubRequest, CardOptions], HubCommit]
    """Push the files of such a folder to the hub."""


_registered: list[ModelSharing] = []


def register_sharing(sharing: ModelSharing) -> None:
    """Register the functions that share a model, in place of earlier ones.

    The package `sharing` calls it when `pellucid` is imported.

    Args:
        sharing: The functions.
    """
    _registered[:] = [sharing]


def registered_sharing() -> ModelSharing:
    """Return the functions that share a model, as `register_sharing` got them.

    Raises:
        RuntimeError: None are registered. Importing `pellucid` registers them.
    """
    if not _registered:
        raise RuntimeError("no functions that share a model are registered; import pellucid")
    return _registered[0]
