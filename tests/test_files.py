import errno
import hashlib
import os
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from pellucid import files
from pellucid.data.vocabulary import Vocabularies
from pellucid.errors import DataError, InputError, RunError
from pellucid.files import (
    BLOCK_SIZE,
    FileDigest,
    check_json_format,
    check_writable,
    copy_regular,
    decode_json,
    digest_file,
    follow_all_links,
    follow_links,
    has_content,
    has_digest,
    is_same_file,
    make_folder,
    open_atomic,
    os_error_text,
    read_bytes,
    remove_file,
    remove_temporaries,
    unexpected_files,
    wrap_os_errors,
    write_atomic,
    write_text,
    write_together,
)


@pytest.fixture
def default_umask() -> Iterator[None]:
    """Set the umask to 022, independent of the shell."""
    mask = os.umask(0o022)
    yield
    os.umask(mask)


def file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_atomic_write_creates_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    for content in (b"one", b"", bytes(range(256)) * 5000):
        write_atomic(path, content)
        assert path.read_bytes() == content and file_names(tmp_path) == ["a.bin"]


def test_text_is_written_unchanged_in_utf8(tmp_path: Path) -> None:
    text = "naïve\r\n사과 → 🍎\n"
    write_text(tmp_path / "a.txt", text)
    assert (tmp_path / "a.txt").read_bytes() == text.encode("utf-8")


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_failed_write_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, failure: BaseException
) -> None:
    write_atomic(tmp_path / "a.bin", b"old")

    def fail(*arguments: object) -> None:
        raise failure

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(RunError if isinstance(failure, OSError) else KeyboardInterrupt):
        write_atomic(tmp_path / "a.bin", b"new")
    assert (tmp_path / "a.bin").read_bytes() == b"old" and file_names(tmp_path) == ["a.bin"]


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot open a folder")
def test_the_file_is_flushed_before_the_renaming_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mode of the old file is set before the flush, which then covers it."""
    write_atomic(tmp_path / "a.bin", b"old")
    steps, sync, replace, change_mode = list[str](), os.fsync, os.replace, os.chmod

    def record_sync(descriptor: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def record_replace(source: Path, target: Path) -> None:
        steps.append("renaming")
        replace(source, target)

    def record_mode(path: Path, mode: int) -> None:
        steps.append("mode")
        change_mode(path, mode)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "replace", record_replace)
    monkeypatch.setattr(os, "chmod", record_mode)
    write_atomic(tmp_path / "a.bin", b"new")
    assert steps == ["mode", "file", "renaming", "folder"]


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot open a folder")
def test_the_names_of_new_folders_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed, sync = list[str](), os.fsync

    def record_sync(descriptor: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}") if os.path.exists("/proc") else "")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record_sync)
    make_folder(tmp_path / "runs" / "a")
    assert len(flushed) == 2
    if os.path.exists("/proc"):
        assert {Path(path) for path in flushed} == {tmp_path.resolve(), tmp_path.resolve() / "runs"}


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot open a folder")
def test_a_folder_that_may_not_be_read_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the permission to read, a folder cannot be opened, and so not be flushed."""
    opened = os.open

    def refuse_folders(path: str, flags: int, mode: int = 0o777) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse_folders)
    write_atomic(tmp_path / "a.bin", b"new")
    assert (tmp_path / "a.bin").read_bytes() == b"new"


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot open a folder")
@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_a_folder_that_cannot_be_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Some network file systems cannot do it; an error of the disk is reported, and the new file is complete."""
    sync = os.fsync

    def fail_for_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_for_folders)
    with pytest.raises(RunError, match="cannot write") if code == errno.EIO else nullcontext():
        write_atomic(tmp_path / "a.bin", b"new")
    assert (tmp_path / "a.bin").read_bytes() == b"new" and file_names(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("operation", [lambda path: write_atomic(path, b"new"), check_writable])
def test_an_interrupt_at_the_creation_of_a_temporary_file_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: Callable[[Path], None]
) -> None:
    """A signal arrives when the file exists, but its descriptor is not stored yet."""
    created = os.open

    def open_and_interrupt(path: str, flags: int, mode: int = 0o777) -> int:
        os.close(created(path, flags, mode))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "open", open_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        operation(tmp_path / "a.bin")
    assert file_names(tmp_path) == []


def test_full_disk_keeps_the_old_file_and_is_reported(tmp_path: Path) -> None:
    """The system's limit on file sizes simulates a full disk: the write fails midway."""
    write_atomic(tmp_path / "a.bin", b"old")
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from pellucid.files import write_atomic\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "write_atomic(Path(sys.argv[1]), b'x' * 5000)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a.bin")], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1 and f"RunError: cannot write {tmp_path / 'a.bin'}: file too large" in result.stderr
    assert (tmp_path / "a.bin").read_bytes() == b"old" and file_names(tmp_path) == ["a.bin"]


