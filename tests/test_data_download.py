"""Downloads of published data sets from a server on the loopback interface, with faults of server, disk and files."""

import gzip
import hashlib
import os
import random
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import build_environment
from loopback_files import LoopbackFiles, loopback_files, zip_members

from pellucid.errors import DataError, RunError
from pellucid.recipes import data_download
from pellucid.recipes.data_download import DOWNLOADS, DownloadEvents, fetch_data_set, read_member
from pellucid.recipes.published_data import PublishedDataSet, PublishedFile, load_registry

LARGE = random.Random(1).randbytes(300_000)
SMALL = b"a\tb\n"


@pytest.fixture
def server() -> Iterator[LoopbackFiles]:
    with loopback_files({"large.bin": LARGE, "dev/small.tsv": SMALL}) as state:
        yield state


def load_words(server: LoopbackFiles, folder: Path, names: tuple[str, ...] = ("large.bin",)) -> PublishedDataSet:
    """Return a data set of files of the server."""
    return load_registry(server.registry(folder / "registry.toml", list(names)))["words"]


def fetch(data_set: PublishedDataSet, folder: Path) -> int:
    """Download a data set; the sum of the progress is the size of what was downloaded."""
    sizes = list[int]()
    count = fetch_data_set("words", data_set, folder, DownloadEvents(sizes.append))
    contents = {data_set.archive.size} if data_set.archive else {file.size for file in data_set.files}
    assert sum(sizes) in (0, sum(contents))
    return count


def partial_file(folder: Path, content: bytes = LARGE) -> Path:
    """Return the path of an unfinished file."""
    return folder / DOWNLOADS / "words" / f"{hashlib.sha256(content).hexdigest()}.part"


