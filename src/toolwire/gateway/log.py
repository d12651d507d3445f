"""One line an exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from toolwire.gateway.record import Record


def to_stderr(line: str) -> None:
    del line


class Log:
    def __init__(self, form: str, out: Callable[[str], None] = to_stderr) -> None:
        self._form, self._out = form, out

    def configure(self, form: str, secrets: Iterable[str]) -> None:
        self._form = form
        del secrets

    def exchange(self, record: Record) -> None:
        del record

    def event(self, kind: str, fields: Mapping[str, object]) -> None:
        del kind, fields
