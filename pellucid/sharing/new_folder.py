"""A new folder that appears with all its files at once, or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pellucid.errors import RunError
from pellucid.files import file_exists, sync_folder, temporary_path, wrap_os_errors


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that gets its name at the end of the block; an error in the block removes it.

    Args:
        folder: The final folder, which must be missing or empty.

    Yields:
        The temporary folder, beside the final one.

    Raises:
        RunError: The folder is not empty, or cannot be written.
    """
    with wrap_os_errors("write", folder):
        if file_exists(folder) and (not folder.is_dir() or any(folder.iterdir())):
            raise RunError(f"{folder} exists and is not an empty folder; name a new one")
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
