"""A package index that misbehaves on demand, and counts what it sends: a real HTTP server."""

from __future__ import annotations

import hashlib
import http.server
import re
import socket
import struct
import threading
import time
import zipfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1024 * 1024
_BLOCK = 64 * 1024


@dataclass
class Manner:
    """How files are served.

    Args:
        codes: Answers to the first requests, one after the other, before it behaves.
        stop_at: Bytes of each answer's body after which it ends the connection.
        is_reset: True to end it with a reset.
        num_stops: How often it does so; then no more.
        is_silent: True to fall silent there instead, until the server ends.
        ranges: `serve`, `ignore`, or `shift` for a range that begins one byte early.
        is_wrong: True to change a byte in the middle.
        length: Added to the Content-Length.
        states_length: False to leave Content-Length out.
        encoding: Content-Encoding that it claims.
        redirect: Prefix of the address that it sends clients to, in place of serving the file.
        bytes_per_second: How fast at most; 0 for no limit.
        block: Bytes that are sent at once.
        user: Wanted as `name:password`; empty for nobody.
    """

    codes: list[int] = field(default_factory=list)
    stop_at: int | None = None
    is_reset: bool = False
    num_stops: int = 10**9
    is_silent: bool = False
    ranges: str = "serve"
    is_wrong: bool = False
    length: int = 0
    states_length: bool = True
    encoding: str = ""
    redirect: str = ""
    bytes_per_second: int = 0
    block: int = _BLOCK
    user: str = ""


@dataclass
class Asked:
    """One request for a file."""

    file: str
    range: str
    authorization: str
    sent: int = 0


class IndexServer:
    """Serves folders of wheels as indexes: `/NAME/PROJECT/` pages, files, metadata (PEP 658).

    Without `has_metadata` a client has to look into the wheels for it.

    Args:
        indexes: Folder of wheels, by name of the index, such as `simple` or `whl/cu128`.
        manner: How wheels are served.
    """

    def __init__(self, indexes: dict[str, Path], manner: Manner | None = None) -> None:
        self.indexes = indexes
        self.manner = manner or Manner()
        self.has_metadata = True
        self.asked: list[Asked] = []
        self.ended = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def url(self, index: str = "simple", *, user: str = "") -> str:
        return f"http://{user + '@' if user else ''}{self.host}/{index}"

    def file_url(self, wheel: Path, index: str = "simple") -> str:
        return f"http://{self.host}/{index}/files/{wheel.name}"

    def sent(self, file: str = "") -> int:
        """Return the bytes that went out of wheels whose names begin so."""
        return sum(one.sent for one in self.asked if one.file.startswith(file))

    def close(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def serving(wheel: Path, manner: Manner | None = None) -> Iterator[IndexServer]:
    """Run an index of the folder of a wheel until the end."""
    with serving_all({"simple": wheel.parent}, manner) as server:
        yield server


@contextmanager
def serving_all(indexes: dict[str, Path], manner: Manner | None = None) -> Iterator[IndexServer]:
    """Run indexes of these folders until the end."""
    server = IndexServer(indexes, manner)
    try:
        yield server
    finally:
        server.close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, index: IndexServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.index = index


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_HEAD(self) -> None:
        self._text("")

    def do_GET(self) -> None:
        index, _, rest = self.path.lstrip("/").rpartition("/files/")
        if index:
            self._file(self.server.index.indexes[index], rest)
            return
        index, _, project = self.path.strip("/").rpartition("/")
        folder = self.server.index.indexes.get(index)
        page = _page(self.server.index, folder, project) if folder else ""
        self._text(page, code=200 if page else 404)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _text(self, text: str, *, code: int = 200, kind: str = "text/html") -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def _file(self, folder: Path, name: str) -> None:
        if name.endswith(".metadata") and self.server.index.has_metadata:
            self._text(_metadata(folder / name.removesuffix(".metadata")), kind="text/plain")
            return
        given = self.headers.get("Authorization", "")
        asked = Asked(name, self.headers.get("Range", ""), given)
        self.server.index.asked.append(asked)
        manner = self.server.index.manner
        if manner.codes:
            code = manner.codes.pop(0)
            self._text("no", code=code)
        elif manner.redirect:
            self.send_response(302)
            self.send_header("Location", f"{manner.redirect}/files/{name}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            with suppress(ConnectionError):
                self._body((folder / name).read_bytes(), manner, asked)

    def _body(self, content: bytes, manner: Manner, asked: Asked) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BLOCK)
        if manner.is_wrong:
            middle = len(content) // 2
            content = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", asked.range)
        start = int(match[1]) if match and manner.ranges != "ignore" else 0
        start -= manner.ranges == "shift" and start > 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        end = min(int(match[2]) + 1, len(content)) if match and match[2] else len(content)
        self._head(content[start:end], manner, (start, len(content)))
        self._send(content[start:end], manner, asked)

    def _head(self, body: bytes, manner: Manner, place: tuple[int, int]) -> None:
        start, total = place
        is_part = len(body) < total
        self.send_response(206 if is_part else 200)
        if is_part:
            self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/{total}")
        if manner.states_length:
            self.send_header("Content-Length", str(len(body) + manner.length))
        if manner.encoding:
            self.send_header("Content-Encoding", manner.encoding)
        self.send_header("Last-Modified", formatdate(0, usegmt=True))
        self.end_headers()

    def _send(self, body: bytes, manner: Manner, asked: Asked) -> None:
        is_stopping = manner.stop_at is not None and manner.num_stops > 0
        whole = body[: manner.stop_at] if is_stopping else body
        since = time.monotonic()
        for offset in range(0, len(whole), manner.block):
            self.wfile.write(whole[offset : offset + manner.block])
            asked.sent += len(whole[offset : offset + manner.block])
            if manner.bytes_per_second:
                due = since + asked.sent / manner.bytes_per_second
                self.server.index.ended.wait(max(0.0, due - time.monotonic()))
        if is_stopping:
            manner.num_stops -= 1
            if manner.is_silent:
                self.server.index.ended.wait()
            if manner.is_reset:
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
        self.close_connection = True


def _page(server: IndexServer, folder: Path, project: str) -> str:
    lines = []
    metadata = 'data-dist-info-metadata="true" data-core-metadata="true"'
    metadata = metadata if server.has_metadata else ""
    for wheel in sorted(folder.glob("*.whl")):
        if wheel.name.split("-")[0].replace("_", "-") == project:
            sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
            index = next(name for name, place in server.indexes.items() if place == folder)
            lines.append(
                f'<a href="/{index}/files/{wheel.name}#sha256={sha256}" {metadata}>{wheel.name}</a>'
            )
    return "\n".join(lines)


def _metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        name = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()
