"""The measuring itself: cells of a table (who, which pair, which body), filled in turns, so slow moments hit all."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.gateway import canned
from bench.gateway.load import Job, Result
from bench.gateway.processes import DidNotStart, Process, ask, free_port
from bench.gateway.systems import SYSTEMS, System, environment

ROOT = Path(__file__).parents[2]
STREAMS = {"stream": ("call", 4), "burst": ("call", 0), "text": ("text", 4), "text-burst": ("text", 0)}
"""The canned stream of a part, and the milliseconds between its events."""
CONNECTIONS = 16
DIRECT = "direct"
HEADERS = {
    "openai-chat": {"authorization": "Bearer sk-bench"},
    "openai-responses": {"authorization": "Bearer sk-bench"},
    "anthropic": {"x-api-key": "sk-bench", "anthropic-version": "2023-06-01"},
    "gemini": {"x-goog-api-key": "bench"},
}
PLAIN = {"content-type": "application/json", "accept": "*/*", "user-agent": "bench/1"}


class Case(Struct, frozen=True):
    part: str
    """`small` and `agent` are whole answers; those of `STREAMS` are streamed answers to the small request."""
    client: str
    target: str

    @property
    def is_stream(self) -> bool:
        return self.part in STREAMS

    @property
    def size(self) -> str:
        return self.part if self.part in canned.SIZES else "small"

    @property
    def pair(self) -> str:
        return f"{self.client} → {self.target}"

    def events(self, translates: bool) -> int:
        return len(canned.events(self.target if translates else self.client, STREAMS[self.part][0]))


class Sample(Struct, frozen=True):
    """One round of one cell."""

    rate: float
    cpu: float | None
    """Seconds of processor a request; none for a direct call."""
    event: float | None = None
    """Seconds of processor an event of a stream: (a streamed exchange − a whole one) / events."""
    whole: float | None = None
    """Of a streamed cell: what a whole exchange of the same pair took in the same round."""
    bunched: float = 0.0
    """Events in one read, as the client got them."""


class Cell(Struct):
    system: str
    case: Case
    requests: int = 0
    samples: list[Sample] = []
    latencies: list[float] = []
    fault: str | None = None

    def rate(self) -> float:
        return statistics.median(sample.rate for sample in self.samples)

    def cpu(self) -> float:
        return statistics.median(sample.cpu or 0.0 for sample in self.samples)

    def quantile(self, part: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def serve_provider(stack: ExitStack) -> int:
    """The port of a provider that runs as long as the stack."""
    port = free_port()
    argv = [sys.executable, "-m", "bench.gateway.provider", str(port)]
    process = subprocess.Popen(argv, cwd=ROOT, start_new_session=True)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    while ask(port, "GET", "/seen", {}, b"")[0] != 200:
        if process.poll() is not None:
            raise DidNotStart("the canned provider ended")
        time.sleep(0.02)
    return port


class Site:
    """The provider, the load generator and the gateways, all running."""

    def __init__(self, stack: ExitStack, logs: Path | None) -> None:
        self._stack = stack
        self._logs = logs
        self._requests = {size: canned.requests(size) for size in canned.SIZES}
        self.provider = serve_provider(stack)
        self._load = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "bench.gateway.load"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        )
        self.ports = {DIRECT: self.provider}
        self.processes: dict[str, Process] = {}

    def seen(self) -> dict[str, int]:
        return msgspec.json.decode(ask(self.provider, "GET", "/seen", {}, b"")[1], type=dict[str, int])

    def set_stream(self, part: str) -> None:
        stream, milliseconds = STREAMS.get(part, ("call", 0))
        ask(self.provider, "GET", f"/stream/{stream}/{milliseconds}", {}, b"")

    @contextmanager
    def _start_system(self, system: System) -> Iterator[tuple[Process, int, float]]:
        """The process, its port, and the seconds from its start to its first good answer."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            port = free_port()
            argv = system.command(port, self.provider, folder)
            log = stack.enter_context((self._logs / f"{system.name}.log").open("wb")) if self._logs else None
            path, body = self._make_request(Case("small", "openai-chat", "openai-chat"))
            begun = time.perf_counter()
            process = Process(argv, environment(folder), folder, log or subprocess.DEVNULL)
            stack.callback(process.stop)
            while True:
                status, answer = ask(port, "POST", path, _headers("openai-chat"), body)
                if status == 200 and canned.find_fault("openai-chat", answer, False) is None:
                    break
                taken = time.perf_counter() - begun
                if process.exit_code() is not None or taken > system.patience:
                    said = answer.decode(errors="replace")[:200]
                    raise DidNotStart(f"no good answer after {taken:.1f} s ({status} {said}); --logs DIR keeps its log")
                time.sleep(0.005)
            yield process, port, time.perf_counter() - begun

    def start(self, name: str, times: int, progress: Callable[[str], None]) -> float:
        """Start a gateway several times, keep the last, and say how long the quickest start took."""
        best = float("inf")
        for number in range(times):
            progress(f"starting {name} ({number + 1} of {times})")
            with ExitStack() as stack:
                process, port, taken = stack.enter_context(self._start_system(SYSTEMS[name]))
                best = min(best, taken)
                if number + 1 == times:
                    self.processes[name], self.ports[name] = process, port
                    self._stack.push(stack.pop_all())
        return best

    def _make_request(self, case: Case) -> tuple[str, bytes]:
        body = self._requests[case.size][case.client]
        return canned.build_request(body, case.client, canned.MODELS[case.target], case.is_stream)

    def run(self, name: str, case: Case, requests: int, connections: int = CONNECTIONS) -> tuple[Result, float | None]:
        """One job, and the seconds of processor that the gateway spent on it."""
        path, body = self._make_request(case)
        job = Job(
            port=self.ports[name],
            path=path,
            headers=_headers(case.client),
            body=body.decode(),
            requests=requests,
            connections=connections,
            needle=canned.TOOL,
        )
        process = self.processes.get(name)
        before = process.cpu() if process else 0.0
        assert self._load.stdin is not None
        assert self._load.stdout is not None
        self._load.stdin.write(msgspec.json.encode(job) + b"\n")
        self._load.stdin.flush()
        result = msgspec.json.decode(self._load.stdout.readline(), type=Result)
        return result, process.cpu() - before if process else None