def list_files(folder: Path) -> list[str]:
    """Return the files of the data set."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.glob("words/**/*") if path.is_file())


def test_missing_files_are_downloaded_and_checked(server: LoopbackFiles, tmp_path: Path) -> None:
    data_set = load_words(server, tmp_path, ("large.bin", "dev/small.tsv"))
    assert fetch(data_set, tmp_path / "data") == 2
    assert (tmp_path / "data" / "words" / "large.bin").read_bytes() == LARGE
    assert (tmp_path / "data" / "words" / "dev" / "small.tsv").read_bytes() == SMALL
    assert os.listdir(tmp_path / "data" / DOWNLOADS) == ["words.lock"]
    assert fetch(data_set, tmp_path / "data") == 0 and len(server.requests) == 2
    (tmp_path / "data" / "words" / "dev" / "small.tsv").unlink()
    assert fetch_data_set("words", data_set, tmp_path / "data", DownloadEvents()) == 1 and len(server.requests) == 3


def test_files_of_the_same_content_are_all_written(server: LoopbackFiles, tmp_path: Path) -> None:
    server.files["copy.tsv"] = SMALL
    data_set = load_words(server, tmp_path, ("copy.tsv", "dev/small.tsv"))
    assert fetch_data_set("words", data_set, tmp_path, DownloadEvents()) == 2
    assert list_files(tmp_path) == ["words/copy.tsv", "words/dev/small.tsv"]


def test_a_file_with_gzip_counts_as_there(server: LoopbackFiles, tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "large.bin.gz").write_bytes(gzip.compress(LARGE))
    assert fetch(load_words(server, tmp_path), tmp_path) == 0 and server.requests == []


def test_a_file_of_the_user_is_never_replaced(server: LoopbackFiles, tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "large.bin").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"large\.bin exists, and is not the published file"):
        fetch(load_words(server, tmp_path, ("dev/small.tsv", "large.bin")), tmp_path)
    assert (tmp_path / "words" / "large.bin").read_bytes() == b"mine" and server.requests == []


def test_a_link_of_the_user_to_a_missing_file_is_never_replaced(server: LoopbackFiles, tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "large.bin").symlink_to(tmp_path / "missing")
    with pytest.raises(DataError, match=r"large\.bin is a link to a file that does not exist: rename or remove it"):
        fetch(load_words(server, tmp_path), tmp_path)
    assert (tmp_path / "words" / "large.bin").is_symlink() and server.requests == []


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-x\r\n\r\n"])
def test_a_server_that_does_not_speak_http_is_named(answer: bytes, tmp_path: Path) -> None:
    """Regression test: the message said that there is no network."""
    state = LoopbackFiles(files={"large.bin": LARGE})
    with socket.create_server(("127.0.0.1", 0)) as listening:
        state.address = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(DataError, match="the server ended the connection, or sent no HTTP response"):
            fetch(load_words(state, tmp_path), tmp_path)
        thread.join()


def test_a_broken_connection_is_continued(server: LoopbackFiles, tmp_path: Path) -> None:
    data_set = load_words(server, tmp_path, ("dev/small.tsv", "large.bin"))
    server.cut["large.bin"] = 100_000
    with pytest.raises(DataError, match="the connection broke; the same command continues the download"):
        fetch(data_set, tmp_path)
    assert partial_file(tmp_path).read_bytes() == LARGE[:100_000] and list_files(tmp_path) == []
    server.cut.clear()
    assert fetch(data_set, tmp_path) == 2
    assert server.requests[2:] == [("large.bin", "bytes=100000-")]  # the other file was kept
    assert (tmp_path / "words" / "large.bin").read_bytes() == LARGE


def test_a_server_without_ranges_sends_the_file_anew(server: LoopbackFiles, tmp_path: Path) -> None:
    data_set, server.has_ranges = load_words(server, tmp_path), False
    partial_file(tmp_path).parent.mkdir(parents=True)
    partial_file(tmp_path).write_bytes(LARGE[:70_000])
    assert fetch(data_set, tmp_path) == 1 and len(server.requests) == 1
    assert (tmp_path / "words" / "large.bin").read_bytes() == LARGE


@pytest.mark.parametrize(
    ("beginning", "num_requests"),
    [
        (b"x" * 1000, 2),  # the beginning of another file
        (b"x" * len(LARGE), 1),
        (LARGE + b"x", 1),
        (LARGE, 0),
    ],
)
def test_a_wrong_beginning_is_dropped(
    server: LoopbackFiles, beginning: bytes, num_requests: int, tmp_path: Path
) -> None:
    partial_file(tmp_path).parent.mkdir(parents=True)
    partial_file(tmp_path).write_bytes(beginning)
    assert fetch(load_words(server, tmp_path), tmp_path) == 1 and len(server.requests) == num_requests
    assert (tmp_path / "words" / "large.bin").read_bytes() == LARGE


def test_a_file_that_became_shorter_or_another_range_begins_anew(server: LoopbackFiles, tmp_path: Path) -> None:
    data_set = load_words(server, tmp_path)
    for change in ("shorter", "other range"):
        partial_file(tmp_path).parent.mkdir(parents=True, exist_ok=True)
        partial_file(tmp_path).write_bytes(LARGE[:70_000])
        server.requests.clear()
        if change == "shorter":
            server.files["large.bin"] = LARGE[:60_000]
        else:
            server.headers["large.bin"] = {"Content-Range": "bytes 0-10/11"}
            server.files["large.bin"] = LARGE
        if change == "shorter":
            with pytest.raises(DataError, match="expected 300,000 bytes, got 60000 bytes"):
                fetch(data_set, tmp_path)
        else:
            assert fetch(data_set, tmp_path) == 1
        assert server.requests == [("large.bin", "bytes=70000-"), ("large.bin", "")]


def test_a_wrong_checksum_names_both_values(server: LoopbackFiles, tmp_path: Path) -> None:
    data_set = load_words(server, tmp_path)
    other = bytes(len(LARGE))
    server.files["large.bin"] = other
    with pytest.raises(DataError) as caught:
        fetch(data_set, tmp_path)
    expected, got = (hashlib.sha256(content).hexdigest() for content in (LARGE, other))
    assert f"expected the SHA-256 {expected}, got {got}" in str(caught.value)
    assert list_files(tmp_path) == [] and not partial_file(tmp_path).exists() and len(server.requests) == 1


def test_a_damaged_download_of_before_is_repeated(server: LoopbackFiles, tmp_path: Path) -> None:
    staged = partial_file(tmp_path).with_suffix("")
    staged.parent.mkdir(parents=True)
    staged.write_bytes(b"damaged")
    assert fetch(load_words(server, tmp_path), tmp_path) == 1
    assert (tmp_path / "words" / "large.bin").read_bytes() == LARGE


HTML = {"Content-Type": "text/html; charset=utf-8"}


@pytest.mark.parametrize(
    ("content", "headers", "status", "message"),
    [
        (b"<html>login</html>", HTML, 200, "expected 300,000 bytes, got 18 bytes, a web page"),
        (LARGE + b"x", {}, 200, "expected 300,000 bytes, got 300001 bytes"),
        (LARGE + b"x", {"Content-Length": ""}, 200, "got more than 300,000 bytes"),
        (
            LARGE[:-1],
            {"Content-Length": ""},
            200,
            "ended after 299,999 of 300,000 bytes; the same command continues the download",
        ),
        (gzip.compress(LARGE), {"Content-Encoding": "gzip"}, 200, "got a compressed file"),
        (LARGE, {}, 404, "the server answered 404 Not Found; the file has moved or was removed"),
        (LARGE, {}, 503, "the server answered 503 Service Unavailable"),
    ],
)
def test_another_answer_is_one_error(
    server: LoopbackFiles, content: bytes, headers: dict[str, str], status: int, message: str, tmp_path: Path
) -> None:
    data_set = load_words(server, tmp_path)
    server.files["large.bin"], server.headers["large.bin"] = content, headers
    server.statuses["large.bin"] = status
    with pytest.raises(DataError) as caught:
        fetch_data_set("words", data_set, tmp_path, DownloadEvents())
    assert message in str(caught.value) and f"{server.address}/large.bin" in str(caught.value)
    assert list_files(tmp_path) == []
    server.files["large.bin"], server.headers, server.statuses = LARGE, {}, {}
    assert fetch(data_set, tmp_path) == 1


def test_redirects_are_limited_and_stay_encrypted(server: LoopbackFiles, tmp_path: Path) -> None:
    data_set = load_words(server, tmp_path)
    server.statuses["large.bin"] = 302
    for target, message in (
        ("/large.bin", "the server redirects more than 5 times"),
        ("http://localhost:9/large.bin", "the server redirects to an address that is not https"),
        ("file:///etc/passwd", "the server redirects to an address that is not https"),
        ("http://[::bad/", "the server redirects to an address that is not valid: Invalid IPv6 URL"),
    ):
        server.headers["large.bin"] = {"Location": target}
        with pytest.raises(DataError, match=message):
            fetch(data_set, tmp_path)
    server.files["moved.bin"], server.headers["large.bin"] = LARGE, {"Location": "/moved.bin"}
    assert fetch(data_set, tmp_path) == 1


def test_a_slow_server_and_a_closed_port_are_named(
    server: LoopbackFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_download, "TIMEOUT_SECONDS", 0.1)
    data_set, server.pauses["large.bin"] = load_words(server, tmp_path), 0.5
    with pytest.raises(DataError, match=r"the server did not answer within 0\.1 seconds"):
        fetch(data_set, tmp_path)
    server.address = "http://127.0.0.1:9"  # the port discard, which is closed
    with pytest.raises(DataError, match="there is no network, or the server cannot be reached"):
        fetch(load_words(server, tmp_path), tmp_path)


def test_full_disks_and_unwritable_folders_are_named(server: LoopbackFiles, tmp_path: Path) -> None:
    data_set = load_words(server, tmp_path)
    partial_file(tmp_path).parent.mkdir(parents=True)
    partial_file(tmp_path).symlink_to("/dev/full")
    with pytest.raises(RunError, match=r"cannot write .*: no space left on device"):
        fetch(data_set, tmp_path)
    assert list_files(tmp_path) == []
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot create .*: not a directory"):
        fetch(data_set, tmp_path / "file")


FETCH_PROGRAM = """
import sys
from pathlib import Path
from pellucid.recipes.data_download import DownloadEvents, fetch_data_set
from pellucid.recipes.published_data import load_registry
data_set = load_registry(Path(sys.argv[1]))["words"]
print(fetch_data_set("words", data_set, Path(sys.argv[2]), DownloadEvents(wait=lambda: print("waits"))))
"""


def start_fetch(folder: Path) -> subprocess.Popen[str]:
    """Start a process that downloads the data set."""
    command = [sys.executable, "-c", FETCH_PROGRAM, str(folder / "registry.toml"), str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=build_environment())


@pytest.mark.slow
def test_two_processes_download_once(server: LoopbackFiles, tmp_path: Path) -> None:
    load_words(server, tmp_path)
    server.pauses["large.bin"] = 3.0
    processes = [start_fetch(tmp_path) for _ in range(2)]
    outputs = sorted(process.communicate(timeout=60)[0] for process in processes)
    assert outputs == ["1\n", "waits\n0\n"]
    assert server.requests == [("large.bin", "")]


def test_a_killed_process_leaves_no_file_and_is_continued(server: LoopbackFiles, tmp_path: Path) -> None:
    data_set = load_words(server, tmp_path, ("dev/small.tsv", "large.bin"))
    server.pauses["large.bin"] = 20.0
    process = start_fetch(tmp_path)
    while ("large.bin", "") not in server.requests:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert list_files(tmp_path) == []
    server.pauses.clear()
    assert fetch_data_set("words", data_set, tmp_path, DownloadEvents()) == 2
    assert [path for path, _ in server.requests].count("dev/small.tsv") == 1
    assert os.listdir(tmp_path / DOWNLOADS) == ["words.lock"]


def archive_changes(server: LoopbackFiles, members: dict[str, bytes], name: str = "p/a.txt") -> dict[str, object]:
    """Add an archive to the server; return the changes of the registry for its member, with content "one"."""
    server.files["package.whl"] = zip_members(members)
    file = {"path": "d/a.txt", "size": 3, "sha256": hashlib.sha256(b"one").hexdigest(), "member": name}
    archive = {"url": f"{server.address}/package.whl", **server.digest("package.whl")}
    return {"archive": archive, "files": [file]}


def test_only_the_members_of_the_registry_are_read(server: LoopbackFiles, tmp_path: Path) -> None:
    members = {"p/a.txt": b"one", "../../evil.txt": b"evil", "/evil.txt": b"evil", "p/bomb": bytes(10**7)}
    registry = server.registry(tmp_path / "registry.toml", [], **archive_changes(server, members))
    assert fetch(load_registry(registry)["words"], tmp_path / "data") == 1
    assert list_files(tmp_path / "data") == ["words/d/a.txt"]
    assert (tmp_path / "data" / "words" / "d" / "a.txt").read_bytes() == b"one"
    assert not list(tmp_path.rglob("evil*")) and os.listdir(tmp_path / "data" / DOWNLOADS) == ["words.lock"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"p/b.txt": b"one"}, r"cannot read p/a\.txt of the archive: .*There is no item named"),
        ({"p/a.txt": b"two"}, r"p/a\.txt of the archive is not the published file"),
        ({"p/a.txt": bytes(10**8)}, r"p/a\.txt of the archive is not the published file"),
    ],
)
def test_another_member_is_refused(
    server: LoopbackFiles, members: dict[str, bytes], message: str, tmp_path: Path
) -> None:
    registry = server.registry(tmp_path / "registry.toml", [], **archive_changes(server, members))
    with pytest.raises(DataError, match=message):
        fetch(load_registry(registry)["words"], tmp_path / "data")
    assert list_files(tmp_path / "data") == []


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    file = PublishedFile(path="a", size=3, sha256=hashlib.sha256(b"one").hexdigest(), member="a")
    content = zip_members({"a": b"one"})
    (tmp_path / "encrypted.zip").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "encrypted.zip") as archive:
        offset = archive.start_dir
    encrypted = bytearray(content)
    encrypted[6] |= 1  # flags of the local header, and of the central directory
    encrypted[offset + 8] |= 1
    for damaged in (b"no archive", content[:-10], bytes(encrypted)):
        (tmp_path / "x.zip").write_bytes(damaged)
        with pytest.raises(DataError, match="cannot read a of the archive"):
            read_member(tmp_path / "x.zip", file)


def test_a_download_that_ends_early_without_an_announced_length_says_so(server: LoopbackFiles, tmp_path: Path) -> None:
    """Regression test: the message said that the beginning is not the published file."""
    data_set = load_words(server, tmp_path)
    server.cut["large.bin"], server.headers["large.bin"] = 100_000, {"Content-Length": ""}
    message = f"the download of .*large.bin ended after 100,000 of {len(LARGE):,} bytes; the same command continues"
    with pytest.raises(DataError, match=message):
        fetch(data_set, tmp_path)
    assert partial_file(tmp_path).read_bytes() == LARGE[:100_000]
