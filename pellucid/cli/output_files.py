"""Checks of the files that a subcommand writes, before it computes anything."""

from collections.abc import Iterable
from pathlib import Path

from pellucid.cli.sources import is_run
from pellucid.errors import InputError, quote
from pellucid.files import check_writable, wrap_os_errors
from pellucid.run_folder.run_files import ENSEMBLE, FILES
from pellucid.sharing.manifest import MANIFEST


def check_output_file(flag: str, path: Path | None, inputs: Iterable[Path | None] = (), ending: str = "") -> None:
    """Check that a file can be written, and that this destroys nothing that the user needs.

    Args:
        flag: Flag that names the file.
        path: The file, which need not exist; None if the flag is not given.
        inputs: Files that the subcommand reads; None and "-" for none.
        ending: Ending that its name must have, such as ".html"; "" for any.

    Raises:
        InputError: The name has another ending, or that of a compressed file; or the path is "-", a device, a pipe or a
            socket, a file that the subcommand reads, or a file of a run.
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
    check_writable(path)
    with wrap_os_errors("write", path):
        is_special = path.exists() and not path.is_file()
        is_input = any(
            each is not None and str(each) != "-" and each.exists() and path.exists() and path.samefile(each)
            for each in inputs
        )
    if is_special:
        raise InputError(f"{flag} {path} is a device or a pipe: name a file")
    if is_input:
        raise InputError(f"{flag} {path} is a file that this command reads: name another file")
    if path.name in (*FILES, ENSEMBLE, MANIFEST) and is_run(path.parent):
        raise InputError(f"{flag} {path} is a file of a run folder: name another file")
