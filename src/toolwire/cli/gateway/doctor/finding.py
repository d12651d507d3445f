"""What a check found, and the limits that every check runs under."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

State = Literal["ok", "warning", "problem"]


class Finding(Struct, frozen=True):
    """One line of the report."""

    state: State
    check: str
    """What was checked: `provider`, `store` …"""
    name: str = ""
    """Which one, where there are several."""
    message: str = ""
    hint: str = ""
    """What to do about it."""

    @property
    def subject(self) -> str:
        return f"{self.check} {self.name}".strip()


class Limits(Struct, frozen=True):
    """What checks may do."""

    seconds: float
    """How long one check may take."""
    tries_keys: bool
    """May credentials be sent to other machines?"""


def split_advice(text: str) -> tuple[str, str]:
    """The message and the hint of an error that says what to do after its last colon, as those of connections and
    stores do."""
    message, colon, hint = text.rpartition(": ")
    return (message, hint) if colon else (text, "")


class Check(NamedTuple):
    """A check to run, and what it checks, in case it does not end."""

    check: str
    name: str
    work: Awaitable[Sequence[Finding]]
    extra_seconds: float = 0.0
    """Time that it needs to clean up, besides the limit of all checks."""


async def run_checks(wanted: Iterable[Check], seconds: float) -> list[Finding]:
    """Run all checks at the same time. Their findings are in the given order. A mistake of ours in one check must not
    hide what the others have found."""
    checks = [*wanted]
    running = [asyncio.wait_for(check.work, seconds + check.extra_seconds) for check in checks]
    results = await asyncio.gather(*running, return_exceptions=True)
    found: list[Finding] = []
    for check, result in zip(checks, results, strict=True):
        if isinstance(result, TimeoutError):
            what = f"there was no answer within {seconds:g} seconds"
            found.append(Finding("problem", check.check, check.name, what, "--timeout allows more"))
        elif isinstance(result, BaseException):
            what = f"this check failed: {type(result).__name__}: {result}"
            hint = "this is a mistake of Toolwire: please report it"
            found.append(Finding("problem", check.check, check.name, what, hint))
        else:
            found += result
    return found