def test_file_in_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RunError, match=r"^cannot write .*/file/a\.bin: not a directory; rename or remove .*"):
        write_atomic(tmp_path / "file" / "a.bin", b"new")
    with pytest.raises(RunError, match=r"^cannot create .*/file/runs: not a directory; rename or remove .*"):
        make_folder(tmp_path / "file" / "runs")
    with pytest.raises(RunError, match=r"^cannot create .*/file: file exists; rename or remove what is there$"):
        make_folder(tmp_path / "file")


def test_missing_folder_and_folder_in_the_way_are_errors(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^cannot write .*/none/a\.bin: no such file or directory$"):
        write_atomic(tmp_path / "none" / "a.bin", b"new")
    (tmp_path / "a.bin").mkdir()
    with pytest.raises(RunError, match=r"^cannot write .*/a\.bin: is a directory; rename or remove what is there$"):
        write_atomic(tmp_path / "a.bin", b"new")
    assert file_names(tmp_path) == ["a.bin"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_forbidden_folder_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="permission denied"):
        write_atomic(tmp_path / "a.bin", b"new")
    tmp_path.chmod(0o700)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_file_mode_follows_the_umask(tmp_path: Path, default_umask: None, mask: int, mode: int) -> None:
    os.umask(mask)
    write_atomic(tmp_path / "a.bin", b"new")
    assert (tmp_path / "a.bin").stat().st_mode & 0o777 == mode
    assert os.umask(mask) == mask


def test_threads_that_write_new_files_leave_the_umask_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, default_umask: None
) -> None:
    """Regression: threads that read the umask by setting it could leave 0, and new files that everybody may write."""
    set_umask = os.umask

    def set_umask_slowly(mask: int) -> int:
        previous = set_umask(mask)
        time.sleep(0.002)
        return previous

    monkeypatch.setattr(os, "umask", set_umask_slowly)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: write_text(tmp_path / str(number), "new"), range(20)))
    assert set_umask(0o022) == 0o022
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o644}


def test_a_file_keeps_its_mode(tmp_path: Path, default_umask: None) -> None:
    path = tmp_path / "a.bin"
    write_atomic(path, b"old")
    path.chmod(0o640)
    write_atomic(path, b"new")
    assert path.stat().st_mode & 0o777 == 0o640 and path.read_bytes() == b"new"


def test_a_link_is_replaced_unless_it_is_followed(tmp_path: Path, default_umask: None) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o600)
    link.symlink_to(target)
    assert follow_links(target) == target and follow_links(tmp_path / "missing") == tmp_path / "missing"
    write_atomic(follow_links(link), b"new")
    assert link.is_symlink() and target.read_bytes() == b"new" and target.stat().st_mode & 0o777 == 0o600
    write_atomic(link, b"other")
    assert not link.is_symlink() and target.read_bytes() == b"new" and link.stat().st_mode & 0o777 == 0o644


def test_readers_see_the_old_or_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    contents = [bytes([number]) * 100_000 for number in range(20)]
    write_atomic(path, contents[0])
    contents_read: list[bytes] = []

    def write_all() -> None:
        for content in contents:
            write_atomic(path, content)

    writer = threading.Thread(target=write_all)
    writer.start()
    while writer.is_alive():
        contents_read.append(path.read_bytes())
    writer.join()
    assert contents_read and all(content in contents for content in contents_read)


