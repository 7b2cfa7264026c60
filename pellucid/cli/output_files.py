"""Checks of the files that a subcommand writes, before it computes anything.

One rule holds for all subcommands: a path among the flags that is not named as an output is an input, and no output may
be an input, or a file of a run, of prepared data or of a hyperparameter search. A new flag is an input, unless its
subcommand says otherwise.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from pellucid.cli.sources import expand_placeholder, is_run
from pellucid.config.settings import setting_paths
from pellucid.data.prepared_data import PREPARED_FILES, is_prepared
from pellucid.errors import InputError, quote
from pellucid.files import check_writable, follow_links, is_same_file, wrap_os_errors
from pellucid.run_folder.initialization import refuse_inputs
from pellucid.run_folder.run_files import ENSEMBLE, FILES, LOCK, SNAPSHOTS, TENSORBOARD, member_folders
from pellucid.sharing.manifest import MANIFEST
from pellucid.tuning.journal import JOURNAL, STUDY_FILES, STUDY_ID

RUN_FOLDER_FILES = (*FILES, ENSEMBLE, MANIFEST, LOCK, TENSORBOARD)
"""Names of the files and folders of a run, an ensemble or a shared folder."""


def check_output_files(args: Any, endings: Mapping[str, str], replaced: Collection[str] = ()) -> None:  # noqa: ANN401 (any dataclass)
    """Check the files that a subcommand writes.

    Args:
        args: Parsed flags, a dataclass. Every path that is in no other argument is an input.
        endings: Ending of the name of each file that is written, such as ".html", by the field of `args`; "" for any.
        replaced: Fields with inputs that an output may replace.

    Raises:
        InputError: As in `check_output_file`; or two outputs are one file.
        RunError: A file cannot be written.
    """
    inputs, flags = inputs_of_flags(args, {*endings, *replaced}), dict[str, str]()
    for name, ending in endings.items():
        path, flag = getattr(args, name), f"--{name.replace('_', '-')}"
        check_output_file(flag, path, inputs, ending)
        other = flag if path is None else flags.setdefault(os.path.realpath(path), flag)
        if other != flag:
            raise InputError(f"{other} and {flag} are one file, {path}: name another file")


def check_output_folder(args: Any, name: str, written: Collection[str], others: Collection[str] = ()) -> None:  # noqa: ANN401 (any dataclass)
    """Check that a subcommand replaces no input by the files that it writes to a folder.

    Args:
        args: Parsed flags, a dataclass. Every path that is in no other argument is an input.
        name: Field of `args` with the folder.
        written: Names of the files and folders that are written there.
        others: Fields with further paths that are no inputs.

    Raises:
        RunError: An input is one of these files, or in one of these folders.
    """
    folder = getattr(args, name)
    if folder is not None:
        refuse_inputs(folder, written, inputs_of_flags(args, {name, *others}))


def check_output_file(flag: str, path: Path | None, inputs: Iterable[Path | None] = (), ending: str = "") -> None:
    """Check that a file can be written, and that this destroys nothing that the user needs; links are followed.

    Args:
        flag: Flag that names the file.
        path: The file, which need not exist; None if the flag is not given.
        inputs: Files that the subcommand reads; None and "-" for none.
        ending: Ending that its name must have, such as ".html"; "" for any.

    Raises:
        InputError: The name has another ending, or that of a compressed file; or the path is "-", a device, a pipe or a
            socket, a file that the subcommand reads, or a file of a run, of prepared data or of a search.
        RunError: The file cannot be written.
    """
    if path is None:
        return
    if ending and path.suffix != ending:
        raise InputError(f"{flag} takes a file that ends with {ending}, got {quote(path)}")
    if str(path) == "-":
        raise InputError(f"{flag} -: a file is written, not standard output: name one")
    if path.suffix.lower() == ".gz":
        raise InputError(f"{flag} {path}: the file is not compressed: leave .gz out")
    target = follow_links(path)
    check_writable(target)
    with wrap_os_errors("write", path):
        is_special = path.exists() and not path.is_file()
    if is_special:
        raise InputError(f"{flag} {path} is a device or a pipe: name a file")
    for place in (path, target):
        if owner := _owner(Path(os.path.realpath(place.parent)) / place.name):
            raise InputError(f"{flag} {path} is a file of {owner}: name another file")
    if any(each is not None and str(each) != "-" and is_same_file(path, each) for each in inputs):
        raise InputError(f"{flag} {path} is a file that this command reads: name another file")


def _owner(path: Path) -> str:
    """Return what a file is part of: a run folder, prepared data or a hyperparameter search; "" for nothing."""
    folder, name = path.parent, path.name
    if folder.name in (SNAPSHOTS, TENSORBOARD) and is_run(folder.parent):
        return "a run folder"
    if name in RUN_FOLDER_FILES and is_run(folder):
        return "a run folder"
    if name in PREPARED_FILES and is_prepared(folder):
        return "a folder of prepared data"
    is_search = any((folder / mark).is_file() for mark in (JOURNAL, STUDY_ID))
    return "a hyperparameter search" if name in (*STUDY_FILES, LOCK) and is_search else ""


def inputs_of_flags(args: Any, outputs: Collection[str]) -> list[Path]:  # noqa: ANN401 (any dataclass)
    """Return the files and folders that a subcommand reads: those of all flags and settings that are no outputs.

    The placeholder {} is replaced by all names that match, and a run folder is followed by its files.

    Args:
        args: Parsed flags, a dataclass.
        outputs: Fields with other paths.
    """
    values = [getattr(args, field.name) for field in fields(args) if field.name not in outputs]
    given = [path for value in values for path in (value if isinstance(value, tuple) else (value,))]
    paths = [path for path in given if isinstance(path, Path) and str(path) != "-"]
    return [
        file
        for path in (*paths, *setting_paths(args))
        for expanded in expand_placeholder(path)
        for file in _with_files(expanded)
    ]


def _with_files(path: Path) -> Iterator[Path]:
    """Yield a path; after a run folder or prepared data, the files in it, which may be symbolic links."""
    yield path
    if is_run(path):
        folders = [path]
        with suppress(InputError):  # a damaged list of members is reported when it is read
            folders += member_folders(path)
        yield from (folder / name for folder in folders for name in RUN_FOLDER_FILES)
    elif is_prepared(path):
        yield from (path / name for name in PREPARED_FILES)
