"""`auth_command`: a program that prints a credential and its end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

from toolwire.core.json_values import Json, Malformed, Object, decode
from toolwire.gateway.features.cloud_credentials.leases import (
    BearerToken,
    CredentialProblem,
    Lease,
    Value,
    make_lease,
)
from toolwire.gateway.features.cloud_credentials.sigv4 import AwsKeys
from toolwire.gateway.http.redact import printable_text, redact_start

COMMAND_SECONDS = 25.0
MAX_OUTPUT = 64 * 1024
TOKEN_KEYS = ("token", "access_token", "accessToken")
END_KEYS = ("expires_on", "expiresOn", "Expiration", "expires_at", "expiry")
"""With a time; `expires_in` has seconds from now."""


class CommandSource:
    """Runs the program for each credential."""

    def __init__(self, command: Sequence[str], seconds: float, now: Callable[[], float]) -> None:
        self._command, self._seconds, self._now = tuple(command), seconds, now
        self.source = f"the command `{command[0]}`"

    async def fetch_token(self) -> Lease[BearerToken] | CredentialProblem:
        output = await self._run()
        if isinstance(output, CredentialProblem):
            return output
        text = output.decode("utf-8", "replace").strip()
        if not text.startswith("{"):
            if not text or not text.isascii() or not text.isprintable() or " " in text:
                return self._fail("it prints no token", "it must print a token, or JSON with `token` and `expires_in`")
            return self._make_lease(BearerToken(text), None)
        values = _read_object(output)
        token = next((one for key in TOKEN_KEYS if isinstance(one := values.get(key), str)), "")
        if not token:
            return self._fail("its JSON has no token", f"expected one of {', '.join(TOKEN_KEYS)}")
        return self._make_lease(BearerToken(token), read_end(values, self._now()))

    async def fetch_keys(self) -> Lease[AwsKeys] | CredentialProblem:
        """The same for keys of AWS, as `credential_process` prints them."""
        output = await self._run()
        if isinstance(output, CredentialProblem):
            return output
        values = _read_object(output)
        names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
        access, secret, token = (one if isinstance(one := values.get(name), str) else "" for name in names)
        if not access or not secret:
            return self._fail("its JSON has no AccessKeyId and SecretAccessKey", "it must print them as JSON")
        return self._make_lease(AwsKeys(access, secret, token), read_end(values, self._now()))

    def _make_lease(self, value: Value, ends_at: float | None) -> Lease[Value]:
        return make_lease(value, ends_at, self._now() + self._seconds)

    async def _run(self) -> bytes | CredentialProblem:
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            return self._fail(f"it cannot be started: {error.strerror}", "check `auth_command`")
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                output, said = await process.communicate()
        except TimeoutError:
            return self._fail(f"it did not end within {COMMAND_SECONDS:g} seconds")
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError, PermissionError):
                    _kill(process)
                await process.wait()
        if process.returncode:
            lines = said.decode("utf-8", "replace").split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "")
            detail = f": {printable_text(redact_start(last.strip()), 300)}" if last else ""
            return self._fail(f"it ended with {process.returncode}{detail}", "run it in a terminal")
        return output if len(output) <= MAX_OUTPUT else self._fail("it prints too much")

    def _fail(self, problem: str, hint: str = "") -> CredentialProblem:
        return CredentialProblem(self.source, problem, hint)


def _kill(process: asyncio.subprocess.Process) -> None:
    """With the processes that it has started."""
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)


def _read_object(data: bytes) -> Object:
    try:
        found = decode(data)
    except Malformed:
        return {}
    return found if isinstance(found, dict) else {}


def read_end(values: Object, now: float) -> float | None:
    """When a credential ends, by what its source says of it; None if it says nothing."""
    life = _read_number(values.get("expires_in"))
    if life is not None:
        return now + life
    return next((end for key in END_KEYS if (end := _read_time(values.get(key))) is not None), None)


def _read_number(value: Json) -> float | None:
    """A number, or a string with one: Azure sends strings."""
    try:
        number = float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < 1e11 else None


def _read_time(value: Json) -> float | None:
    number = _read_number(value)
    if number is not None or not isinstance(value, str):
        return number
    try:
        return datetime.fromisoformat(value).timestamp()  # `az` prints local time without a zone
    except ValueError:
        return None
