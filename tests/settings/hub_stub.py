"""A hub on the loopback interface: as much of its HTTP interface as the client library asks for."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass
class HubStub:
    """One repository `org/model` (a model and a data set) at one commit.

    `broken`: files answered with 403. `listed`: sizes that the listing gives in place of the true
    ones. `asked`: method and path of every request.
    """

    commit: str = "c" * 40
    files: dict[str, bytes] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    listed: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def downloads(self) -> list[str]:
        """Files whose content was asked for."""
        return [path.rpartition("/")[2] for path in self.asked if path.startswith("GET /org")]

    def size(self, name: str) -> int:
        return self.listed.get(name, len(self.files[name]))

    def reply(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        """Status, body, headers."""
        parts = path.strip("/").split("/")
        if parts[:1] == ["api"] and parts[2:4] == ["org", "model"]:
            if parts[5] not in (self.commit, "main"):
                return 404, b"{}", {"X-Error-Code": "RevisionNotFound"}
            names = sorted(self.files)
            if parts[4] == "tree":
                rows = [
                    {"type": "file", "path": n, "size": self.size(n), "oid": _digest(self.files[n])}
                    for n in names
                ]
                return 200, json.dumps(rows).encode(), {}
            siblings = [{"rfilename": name, "size": self.size(name)} for name in names]
            info = {"id": "org/model", "sha": self.commit, "siblings": siblings}
            return 200, json.dumps(info).encode(), {}
        if "resolve" in parts and parts[-1] in self.files:
            if parts[-1] in self.broken:
                return 403, b"", {}
            body = self.files[parts[-1]]
            return 200, body, {"X-Repo-Commit": self.commit, "ETag": f'"{_digest(body)}"'}
        return 404, b"{}", {"X-Error-Code": "RepoNotFound"}


def _digest(body: bytes) -> str:
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()


@contextmanager
def serving(stub: HubStub) -> Iterator[HubStub]:
    """Serve it until the block ends; sets `stub.url`."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, with_body: bool) -> None:
            path = urlsplit(self.path).path
            stub.asked.append(f"{self.command} {path}")
            status, body, headers = stub.reply(path)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def do_GET(self) -> None:
            self._answer(True)

        def do_HEAD(self) -> None:
            self._answer(False)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
