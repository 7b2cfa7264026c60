"""Checks of a run folder before a training writes to it, and the first files of a new run."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from pellucid.config.presets import PRESET_KEYS
from pellucid.config.settings import Config, DataConfig
from pellucid.config.toml import config_differences, missing_settings, to_toml
from pellucid.data.vocabulary import Vocabularies, load_vocabularies
from pellucid.errors import RunError
from pellucid.files import (
    check_folder_writable,
    file_exists,
    follow_all_links,
    is_same_file,
    remove_file,
    unexpected_files,
    write_text,
)
from pellucid.run_folder.advice import RESTORE_OR_RENAME, add_advice
from pellucid.run_folder.run_files import (
    CARD,
    CHECKPOINT,
    CONFIDENCE,
    CONFIG,
    ENSEMBLE,
    FILES,
    LOCK,
    LOG,
    MODEL,
    PAIR_NGRAM,
    SNAPSHOTS,
    TENSORBOARD,
    VOCABULARY,
    has_run,
    load_run_config,
)
from pellucid.run_folder.unfinished_training import has_unfinished, read_final_updates

LENGTH_SETTINGS = ("training.epochs:", "training.time_limit:")
"""Beginnings of the differences between configurations that train for another time."""
LENGTH_REASON = (
    "a run cannot be made longer or shorter, because its learning rate depends on the length from the first update on; "
)
"""Reason why a run is not trained for another time."""
CALLBACKS = "training.callbacks: "
"""Beginning of the difference between configurations whose callbacks differ, which no parameter depends on."""
TIME_LIMIT = "training.time_limit: "
"""Beginning of the difference between configurations whose time limits differ."""
SIZE = "size: "
"""Beginning of the difference between configurations whose sizes differ."""
SIZE_SETTINGS = (SIZE, *(f"{key}: " for key in sorted(PRESET_KEYS)))
"""Beginnings of the differences between configurations of two sizes."""


def repair_config(folder: Path, config: Config) -> list[str]:
    """Write the configuration of a run anew if settings are missing in its file, and return a sentence that says so.

    Args:
        folder: Run folder.
        config: Configuration of the run.
    """
    if not missing_settings(folder / CONFIG, config):
        return []
    write_text(folder / CONFIG, to_toml(config))
    return [f"{folder / CONFIG} lacked settings: it is written anew"]


def check_training_folder(folder: Path, inputs: Iterable[Path] = ()) -> None:
    """Check that a training may write its files to a folder; nothing is changed.

    Args:
        folder: Run folder, which need not exist. It may hold a run that can be resumed, or be empty.
        inputs: Files that the training reads; none by default.

    Raises:
        RunError: The lock, the log or the folder of snapshots is a symbolic link, or another file is a folder; the
            folder holds both a checkpoint and the list of an ensemble; a file that the training reads would be
            replaced or removed; or there is no checkpoint, but a model, or a file that no training has written, as
            every file where `config.toml` is missing, the first file of a run (hidden files are allowed), or no file
            can be created there.
    """
    refuse_links([folder / name for name in (LOCK, LOG, SNAPSHOTS, TENSORBOARD)])
    refuse_inputs(folder, (*FILES, TENSORBOARD), inputs)
    for name in FILES:
        if name != SNAPSHOTS and (folder / name).is_dir():
            raise RunError(
                f"{folder / name} is a directory, where a training writes a file: rename it, or name another run folder"
            )
    if file_exists(folder / ENSEMBLE) and file_exists(folder / CHECKPOINT):
        raise RunError(
            f"{folder / ENSEMBLE} lists the members of an ensemble, but {folder} holds a single run: remove the file, "
            "or name another run folder"
        )
    if file_exists(folder / CHECKPOINT):
        return
    check_folder_writable(folder)
    if not folder.is_dir():
        return
    _refuse_other_files(folder, unexpected_files(folder, (*FILES, TENSORBOARD) if has_run(folder) else ()))
    if file_exists(folder / MODEL):
        raise RunError(f"{folder} holds a model but no {CHECKPOINT} to resume from; name a new folder")


def _refuse_other_files(folder: Path, names: Sequence[str]) -> None:
    """Raise an error if a folder without a checkpoint has files that no training has written."""
    if names:
        raise RunError(f"{folder} is not empty and holds no run ({', '.join(names[:3])}); name a new folder")


def refuse_links(paths: Iterable[Path], writer: str = "a training") -> None:
    """Raise an error for a file or folder of a training that is a symbolic link; nothing is changed.

    Args:
        paths: Files and folders that are written or removed; they need not exist.
        writer: What writes them, for the message; a training by default.

    Raises:
        RunError: One is a symbolic link.
    """
    for path in paths:
        if path.is_symlink():
            raise RunError(
                f"{path} is a symbolic link, and {writer} writes only into its own folder: replace it by its target, "
                "or name another folder"
            )


def refuse_inputs(folder: Path, names: Iterable[str], inputs: Iterable[Path]) -> None:
    """Raise an error for an input that a command would replace or remove in its folder; nothing is changed.

    Args:
        folder: Folder that the command writes to, which need not exist.
        names: Names of the files and folders that it writes there.
        inputs: Files and folders that it reads.

    Raises:
        RunError: An input is one of these files, or in one of these folders, by any name or symbolic link.
    """
    written = [folder / name for name in names]
    places = [*written, *(follow_all_links(path) for path in written)]
    for path in inputs:
        place = follow_all_links(path)
        if any(place.is_relative_to(each) or is_same_file(path, each) for each in places):
            raise RunError(
                f"{path} is a file that this command reads, and it would write to it in {folder}: name another folder"
            )


def initialize_run_folder(folder: Path, config: Config, vocabularies: Vocabularies) -> None:
    """Write the settings and vocabularies of a new run, and remove other files of an earlier attempt.

    `config.toml` is the first file. Without it, `check_training_folder` accepts no other one.

    Args:
        folder: Run folder, which exists.
        config: Configuration of the run.
        vocabularies: Vocabularies of the run.

    Raises:
        RunError: A file cannot be written or removed, or no training has written it.
    """
    if not has_run(folder):  # files may have been copied to it since `check_training_folder`
        _refuse_other_files(folder, [name for name in FILES if file_exists(folder / name)])
    for name in (LOG, CARD, PAIR_NGRAM, CONFIDENCE):
        remove_file(folder / name)
    write_text(folder / CONFIG, to_toml(config))
    vocabularies.save(folder / VOCABULARY)


def write_missing_settings(folder: Path, config: Config, vocabularies: Vocabularies) -> None:
    """Write the settings and the vocabularies of a run again where their files were removed during the training.

    Args:
        folder: Run folder.
        config: Configuration of the run.
        vocabularies: Vocabularies of the run.

    Raises:
        RunError: A file cannot be written.
    """
    if not file_exists(folder / VOCABULARY):
        vocabularies.save(folder / VOCABULARY)
    if not file_exists(folder / CONFIG):
        write_text(folder / CONFIG, to_toml(config))


def check_same_config(folder: Path, config: Config) -> None:
    """Check that the run in a folder, if any, has the same settings. Missing ones are ignored: see `repair_config`.

    Args:
        folder: Run folder, which need not exist.
        config: Configuration of the training.

    Raises:
        RunError: Settings differ (the message lists them), the folder holds a checkpoint without settings, settings are
            missing and there is no checkpoint, so that no training has written the file, or the run is of another
            format version.
        ConfigError: The saved configuration is not valid.
    """
    if not has_run(folder):
        if file_exists(folder / CHECKPOINT):
            raise RunError(f"{folder} holds a training but no {CONFIG}: restore the file, or name another run folder")
        return
    saved = load_run_config(folder, config)
    differences = [
        difference for difference in config_differences(saved, config) if not difference.startswith(CALLBACKS)
    ]
    if differences:
        listed = (f"  {difference}" for difference in differences)
        advice = _advice_on_differences(folder, saved.training.time_limit, differences)
        raise RunError(f"{folder} holds a run with a different configuration:", *listed, advice)
    if not file_exists(folder / CHECKPOINT) and missing_settings(folder / CONFIG, config):
        raise RunError(f"{folder / CONFIG} is a file of settings that no training has written; name a new folder")


def _advice_on_differences(folder: Path, limit: str, differences: Sequence[str]) -> str:
    """Return what to do about a run, with its time limit, whose configuration differs from that of the training."""
    has_other_length = all(difference.startswith(LENGTH_SETTINGS) for difference in differences)
    has_other_time_only = _has_other_time_only(differences)
    if not has_other_length and not has_other_time_only:
        return "name another run folder"
    reason = LENGTH_REASON if has_other_length else ""
    new_run = "name another run folder, in which the training begins anew"
    if _has_ended(folder):
        return (
            f"the training of this run has ended, so that nothing is left to resume: {reason}{new_run}; "
            f"--init-from {folder} begins it with the parameters of this run"
        )
    if not has_other_time_only:
        return f"{reason}{new_run}"
    flag = f"with --time {limit}, of which only the rest is spent" if limit else "without --time"
    return f"resume it {flag}{f': {reason}' if reason else ', or '}{new_run}"


def _has_ended(folder: Path) -> bool:
    """Return whether the training of a run has ended; False if its checkpoint cannot be read."""
    return read_final_updates(folder) is not None and not has_unfinished(folder)


def _has_other_time_only(differences: Sequence[str]) -> bool:
    """Return whether the time limit differs, and the size at most: without --size, the limit determines it."""
    has_other_size = any(difference.startswith(SIZE) for difference in differences)
    expected = (TIME_LIMIT, *(SIZE_SETTINGS if has_other_size else ()))
    has_other_limit = any(difference.startswith(TIME_LIMIT) for difference in differences)
    return has_other_limit and all(difference.startswith(expected) for difference in differences)


def check_same_vocabularies(folder: Path, vocabularies: Vocabularies, config: DataConfig) -> None:
    """Check that the saved vocabularies of a run equal those learned from its training file, before it is resumed.

    Args:
        folder: Run folder.
        vocabularies: Vocabularies of the training file.
        config: Data settings of the run.

    Raises:
        RunError: They differ, or the saved file is missing or not valid.
    """
    with add_advice(RESTORE_OR_RENAME):
        saved = load_vocabularies(folder / VOCABULARY, config)
    if saved != vocabularies:
        raise RunError(f"{folder / VOCABULARY} is not the vocabulary of the training data; {RESTORE_OR_RENAME}")
