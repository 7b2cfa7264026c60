"""The initial run of a fine-tuning: the run whose parameters and symbols a training begins from (`--init-from RUN`).

Its task, its symbols and its network are the defaults of the new training (`inherited_settings`). All other settings
have their usual defaults, except the learning rate (`LEARNING_RATE_FACTOR`). The configuration of the new run records
the folder of the initial run, as it was given, and the SHA-256 of its model file. Once the new run has a checkpoint,
which is written before the first update, the initial run is not read again: it may be moved, trained on or removed.
"""

from collections.abc import Mapping, Sequence
from os.path import realpath
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pellucid.argument_checks import check_arguments
from pellucid.config.attention_types import BUILT_IN_TYPES, TYPE_OF_SETTING
from pellucid.config.columns import column_number
from pellucid.config.presets import AUTO_SIZE, PRESETS
from pellucid.config.settings import Config, DataConfig
from pellucid.config.toml import config_differences, flatten_config, overlay_settings
from pellucid.data.examples import first_cells
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.predictor import Predictor
from pellucid.errors import ConfigError, InputError, RunError, count_noun
from pellucid.files import digest_file, file_exists
from pellucid.run_folder.identity import NETWORK_SECTIONS, TOKEN_SETTINGS, TRAINING_ONLY, has_validated_model
from pellucid.run_folder.predictor_loader import load
from pellucid.run_folder.run_files import CHECKPOINT, CONFIG, MODEL, has_run, load_run_config, member_folders
from pellucid.run_folder.run_parts import missing_model_error
from pellucid.tasks.registry import build_meta_network

LEARNING_RATE_FACTOR = 0.25
"""Default learning rate of a fine-tuning, as a multiple of that of the size preset (docs/guides/fine-tuning.md)."""
SYMBOL_SETTINGS = ("size", *TOKEN_SETTINGS)
"""Settings that a fine-tuning cannot change. With other token settings, the ids of the initial run would mean other
symbols; the size names the presets of the network."""
OTHER_INHERITED = (
    *(
        "data.features_column",
        "data.context_words",
        "data.subword_vocab_size",
        "data.max_sequence_length",
        "data.equal_length",
    ),
    *("data.class_first", "data.class_column"),
    "data.ignored_tag",
)
"""Other settings of the data that are inherited, and that a fine-tuning may change."""
COLUMN_SETTINGS = ("source_column", "target_column")
"""Settings of the data that are inherited if they are names that the new file has (`columns_of_initial_run`)."""
MAX_CHAIN = 100
"""Number of initial runs of initial runs that are searched for a cycle."""


class InitialRun(NamedTuple):
    """A run that a training begins from, with the parameters of its best validation."""

    folder: Path
    digest: str
    """SHA-256 of its model file in hexadecimal."""
    predictor: Predictor
    """Its network, vocabularies and configuration, on the CPU."""


def is_inherited(key: str) -> bool:
    """Return whether a fine-tuning takes a setting from the initial run, unless it is given.

    Args:
        key: Full key of the setting.
    """
    is_of_network = key.startswith(NETWORK_SECTIONS) and not any(part in key for part in TRAINING_ONLY)
    return is_of_network or key in SYMBOL_SETTINGS or key in OTHER_INHERITED


@check_arguments
def inherited_settings(initial: str | Path, run: str | Path) -> dict[str, Any]:
    """Return the default settings of a fine-tuning: those inherited from the initial run, and the learning rate.

    A run with a checkpoint has the settings already, so the initial run is not read.

    Args:
        initial: Run folder of the initial run, or folder of an ensemble.
        run: Run folder of the new run, or folder of the new ensemble, which need not exist.

    Returns:
        Settings, nested like a configuration.

    Raises:
        RunError: The initial run is missing, or its files are of another format version or damaged.
        ConfigError: Its saved configuration is not valid.
    """
    initial, run = Path(initial), Path(run)
    config = _resumed_config(run, initial)
    if config is None:
        folder = member_folders(initial)[0]
        _require_run(folder)
        config = load_run_config(folder)
    nested: dict[str, Any] = {}
    for key, value in flatten_config(config).items():
        if is_inherited(key):
            section, _, name = key.rpartition(".")
            (nested.setdefault(section, {}) if section else nested)[name] = value
    rate: float = PRESETS[config.size]["training"]["learning_rate"] * LEARNING_RATE_FACTOR
    return {**nested, "training": {"learning_rate": rate, "init_from": str(initial)}}


@check_arguments
def resolve_initial_run(config: Config, folder: str | Path) -> Config:
    """Return the configuration of a training with the checksum of the model of its initial run.

    Args:
        config: Configuration; one without an initial run is returned unchanged.
        folder: Run folder of the training. If it has a checkpoint, its own configuration has the checksum.

    Raises:
        RunError: The initial run is missing, has no model yet or has another checksum than the configuration; it is the
            run folder itself, or was trained from it; or it is an ensemble.
        ConfigError: A saved configuration is not valid.
    """
    if not config.training.init_from:
        return config
    initial, folder = Path(config.training.init_from), Path(folder)
    own = _resumed_config(folder, initial)
    digest = own.training.init_from_digest if own is not None else _model_digest(initial, folder)
    given = config.training.init_from_digest or digest
    if own is None and given != digest:
        raise RunError(
            f"{initial / MODEL} has the SHA-256 {digest}, but training.init_from_digest is {given}: it is another "
            "model; restore the file, or leave the setting out"
        )
    training = msgspec.structs.replace(config.training, init_from=str(initial), init_from_digest=given)
    return msgspec.structs.replace(config, training=training)


