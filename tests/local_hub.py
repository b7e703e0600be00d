"""A hub on this machine: the calls that push, pull and list make, and faults on demand."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import pytest

from slm_lab.experiment.hub import Hub

TOKEN = "hf_the_right_token"
REPO = "tester/runs"
LARGE = ".safetensors"  # files that the hub lists with a SHA-256
API = re.compile(r"/api/datasets/([^/]+/[^/]+)(?:/(preupload|commit|revision|tree)/([^/]+)(?:/(.+))?)?")
RESOLVE = re.compile(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")

Call = Literal["info", "create", "preupload", "commit", "tree", "resolve"]
Fault = int | Literal["cut", "silent"]  # an HTTP status, a connection that ends half-way, or no answer


@dataclass
class LocalHub:
    """What the server holds, what it was asked, and what goes wrong next."""

    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    calls: list[tuple[Call, str]] = field(default_factory=list)  # (kind, path in the repo or its name)
    ranges: list[str] = field(default_factory=list)  # Range headers of downloads
    sent: list[list[str]] = field(default_factory=list)  # paths of each commit
    faults: dict[Call, list[Fault]] = field(default_factory=dict)  # first come, first served
    served: dict[str, bytes] = field(default_factory=dict)  # content that is given out instead of the listed one
    waits: list[float] = field(default_factory=list)  # seconds that a client would have waited
    over: threading.Event = field(default_factory=threading.Event)  # ends silence
    echo: bool = False  # put the token that came into every error and header
    url: str = ""

    @property
    def files(self) -> dict[str, bytes]:
        """Files of the repository that tests use."""
        return self.repos.setdefault(REPO, {})

    def client(self, token: str | None = TOKEN, repo: str = REPO) -> Hub:
        """A client that does not wait between tries."""
        return Hub(repo, token, self.url, self.waits.append)

    def count(self, kind: Call) -> int:
        return sum(call == kind for call, _ in self.calls)


@pytest.fixture(name="server")
def local_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    """A running hub without repositories."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # it is only local
    hub = LocalHub()
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{httpd.server_port}"
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield hub
    hub.over.set()
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def below(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its path in it."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def git_blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Answers requests from what the hub holds."""

    protocol_version = "HTTP/1.1"
    hub: LocalHub

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if found := RESOLVE.fullmatch(path):
            self.resolve(found[1], found[3])
        elif found := API.fullmatch(path):
            if found[2] == "tree":
                self.tree(found[1], found[4] or "")
            else:
                self.info(found[1])
        else:
            self.answer(404, {"error": f"no route {path}"})

    def do_POST(self) -> None:
        path = unquote(urlsplit(self.path).path)
        found = API.fullmatch(path)
        if found and found[2] == "preupload":
            self.preupload(found[1])
        elif found and found[2] == "commit":
            self.commit(found[1])
        elif path == "/api/repos/create":
            self.create()
        else:
            self.answer(404, {"error": f"no route {path}"})

    # one method for each call

    def info(self, name: str) -> None:
        if self.begins("info", name) and self.found(name):
            self.answer(200, {"id": name, "sha": "5" * 40, "private": name in self.hub.private, "siblings": []})

    def create(self) -> None:
        body = json.loads(self.body())
        name = f"{body['organization']}/{body['name']}"
        if self.begins("create", name, writes=True):
            self.hub.repos.setdefault(name, {})
            if body.get("visibility") == "private":
                self.hub.private.add(name)
            self.answer(200, {"url": f"{self.hub.url}/datasets/{name}"})

    def preupload(self, name: str) -> None:
        body = json.loads(self.body())
        if self.begins("preupload", name, writes=True) and self.found(name):
            held = self.hub.repos[name]
            known = {path: git_blob(content) for path, content in held.items()}
            files = [{"path": file["path"], "oid": known.get(file["path"])} for file in body["files"]]
            self.answer(200, {"files": [{**file, "uploadMode": "regular", "shouldIgnore": False} for file in files]})

    def commit(self, name: str) -> None:
        cut = self.hub.faults.get("commit", [])[:1] == ["cut"]
        body = b"" if cut else self.body()  # before any answer, or the client may never read it
        if not self.begins("commit", name, writes=True):
            return
        lines = [json.loads(line) for line in body.splitlines()]
        files = {line["value"]["path"]: line["value"]["content"] for line in lines if line["key"] == "file"}
        self.hub.sent.append(sorted(files))
        self.hub.repos[name] |= {path: base64.b64decode(content) for path, content in files.items()}
        self.answer(200, {"commitUrl": f"{self.hub.url}/datasets/{name}/commit/{'5' * 40}", "commitOid": "5" * 40})

    def tree(self, name: str, folder: str) -> None:
        if not (self.begins("tree", folder) and self.found(name)):
            return
        recursive = "recursive=true" in urlsplit(self.path).query.lower()
        inside = {path: content for path, content in self.hub.repos[name].items() if path.startswith(f"{folder}/")}
        if not inside:
            self.answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
            return
        depth = folder.count("/") + 2
        tops = {"/".join(path.split("/")[:depth]) for path in inside if path.count("/") >= depth}
        found = [{"type": "directory", "path": path, "oid": "0" * 40, "size": 0} for path in sorted(tops)]
        shallow = {path: content for path, content in inside.items() if recursive or path.count("/") < depth}
        self.answer(200, found + [listed(path, content) for path, content in shallow.items()])

    def resolve(self, name: str, path: str) -> None:
        content = self.hub.served.get(path, self.hub.repos.get(name, {}).get(path))
        if content is None:
            self.answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
            return
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if asked:
            self.hub.ranges.append(asked)
        if self.begins("resolve", path, content[start:]):
            self.raw(206 if asked else 200, content[start:], {"Content-Type": "application/octet-stream"})

    # what they share

    def begins(self, kind: Call, about: str, content: bytes = b"", writes: bool = False) -> bool:
        """Note the call; False where it was answered with a fault or for want of the right token."""
        self.hub.calls.append((kind, about))
        faults = self.hub.faults.get(kind, [])
        fault = faults.pop(0) if faults else None
        came = self.headers.get("Authorization")
        if fault == "cut":
            self.cut(content)
        elif fault == "silent":
            self.hub.over.wait()
            self.close_connection = True
        elif fault is not None:
            self.answer(fault, {"error": "a fault that was asked for"})
        elif came not in (f"Bearer {TOKEN}", None) or (writes and came is None):
            told = "Invalid credentials in Authorization header"
            self.answer(401, {"error": told}, {"X-Error-Message": told})
        else:
            return True
        return False

    def found(self, name: str) -> bool:
        if name not in self.hub.repos:
            self.answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        return name in self.hub.repos

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def cut(self, content: bytes) -> None:
        """Read or write half of what there is, and hang up."""
        if self.command == "POST":
            self.rfile.read(int(self.headers["Content-Length"]) // 2)
        else:
            self.send_response(206 if "Range" in self.headers else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2])
        self.close_connection = True

    def answer(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        headers = headers or {}
        if self.hub.echo:
            came = self.headers.get("Authorization", "")
            headers = {**headers, "X-HF-Warning": f"you sent {came}"}
            if status >= 400:
                value, headers = {"error": f"{came} is no good"}, {**headers, "X-Error-Message": f"bad {came}"}
        self.raw(status, json.dumps(value).encode(), {"Content-Type": "application/json", **headers})

    def raw(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(content)


def listed(path: str, content: bytes) -> dict[str, Any]:
    """A file as the hub lists it: with the SHA-1 of its git blob, large ones with the SHA-256 of their content."""
    entry = {"type": "file", "path": path, "size": len(content), "oid": git_blob(content)}
    if not path.endswith(LARGE):
        return entry
    digest = hashlib.sha256(content).hexdigest()
    return {**entry, "oid": git_blob(b"a pointer"), "lfs": {"oid": digest, "size": len(content), "pointerSize": 9}}
