"""`auth_command`: a program that prints a credential and its end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process, SubprocessStreamProtocol
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from toolwire.core.json_values import Json, Object
from toolwire.gateway.features.cloud_credentials.leases import (
    BearerToken,
    CredentialProblem,
    Lease,
    clean_detail,
    make_lease,
)
from toolwire.gateway.features.cloud_credentials.sigv4 import AwsKeys
from toolwire.gateway.features.cloud_credentials.token_requests import read_object

COMMAND_SECONDS = 25.0
MAX_OUTPUT = 64 * 1024
EXIT_SECONDS = 0.1
"""Between two looks whether the program has ended, while something else keeps its output open."""
REST_SECONDS = 1.0
"""For what is left in the output of a program that has ended."""
TOKEN_KEYS = ("token", "access_token", "accessToken")
END_KEYS = ("expires_on", "expiresOn", "Expiration", "expires_at", "expiry")
"""With a time; `expires_in` has seconds from now."""


class CommandSource:
    """Runs the program for each credential."""

    def __init__(self, command: Sequence[str], now: Callable[[], float]) -> None:
        self._command, self._now = tuple(command), now
        self.source = f"the command `{command[0]}`"

    async def fetch_token(self) -> Lease[BearerToken] | CredentialProblem:
        output = await self._run()
        if isinstance(output, CredentialProblem):
            return output
        text = output.decode("utf-8", "replace").strip()
        if not text.startswith("{"):
            if not text or not text.isascii() or not text.isprintable() or " " in text:
                return self._fail("it prints no token", "it must print a token, or JSON with `token` and `expires_in`")
            return make_lease(BearerToken(text), None, self._now())
        values = read_object(output) or {}
        token = next((one for key in TOKEN_KEYS if isinstance(one := values.get(key), str)), "")
        if not token:
            return self._fail("its JSON has no token", f"expected one of {', '.join(TOKEN_KEYS)}")
        return make_lease(BearerToken(token), read_end(values, self._now()), self._now())

    async def fetch_keys(self) -> Lease[AwsKeys] | CredentialProblem:
        """The same for keys of AWS, as `credential_process` prints them."""
        output = await self._run()
        if isinstance(output, CredentialProblem):
            return output
        values = read_object(output) or {}
        names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
        access, secret, token = (one if isinstance(one := values.get(name), str) else "" for name in names)
        if not access or not secret:
            return self._fail("its JSON has no AccessKeyId and SecretAccessKey", "it must print them as JSON")
        return make_lease(AwsKeys(access, secret, token), read_end(values, self._now()), self._now())

    async def _run(self) -> bytes | CredentialProblem:
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                code, output, errors = await run_program(self._command)
        except TimeoutError:
            return self._fail(f"it did not end within {COMMAND_SECONDS:g} seconds")
        except OSError as error:
            return self._fail(f"it cannot be started: {error.strerror}")
        if len(output) > MAX_OUTPUT:
            return self._fail("it prints too much", "it must print a token or JSON, and nothing else")
        if code:
            lines = errors.decode("utf-8", "replace").split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "")
            detail = f": {clean_detail(last)}" if last else ""
            return self._fail(f"it ended with {code}{detail}", "run it in a terminal")
        return output

    def _fail(self, problem: str, hint: str = "check `auth_command`") -> CredentialProblem:
        return CredentialProblem(self.source, problem, hint)


class ProgramEnd(NamedTuple):
    """A program that has ended, or was ended because it prints too much."""

    code: int
    output: bytes
    """Its start: more than `MAX_OUTPUT` if it prints too much."""
    errors: bytes
    """The end of its standard error."""


async def run_program(command: Sequence[str], environ: Mapping[str, str] | None = None) -> ProgramEnd:
    """Run a program without a shell. Raises OSError if it cannot be started. If this is cancelled, the program is
    killed with all that it has started."""
    loop = asyncio.get_running_loop()
    # As `asyncio.create_subprocess_exec` does, which keeps the transport to itself.
    transport, protocol = await loop.subprocess_exec(
        lambda: SubprocessStreamProtocol(MAX_OUTPUT, loop),
        *command,
        stdin=DEVNULL,
        env=environ,
        start_new_session=True,
    )
    process = Process(transport, protocol, loop)
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = bytearray(), bytearray()
    readers = {
        asyncio.ensure_future(_keep_start(process.stdout, output)),
        asyncio.ensure_future(_keep_end(process.stderr, errors)),
    }
    try:
        await _wait_for_end(process, readers, output)
    finally:
        if sys.platform != "win32":
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # the program, if it still runs, and what it has started
            while process.returncode is None:  # asyncio's watcher waits for it: closing first would take its exit away
                await asyncio.sleep(EXIT_SECONDS)
        if process.returncode is not None:
            await asyncio.wait(readers, timeout=REST_SECONDS)
        for reader in readers:
            reader.cancel()
        transport.close()  # else its end is not told before all that it has started has closed its output
        code = await process.wait()
    return ProgramEnd(code, bytes(output), bytes(errors))


async def _keep_start(stream: asyncio.StreamReader, kept: bytearray) -> None:
    """Until there is more than any credential has."""
    while len(kept) <= MAX_OUTPUT and (data := await stream.read(MAX_OUTPUT)):
        kept += data


async def _keep_end(stream: asyncio.StreamReader, kept: bytearray) -> None:
    while data := await stream.read(MAX_OUTPUT):
        kept += data
        del kept[:-MAX_OUTPUT]


async def _wait_for_end(process: Process, readers: set[asyncio.Task[None]], output: bytearray) -> None:
    """Until the program has ended, or prints too much. What it has started may keep its output open for longer."""
    reading = readers
    while reading and process.returncode is None and len(output) <= MAX_OUTPUT:
        _, reading = await asyncio.wait(reading, timeout=EXIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    if not reading:
        await process.wait()


def read_end(values: Object, now: float) -> float | None:
    """When a credential ends, by what its source says of it; None if it says nothing."""
    life = _read_number(values.get("expires_in"))
    if life is not None:
        return now + life
    return next((end for key in END_KEYS if (end := read_time(values.get(key))) is not None), None)


def _read_number(value: Json) -> float | None:
    """A number, or a string with one: Azure sends strings."""
    try:
        number = float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < 1e11 else None


def read_time(value: Json) -> float | None:
    number = _read_number(value)
    if number is not None or not isinstance(value, str):
        return number
    try:
        return datetime.fromisoformat(value).timestamp()  # `az` prints local time without a zone
    except ValueError:
        return None
