"""A small balancer: requests go to the gateways in turn, and what comes back passes as it comes.

Only a connection that was refused is tried elsewhere: then nothing had been sent. Nothing else is ever repeated.
"""

from __future__ import annotations

import re
import select
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

SIZE = 65536
NOBODY = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
CLOSE = b"connection: close\r\n"
HOP = re.compile(rb"^(?:connection|keep-alive):.*\r\n", re.IGNORECASE | re.MULTILINE)
LENGTH = re.compile(rb"^content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)
CHUNKED = re.compile(rb"^transfer-encoding: *chunked", re.IGNORECASE | re.MULTILINE)
ID = re.compile(rb"^x-request-id: *(\S+)", re.IGNORECASE | re.MULTILINE)


@dataclass(eq=False)
class Passed:
    """A request that was passed on: to which port, what the gateway there called it, and its bytes."""

    port: int
    id: str = ""
    request: bytes = b""


class Balancer:
    """One address for all gateways."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ports: list[int] = []
        self.passed: list[Passed] = []
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def set_ports(self, ports: Sequence[int]) -> None:
        """New requests go to these and to no others; those under way go on."""
        with self._lock:
            self._ports = list(ports)

    def close(self) -> None:
        # First the thread: one that still waits on a number that is given to another socket would take its connections.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(ConnectionError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with client.makefile("rb") as reader:
                head, body = _read(reader)
            if not head:
                return
            gateway, passed = self._connect_next()
            if gateway is None:
                client.sendall(NOBODY)
                return
            with gateway:
                _relay(client, gateway, passed, head + body)

    def _connect_next(self) -> tuple[socket.socket | None, Passed]:
        """A connection to the gateway whose turn it is, or to the next that does not refuse it."""
        with self._lock:
            count = len(self._ports)
        for _ in range(count):
            with self._lock:
                if not self._ports:
                    break
                port = self._ports.pop(0)
                self._ports.append(port)
                passed = Passed(port)
                self.passed.append(passed)
            try:
                return socket.create_connection(("127.0.0.1", port)), passed
            except ConnectionRefusedError:
                with self._lock:
                    self.passed.remove(passed)
        return None, Passed(0)


def _read(reader: BinaryIO) -> tuple[bytes, bytes]:
    """The head of a request, with our own wish for the connection, and its body as it came."""
    head = _head(reader)
    if not head:
        return b"", b""
    found = LENGTH.search(head)
    body = reader.read(int(found[1])) if found else _chunks(reader) if CHUNKED.search(head) else b""
    return _close_after(head), body


def _head(reader: BinaryIO) -> bytes:
    lines = []
    while (line := reader.readline()) not in (b"", b"\r\n"):
        lines.append(line)
    return b"".join([*lines, b"\r\n"]) if lines else b""


def _close_after(head: bytes) -> bytes:
    """The head of a message whose connection serves no other."""
    return HOP.sub(b"", head)[:-2] + CLOSE + b"\r\n"


def _chunks(reader: BinaryIO) -> bytes:
    pieces = []
    while True:
        size = reader.readline()
        pieces += [size, reader.read(int(size.split(b";")[0], 16) + 2)]
        if not int(size.split(b";")[0], 16):
            return b"".join(pieces)


def _relay(client: socket.socket, gateway: socket.socket, passed: Passed, request: bytes) -> None:
    """Until one of both has ended. A client whose answer breaks off sees that it did."""
    begun, passed.request = False, request
    try:
        gateway.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        gateway.sendall(request)
        with gateway.makefile("rb", 0) as reader:
            head = _head(reader)
        if found := ID.search(head):
            passed.id = found[1].decode()
        begun = bool(head)
        client.sendall(_close_after(head) if head else NOBODY)
        while begun and (piece := _piece(client, gateway)):
            client.sendall(piece)
    except ConnectionError:
        if begun:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            client.sendall(NOBODY)


def _piece(client: socket.socket, gateway: socket.socket) -> bytes:
    """What the gateway says next; nothing when it has ended, or when the client has left."""
    ready, _, _ = select.select([client, gateway], [], [])
    if client in ready and not client.recv(SIZE):
        return b""
    return gateway.recv(SIZE)
