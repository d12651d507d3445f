"""Counters for Prometheus."""

from __future__ import annotations

from toolwire.gateway.record import Record

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    def running(self, by: int) -> None:
        del by

    def attempt(self, provider: str, outcome: str) -> None:
        del provider, outcome

    def fault(self, provider: str, kind: str) -> None:
        del provider, kind

    def resting(self, provider: str, rests: bool) -> None:
        del provider, rests

    def exchange(self, record: Record) -> None:
        del record

    def text(self) -> bytes:
        return b""
