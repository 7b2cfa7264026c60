"""Identity of a run, which its model file holds: files of two runs that were mixed by hand are refused.

The model file records the settings that determine what its parameters compute, a checksum of the vocabularies, the
update of its validation, and the fingerprint of the training, which the checkpoint, the pair n-gram model, the log and
the snapshots hold too. Files of earlier versions record nothing, and are not compared.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pellucid.config.extensions import ExtensionRegistry, PackageVersion
from pellucid.config.renamed_settings import current_key
from pellucid.config.settings import Config
from pellucid.config.toml import flatten_config, named_extensions
from pellucid.data.vocabulary import Vocabularies
from pellucid.errors import RunError, abbreviate, abbreviate_reason, quote
from pellucid.files import file_exists
from pellucid.run_folder.advice import RESTORE_OR_TRAIN, add_advice
from pellucid.run_folder.log import RunLog, other_log_error
from pellucid.run_folder.model_file import FINGERPRINT, SETTINGS, UPDATE, VALIDATED, VERSIONS, VOCABULARY_DIGEST
from pellucid.run_folder.run_files import CHECKPOINT, CONFIG, MODEL, VOCABULARY
from pellucid.run_folder.tensor_file import NetworkMismatchError, open_tensors
from pellucid.version import __version__

TOKEN_SETTINGS = (
    *("task", "data.source_symbols", "data.target_symbols", "data.features_symbols"),
    *("data.source_normalization", "data.target_normalization"),
)
"""Settings outside the sections of the network that determine the meaning of its inputs and outputs."""
PACKAGE = "pellucid"
"""Name of this package among the recorded versions."""
NETWORK_SECTIONS = ("encoder.", "attention.", "decoder.")
TRAINING_ONLY = ("dropout", "pretrained")
"""Parts of the names of settings of these sections that have no effect after the training."""
MIXED_ADVICE = "copy all files of the run folder from one run, or train the model again"


def describe_run(
    config: Config, vocabularies: Vocabularies, fingerprint: str, update: int, is_validated: bool = True
) -> dict[str, str]:
    """Return the metadata by which a model file is recognized as part of a run.

    Args:
        config: Configuration of the run.
        vocabularies: Vocabularies of the run.
        fingerprint: Hash of the settings and data of its training.
        update: Number of updates at the validation that the parameters are of.
        is_validated: False for the first model of a training, which is written before its first validation. True by
            default.
    """
    return {
        FINGERPRINT: fingerprint,
        SETTINGS: msgspec.json.encode(_network_settings(config)).decode(),
        VOCABULARY_DIGEST: _digest_vocabularies(vocabularies),
        UPDATE: str(update),
        VERSIONS: msgspec.json.encode(find_versions(config)).decode(),
        **({} if is_validated else {VALIDATED: "false"}),
    }


def find_versions(config: Config, of_training: bool = False) -> dict[str, str]:
    """Return the versions of Pellucid and of the packages whose extensions a configuration names.

    Args:
        config: Configuration of a run.
        of_training: Whether the extensions that only a training needs count too, such as an optimizer.

    Returns:
        Version by the name of the package, with "pellucid" first.
    """

    def counts(registry: ExtensionRegistry[Any]) -> bool:
        return of_training or not registry.is_training_only

    named = named_extensions(msgspec.to_builtins(config))
    packages = filter(None, (registry.find_package(name) for _, registry, name in named if counts(registry)))
    return {PACKAGE: __version__, **{package.name: package.version for package in packages}}


def required_packages(config: Config) -> list[str]:
    """Return what a machine needs besides Pellucid to use a run: the packages of its extensions, with their versions.

    Args:
        config: Configuration of a run.

    Returns:
        "`my-attention` 1.2, which provides the attention type 'cosine'"; of an extension that no installed package
        provides, "the class of the attention type 'cosine', registered with pellucid.register_attention(name, class)".
    """
    texts = []
    for _, registry, name in named_extensions(msgspec.to_builtins(config)):
        if registry.is_training_only or name in registry.built_in:
            continue
        package, extension = registry.find_package(name), f"the {registry.kind} {quote(name)}"
        texts.append(
            f"`{package.name}` {package.version}, which provides {extension}"
            if package
            else f"the class of {extension}, registered with {registry.register_call}"
        )
    return list(dict.fromkeys(texts))


def format_versions(versions: Mapping[str, str]) -> str:
    """Return versions as one text: "pellucid 0.1.0, my-attention 1".

    Args:
        versions: Version by the name of the package.
    """
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def combine_fingerprints(identities: Iterable["ModelIdentity"]) -> str:
    """Return a hash of the models of an ensemble; another training, or another update of one, changes it.

    Args:
        identities: Identities of the members, in their order.
    """
    models = [(identity.fingerprint, identity.update) for identity in identities]
    return hashlib.sha256(msgspec.json.encode(models)).hexdigest()


class ModelIdentity(NamedTuple):
    """Identity in the model file of a run folder, with which the other files are compared."""

    folder: Path
    metadata: dict[str, str]
    """Metadata in the header of the model file; empty without a model."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the training; empty without a model, or for one of an earlier version."""
        return self.metadata.get(FINGERPRINT, "")

    @property
    def is_validated(self) -> bool:
        """False for the first model of a training, which is written before its first validation."""
        return self.metadata.get(VALIDATED) != "false"

    @property
    def update(self) -> str:
        """Number of updates at the validation of the model; empty without a model, or for one of an earlier version."""
        return self.metadata.get(UPDATE, "")

    def other_versions(self, config: Config) -> str:
        """Return the versions that trained the model and those that are installed; "" if they are equal.

        A model of an earlier version records none.

        Args:
            config: Configuration in the folder.
        """
        try:
            trained = msgspec.json.decode(self.metadata.get(VERSIONS, "{}"), type=dict[str, str])
        except (msgspec.DecodeError, RecursionError):  # a forged file: the checksum is right
            return "with versions that cannot be read"
        installed = find_versions(config)
        if trained in ({}, installed):
            return ""
        return f"with {quote(format_versions(trained))}, and is used with {quote(format_versions(installed))}"

    @contextmanager
    def explain_misfit(self, config: Config) -> Iterator[None]:
        """Begin the message about parameters that do not fit with the packages of extensions of another version.

        Args:
            config: Configuration in the folder.

        Raises:
            RunError: As in the block; if a package has another version than that which trained the model, the message
                names both first.
        """
        try:
            yield
        except NetworkMismatchError as error:
            differing = self._differing_packages(config)
            if not differing:
                raise
            trained, installed = (
                " and ".join(quote(str(each)) for each in side) for side in zip(*differing, strict=True)
            )
            raise RunError(
                f"{self.folder} was trained with {trained}, and {installed} is installed: install the version that "
                f"trained it, or train the model again; {error.reason}"
            ) from error

    def _differing_packages(self, config: Config) -> list[tuple[PackageVersion, PackageVersion]]:
        """Return the packages of extensions whose versions differ: as they trained the model, and as installed."""
        with suppress(msgspec.MsgspecError, RecursionError):
            trained = msgspec.json.decode(self.metadata.get(VERSIONS, "{}"), type=dict[str, str])
            return [
                (PackageVersion(name, trained[name]), PackageVersion(name, version))
                for name, version in find_versions(config).items()
                if name != PACKAGE and trained.get(name, version) != version
            ]
        return []

    def check_config(self, config: Config) -> None:
        """Check that the configuration is of the run of the model; settings without effect on outputs may differ.

        Args:
            config: Configuration in the folder.

        Raises:
            RunError: A setting of the network or of its symbols differs from that of the training of the model, or the
                settings in the model file are damaged.
        """
        text, model = self.metadata.get(SETTINGS), self.folder / MODEL
        if text is None:
            return
        try:
            trained = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            reason = abbreviate_reason(error)
            raise RunError(f"{model} is damaged: settings in its header: {reason}; {RESTORE_OR_TRAIN}") from error
        current = _network_settings(config)
        for key, value in ((current_key(key), value) for key, value in trained.items()):
            if key in current and current[key] != value:
                difference = f"{key} is {quote(current[key])}, and {quote(value)} in the model"
                raise mixed_error(self.folder / CONFIG, model, difference)

    def check_vocabularies(self, vocabularies: Vocabularies) -> None:
        """Check that the vocabularies are of the run of the model.

        Args:
            vocabularies: Vocabularies in the folder.

        Raises:
            RunError: They are not those of the training of the model.
        """
        if self.metadata.get(VOCABULARY_DIGEST) not in (None, _digest_vocabularies(vocabularies)):
            raise mixed_error(self.folder / VOCABULARY, self.folder / MODEL, "its symbols are not those of the model")

    def check_training(self, path: Path, fingerprint: str) -> None:
        """Check that another file is of the training of the model.

        Args:
            path: The other file: the checkpoint or the pair n-gram model.
            fingerprint: Fingerprint in the other file; empty if it has none.

        Raises:
            RunError: The fingerprints differ.
        """
        if self._is_other(fingerprint):
            reason = "their trainings had other data or settings (fingerprint)"
            raise mixed_error(path, self.folder / MODEL, reason)

    def check_log(self, log: RunLog) -> None:
        """Check that the log is of the training of the model.

        Args:
            log: Log in the folder.

        Raises:
            RunError: The fingerprints differ.
        """
        if self._is_other(log.fingerprint):
            raise other_log_error(log.path)

    def check_update(self, best_update: int) -> None:
        """Check that the model is the best one according to its checkpoint.

        Args:
            best_update: Number of updates at the best validation, in the checkpoint.

        Raises:
            RunError: The model is of another validation.
        """
        update = self.metadata.get(UPDATE, str(best_update))
        if update != str(best_update):
            raise RunError(
                f"{self.folder / MODEL} is of update {abbreviate(update)}, but the best validation in "
                f"{self.folder / CHECKPOINT} is of update {best_update}; restore both files from one copy of the run, "
                "or name another run folder to train again"
            )

    def _is_other(self, fingerprint: str) -> bool:
        """Return whether a fingerprint is of another training; False if it or that of the model is empty."""
        return bool(self.fingerprint and fingerprint) and self.fingerprint != fingerprint


