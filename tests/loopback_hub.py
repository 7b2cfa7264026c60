"""A stand-in of the Hugging Face Hub on the loopback interface, with the requests that huggingface_hub makes."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_loopback"
Files = dict[str, bytes]


@dataclass
class HubRepository:
    """Commits of one repository, by hash; the branch main is the last one."""

    private: bool
    commits: dict[str, Files] = field(default_factory=dict)

    def commit(self, files: Files) -> str:
        """Add a commit with all files of the last one and others; return its hash."""
        content = {**(self.files("main") or {}), **files}
        name = hashlib.sha1(f"{len(self.commits)} {sorted(content)}".encode()).hexdigest()
        self.commits[name] = content
        return name

    def replace(self, files: Files) -> str:
        """Add a commit with these files only; return its hash."""
        name = hashlib.sha1(f"{len(self.commits)} {sorted(files)} only".encode()).hexdigest()
        self.commits[name] = files
        return name

    def resolve(self, revision: str) -> str | None:
        """Return the hash of a revision; None if there is none."""
        if revision == "main" and self.commits:
            return list(self.commits)[-1]
        return revision if revision in self.commits else None

    def files(self, revision: str) -> Files | None:
        """Return the files of a revision."""
        return self.commits.get(self.resolve(revision) or "")


@dataclass
class LoopbackHub:
    """State of the stand-in."""

    address: str = ""
    repositories: dict[str, HubRepository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    """Method and path of each request."""
    cut: set[str] = field(default_factory=set)
    """Names of files whose content breaks off in the middle."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Sizes that the list of files claims, instead of the true ones."""
    info: object = None
    """Answer to requests for the list of files, instead of the true one."""

    def add(self, repo_id: str, files: Files) -> str:
        """Add a repository, or a commit with these files only to it; return the hash."""
        return self.repositories.setdefault(repo_id, HubRepository(False)).replace(files)


class HubRequestHandler(BaseHTTPRequestHandler):
    """Answers of the stand-in."""

    hub: LoopbackHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        may_write = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if self.command == "POST" and not may_write:
            return self._send(401, {"error": "Invalid username or password."})
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return self._send(200, {"errors": [], "warnings": []})
        for pattern, answer in (
            (r"/api/models/([^/]+/[^/]+)/preupload/([^/]+)", self._preupload),
            (r"/api/models/([^/]+/[^/]+)/commit/([^/]+)", self._commit),
            (r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", self._info),
            (r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self._resolve),
        ):
            if match := re.fullmatch(pattern, path):
                repository = self.hub.repositories.get(match[1])
                if repository is None or (repository.private and not may_write):
                    return self._send(404 if may_write else 401, {"error": "Repository not found"}, "RepoNotFound")
                return answer(repository, match, body)
        return self._send(404, {"error": f"no such path {path}"})

    def _create(self, request: dict[str, str]) -> None:
        repo_id = f"{request['organization']}/{request['name']}" if request.get("organization") else request["name"]
        if repo_id in self.hub.repositories:
            return self._send(409, {"error": "exists", "url": f"{self.hub.address}/{repo_id}"})
        is_private = request.get("visibility") == "private" or bool(request.get("private"))
        self.hub.repositories[repo_id] = HubRepository(is_private)
        self.hub.repositories[repo_id].commit({".gitattributes": b"*.safetensors filter=lfs\n"})
        return self._send(200, {"url": f"{self.hub.address}/{repo_id}", "id": repo_id})

    def _preupload(self, repository: HubRepository, match: re.Match[str], body: bytes) -> None:
        files = [
            {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in json.loads(body)["files"]
        ]
        self._send(200, {"files": files})

    def _commit(self, repository: HubRepository, match: re.Match[str], body: bytes) -> None:
        lines = [json.loads(line) for line in body.splitlines()]
        files = {
            line["value"]["path"]: base64.b64decode(line["value"]["content"]) for line in lines if line["key"] == "file"
        }
        name = repository.commit(files)
        self._send(200, {"commitUrl": f"{self.hub.address}/{match[1]}/commit/{name}", "commitOid": name})

    def _info(self, repository: HubRepository, match: re.Match[str], body: bytes) -> None:
        commit = repository.resolve(match[2] or "main")
        if commit is None:
            return self._send(404, {"error": "Invalid rev id"}, "RevisionNotFound")
        siblings = [
            {"rfilename": name, "size": self.hub.sizes.get(name, len(content)), "blobId": "0" * 40}
            for name, content in repository.commits[commit].items()
        ]
        info = {"id": match[1], "modelId": match[1], "sha": commit, "siblings": siblings, "tags": []}
        self._send(200, self.hub.info or info)

    def _resolve(self, repository: HubRepository, match: re.Match[str], body: bytes) -> None:
        commit, content = repository.resolve(match[2]), (repository.files(match[2]) or {}).get(match[3])
        if commit is None or content is None:
            kind = "RevisionNotFound" if commit is None else "EntryNotFound"
            return self._send(404, {"error": "not found"}, kind, commit or "")
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", commit)
        self.end_headers()
        if self.command == "GET":
            is_cut = match[3] in self.hub.cut
            self.wfile.write(content[: len(content) // 2] if is_cut else content)
            self.close_connection = self.close_connection or is_cut
        return None

    def _send(self, status: int, value: object, code: str = "", commit: str = "") -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, text in (("X-Error-Code", code), ("X-Repo-Commit", commit)):
            if text:
                self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def loopback_hub() -> Iterator[LoopbackHub]:
    """Serve a hub without repositories within the block."""
    hub = LoopbackHub()
    handler = type("Handler", (HubRequestHandler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
