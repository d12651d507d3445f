"""Limits on connections, requests in flight and memory: over them clients are told to come back, before work is done,
in the shape of their own protocol; health checks are always answered."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.one_loop import GatewayInLoop, gateway_in_loop, post, post_body
from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import (
    CLIENTS,
    STREAM_HEAD,
    Scene,
    ScriptedConnection,
    answer,
    body_of,
    frames,
    opening_frames,
    whole_answer,
)
from gateway.raw_server import RawConnection, run, wait_until_true
from toolwire.gateway.http.admission import MIN_RETRIES, RETRY_SHARE, Admission
from toolwire.gateway.http.memory import DENSEST_WEIGHT, memory_limit, weigh_body
from toolwire.gateway.http.server import MAX_EXCESS
from toolwire.gateway.settings.config import ServerSettings, Timeouts
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE

HEALTH = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
OK = b"HTTP/1.1 200 OK"
OVERLOADED = {"anthropic": b"HTTP/1.1 529 "}
"""Anthropic's own status for it; others have 503."""


def hold(line: ScriptedConnection) -> None:
    """An answer that comes when it is told to."""
    assert line.scene.go.wait(PATIENCE)
    line.send(whole_answer("openai-chat"))


async def read_answer(talk: RawConnection) -> tuple[bytes, bytes, bytes]:
    """Status line, head and body of an answer with a length."""
    got = await talk.read_until(lambda got: b"\r\n\r\n" in got)
    head, _, _ = got.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    got = await talk.read_until(lambda got: len(got) >= len(head) + 4 + length)
    talk.got = b""
    return got.split(b"\r\n")[0], head.lower(), got[len(head) + 4 :]


async def refusal(talk: RawConnection, client: str, status: bytes = b"503 ") -> str:
    """The message of a refusal in the client's own shape, which says when to come back."""
    line, head, body = await read_answer(talk)
    assert line.startswith(
        OVERLOADED.get(client, b"") if status == b"503 " and client in OVERLOADED else b"HTTP/1.1 " + status
    )
    assert b"\r\nretry-after: " in head
    error = json.loads(body)["error"]
    return str(error["message"])


async def is_alive(served: GatewayInLoop) -> None:
    for path in (b"/livez", b"/readyz"):
        talk = await served.ask(HEALTH.replace(b"/livez", path))
        assert (await read_answer(talk))[0] == OK
        talk.leave()


# --- requests in flight ---


async def fill(served: GatewayInLoop, scene: Scene, count: int, *lines: str) -> list[RawConnection]:
    talks = [await served.ask(post("openai-chat", scene.model, False, *lines)) for _ in range(count)]
    await wait_until_true(lambda: served.gateway.admission.in_flight + len(served.gateway.admission.queue) >= count)
    return talks


