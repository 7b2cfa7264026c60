"""A server of files on the loopback interface, with ranges and with many faults, and registries of its files."""

import hashlib
import io
import re
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import tomli_w


@dataclass
class LoopbackFiles:
    """State of the server; paths are without the slash at their beginning."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Path and Range of each request."""
    headers: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Headers of an answer, in place of the true ones."""
    statuses: dict[str, int] = field(default_factory=dict)
    """Status of an answer, in place of 200 and 206."""
    cut: dict[str, int] = field(default_factory=dict)
    """Number of bytes after which the connection is closed."""
    pauses: dict[str, float] = field(default_factory=dict)
    """Seconds before an answer."""
    has_ranges: bool = True

    def digest(self, path: str) -> dict[str, int | str]:
        """Return the size and the checksum of a file, as a registry has them."""
        return {"size": len(self.files[path]), "sha256": hashlib.sha256(self.files[path]).hexdigest()}

    def registry(self, path: Path, names: list[str], **changes: object) -> Path:
        """Write a registry with one data set, "words", of these files, and return its path."""
        entry: dict[str, object] = {
            "title": "words",
            "license": "CC0 1.0",
            "source": "https://example.org/words",
            "citation": "Nobody (2026)",
            "base_url": f"{self.address}/",
            "files": [{"path": name, **self.digest(name)} for name in names],
        }
        path.write_text(tomli_w.dumps({"words": {**entry, **changes}}), "utf-8")
        return path


class FileRequestHandler(BaseHTTPRequestHandler):
    """Answers of the server."""

    server_state: LoopbackFiles
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        state, path = self.server_state, self.path.removeprefix("/")
        wanted = self.headers.get("Range", "")
        state.requests.append((path, wanted))
        time.sleep(state.pauses.get(path, 0))
        content, headers, status = state.files.get(path, b""), dict[str, str](), 200 if path in state.files else 404
        if state.has_ranges and (match := re.fullmatch(r"bytes=(\d+)-", wanted)):
            start, size = int(match[1]), len(content)
            status = 206 if start < size else 416
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
            content = content[start:]
        headers = {"Content-Length": str(len(content)), **headers, **state.headers.get(path, {})}
        self.send_response(state.statuses.get(path, status))
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[: state.cut.get(path, len(content))])
        self.close_connection = path in state.cut or not headers["Content-Length"]


class FileServer(ThreadingHTTPServer):
    """Server that ignores connections which a client closes."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing."""


@contextmanager
def loopback_files(files: Mapping[str, bytes]) -> Iterator[LoopbackFiles]:
    """Run a server of these files in a thread."""
    state = LoopbackFiles(files=dict(files))
    handler = type("Handler", (FileRequestHandler,), {"server_state": state})
    server = FileServer(("127.0.0.1", 0), handler)
    state.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def zip_members(members: Mapping[str, bytes]) -> bytes:
    """Return a ZIP file with these members."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return content.getvalue()