def _headers(client: str) -> dict[str, str]:
    return {**PLAIN, **HEADERS[client]}


# --- cells ----------------------------------------------------------------------------------------------------------


def prepare(site: Site, cell: Cell, seconds: float) -> None:
    """Warm up, check that the answers are right and went to the right endpoint, and choose how much to ask."""
    case = cell.case
    before = site.seen()
    site.run(cell.system, case, 4, 2)
    after = site.seen()
    result, _ = site.run(cell.system, case, CONNECTIONS)
    asked = {name.partition(" ")[0] for name, count in after.items() if count > before.get(name, 0)}
    translates = cell.system in SYSTEMS and SYSTEMS[cell.system].translates
    expected = case.target if translates else case.client
    cell.fault = fault(case, result) or (None if asked == {expected} else f"it asked {', '.join(asked)}")
    rate = len(result.latencies) / result.seconds
    most = CONNECTIONS * 8 if case.is_stream else 20_000
    cell.requests = max(CONNECTIONS, min(most, int(rate * seconds)) // CONNECTIONS * CONNECTIONS)


def fault(case: Case, result: Result) -> str | None:
    if result.wrong:
        first = next((text for text in result.samples if canned.TOOL not in text), "")
        return f"{result.wrong} wrong answers {result.statuses} {first[:160]}"
    found = (canned.find_fault(case.client, text.encode(), case.is_stream) for text in result.samples)
    return next((text for text in found if text), None)


def measure(site: Site, cell: Cell) -> None:
    case = cell.case
    result, cpu = site.run(cell.system, case, cell.requests)
    cell.fault = fault(case, result)
    if cell.fault:
        return
    cell.latencies += result.latencies
    rate = cell.requests / result.seconds
    if cpu is None:
        cell.samples.append(Sample(rate=rate, cpu=None))
    elif case.is_stream:
        events = case.events(SYSTEMS[cell.system].translates)
        whole = _measure_whole(site, cell, result.seconds / 2)
        each = cpu / cell.requests
        bunched = events * cell.requests / max(1, result.reads)
        cell.samples.append(Sample(rate=rate, cpu=each, event=(each - whole) / events, whole=whole, bunched=bunched))
    else:
        cell.samples.append(Sample(rate=rate, cpu=cpu / cell.requests))


def _measure_whole(site: Site, cell: Cell, seconds: float) -> float:
    """What a whole exchange of the same pair takes right now."""
    case = Case("small", cell.case.client, cell.case.target)
    probe, _ = site.run(cell.system, case, CONNECTIONS)
    requests = max(CONNECTIONS, min(20_000, int(CONNECTIONS / probe.seconds * seconds)))
    _, cpu = site.run(cell.system, case, requests)
    return (cpu or 0.0) / requests


def rounds(
    site: Site, case: Case, names: list[str], count: int, seconds: float, progress: Callable[[str], None]
) -> list[Cell]:
    """All systems on one case, in turns; one that answers wrong is marked and not asked again."""
    site.set_stream(case.part)
    cells = [Cell(name, case) for name in names]
    for cell in cells:
        progress(f"{case.part} {case.pair}: {cell.system}")
        prepare(site, cell, seconds)
    for number in range(count):
        for cell in cells:
            patient = cell.system == DIRECT or number < SYSTEMS[cell.system].rounds
            if cell.fault is None and patient:
                progress(f"{case.part} {case.pair}: round {number + 1} of {count}, {cell.system}")
                measure(site, cell)
    return cells