@check_arguments
def load_initial_run(config: Config) -> InitialRun:
    """Load the initial run of a training, and check that its network can be trained with these settings.

    Args:
        config: Configuration of the training, as `resolve_initial_run` returns it.

    Raises:
        RunError: The run is missing or damaged, or of another format version, or its model changed meanwhile.
        ConfigError: A setting changes the symbols or the shapes of the network; the message lists such settings.
    """
    folder, digest = Path(config.training.init_from), config.training.init_from_digest
    predictor = load(folder)
    loaded = digest_file(folder / MODEL)
    if loaded is None or loaded.sha256 != digest:
        raise RunError(
            f"{folder / MODEL} changed while it was read: its training may be running; run the command again"
        )
    check_initial_settings(config, predictor.config, predictor.vocabularies)
    return InitialRun(folder, digest, predictor)


def check_initial_settings(config: Config, initial: Config, vocabularies: Vocabularies) -> None:
    """Check that a training has the symbols and the shapes of parameters of its initial run.

    Settings that change neither may differ, such as `encoder.merge` between sums and means.

    Args:
        config: Configuration of the training.
        initial: Configuration of the initial run.
        vocabularies: Vocabularies of the initial run.

    Raises:
        ConfigError: A setting changes them; the message lists the settings with both values, and what to do.
    """
    changed = [key for key, value in flatten_config(initial).items() if flatten_config(config)[key] != value]
    refused = [key for key in changed if key in SYMBOL_SETTINGS]
    if config.data.max_sequence_length < initial.data.max_sequence_length:
        refused.append("data.max_sequence_length")  # the symbols and longest examples of the run would not fit
    if not refused and _shapes(config, vocabularies) != _shapes(initial, vocabularies):
        network = [key for key in changed if key.startswith(NETWORK_SECTIONS) and is_inherited(key)]
        refused = [key for key in network if _changes_shapes(key, config, initial, vocabularies)] or network
    if not refused:
        return
    differences = [line for line in config_differences(initial, config) if line.partition(":")[0] in refused]
    raise ConfigError(
        f"settings that do not fit the parameters of {config.training.init_from}, from which the training begins:",
        *(f"  {line}" for line in differences),
        "leave them out, as they are then those of the run, or train a new network without --init-from",
    )


def member_configs(config: Config, folders: Sequence[Path]) -> list[Config]:
    """Return the configuration of each member of an ensemble, of which the first has the initial run of the ensemble.

    If the initial run is an ensemble, each member begins from the member of the same place in it; else all begin from
    the same run. A member with a checkpoint keeps the initial run that it has.

    Args:
        config: Configuration with an initial run or without.
        folders: Run folders of the members.

    Raises:
        ConfigError: The initial ensemble has fewer members.
        RunError: Its list of members cannot be read.
    """
    if not config.training.init_from:
        return [config] * len(folders)
    initial = Path(config.training.init_from)
    sources: list[Path | None] = []
    for folder in folders:
        own = _resumed_config(folder, initial)
        sources.append(None if own is None else Path(own.training.init_from))
    if None in sources:
        members = member_folders(initial)
        if members != [initial] and len(members) < len(folders):
            raise ConfigError(
                f"{initial} is an ensemble of {count_noun(len(members), 'run')}, too few for {len(folders)} members: "
                f"each begins from one of them; give --ensemble {len(members)} or less"
            )
        sources = [
            source or (members[0] if members == [initial] else members[index]) for index, source in enumerate(sources)
        ]
    return [
        msgspec.structs.replace(config, training=msgspec.structs.replace(config.training, init_from=str(source)))
        for source in sources
    ]


def settings_over_initial_run(
    settings: Mapping[str, Any], initial: str | Path, run: str | Path, attention_type: str = ""
) -> dict[str, Any]:
    """Return settings over those that a fine-tuning inherits from its initial run; the size "auto" is not given.

    Settings that the given type of attention does not have are not inherited, so that the message about another type
    names the types.

    Args:
        settings: Given settings, nested like a configuration.
        initial: Run folder of the initial run, or folder of an ensemble.
        run: Run folder of the new run, or folder of the new ensemble, which need not exist.
        attention_type: Type of the attention that is given elsewhere, such as by a flag; "" for that of the settings.

    Raises:
        RunError: As in `inherited_settings`.
        ConfigError: As in `inherited_settings`.
    """
    given = {key: value for key, value in settings.items() if (key, value) != ("size", AUTO_SIZE)}
    inherited, attention = inherited_settings(initial, run), given.get("attention")
    new_type = attention_type or (attention.get("type") if isinstance(attention, Mapping) else None)
    if isinstance(new_type, str) and new_type in BUILT_IN_TYPES and new_type != inherited["attention"]["type"]:
        inherited["attention"] = {
            name: value
            for name, value in inherited["attention"].items()
            if TYPE_OF_SETTING.get(name, new_type) == new_type
        }
    return overlay_settings(inherited, given)


