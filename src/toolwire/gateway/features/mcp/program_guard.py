"""Starts the program of an MCP server and stays between it and the gateway, as a process of its own:

    python -I -S program_guard.py MAX_BYTES PROGRAM [ARGUMENT …]

When the gateway is gone, even if it was killed and could not end the program, the guard ends it. And it passes on the
program's messages, which are lines, only if they have at most MAX_BYTES bytes, so that the gateway never has to hold
more than that. The program has the guard's own standard input and standard error. The guard runs without the rest of
Toolwire.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

EXIT_SECONDS = 2.0
"""How long the program may take to end when its input has ended."""
TERMINATE_SECONDS = 1.0
"""How long it may take when it was terminated; half of what the MCP SDK gives the guard before it kills it."""
PARENT_CHECK_SECONDS = 5.0
"""Where a closed pipe is not reported to its writer, the end of the gateway is noticed after this time."""
CHUNK_BYTES = 65536
_ID = rb'"id"\s*:\s*("(?:[^"\\]|\\.){0,200}"|-?[0-9]{1,20})'
_ID_AT_START = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
_ID_AT_END = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
_END_BYTES = 512


class GatewayGone(Exception):
    """Nobody reads the messages any more."""


class Terminated(Exception):
    """The gateway terminates the guard, because the program did not end by itself."""


class ProgramRefused(Exception):
    """The program sent a message that is too long, and nobody knows which call it answers."""


class MessageFilter:
    """Passes on the lines of a program that are not too long. In place of a response that is too long goes an error."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._length = 0
        self._end = b""
        """The last bytes of a line that is too long."""

    def feed(self, data: bytes) -> bytes:
        """What can be passed on now: complete lines."""
        *lines, rest = data.split(b"\n")
        out = b"".join([self._finish_line(line) for line in lines])
        self._add(rest)
        return out

    def _add(self, data: bytes) -> None:
        self._length += len(data)
        self._line += data[: max(0, self._max_bytes - len(self._line))]
        if self._length > self._max_bytes:
            self._end = (self._end + data)[-_END_BYTES:]

    def _finish_line(self, data: bytes) -> bytes:
        self._add(data)
        line, length, end = bytes(self._line), self._length, self._end
        self._line, self._length, self._end = bytearray(), 0, b""
        return line + b"\n" if length <= self._max_bytes else self._refuse(line, end, length)

    def _refuse(self, start: bytes, end: bytes, length: int) -> bytes:
        found = _ID_AT_START.match(start[:_END_BYTES]) or _ID_AT_END.search(end)
        text = f"its message has {length} bytes, more than the {self._max_bytes} that `max_result_bytes` allows"
        if found is None:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
            raise ProgramRefused
        error = {"code": -32000, "message": f"{text}: ask for less"}
        return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (found[1], json.dumps(error).encode())


def relay_messages(output: int, max_bytes: int) -> None:
    """Pass the program's messages on until it ends; raises if the gateway is gone."""
    messages, parent = MessageFilter(max_bytes), os.getppid()
    poll = select.poll()
    poll.register(output, select.POLLIN)
    poll.register(1, 0)  # reports only that the other end was closed
    while True:
        ready = dict(poll.poll(PARENT_CHECK_SECONDS * 1000))
        if 1 in ready or os.getppid() != parent:
            raise GatewayGone
        if output in ready:
            data = os.read(output, CHUNK_BYTES)
            if not data:
                return
            write_all(messages.feed(data))


def wait_for_end(program: subprocess.Popen[bytes]) -> int:
    """Wait for a program that sends no more; raises if the gateway is gone."""
    parent = os.getppid()
    os.close(1)  # the gateway sees that nothing more will come
    while True:
        try:
            return program.wait(0.2)
        except subprocess.TimeoutExpired:
            if os.getppid() != parent:
                raise GatewayGone from None


def write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(1, view) :]
        except BrokenPipeError as error:
            raise GatewayGone from error


def end_program(program: subprocess.Popen[bytes], grace: float) -> None:
    """End the program and what it has started, as the MCP SDK does. Its input has ended already."""
    if program.stdout is not None:
        program.stdout.close()  # it may wait for somebody to read
    for number, seconds in ((0, grace), (signal.SIGTERM, TERMINATE_SECONDS), (signal.SIGKILL, EXIT_SECONDS)):
        if number:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(program.pid, number)
        deadline = time.monotonic() + seconds
        while program.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)


def _on_terminate(_number: int, _frame: object) -> None:
    raise Terminated


def main(max_bytes: str, *command: str) -> int:
    # The program has a group of its own, so the guard decides when it is killed, and waits for its end: nothing is left
    # to the init process of a container.
    early: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: early.append(number))  # the program starts with the default again
    try:
        program = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        sys.stderr.write(f"it cannot be started: {error.strerror}\n")
        return 127
    grace = EXIT_SECONDS
    try:
        signal.signal(signal.SIGTERM, _on_terminate)
        if early:  # it came while the program was started, which would have gone on without the guard
            raise Terminated
        os.close(0)  # only the program reads
        if program.stdout is not None:
            relay_messages(program.stdout.fileno(), int(max_bytes))
        return wait_for_end(program)
    except GatewayGone:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except (Terminated, ProgramRefused):
        grace = 0.0
    end_program(program, grace)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