def test_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a.bin", b"\0\xff")
    assert read_bytes(tmp_path / "a.bin") == b"\0\xff"
    with pytest.raises(DataError, match=r"^cannot read .*/none: no such file or directory$"):
        read_bytes(tmp_path / "none", DataError)
    with pytest.raises(RunError, match=r"^cannot read .*: is a directory$"):
        read_bytes(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes exist on POSIX systems only")
@pytest.mark.parametrize(("size", "is_read"), [(2**21, True), (2**21 + 1, False)])
def test_a_pipe_is_read_to_its_end_or_refused(tmp_path: Path, size: int, is_read: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        with suppress(BrokenPipeError):
            pipe.write_bytes(b"x" * size)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    with nullcontext() if is_read else pytest.raises(DataError, match="is too large: it has more than 2,097,152 bytes"):
        assert read_bytes(pipe, DataError, 2**21, regular=False) == b"x" * size
    thread.join(60.0)


def test_a_file_without_data_to_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual file that is opened without blocking, such as the log of the kernel, may return no bytes object."""
    (tmp_path / "a").write_bytes(b"")
    reads = []
    with (tmp_path / "a").open("rb") as file:

        class WaitingFile:
            fileno = file.fileno

            def read(self, size: int) -> None:
                reads.append(size)

        monkeypatch.setattr(files, "open_regular", lambda path, kind: nullcontext(WaitingFile()))
        with pytest.raises(RunError, match="a has no data to read now: it is not an ordinary file"):
            read_bytes(tmp_path / "a")
    assert len(reads) == 1


def test_a_format_is_read_without_memory_for_the_other_fields() -> None:
    """A list of empty lists takes 24 times its size in Python."""
    content = b'{"x": [' + b"[]," * 100_000 + b'[]], "format": 3}'
    tracemalloc.start()
    try:
        with pytest.raises(RunError, match=r"a\.json is of format 3, and this version of Pellucid"):
            check_json_format("a.json", content, newest=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(content)


def test_has_content_compares_the_file(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a.bin", b"abc")
    assert has_content(tmp_path / "a.bin", b"abc")
    for path, content in (("a.bin", b"abd"), ("a.bin", b"ab"), ("none", b""), ("", b"")):
        assert not has_content(tmp_path / path, content)


def test_make_folder_creates_parents_and_accepts_existing_folders(tmp_path: Path) -> None:
    for _ in range(2):
        make_folder(tmp_path / "runs" / "a" / "b")
    assert (tmp_path / "runs" / "a" / "b").is_dir()


def test_only_system_errors_are_wrapped() -> None:
    with (
        pytest.raises(InputError, match=r"^cannot open a/b: permission denied$") as caught,
        wrap_os_errors("open", Path("a/b")),
    ):
        raise PermissionError(13, "Permission denied")
    assert isinstance(caught.value.__cause__, PermissionError)
    with pytest.raises(KeyError), wrap_os_errors("open", Path("a")):
        raise KeyError("a mistake of ours keeps its traceback")


def test_os_error_without_description_is_printed() -> None:
    assert os_error_text(OSError("Odd Thing")) == "odd thing"


def test_file_written_in_parts_is_renamed_at_the_end(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a.bin", b"old")
    with open_atomic(tmp_path / "a.bin") as file:
        file.write(b"n")
        assert (tmp_path / "a.bin").read_bytes() == b"old" and len(file_names(tmp_path)) == 2
        file.write(b"ew")
    assert (tmp_path / "a.bin").read_bytes() == b"new" and file_names(tmp_path) == ["a.bin"]
    with pytest.raises(ValueError, match="mine"), open_atomic(tmp_path / "a.bin") as file:
        raise ValueError("mine")
    assert (tmp_path / "a.bin").read_bytes() == b"new" and file_names(tmp_path) == ["a.bin"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_file_that_cannot_be_copied_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^cannot read /proc/self/mem: input/output error$"):
        copy_regular(Path("/proc/self/mem"), tmp_path / "copy")
    (tmp_path / "a").write_bytes(bytes(2 * BLOCK_SIZE + 1))
    copy_regular(tmp_path / "a", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "a").read_bytes()


def test_files_are_hashed_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"abc")
    assert digest_file(path) == FileDigest(3, hashlib.sha256(b"abc").hexdigest())
    size = 64 * 2**20
    os.truncate(path, size)
    digest = digest_file(path)
    assert digest == FileDigest(size, hashlib.sha256(b"abc" + bytes(size - 3)).hexdigest())
    tracemalloc.start()
    assert digest is not None and has_digest(path, digest) and not has_digest(path, digest._replace(sha256="0" * 64))
    assert tracemalloc.get_traced_memory()[1] < 2 * 2**20
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["none", "folder", "folder/none", "a.bin/none", "a\0b", "x" * 5000, "empty"])
def test_no_other_path_has_a_digest(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.bin").write_bytes(b"abc")
    (tmp_path / "empty").touch()
    empty = FileDigest(0, hashlib.sha256(b"").hexdigest())
    assert digest_file(tmp_path / name) == (empty if name == "empty" else None)
    assert not has_digest(tmp_path / name, empty)


def test_remove_file_removes_leftover_temporaries(tmp_path: Path) -> None:
    others = [".a.bin.backup", ".a.bin.original", ".b.bin.abcdefg1.tmp", "b.bin"]
    for name in ("a.bin", ".a.bin.abcdefg1.tmp", ".a.bin.abcdefg2.tmp", *others):
        (tmp_path / name).write_bytes(b"")
    remove_file(tmp_path / "a.bin")
    remove_file(tmp_path / "a.bin")
    assert file_names(tmp_path) == others
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match=r"^cannot remove .*/folder: "):
        remove_file(tmp_path / "folder")


def test_only_own_temporaries_are_removed(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from pellucid.files import open_atomic\n"
        "with open_atomic(Path(sys.argv[1]) / 'a [1].bin') as file:\n"
        "    file.write(b'part')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert len(file_names(tmp_path)) == 1
    others = [".a [1].bin", ".a [1].bin.original", ".b.bin.abcdefg1.tmp", "a [1].bin", "a [1].bin.abcdefg1.tmp"]
    for name in others:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / ".a [1].bin.abcdefg2.tmp").mkdir()
    remove_temporaries(tmp_path, lambda name: name == "a [1].bin")
    assert file_names(tmp_path) == sorted([*others, ".a [1].bin.abcdefg2.tmp"])
    remove_temporaries(tmp_path / "none", lambda name: True)


def test_unexpected_files_are_neither_expected_nor_hidden(tmp_path: Path) -> None:
    assert unexpected_files(tmp_path / "none", ()) == []
    for name in ("b", "a", ".hidden", "own"):
        (tmp_path / name).touch()
    assert unexpected_files(tmp_path, ("own",)) == ["a", "b"]


@pytest.mark.slow
def test_folder_with_very_many_parts_is_created(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a"] * 1500)
    assert len(make_folder(deep)) == 1500 and deep.is_dir() and make_folder(deep) == []
    for folder in (deep, *deep.parents[: 1500 - 1]):  # pytest's recursive removal would fail at this depth
        folder.rmdir()


@pytest.mark.parametrize("killed_at", [1, 2, 3])
def test_files_that_belong_together_are_never_a_mixture(killed_at: int, tmp_path: Path) -> None:
    """Regression test: an export that failed left the encoder of one run with the decoder of another."""
    names, replace, num_replaced = ("encoder", "decoder", "settings"), os.replace, 0
    for name in names:
        (tmp_path / name).write_bytes(b"old")

    def end(source: Path, target: Path) -> None:
        nonlocal num_replaced
        num_replaced += 1
        if num_replaced == killed_at:
            raise KeyboardInterrupt
        replace(source, target)

    contents = {tmp_path / name: b"new" for name in names}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", end)
        write_together(contents, mark=tmp_path / "settings")
    assert not (tmp_path / "settings").exists()
    write_together(contents, mark=tmp_path / "settings")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == dict.fromkeys(names, b"new")


def test_all_links_of_a_path_are_followed_but_those_in_a_circle(tmp_path: Path) -> None:
    """`Path.resolve` raises a RuntimeError for a link to itself, and a ValueError for U+0000."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    assert follow_all_links(tmp_path / "link" / "a") == follow_all_links(tmp_path / "folder") / "a"
    assert follow_all_links(tmp_path / "circle").name == "circle"
    assert follow_all_links(Path("a\0b")) == Path("a\0b")
    assert is_same_file(tmp_path / "link", tmp_path / "folder")
    assert not is_same_file(tmp_path / "circle", tmp_path / "folder") and not is_same_file(Path("a\0b"), Path("a"))


def test_files_that_belong_together_are_written_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flush, num_flushed = os.fsync, 0

    def fill_disk(descriptor: int) -> None:
        nonlocal num_flushed
        num_flushed += 1
        if num_flushed == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(descriptor)

    names = ("encoder", "decoder", "settings")
    for name in names:
        (tmp_path / name).write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", fill_disk)
    with pytest.raises(RunError, match="no space left on device"):
        write_together({tmp_path / name: b"new" for name in names}, mark=tmp_path / "settings")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == dict.fromkeys(names, b"old")


def test_json_of_another_struct_takes_no_memory() -> None:
    """Regression test: all values were parsed before the first unknown field was refused."""
    content = b'{"x": [' + b"[]," * 100_000 + b"[]]}"
    tracemalloc.start()
    with pytest.raises(ValueError, match="unknown field `x`"):
        decode_json(content, Vocabularies)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < len(content)


def test_json_is_parsed_before_its_struct_takes_memory() -> None:
    """Regression test: the values of both parses were held at once."""
    content = b"[" + b",".join(b'"%07d"' % number for number in range(100_000)) + b"]"
    tracemalloc.start()
    decode_json(content, tuple)
    one = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    files.parse_json(content)
    other = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert one < 1.5 * other
    with pytest.raises(ValueError, match="twice"):
        decode_json(b'{"a": 1, "a": 2}', dict)