def read_identity(folder: Path) -> ModelIdentity:
    """Read the identity in the header of a model file, but no parameter.

    Args:
        folder: Run folder; without a model, the identity is empty.

    Raises:
        RunError: The model file is damaged.
    """
    path = folder / MODEL
    if not file_exists(path):
        return ModelIdentity(folder, {})
    with add_advice(RESTORE_OR_TRAIN), open_tensors(path) as stored:
        return ModelIdentity(folder, stored.metadata)


def has_validated_model(folder: Path) -> bool:
    """Return whether a run folder has a model of a validation; True for a damaged one, which loading reports.

    Args:
        folder: Run folder.
    """
    if not file_exists(folder / MODEL):
        return False
    try:
        return read_identity(folder).is_validated
    except RunError:
        return True


def mixed_error(path: Path, model: Path, reason: str) -> RunError:
    """Return the error for two files of different runs.

    Args:
        path: The file that is not of the run of the other one.
        model: The other file, most often the model.
        reason: What differs.
    """
    return RunError(f"{path} and {model} are not of the same run: {reason}; {MIXED_ADVICE}")


def _network_settings(config: Config) -> dict[str, Any]:
    """Return the settings that determine what the parameters compute, by key, as JSON represents them."""
    settings = {
        key: value
        for key, value in flatten_config(config).items()
        if key in TOKEN_SETTINGS
        or (key.startswith(NETWORK_SECTIONS) and not any(part in key for part in TRAINING_ONLY))
    }
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(settings))
    return decoded


def _digest_vocabularies(vocabularies: Vocabularies) -> str:
    """Return a hash of everything in the vocabularies on which outputs depend, whatever the layout of their file."""
    columns = [vocabularies.source, vocabularies.target, vocabularies.features]
    lengths = [vocabularies.longest_source, vocabularies.longest_target]
    if vocabularies.characters.symbols:
        columns.append(vocabularies.characters)
    content = [[column.symbols for column in columns], [column.counts for column in columns], lengths]
    return hashlib.sha256(msgspec.json.encode([*content, vocabularies.pieces])).hexdigest()
