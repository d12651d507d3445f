"""Three gateways, each a process of its own, with one PostgreSQL behind them and a balancer before them."""

from __future__ import annotations

import http.client
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.balancer import Balancer
from gateway.envoy import Envoy
from gateway.haproxy import Haproxy
from gateway.process import Process, close_process
from gateway.raw_exchange import ask
from waits import PATIENCE

SIZE = 3
LEASE = 5
"""Seconds after which a gateway that says nothing of an answer in the background is taken for dead."""


class Member:
    """One gateway."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.port = process.port
        self.name = member_of(ask(self.port, "GET", "/v1/models").id)

    def resend_request(self, request: bytes) -> int:
        """The status of its answer to a request that it is sent byte for byte."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as line:
            line.sendall(request)
            answer = http.client.HTTPResponse(line)
            answer.begin()
            answer.read()
            return answer.status


def member_of(id: str) -> str:
    """The gateway that gave a request this id: every process has letters of its own, and counts behind them."""
    assert id.startswith("req_"), id
    return id[4:16]


class Replicas:
    """All gateways that run now. Each test begins with three, whatever the one before did to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ours = Balancer()
        self.balancer: Balancer | Haproxy | Envoy = self.ours
        self.members: list[Member] = []
        self._leaving: list[Member] = []

    @property
    def names(self) -> set[str]:
        return {member.name for member in self.members}

    def start(self) -> Member:
        """One more, and it is served from now on."""
        member = Member(Process(self.folder))
        self.members.append(member)
        self.update_balancers()
        return member

    def update_balancers(self) -> None:
        """The balancer where all are."""
        self.balancer.set_ports([member.port for member in self.members])

    def restore_size(self) -> None:
        """Three again, and the balancer knows them."""
        self.update_balancers()
        while len(self.members) < SIZE:
            self.start()

    def kill(self, member: Member) -> None:
        """As if the machine went: the balancer is not told, and finds out."""
        self.members.remove(member)
        member.process.signal(signal.SIGKILL)
        close_process(member.process)

    def drain(self, member: Member) -> None:
        """It gets no new requests, and is asked to stop."""
        self.members.remove(member)
        self._leaving.append(member)
        self.update_balancers()
        member.process.signal(signal.SIGTERM)

    def wait_for_exit(self, member: Member) -> int:
        """How it ended."""
        status = member.process.wait_for_exit()
        self._leaving.remove(member)
        close_process(member.process)
        return status

    def find_member(self, id: str) -> Member:
        """The gateway that gave a request this id."""
        return next(member for member in self.members if member.name == member_of(id))

    def list_servers(self, count: int) -> list[str]:
        """Who had the last so many requests, by our own balancer."""
        return [member_of(passed.id) for passed in self.ours.passed[-count:]]

    def close(self) -> None:
        self.ours.close()
        for member in (*self.members, *self._leaving):
            member.process.signal(signal.SIGKILL)
            close_process(member.process)


@contextmanager
def start_replicas(folder: Path, configuration: str) -> Iterator[Replicas]:
    (folder / "toolwire.toml").write_text(configuration)
    made = Replicas(folder)
    try:
        made.restore_size()
        yield made
    finally:
        made.close()