@pytest.mark.parametrize("client", CLIENTS)
def test_requests_beyond_the_queue_are_refused_and_the_others_answered(
    client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolwire.gateway.http.admission.MAX_QUEUED", 2)

    async def test() -> None:
        async with gateway_in_loop(tmp_path, "max_requests = 3") as served:
            scene = served.scene("openai-chat", hold)
            talks = await fill(served, scene, 5)
            for _ in range(3):
                refused = await served.ask(post(client, scene.model, True))
                assert "3 requests in flight" in await refusal(refused, client)
                refused.leave()
            await is_alive(served)
            await wait_until_true(lambda: len(scene.asked) == 3)  # the provider has heard of no more
            scene.go.set()
            for talk in talks:
                assert (await read_answer(talk))[0] == OK
            assert len(scene.asked) == 5
            await is_idle(served)

    run("uvloop", test)


async def is_idle(served: GatewayInLoop) -> None:
    """Nothing is counted any more."""
    admission = served.gateway.admission
    await wait_until_true(lambda: not served.made.server.tasks)
    assert (admission.in_flight, admission.memory.used, admission.retries.total()) == (0, 0, 0)
    assert (admission.by_key, len(admission.queue)) == ({}, 0)


def test_a_client_that_leaves_the_queue_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.gateway.http.admission.MAX_QUEUED", 3)

    async def test() -> None:
        async with gateway_in_loop(tmp_path, "max_requests = 1") as served:
            scene = served.scene("openai-chat", hold)
            first, *waiting = await fill(served, scene, 4)
            for talk in waiting[:2]:
                talk.leave()
            await wait_until_true(lambda: len(served.gateway.admission.queue) == 1)
            await fill(served, scene, 2)
            scene.go.set()
            assert (await read_answer(first))[0] == OK
            assert (await read_answer(waiting[2]))[0] == OK
            await wait_until_true(lambda: len(scene.asked) == 4)

    run("uvloop", test)


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.gateway.http.admission.QUEUE_SECONDS", 0.01)

    async def test() -> None:
        async with gateway_in_loop(tmp_path, "max_requests = 1") as served:
            scene = served.scene("openai-chat", hold)
            (first,) = await fill(served, scene, 1)
            second = await served.ask(post("openai-chat", scene.model, False))
            assert "no place" in await refusal(second, "openai-chat")
            scene.go.set()
            assert (await read_answer(first))[0] == OK
            await is_idle(served)

    run("uvloop", test)


KEYS = "".join(
    f'\n[[server.keys]]\nname = "{name}"\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"' for name in "ab"
)


def test_a_key_over_its_limit_is_told_so_and_another_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.gateway.http.admission.MIN_REQUESTS_OF_KEY", 1)

    async def test() -> None:
        settings = "max_requests = 5\nretries = 0\ncooldown_after = 9" + KEYS
        async with gateway_in_loop(tmp_path, settings) as served:
            scene = served.scene("openai-chat", hold)
            talks = await fill(served, scene, 2, "authorization: Bearer a")
            refused = await served.ask(post("openai-chat", scene.model, False, "authorization: Bearer a"))
            assert "the key `a` has 2 requests in flight" in await refusal(refused, "openai-chat", b"429 ")
            talks += await fill(served, scene, 2, "authorization: Bearer b")
            scene.go.set()
            for talk in talks:
                assert (await read_answer(talk))[0] == OK
            await is_idle(served)

    run("uvloop", test)


def test_a_key_cannot_fill_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.gateway.http.admission.MIN_REQUESTS_OF_KEY", 2)

    async def test() -> None:
        settings = "max_requests = 1\nretries = 0\ncooldown_after = 9" + KEYS
        async with gateway_in_loop(tmp_path, settings) as served:
            scene = served.scene("openai-chat", hold)
            await fill(served, scene, 2, "authorization: Bearer a")
            refused = await served.ask(post("openai-chat", scene.model, False, "authorization: Bearer a"))
            await refusal(refused, "openai-chat", b"429 ")
            scene.go.set()

    run("uvloop", test)


@pytest.mark.parametrize("ending", ["answer", "leave", "failure", "stream", "cut stream", "malformed"])
def test_whatever_ends_a_request_its_place_is_free(ending: str, tmp_path: Path) -> None:
    def cut(line: ScriptedConnection) -> None:
        line.send(STREAM_HEAD)
        line.chunk(*opening_frames("openai-chat"))

    def stream(line: ScriptedConnection) -> None:
        line.send(STREAM_HEAD)
        line.chunk(*frames("openai-chat"))
        line.send(b"0\r\n\r\n")

    plays: dict[str, Callable[[ScriptedConnection], None] | bytes] = {
        "answer": whole_answer("openai-chat"),
        "failure": b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n",
        "stream": stream,
        "cut stream": cut,
    }

    async def test() -> None:
        async with gateway_in_loop(tmp_path, "max_requests = 4") as served:
            for _ in range(3):
                scene = served.scene("openai-chat", plays.get(ending, ScriptedConnection.wait_for_close))
                request = post("openai-chat", scene.model, "stream" in ending)
                if ending == "malformed":
                    request = post_body("/v1/chat/completions", b"{")
                talk = await served.ask(request)
                if ending == "leave":
                    await wait_until_true(scene.asked.copy)
                    talk.leave()
                else:
                    await talk.read_until(lambda got: b"\r\n\r\n" in got)
                await wait_until_true(lambda: not served.made.server.tasks)
                await is_idle(served)

    run("uvloop", test)


# --- connections ---


def test_connections_beyond_the_limit_get_only_health_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.gateway.http.server.MAX_CONNECTIONS", 4)

    async def test() -> None:
        async with gateway_in_loop(tmp_path) as served:
            scene = served.scene("openai-chat", whole_answer("openai-chat"))
            for _ in range(4):
                served.made.connect_client()
            await wait_until_true(lambda: len(served.made.server.connections) == 4)
            await is_alive(served)
            await wait_until_true(lambda: len(served.made.server.connections) == 4)
            late = await served.ask(post("gemini", scene.model, False))
            assert "connections" in await refusal(late, "gemini")
            assert not await late.read_rest()  # and the connection is closed
            assert not scene.asked

    run("uvloop", test)


def test_far_beyond_the_limit_connections_are_closed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.gateway.http.server.MAX_CONNECTIONS", 1)

    async def test() -> None:
        async with gateway_in_loop(tmp_path) as served:
            talks = []
            for _ in range(MAX_EXCESS + 1):
                talks.append(served.made.connect_client())
                await asyncio.sleep(0)
            await wait_until_true(lambda: len(served.made.server.connections) == MAX_EXCESS + 1)
            extra = served.made.connect_client()
            assert await extra.read_until_reset() == b""
            for talk in talks:
                talk.leave()
            await wait_until_true(lambda: not served.made.server.connections)
            await is_alive(served)

    run("uvloop", test)


def test_one_address_cannot_take_all_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.gateway.http.server.MAX_CONNECTIONS_PER_ADDRESS", 2)

    async def test() -> None:
        async with gateway_in_loop(tmp_path) as served:
            scene = served.scene("openai-chat", whole_answer("openai-chat"))
            talks = [served.made.connect_client() for _ in range(2)]
            await wait_until_true(lambda: len(served.made.server.connections) == 2)
            refused = await served.ask(post("openai-chat", scene.model, False))
            await refusal(refused, "openai-chat")
            await is_alive(served)
            talks[0].leave()
            await wait_until_true(lambda: len(served.made.server.connections) == 1)
            served_now = await served.ask(post("openai-chat", scene.model, False))
            assert (await read_answer(served_now))[0] == OK

    run("uvloop", test)


# --- memory ---


@pytest.mark.parametrize("client", CLIENTS)
def test_beyond_the_memory_budget_requests_are_refused_unread(client: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with gateway_in_loop(tmp_path, "max_memory = 8000000") as served:
            scene = served.scene("openai-chat", hold)
            text = "x" * 1_500_000
            held = await served.ask(
                post("openai-chat", scene.model, False, messages=[{"role": "user", "content": text}])
            )
            await wait_until_true(lambda: scene.asked)
            # Of this one only the head and a little of the body is sent: it is refused all the same.
            request = post(client, scene.model, True)
            head, _, _ = request.replace(b"content-length: ", b"content-length: 2000000\r\nx: ").partition(b"\r\n\r\n")
            refused = await served.ask(head + b"\r\n\r\n{")
            assert "memory" in await refusal(refused, client)
            await is_alive(served)
            small = await served.ask(post(client, scene.model, False))
            await wait_until_true(lambda: len(scene.asked) == 2)
            scene.go.set()
            assert (await read_answer(held))[0] == OK
            assert (await read_answer(small))[0] == OK
            await is_idle(served)

    run("uvloop", test)


@pytest.mark.parametrize("coding", ["length", "chunked"])
def test_a_body_that_outgrows_the_memory_while_it_comes_is_refused(coding: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with gateway_in_loop(tmp_path, "max_memory = 8000000") as served:
            sent = 0
            line = "content-length: 5900000" if coding == "length" else "transfer-encoding: chunked"
            head = f"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\n{line}\r\n\r\n".encode()
            talks = [await served.ask(head) for _ in range(2)]
            piece = b"x" * 100_000
            data = piece if coding == "length" else b"%x\r\n%b\r\n" % (len(piece), piece)
            refusals: list[asyncio.Task[str]] = []
            for talk in talks:
                refusals.append(asyncio.ensure_future(refusal(talk, "anthropic")))
            while not any(task.done() for task in refusals):
                for talk in talks:
                    await talk.send(data)
                sent += len(piece)
                assert sent < 8_000_000
                await asyncio.sleep(0)
            for task in refusals:
                if task.done():
                    assert "memory" in task.result()
                else:
                    task.cancel()

    run("uvloop", test)


def test_a_request_that_could_never_fit_is_too_large(tmp_path: Path) -> None:
    async def test() -> None:
        async with gateway_in_loop(tmp_path, "max_memory = 8000000") as served:
            scene = served.scene("openai-chat", whole_answer("openai-chat"))
            turns = [{"role": "user", "content": "x"}] * 10_000
            talk = await served.ask(post("openai-chat", scene.model, False, messages=turns))
            line, _, body = await read_answer(talk)
            assert line.startswith(b"HTTP/1.1 413 ")
            assert b"max_memory" in body
            assert not scene.asked
            await is_idle(served)

    run("uvloop", test)


def test_unsent_answers_count(tmp_path: Path) -> None:
    """Clients that do not read their whole answers: others are refused before there are too many of them."""

    async def test() -> None:
        async with gateway_in_loop(tmp_path, "max_memory = 1000000000") as served:
            answer = whole_answer("openai-chat", "x" * 20_000_000)
            scene = served.scene("openai-chat", answer)
            memory = served.gateway.admission.memory
            for _ in range(3):
                await served.ask(post("openai-chat", scene.model, False), small=True)
            await wait_until_true(lambda: memory.used > 3 * 15_000_000 and not served.made.server.tasks)
            for one in tuple(served.made.server.connections):
                one.transport.abort()
            await wait_until_true(lambda: not served.made.server.connections)
            assert memory.used == 0

    run("uvloop", test)


@pytest.mark.parametrize("is_compressed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("client", ["openai-chat", "anthropic"])
def test_answers_that_are_read_whole_count(client: str, is_compressed: bool, tmp_path: Path) -> None:
    """One of 2 MB fits; one of 20 MB does not, and its provider is asked once, without a retry."""

    async def test() -> None:
        async with gateway_in_loop(tmp_path, "max_memory = 20000000\nretries = 2\ncooldown_after = 1") as served:
            for size, fits in ((2_000_000, True), (20_000_000, False), (2_000_000, True)):
                script = whole_answer("openai-chat", "x" * size)
                if is_compressed:
                    body = encode_json(body_of("openai-chat", ScriptedAnswer("x" * size))).encode()
                    script = answer(200, gzip.compress(body), content_encoding="gzip")
                scene = served.scene("openai-chat", script)
                talk = await served.ask(post(client, scene.model, False))
                if fits:
                    line, _, body = await read_answer(talk)
                    assert line == OK
                    assert len(body) > size
                else:
                    assert "no memory for the answer" in await refusal(talk, client)
                assert len(scene.asked) == 1
                talk.leave()
                await wait_until_true(lambda: not served.made.server.connections)
                await is_idle(served)

    run("uvloop", test)


TURN = {"role": "user", "content": "x"}


@given(st.integers(1, 40_000), st.integers(0, 2000), st.sampled_from(["turns", "parts", "numbers", "lists", "text"]))
def test_structure_weighs_more_than_text(number: int, size: int, kind: str) -> None:
    """What a body needs was measured: 45 times its size for tiny turns, three times for text."""
    values = {
        "turns": [TURN] * number,
        "parts": [{"type": "text", "text": "x" * size}] * (number // (1 + size // 100)),
        "numbers": list(range(number)),
        "lists": [[]] * number,
        "text": ["x" * number],
    }
    body = json.dumps(values[kind], separators=(",", ":")).encode()
    weight = weigh_body(body)
    assert len(body) * 3 <= weight <= 65_536 + len(body) * 70
    if kind == "turns":
        assert weight >= len(body) * 44
    if kind == "lists" and number > 10_000:
        assert weight >= len(body) * 23
    if kind == "text" and number > 10_000:
        assert weight <= 65_536 + len(body) * 4
    assert len(body) > 8192 or weight == 65_536 + len(body) * DENSEST_WEIGHT


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"sys/fs/cgroup/memory.max": "max\n"}, None),
        ({"sys/fs/cgroup/memory.max": "536870912\n"}, 536870912),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n"}, 268435456),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "1000000\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
            },
            1000000,
        ),
        ({"proc/self/cgroup": "9:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "77\n"}, 77),
        ({"proc/self/cgroup": "nonsense\n\n0::/../x\n", "sys/fs/cgroup/x/memory.max": "88"}, 88),
    ],
)
def test_the_limit_of_the_container_is_found(files: dict[str, str], limit: int | None, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = memory_limit(tmp_path)
    assert found == limit if limit is not None else found > 100_000_000


def test_workers_share_the_memory() -> None:
    assert Admission(ServerSettings(max_memory=1000, workers=4)).memory.limit == 250


# --- retries ---


@given(st.integers(0, 5000))
def test_retries_are_a_share_of_the_requests(in_flight: int) -> None:
    admission, share = Admission(ServerSettings(timeouts=Timeouts())), RETRY_SHARE
    admission.in_flight = in_flight
    allowed = sum(admission.start_retry("provider") for _ in range(6000))
    assert max(MIN_RETRIES, in_flight * share) <= allowed <= max(MIN_RETRIES, in_flight * share + 1)
    for _ in range(allowed):
        admission.end_retry("provider")
    assert not any(admission.retries.values())


def test_a_failing_provider_leaves_the_retries_of_others() -> None:
    admission = Admission(ServerSettings(timeouts=Timeouts()))
    assert sum(admission.start_retry("failing") for _ in range(100)) == MIN_RETRIES
    assert admission.start_retry("other")


def test_a_provider_that_is_down_is_not_asked_twice_by_everybody(tmp_path: Path) -> None:
    """Only ten of forty may try again at the same time; the others get the failure at once."""

    def fail(line: ScriptedConnection) -> None:
        assert line.scene.go.wait(PATIENCE)
        line.send(b"HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n")

    async def test() -> None:
        async with gateway_in_loop(tmp_path, "retries = 1\ncooldown_after = 1000") as served:
            scene = served.scene("openai-chat", fail)
            talks = await fill(served, scene, 40)
            await wait_until_true(lambda: len(scene.asked) == 40)
            scene.go.set()
            for talk in talks:
                assert (await read_answer(talk))[0].startswith(b"HTTP/1.1 503 ")
            assert 40 + MIN_RETRIES <= len(scene.asked) < 75
            await is_idle(served)

    run("uvloop", test)
