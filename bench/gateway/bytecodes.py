"""How much the interpreter does for an exchange: calls of our own functions and their bytecodes, counted, so that no
clock is needed.

python -m bench.gateway.bytecodes [--pair CLIENT TARGET] [--system NAME] [--size SIZE] [--functions N]

Provider, gateway and client run in one process and talk over real sockets. The clock of their event loop stands still
while they are counted, and so does the time of day, so that the counts are the same on every machine: nothing times
out, no second begins, and what waits for a moment (the log lines of several requests together) is done at the end. Rows
of the ledger are written later, in a thread, and not counted. What the gateway spends beside its own bytecode (C calls,
the system) is not seen: a change that counts less here is measured by `make bench-gateway` too. The numbers are those
of Python 3.11.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from msgspec import Struct

import bench.stopped_time  # noqa: F401 — first, because the gateway takes the clock as it is imported
import toolwire
from bench.gateway import canned, load, provider, systems
from bench.gateway.__main__ import PAIRS
from bench.gateway.measure import _headers
from bench.gateway.report import BARE, LIMITED, OURS, PRICED, REPAIRING, SIGNED, WITHOUT_CONSOLE, WITHOUT_COSTS
from toolwire.gateway.app import app
from toolwire.gateway.http.server import HttpServer
from toolwire.gateway.telemetry.telemetry import LOG_DELAY

SOURCE = str(Path(toolwire.__file__).parent)
TIMES = 10
SMALL = canned.SIZES[0]
SYSTEMS = (OURS, BARE, WITHOUT_CONSOLE, REPAIRING, WITHOUT_COSTS, PRICED, LIMITED, SIGNED)


class Count(Struct):
    """Of one exchange, on average."""

    total: float
    calls: float
    functions: list[tuple[float, str]]


class StoppedClock(asyncio.SelectorEventLoop):
    """An event loop whose time goes on only when it is told to."""

    now = 0.0

    def time(self) -> float:
        return self.now


def count_bytecodes(
    client: str, target: str, stream: bool = False, times: int = TIMES, system: str = OURS, size: str = SMALL
) -> Count:
    """The bytecodes of one exchange. The events of a stream come one by one."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        os.environ.update({"BENCH_KEY": "bench", **systems.AWS_KEYS})
        with asyncio.Runner(loop_factory=StoppedClock) as runner:
            found, calls = runner.run(_run_exchanges(Path(folder), client, target, stream, times, system, size))
    rows = [(count / times, _function_name(code)) for code, count in found.most_common()]
    return Count(sum(count for count, _ in rows), calls.total() / times, rows)


def an_event(client: str, target: str, whole: Count, times: int = 2, system: str = OURS) -> float:
    """What an event of a stream adds to the exchange."""
    return (count_bytecodes(client, target, True, times, system).total - whole.total) / len(canned.events(target))


def count_all(client: str, target: str, system: str, size: str = SMALL) -> dict[str, int]:
    whole = count_bytecodes(client, target, system=system, size=size)
    counted = {"calls": round(whole.calls), "bytecodes": round(whole.total)}
    return counted if size != SMALL else {**counted, "event": round(an_event(client, target, whole, system=system))}


async def _run_exchanges(
    folder: Path, client: str, target: str, stream: bool, times: int, system: str, size: str
) -> tuple[Counter[CodeType], Counter[CodeType]]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, StoppedClock)
    failed: list[dict[str, Any]] = []  # what ends with an error is cheap
    loop.set_exception_handler(lambda _, context: failed.append(context))
    bound = socket.create_server(("127.0.0.1", 0))
    bound.setblocking(False)
    port: int = bound.getsockname()[1]
    path, body = canned.build_request(canned.requests(size)[client], client, canned.MODELS[target], stream)
    job = load.Job(
        port=port,
        path=path,
        headers=_headers(client),
        body=body.decode(),
        requests=times,
        connections=1,
        needle=canned.TOOL,
    )
    async with await provider.start(0) as behind:
        systems.SYSTEMS[system].command(port, behind.sockets[0].getsockname()[1], folder)
        gateway = app(folder / "toolwire.toml")
        server = HttpServer(gateway.handle_request, gateway.answer_internal_error)
        gateway.open()
        await server.listen(bound, 8)
        await load.run(job)  # the first find nothing ready
        await _write_log(loop)
        with _count_calls() as counts:
            result = await load.run(job)
            await _write_log(loop)
        loop.now += 10.0
        await server.close(1.0)
        await gateway.close(force=True)
    if failed:
        raise RuntimeError(f"a callback of the event loop failed: {failed[0]}")
    if result.wrong:
        raise RuntimeError(f"{result.wrong} wrong answers: {result.statuses}")
    return counts


async def _write_log(loop: StoppedClock) -> None:
    loop.now += 1.5 * LOG_DELAY
    for _ in range(3):
        await asyncio.sleep(0)


@contextlib.contextmanager
def _count_calls() -> Iterator[tuple[Counter[CodeType], Counter[CodeType]]]:
    """The bytecodes and the calls of each function."""
    counts: Counter[CodeType] = Counter()
    calls: Counter[CodeType] = Counter()

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if event == "call":
            if not code.co_filename.startswith(SOURCE):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if code.co_code[frame.f_lasti + 1] == 0:  # RESUME 0: it begins; else it is a coroutine that goes on
                calls[code] += 1
        elif event == "opcode":
            counts[code] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield counts, calls
    finally:
        sys.settrace(before)


def _function_name(code: CodeType) -> str:
    return f"{code.co_filename[len(SOURCE) + 1 :]} {code.co_qualname}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.gateway.bytecodes", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pair", nargs=2, metavar=("CLIENT", "TARGET"), help="this pair only")
    parser.add_argument("--system", choices=SYSTEMS, default=OURS, help="toolwire with other settings")
    parser.add_argument("--size", choices=canned.SIZES, default=SMALL, help="of the requests")
    parser.add_argument("--json", action="store_true", help="write the counts as JSON")
    parser.add_argument("--functions", type=int, default=0, metavar="N", help="show the dearest functions as well")
    chosen = parser.parse_args()
    pairs = [(chosen.pair[0], chosen.pair[1])] if chosen.pair else PAIRS
    if chosen.json:
        counted = [count_all(client, target, chosen.system, chosen.size) for client, target in pairs]
        names = [f"{client} → {target}" for client, target in pairs]
        print(json.dumps(dict(zip(names, counted, strict=True))))
        return 0
    print(f"{'':36}{'calls':>10}{'bytecodes':>10}{'an event':>10}")
    for client, target in pairs:
        whole = count_bytecodes(client, target, system=chosen.system, size=chosen.size)
        event = f"{an_event(client, target, whole, system=chosen.system):10,.0f}" if chosen.size == SMALL else ""
        print(f"{f'{client} → {target}':36}{whole.calls:10,.0f}{whole.total:10,.0f}{event}", flush=True)
        for count, name in whole.functions[: chosen.functions]:
            print(f"{count:10,.0f}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
