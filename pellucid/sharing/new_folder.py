"""A new folder that appears with all its files at once, or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pellucid.errors import RunError
from pellucid.files import (
    file_exists,
    follow_all_links,
    is_same_file,
    is_writable,
    sync_folder,
    temporary_path,
    wrap_os_errors,
)


def check_new_folder(folder: Path, source: Path | None = None) -> None:
    """Check that a folder is missing, or empty and writable.

    Args:
        folder: The folder.
        source: Run folder whose files are copied, which must not contain the new folder; None for none.

    Raises:
        RunError: The folder is not empty, or no file can be created in it; or it is in `source`.
    """
    target = follow_all_links(folder)
    if source is not None and any(is_same_file(path, source) for path in (target, *target.parents)):
        raise RunError(f"{folder} is in the run folder {source}: name a folder outside of it")
    if not file_exists(folder):
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise RunError(f"{folder} exists and is not an empty folder; name a new one")
    if not is_writable(folder):  # the folder above it may allow to replace it
        raise RunError(
            f"{folder} is an empty folder, but it is not writable; name another one, or allow to write there"
        )


@contextmanager
def new_folder(folder: Path, source: Path | None = None) -> Iterator[Path]:
    """Yield a temporary folder that gets its name at the end of the block; an error in the block removes it.

    Args:
        folder: The final folder, which must be missing, or empty and writable.
        source: Run folder whose files are copied, which must not contain the new folder; None for none.

    Yields:
        The temporary folder, beside the final one.

    Raises:
        RunError: The folder is not empty, is in `source`, or cannot be written.
    """
    with wrap_os_errors("write", folder):
        check_new_folder(folder, source)
        target = folder.resolve()
        staging = temporary_path(target)
        staging.mkdir(parents=True)
        try:
            yield staging
            if target.is_dir():
                target.rmdir()
            os.replace(staging, target)
            sync_folder(target.parent)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
