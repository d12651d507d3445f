"""`make chaos`: faults, slow readers, floods, kills and hostile requests, against real gateways on loopback.

python -m bench.chaos [--only faults|readers|flood|hostile|kills] [--write FILE]

About a minute. `lost` and `mixed` are the numbers that matter: answers that look like a success and are not whole, and
pieces that are doubled, in another order, or of another answer. Run it on a machine that does nothing else: the waits
are those of the whole machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path

from bench.chaos.clients import PLAYED, VERDICTS, Exchange, Neighbour, judge, request_bytes, send
from bench.chaos.hostile import ATTACKS
from bench.chaos.kills import kill_gateways
from bench.chaos.provider import COMPLETES, FAILS, FAULTS, ChaosProvider
from bench.gateway.processes import Process, free_port

STREAMS, WHOLE, READERS, FLOOD = 360, 90, 200, 2000
_numbers = count(1)


@dataclass
class Table:
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    """Of the machine, when it began: a wait on a busy one says little about the gateway."""

    def write(self) -> str:
        head = f"| {' | '.join(self.columns)} |\n|{'---|' * len(self.columns)}"
        rows = [f"| {' | '.join(row)} |" for row in self.rows]
        day = time.strftime("%Y-%m-%d", time.gmtime())
        measured = f"{day}, {os.cpu_count()} cores, a load of {self.load:.1f} before it began."
        return "\n".join([f"### {self.title}", "", head, *rows, "", measured, ""])


def configuration(url: str, more: str = "") -> str:
    lines = ['[server]\nlog_format = "none"\ncooldown_after = 1000000\n[server.timeouts]\nbetween_bytes = 2\n', more]
    for name in PLAYED:
        base = url if name in ("anthropic", "gemini") else f"{url}/v1"
        lines.append(f'[providers.{name}]\nprotocols = ["{name}"]\nbase_url = "{base}"\napi_key = "sk-chaos"')
        lines.append(f'[models."m-{name}"]\nprovider = "{name}"\nmodel = "{PLAYED[name].model}"')
    return "\n".join(lines)


@contextmanager
def gateway(url: str) -> Iterator[tuple[int, Process]]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "toolwire.toml").write_text(configuration(url, '[store]\nurl = "none"\n'))
        port = free_port()
        env = {**os.environ, "HOME": folder, "XDG_CONFIG_HOME": folder}
        argv = [sys.executable, "-m", "toolwire.cli", "serve", "--port", str(port)]
        with open(os.devnull, "wb") as nowhere:
            process = Process(argv, env, Path(folder), nowhere)
            try:
                _wait_until_ready(process, port)
                yield port, process
            finally:
                process.stop()


def _wait_until_ready(process: Process, port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.exit_code() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


# --- faults ---


def draw_exchanges(streams: int, whole: int, faults: tuple[str, ...] = tuple(FAULTS)) -> list[Exchange]:
    """Every fault in turn, each between protocols that are drawn by lot, in the same way in every run."""
    lot, names = random.Random(16), list(PLAYED)
    return [
        Exchange(lot.choice(names), lot.choice(names), fault, next(_numbers), at < streams)
        for at, fault in zip(range(streams + whole), cycle(faults), strict=False)
    ]


async def play(port: int, planned: list[Exchange], at_once: int = 40) -> dict[str, Counter[str]]:
    """The verdicts of every fault."""
    verdicts: dict[str, Counter[str]] = {exchange.fault: Counter() for exchange in planned}
    gate = asyncio.Semaphore(at_once)

    async def run(exchange: Exchange) -> None:
        async with gate:
            verdict = judge(exchange, await send(port, request_bytes(exchange)))
        verdicts[exchange.fault][verdict] += 1
        if verdict in ("misshapen", "mixed", "lost", "hung"):
            say(f"  {verdict}: {exchange}")

    await asyncio.gather(*map(run, planned))
    return verdicts


async def inject_faults(provider: ChaosProvider) -> Table:
    table = Table("Faults of the provider", ("fault", "answers", *VERDICTS))
    with gateway(provider.url) as (port, _):
        verdicts: dict[str, Counter[str]] = {}
        for faults in (COMPLETES, FAILS):  # where most requests fail, few may be repeated
            share = len(faults) / len(FAULTS)
            planned = draw_exchanges(round(STREAMS * share), round(WHOLE * share), tuple(faults))
            verdicts |= await play(port, planned)
    for fault in FAULTS:
        seen = verdicts[fault]
        counts = [seen[verdict] for verdict in table.columns[2:]]
        table.rows.append((FAULTS[fault], *map(str, [sum(counts), *counts])))
    totals = [sum(int(row[at]) for row in table.rows) for at in range(1, len(table.columns))]
    table.rows.append(("**all**", *(f"**{total}**" for total in totals)))
    return table


# --- slow readers and floods ---


async def hold_readers(provider: ChaosProvider) -> Table:
    """Streams of two megabytes each, which nobody reads."""
    table = Table(f"{READERS} clients that do not read", ("", "resident MB", "longest wait of a neighbour"))
    with gateway(provider.url) as (port, process):
        table.rows.append(("before", megabytes(process.resident()), ""))
        async with Neighbour(port) as neighbour:
            lines = [await _open_unread(port) for _ in range(READERS)]
            await _until_quiet(process)
            table.rows.append(("unread", megabytes(process.resident()), milliseconds(neighbour.longest)))
            for line in lines:
                line.close()
            await _until_quiet(process)
            table.rows.append(("after they left", megabytes(process.resident()), milliseconds(neighbour.longest)))
    return table


async def _open_unread(port: int) -> socket.socket:
    exchange = Exchange("openai-chat", "anthropic", "large", next(_numbers), True)
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(line, ("127.0.0.1", port))
    await loop.sock_sendall(line, request_bytes(exchange))
    return line


async def _until_quiet(process: Process) -> None:
    """Until the gateway needs hardly any processor time."""
    for _ in range(30):
        before = process.cpu()
        await asyncio.sleep(1)
        if process.cpu() - before < 0.1:
            return


async def flood(provider: ChaosProvider) -> Table:
    table = Table(f"{FLOOD} requests at once", ("answer", "requests"))
    with gateway(provider.url) as (port, process):
        planned = draw_exchanges(FLOOD, 0, ("none",))
        async with Neighbour(port) as neighbour:
            responses = await asyncio.gather(*(send(port, request_bytes(exchange)) for exchange in planned))
        seen: Counter[str] = Counter()
        for exchange, response in zip(planned, responses, strict=True):
            verdict = judge(exchange, response)
            status = response.status if response is not None else 0
            seen[f"{verdict}, status {status}" if verdict != "complete" else verdict] += 1
        table.rows += [(name, str(number)) for name, number in seen.most_common()]
        table.rows.append(("longest wait of a neighbour", milliseconds(neighbour.longest)))
        table.rows.append(("resident afterwards", f"{megabytes(process.resident())} MB"))
    return table


# --- hostile requests ---


async def attack(provider: ChaosProvider) -> Table:
    table = Table("Hostile requests", ("request", "answer", "longest wait of a neighbour", "resident MB"))
    for name, make in ATTACKS.items():
        say(f"  {name}")
        request = make()
        with gateway(provider.url) as (port, process):
            async with Neighbour(port) as neighbour:
                response = await send(port, request, 60)
                answer = "none within 60 s" if response is None else f"status {response.status}"
            table.rows.append((name, answer, milliseconds(neighbour.longest), megabytes(process.resident())))
    return table


async def kill(provider: ChaosProvider) -> Table:
    table = Table("Three gateways on PostgreSQL, one killed", ("answers", "streams"))
    verdicts, balancer = await kill_gateways(configuration(provider.url), lambda: draw_exchanges(90, 0, ("slow",)))
    table.rows += [(name, str(number)) for name, number in verdicts.most_common()]
    table.rows.append(("balancer", balancer))
    return table


# --- output ---


def megabytes(size: int) -> str:
    return f"{size / 1e6:.0f}"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


PARTS: dict[str, Callable[[ChaosProvider], Awaitable[Table]]] = {
    "faults": inject_faults,
    "readers": hold_readers,
    "flood": flood,
    "hostile": attack,
    "kills": kill,
}
MARKERS = ("<!-- figures: begin -->", "<!-- figures: end -->")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=list(PARTS), action="append", help="this part only; may be repeated")
    parser.add_argument("--write", metavar="FILE", type=Path, help="put the tables between the markers of this file")
    chosen = parser.parse_args()
    provider = ChaosProvider()
    written = []
    for name, run in PARTS.items():
        if chosen.only and name not in chosen.only:
            continue
        started = time.monotonic()
        say(f"{name} …")
        written.append(asyncio.run(run(provider)).write())  # type: ignore[arg-type]
        say(f"{name}: {time.monotonic() - started:.0f} s")
        print(written[-1], flush=True)
    if chosen.write:
        chosen.write.write_text(replace_tables(chosen.write.read_text(), written))
    if provider.faults:
        say("\n".join(["The provider itself failed:", *provider.faults]))
    return 1 if provider.faults else 0


def replace_tables(page: str, written: list[str]) -> str:
    """The page with new tables in the place of those with the same titles; other tables stay."""
    before, _, rest = page.partition(MARKERS[0])
    old, _, after = rest.partition(MARKERS[1])
    tables = {table.partition("\n")[0]: f"### {table.strip()}\n" for table in old.split("### ")[1:]}
    tables |= {table.partition("\n")[0].removeprefix("### "): table for table in written}
    return "".join((before, MARKERS[0], "\n\n", "\n".join(tables.values()), "\n", MARKERS[1], after))


if __name__ == "__main__":
    sys.exit(main())