def columns_of_initial_run(initial: str | Path, run: str | Path, train: Path, data: DataConfig) -> dict[str, Any]:
    """Return the columns of an initial run, if they have names and these are in the first line of the new file.

    Args:
        initial: Run folder of the initial run, or folder of an ensemble.
        run: Run folder of the new run, or folder of the new ensemble, which need not exist.
        train: File of new pairs.
        data: Settings of its data. If they select columns or exclude a header, nothing is returned.

    Returns:
        Settings of the columns of source and target, nested like a configuration; empty if the file lacks them.

    Raises:
        RunError: The initial run is missing, or its files are of another format version or damaged.
        ConfigError: Its saved configuration is not valid.
        DataError: The file cannot be read.
    """
    default = DataConfig()
    if data.header is False or any(getattr(data, name) != getattr(default, name) for name in COLUMN_SETTINGS):
        return {}
    initial = Path(initial)
    config = _resumed_config(Path(run), initial) or load_run_config(member_folders(initial)[0])
    columns = {name: getattr(config.data, name) for name in COLUMN_SETTINGS}
    is_named = all(column_number(column) is None for column in columns.values())
    return {"data": columns} if is_named and set(columns.values()) <= set(first_cells(train, data)) else {}


def _resumed_config(run: Path, initial: Path) -> Config | None:
    """Return the saved configuration of a run, or of a member, that began from this run and has a checkpoint."""
    for folder in [run, *sorted(run.glob("seed-*"))]:
        if not (has_run(folder) and file_exists(folder / CHECKPOINT)):
            continue
        try:
            config = load_run_config(folder)
        except InputError:  # the check of the run folder reports it
            return None
        own = Path(config.training.init_from)
        return config if config.training.init_from and initial in (own, own.parent) else None
    return None


def _require_run(folder: Path) -> None:
    """Raise `RunError` if a folder, from which a training begins, holds no run."""
    if not folder.is_dir() or not file_exists(folder / CONFIG):
        problem = f"it holds no {CONFIG}" if folder.is_dir() else "there is no such folder"
        raise RunError(f"{folder} is not a run folder to train from: {problem}; name the folder of a trained run")


def _model_digest(initial: Path, folder: Path) -> str:
    """Return the checksum of the model of an initial run; check that a training in `folder` may begin there."""
    members = member_folders(initial)
    if members != [initial]:
        raise RunError(
            f"{initial} is an ensemble: name one of its members, such as {members[0]}, or train an ensemble from it "
            f"(--ensemble {len(members)})"
        )
    _require_run(initial)
    _check_chain(initial, folder)
    if not has_validated_model(initial):
        raise missing_model_error(initial)
    digest = digest_file(initial / MODEL)
    if digest is None:
        raise RunError(f"{initial / MODEL} cannot be read; restore the file from a copy of the run")
    return digest.sha256


def _check_chain(initial: Path, folder: Path) -> None:
    """Raise `RunError` if the initial run is the run folder itself, holds it, or began from it through other runs."""
    own, run = realpath(folder), initial  # Path.resolve raises a RuntimeError for a link to itself
    if Path(realpath(initial)) in Path(own).parents:
        raise RunError(
            f"--run {folder} and --init-from {initial}: a run cannot be in the folder of another one, whose files it "
            "would change; name a new folder for --run"
        )
    for number in range(MAX_CHAIN):
        if realpath(run) == own:
            reason = (
                "a training cannot begin from its own folder"
                if not number
                else f"{folder} would replace the run that {initial} began from"
            )
            raise RunError(f"--run {folder} and --init-from {initial}: {reason}; name a new folder for --run")
        try:
            if not has_run(run):
                return
            earlier = load_run_config(run).training.init_from
        except InputError:  # reported when it is loaded; an earlier run is not needed
            return
        if not earlier:
            return
        run = Path(earlier)


def _shapes(config: Config, vocabularies: Vocabularies) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter of a network."""
    # Features are a column of the data, and add rows to the embedding: they are compared with those of the same data.
    data = msgspec.structs.replace(config.data, features_column="", context_words=0)
    training = msgspec.structs.replace(config.training, augmentation="none")
    network = build_meta_network(msgspec.structs.replace(config, data=data, training=training), vocabularies)
    return {name: tuple(value.shape) for name, value in network.state_dict().items()}


def _changes_shapes(key: str, config: Config, initial: Config, vocabularies: Vocabularies) -> bool:
    """Return whether one setting of the training alone changes the shapes of the initial run's network."""
    section, _, name = key.rpartition(".")
    part = msgspec.structs.replace(getattr(initial, section), **{name: getattr(getattr(config, section), name)})
    try:
        return _shapes(msgspec.structs.replace(initial, **{section: part}), vocabularies) != _shapes(
            initial, vocabularies
        )
    except Exception:  # settings that contradict each other, or the code of an extension
        return True
