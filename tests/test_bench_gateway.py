"""What `make bench-gateway` measures with: the canned provider, the floor and the load generator. No time is measured."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop
from bench.gateway import canned, floor, load, processes, provider, report, systems
from bench.gateway.measure import Case, Cell, Sample, _headers, fault

from toolwire_conformance.peers import PEERS
from toolwire_conformance.peers.peer import read_frames

PROTOCOLS = list(canned.PATHS)
both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
each = pytest.mark.parametrize("protocol", PROTOCOLS)


def port_of(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


def run_load(work: Callable[[int, int], Awaitable[load.Result]]) -> load.Result:
    """With a provider and a floor before it, both on ports that were free."""

    async def main() -> load.Result:
        pool: list[floor.Upstream] = []
        async with await provider.start(0) as behind, await floor.start(0, port_of(behind), pool) as before:
            result = await work(port_of(behind), port_of(before))
            for upstream in pool:  # kept open; the provider would wait for them to go
                upstream.transport.close()
            return result

    return uvloop.run(main())


def job(port: int, protocol: str, stream: bool, **rest: object) -> load.Job:
    path, body = canned.build_request(canned.requests("small")[protocol], protocol, canned.MODELS[protocol], stream)
    wanted = {"requests": 5, "connections": 2, "needle": canned.TOOL, **rest}
    return load.Job(port=port, path=path, headers=_headers(protocol), body=body.decode(), **wanted)  # type: ignore[arg-type]


@each
def test_canned_answers_are_what_real_clients_read_without_stumbling(protocol: str) -> None:
    assert canned.find_fault(protocol, canned.whole_answer(protocol), stream=False) is None
    for name in canned.TEXT_DELTAS:
        events = canned.events(protocol, name)
        stream = b"".join(events)
        assert canned.find_fault(protocol, stream, stream=True) is None
        assert PEERS[protocol].fold_stream(read_frames(stream.decode())).violations == ()
        assert len(events) >= canned.DELTAS


@each
def test_an_answer_without_the_call_is_wrong(protocol: str) -> None:
    other = canned.whole_answer(protocol).replace(canned.TOOL.encode(), b"tool_1")
    assert "not the tool call" in (canned.find_fault(protocol, other, stream=False) or "")
    assert "not an answer" in (canned.find_fault(protocol, b"{}", stream=False) or "")
    assert canned.find_fault(protocol, canned.events(protocol)[0], stream=True)


def test_the_agents_request_is_an_agents() -> None:
    for size, least, most in (("small", 700, 1_000), ("agent", 240_000, 260_000)):
        for protocol, body in canned.requests(size).items():
            assert least < len(canned.build_request(body, protocol, "m", False)[1]) < most


@each
@both
@pytest.mark.parametrize("through", ["direct", "floor"])
def test_every_request_is_answered_with_the_call(protocol: str, stream: bool, through: str) -> None:
    def work(behind: int, before: int) -> Awaitable[load.Result]:
        return load.run(job(behind if through == "direct" else before, protocol, stream))

    result = run_load(work)
    assert (result.statuses, result.wrong, len(result.latencies)) == ({"200": 5}, 0, 5)
    assert fault(Case("burst" if stream else "small", protocol, protocol), result) is None


def test_the_provider_counts_what_it_is_asked_and_knows_no_other_path() -> None:
    async def work(behind: int, before: int) -> load.Result:
        await load.run(job(before, "anthropic", True))
        await load.run(job(before, "gemini", False))
        lost = load.Job(port=behind, path="/nowhere", headers={}, body="{}", requests=1)
        assert (await load.run(lost)).statuses == {"404": 1}
        return await load.run(load.Job(port=behind, path="/seen", headers={}, body="", requests=1))

    seen = Counter(json.loads(run_load(work).samples[0]))
    assert seen == {"anthropic stream": 5, "gemini whole": 5, "/nowhere": 1}


def test_wrong_answers_are_counted_and_marked() -> None:
    result = run_load(lambda behind, before: load.run(job(before, "openai-chat", False, needle="not there")))
    assert result.wrong == 5
    assert "5 wrong answers" in (fault(Case("small", "openai-chat", "openai-chat"), result) or "")


def test_nobody_listening_is_a_result_too() -> None:
    result = uvloop.run(load.run(job(processes.free_port(), "openai-chat", False)))
    assert (result.statuses, result.wrong) == ({"none": 5}, 5)


def test_a_process_is_weighed_with_its_children_and_stopped_with_them(tmp_path: Path) -> None:
    child = "import sys; sys.stdout.write('up'); sys.stdout.flush(); sys.stdin.read()"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}], stdin=subprocess.PIPE).wait()"
    reader, writer = os.pipe()
    process = processes.Process([sys.executable, "-c", code], {}, tmp_path, writer)
    try:
        os.close(writer)
        assert os.read(reader, 2) == b"up"  # the child runs
        alone = processes._cpu_seconds(process.pid)
        assert 0 < alone < process.cpu()
        assert process.resident() > 5_000_000
    finally:
        process.stop()
    assert process.exit_code() is not None
    assert os.read(reader, 1) == b""  # nobody holds the other end: the child is gone as well
    os.close(reader)


def test_every_system_can_be_told_where_the_provider_is(tmp_path: Path) -> None:
    for system in systems.SYSTEMS.values():
        folder = tmp_path / system.name
        folder.mkdir()
        command = system.command(4001, 4002, folder)
        said = " ".join(command) + "".join(path.read_text() for path in folder.iterdir())
        assert "4001" in said
        assert "4002" in said


def test_targets_are_judged_by_the_worst_pair_and_round_by_round() -> None:
    results = report.Results()
    for target, slow in (("openai-chat", 3.0), ("anthropic", 5.0)):
        case = Case("small", target, target)
        for name, factor in (("floor", 1.0), ("toolwire", slow)):
            drift = [Sample(rate=1.0, cpu=factor * speed) for speed in (1e-5, 9e-5, 2e-5)]
            results.add([Cell(name, case, samples=drift, latencies=[0.1])])
    (judged,) = report.targets(results)
    assert (judged.worst(), judged.met()) == (pytest.approx(5.0), False)
    assert "missed" in report.verdicts([judged])[-1]
    assert json.dumps(report.figures(results))


def test_it_says_how_it_is_used() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "bench.gateway", "--help"], capture_output=True, text=True, check=True
    )
    assert "--quick" in shown.stdout
