"""A server on this machine that speaks as much of the Hugging Face Hub's protocol as its library asks for."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_secretsecretsecret"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class LocalHub(ThreadingHTTPServer):
    """Keeps repositories in memory; who writes needs `TOKEN`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.stated_sizes: dict[str, int] = {}
        self.uploaded: dict[str, bytes] = {}
        self.fetched: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextlib.contextmanager
def local_hub() -> Iterator[LocalHub]:
    """Give a running server."""
    hub = LocalHub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: LocalHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self._body()
        path = unquote(urlsplit(self.path).path)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, {"error": "Invalid credentials"})
        elif path == "/api/validate-yaml":
            self._answer(200, {"errors": [], "warnings": []})
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path.endswith("/preupload/main"):
            self._preupload(json.loads(body))
        elif path.endswith(".git/info/lfs/objects/batch"):
            self._large_files(json.loads(body))
        elif path.endswith("/commit/main"):
            self._commit("/".join(path.split("/")[3:5]), body)
        else:
            self._answer(404, {"error": f"no {path}"})

    def do_PUT(self) -> None:
        content = self._body()
        self.server.uploaded[hashlib.sha256(content).hexdigest()] = content
        self._answer(200, {})

    def do_HEAD(self) -> None:
        self._file()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/api/models/"):
            self._describe(path.removeprefix("/api/models/"))
        else:
            self._file()

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted['organization']}/{wanted['name']}"
        if name in self.server.repositories:
            self._answer(409, {"error": "there is one", "url": f"{self.server.endpoint}/{name}"})
            return
        self.server.repositories[name] = {}
        self.server.private[name] = "private" in (
            wanted.get("visibility"),
            wanted.get("private") and "private",
        )
        self._answer(200, {"url": f"{self.server.endpoint}/{name}", "name": name, "id": name})

    def _preupload(self, wanted: dict[str, Any]) -> None:
        files = [
            {
                "path": each["path"],
                "uploadMode": "lfs" if each["path"].endswith((".safetensors", ".mp4")) else "regular",
                "shouldIgnore": False,
                "oid": None,
            }
            for each in wanted["files"]
        ]
        self._answer(200, {"files": files})

    def _large_files(self, wanted: dict[str, Any]) -> None:
        objects = [
            {
                **each,
                "actions": {"upload": {"href": f"{self.server.endpoint}/upload/{each['oid']}", "header": {}}},
            }
            for each in wanted["objects"]
        ]
        self._answer(200, {"transfer": "basic", "objects": objects})

    def _commit(self, name: str, body: bytes) -> None:
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                self.server.repositories[name][value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                self.server.repositories[name][value["path"]] = self.server.uploaded[value["oid"]]
        url = f"{self.server.endpoint}/{name}/commit/{COMMIT}"
        self._answer(200, {"success": True, "commitOid": COMMIT, "commitUrl": url, "hookOutput": ""})

    def _describe(self, path: str) -> None:
        user, repository, *rest = path.split("/")
        name = f"{user}/{repository}"
        if name not in self.server.repositories:
            self._answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            return
        if rest and rest != ["revision", "main"]:
            self._answer(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
            return
        siblings = [
            {"rfilename": file, "size": self.server.stated_sizes.get(file, len(content)), "blobId": COMMIT}
            for file, content in self.server.repositories[name].items()
        ]
        facts = {"id": name, "modelId": name, "sha": COMMIT, "private": self.server.private[name]}
        facts |= {"tags": [], "downloads": 0}
        self._answer(200, {**facts, "siblings": siblings})

    def _file(self) -> None:
        parts = unquote(urlsplit(self.path).path).split("/")
        name, file = "/".join(parts[1:3]), "/".join(parts[5:])
        content = self.server.repositories.get(name, {}).get(file)
        if content is None:
            self._answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
            return
        self.server.fetched.append(file)
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        self._send(200, content, {"ETag": etag, "X-Repo-Commit": COMMIT, "Content-Type": "text/plain"})

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, status: int, data: Any, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(data).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
