"""Several gateways as one: a session's turns land on different ones, one is killed, and all are replaced in turn."""

from __future__ import annotations

import http.client
import json
import queue
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import pytest

from gateway import envoy, haproxy
from gateway.clients import CLIENTS, Call, Conversation, Responses, Result, Task, Turn, close_all, openai_sdk
from gateway.conftest import configuration
from gateway.provider import PROTOCOLS, SEALS, Hold, Provider, Received, Script, ScriptedAnswer, Step
from gateway.raw_exchange import RawAnswer, RawConnection, ask, is_complete, path_of, request_of, text_of
from gateway.replicas import LEASE, SIZE, Member, Replicas, start_replicas
from gateway.state_clients import FUNCTIONS, REASONING_MODELS
from gateway.test_pairs import DONE, FIRST_PIECE, OSLO, PARIS, TIME, list_seals
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE, wait_until

# The SDK's parsed subclasses do not match the types of the fields that hold them when it sends them back.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
EVERYWHERE = pytest.mark.parametrize("target", PROTOCOLS)


@pytest.fixture(scope="module")
def three(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    from gateway.postgres import server

    store = f'[store]\nurl = "{server().create_schema("scale")}"\nbackground_lease = {LEASE}\n'
    with start_replicas(tmp_path_factory.mktemp("fleet"), configuration(provider.url) + store) as made:
        yield made
    close_all()


@pytest.fixture
def gateways(three: Replicas) -> Replicas:
    three.restore_size()
    return three


@pytest.fixture(params=["ours", "HAProxy", "Envoy"], name="balanced")
def balance_gateways(gateways: Replicas, request: pytest.FixtureRequest) -> Iterator[Replicas]:
    """The same behind our own balancer and behind two that people use."""
    if request.param == "ours":
        yield gateways
        return
    if not {"HAProxy": haproxy.IS_HERE, "Envoy": envoy.IS_HERE}[request.param]:
        pytest.skip(f"{request.param} is not here: the tests behind it were left out")
    gateways.balancer = proxy = haproxy.Haproxy() if request.param == "HAProxy" else envoy.Envoy()
    try:
        gateways.update_balancers()
        yield gateways
    finally:
        gateways.balancer = gateways.ours
        proxy.close()


@pytest.fixture
def holds() -> Iterator[list[Hold]]:
    made: list[Hold] = []
    yield made
    for hold in made:
        hold.close()


def hold_answer(holds: list[Hold], says: ScriptedAnswer, after: int = 0) -> Step:
    """An answer that stops after so many frames until it is let go."""
    holds.append(Hold())
    return Step(says, hold=holds[-1], after=after)


# --- clients that leave their history with the gateway ----------------------------------------------------------------


class Previous(Responses):
    """Sends what is new, and names the answer before."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.kept: dict[str, str] = {}

    def turn(self) -> Turn:
        asked: dict[str, Any] = {"model": self.model, "input": self.input, "instructions": "Be brief.", **self.kept}
        asked |= {"tools": FUNCTIONS, "reasoning": {"effort": "medium", "summary": "auto"}}
        sdk = openai_sdk(self.base)
        if self.stream:
            with sdk.responses.stream(**asked) as stream:
                whole = stream.get_final_response()
        else:
            whole = sdk.responses.create(**asked)
        assert whole.status == "completed"
        self.input = []
        self.goes_on(whole.id)
        made = [item for item in whole.output if item.type == "function_call"]
        calls = [Call(item.call_id, item.name, json.loads(item.arguments)) for item in made]
        reasoned = [item for item in whole.output if item.type == "reasoning"]
        thoughts = [part.text for item in reasoned for part in (*item.summary, *(item.content or ()))]
        return Turn(whole.output_text, calls, "".join(thoughts), (None, None))

    def goes_on(self, id: str) -> None:
        self.kept = {"previous_response_id": id}


class Kept(Previous):
    """Sends what is new, and names the conversation."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.kept = {"conversation": openai_sdk(self.base).conversations.create().id}

    def goes_on(self, id: str) -> None:
        pass


SESSIONS: dict[str, type[Conversation]] = {**CLIENTS, "previous": Previous, "conversation": Kept}
THOUGHTS = ("Paris, then.", "And Rome.")
RESULTS = {"Paris": Result("15 °C"), "Oslo": Result("3 °C"), "Rome": Result("noon")}


# --- a session on several gateways ------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SESSIONS)
@EVERYWHERE
@STREAMS
def test_a_session_has_each_turn_elsewhere(
    gateways: Replicas, provider: Provider, source: str, target: str, stream: bool
) -> None:
    """Each turn is another gateway's, and the provider gets its own seals back, and the same beginning, from each."""
    talk = provider.script(
        ScriptedAnswer("Let me look.", (PARIS, OSLO), THOUGHTS[0]),
        ScriptedAnswer("", (TIME,), THOUGHTS[1]),
        ScriptedAnswer(DONE),
    )
    task = Task(f"How is the weather? {talk.mark}", RESULTS, thinking=True)
    turns = SESSIONS[source](gateways.ours.url, REASONING_MODELS[target], stream, task).run()
    assert [turn.text for turn in turns] == ["Let me look.", "", DONE]
    assert [turn.thinking for turn in turns] == [*THOUGHTS, ""]
    assert set(gateways.list_servers(SIZE)) == gateways.names
    assert [asked.protocol for asked in talk.asked] == [target] * 3
    wanted = [SEALS[target] or thought for thought in THOUGHTS]
    assert [list_seals(asked) for asked in talk.asked] == [wanted[:count] for count in range(3)]
    for before, behind in zip(talk.asked, talk.asked[1:], strict=False):
        assert_grown(before, behind)


HISTORY = {"openai-chat": "messages", "openai-responses": "input", "anthropic": "messages", "gemini": "contents"}
BREAKPOINT = re.compile(r',"cache_control":\{"type":"ephemeral"\}')
"""Says where a cache may end; it is no part of what the model reads."""


def assert_grown(before: Received, behind: Received) -> None:
    """The later request has all that the one before had, byte for byte, and goes on from there."""
    (head, history, tail), (later_head, longer, later_tail) = split_body(before), split_body(behind)
    assert (head, tail) == (later_head, later_tail)
    assert len(longer) > len(history)
    assert longer.startswith(history)


def split_body(asked: Received) -> tuple[str, str, str]:
    """A body as it came: what stands before the history, the history without its end, and what stands behind."""
    raw = BREAKPOINT.sub("", asked.raw)
    opening = re.search(rf'"{HISTORY[asked.protocol]}": ?(?=\[)', raw)
    assert opening
    _, end = json.JSONDecoder().raw_decode(raw, opening.end())
    return raw[: opening.end()], raw[opening.end() : end - 1], raw[end:]


@pytest.mark.parametrize("source", [source for source in SESSIONS if source != "conversation"])
@EVERYWHERE
def test_the_provider_sees_the_same_bytes_from_each(
    gateways: Replicas, provider: Provider, source: str, target: str
) -> None:
    """One turn, asked of every gateway. (A conversation is longer afterwards: it is looked at above.)"""
    first = ScriptedAnswer("Let me look.", (PARIS, OSLO), THOUGHTS[0])
    talk = provider.script(first, *[ScriptedAnswer(DONE)] * (SIZE + 1))
    task = Task(f"How is the weather? {talk.mark}", RESULTS, thinking=True)
    SESSIONS[source](gateways.ours.url, REASONING_MODELS[target], False, task).run()
    again = gateways.ours.passed[-1].request
    assert [member.resend_request(again) for member in gateways.members] == [200] * SIZE
    assert [list_seals(asked) for asked in talk.asked[1:]] == [[SEALS[target] or THOUGHTS[0]]] * (SIZE + 1)
    assert {asked.raw for asked in talk.asked[1:]} == {talk.asked[1].raw}


# --- one is killed ----------------------------------------------------------------------------------------------------

LONG = "These words come in several pieces, and it is a long way to their end."
MODEL = REASONING_MODELS["anthropic"]


@dataclass
class Stream:
    """A client in the middle of a stream."""

    source: str
    talk: Script
    hold: Hold
    more: dict[str, Any]
    """What its requests have besides."""
    line: RawConnection = field(init=False)
    member: Member = field(init=False)
    begun: bytes = b""

    def start(self, gateways: Replicas) -> None:
        self.line = RawConnection(gateways.balancer.port)
        self.line.send("POST", path_of(self.source, MODEL, True), self.body(True))
        self.member = gateways.find_member(self.line.start().getheader("x-request-id") or "")
        assert self.hold.reached.wait(PATIENCE)
        self.begun = self.line.read_until(b"These")

    def body(self, stream: bool) -> bytes:
        asked = request_of(self.source, MODEL, stream, **self.more)
        return encode_json(asked).replace('"Hi"', json.dumps(f"Hi {self.talk.mark}")).encode()

    def rest(self) -> RawAnswer:
        """All of it, and whether it came to its end."""
        try:
            data, whole = self.line.response.read(), True
        except http.client.IncompleteRead as cut:
            data, whole = cut.partial, False
        except ConnectionError:
            data, whole = b"", False
        self.line.connection.close()
        return RawAnswer(200, {}, self.begun + data, whole)


def open_stream(gateways: Replicas, provider: Provider, holds: list[Hold], source: str) -> Stream:
    talk = provider.script(
        ScriptedAnswer("First."),
        hold_answer(holds, ScriptedAnswer(LONG), FIRST_PIECE["anthropic"]),
        ScriptedAnswer("Again."),
    )
    stream = Stream(source, talk, holds[-1], {"store": True} if source == "openai-responses" else {})
    got = ask(gateways.balancer.port, "POST", path_of(source, MODEL, False), stream.body(False))
    assert text_of(source, got, False) == "First."
    if source == "openai-responses":
        stream.more["previous_response_id"] = got.json()["id"]
    return stream


def test_one_is_killed_in_mid_stream(balanced: Replicas, provider: Provider, holds: list[Hold]) -> None:
    """Its clients see that; those of the others go on, and all sessions do."""
    streams = [open_stream(balanced, provider, holds, source) for source in CLIENTS for _ in range(SIZE)]
    for stream in streams:
        stream.start(balanced)
    victim = balanced.members[0]
    lost = [stream for stream in streams if stream.member is victim]
    assert {stream.source for stream in lost} == set(CLIENTS)
    balanced.kill(victim)
    for stream in lost:
        got = stream.rest()
        assert not got.whole
        assert not is_complete(stream.source, got.frames)
        assert stream.hold.gone.wait(PATIENCE)
    for stream in streams:
        if stream not in lost:
            stream.hold.release()
            got = stream.rest()
            assert is_complete(stream.source, got.frames)
            assert text_of(stream.source, got, True) == LONG
    for stream in streams:
        got = ask(balanced.balancer.port, "POST", path_of(stream.source, MODEL, False), stream.body(False))
        assert got.status == 200, got.data
        assert text_of(stream.source, got, False) == "Again."
    for stream in lost:
        if before := stream.more.get("previous_response_id"):
            assert "First." in stream.talk.asked[2].text
            assert_kept(balanced.members, before, "First.")


def assert_kept(members: list[Member], id: str, text: str) -> None:
    """Each of these has this answer."""
    for member in members:
        got = ask(member.port, "GET", f"/v1/responses/{id}")
        assert got.status == 200, got.data
        assert text_of("openai-responses", got, False) == text


# --- answers in the background ----------------------------------------------------------------------------------------


@dataclass
class Background:
    """An answer that a gateway makes while nobody waits."""

    id: str
    hold: Hold
    member: Member

    def status(self, member: Member) -> str:
        got = ask(member.port, "GET", f"/v1/responses/{self.id}")
        assert got.status == 200, got.data
        return str(got.json()["status"])


def in_background(gateways: Replicas, provider: Provider, holds: list[Hold]) -> Background:
    talk = provider.script(hold_answer(holds, ScriptedAnswer(LONG), FIRST_PIECE["anthropic"]))
    body = {"model": MODEL, "input": f"Hi {talk.mark}", "background": True}
    got = ask(gateways.balancer.port, "POST", "/v1/responses", encode_json(body).encode())
    assert got.json()["status"] in ("queued", "in_progress")
    assert holds[-1].reached.wait(PATIENCE)
    made = Background(got.json()["id"], holds[-1], gateways.find_member(got.id))
    for member in gateways.members:
        wait_until(lambda member=member: made.status(member) == "in_progress")  # type: ignore[misc]
    return made


def test_an_answer_in_the_background_does_not_outlive_its_gateway(
    gateways: Replicas, provider: Provider, holds: list[Hold]
) -> None:
    """It has failed for all others as soon as its lease is over; one that is still made stays what it is."""
    lost, lives = (in_background(gateways, provider, holds) for _ in range(2))
    assert lost.member is not lives.member
    gateways.kill(lost.member)
    for member in (*gateways.members, gateways.start()):
        wait_until(lambda member=member: lost.status(member) == "failed")  # type: ignore[misc]
    assert [lives.status(member) for member in gateways.members] == ["in_progress"] * SIZE
    lives.hold.release()
    for member in gateways.members:
        wait_until(lambda member=member: lives.status(member) == "completed")  # type: ignore[misc]
    assert_kept(gateways.members, lives.id, LONG)
    error = ask(gateways.members[0].port, "GET", f"/v1/responses/{lost.id}").json()["error"]
    assert error["code"] == "server_error"


def test_an_answer_in_the_background_is_finished_before_its_gateway_stops(
    gateways: Replicas, provider: Provider, holds: list[Hold]
) -> None:
    made = in_background(gateways, provider, holds)
    gateways.drain(made.member)
    made.member.process.wait_until_refusing()
    assert made.status(gateways.members[0]) == "in_progress"
    made.hold.release()
    assert gateways.wait_for_exit(made.member) == 0
    assert_kept(gateways.members, made.id, LONG)


# --- all are replaced -------------------------------------------------------------------------------------------------


class Worker:
    """A client that goes on and on: sessions of three turns, streamed and whole, each from the answer before."""

    def __init__(self, port: int, provider: Provider, told: queue.Queue[tuple[str, str]]) -> None:
        self.port, self.provider = port, provider
        self.told = told
        """Where every answer goes: its id, and what was said."""
        self.wrong: list[object] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._session()
            except (AssertionError, OSError, http.client.HTTPException) as error:
                self.wrong.append(error)

    def _session(self) -> None:
        texts = [f"Turn {number}." for number in range(3)]
        talk = self.provider.script(*(ScriptedAnswer(text) for text in texts))
        previous: dict[str, str] = {}
        for number, text in enumerate(texts):
            stream = number == 1
            body = {"model": MODEL, "input": f"Hi {talk.mark}", "stream": stream, **previous}
            got = ask(self.port, "POST", "/v1/responses", encode_json(body).encode())
            assert got.status == 200, (got.status, got.data)
            assert got.whole
            assert text_of("openai-responses", got, stream) == text, got.data
            id = got.frames[-1].data["response"]["id"] if stream else got.json()["id"]  # type: ignore[index, call-overload]
            self.told.put((id, text))
            previous = {"previous_response_id": id}

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def start_stream(gateways: Replicas, provider: Provider, holds: list[Hold]) -> Stream:
    stream = open_stream(gateways, provider, holds, "openai-responses")
    stream.start(gateways)
    return stream


def test_all_are_replaced_in_turn_and_nobody_notices(balanced: Replicas, provider: Provider, holds: list[Hold]) -> None:
    """Each is taken from the balancer and asked to stop; its streams end as they should, and another takes its place."""
    told: queue.Queue[tuple[str, str]] = queue.Queue()
    workers = [Worker(balanced.balancer.port, provider, told) for _ in range(2)]
    kept: list[tuple[str, str]] = []
    try:
        for old in tuple(balanced.members):
            streams = [start_stream(balanced, provider, holds)]
            while streams[-1].member is not old:
                streams.append(start_stream(balanced, provider, holds))
            balanced.drain(old)
            old.process.wait_until_refusing()
            kept += [told.get(timeout=PATIENCE) for _ in range(told.qsize() + 9)]
            for stream in streams:
                stream.hold.release()
                got = stream.rest()
                assert got.whole
                assert text_of("openai-responses", got, True) == LONG
            assert balanced.wait_for_exit(old) == 0
            balanced.start()
    finally:
        for worker in workers:
            worker.stop()
    assert [wrong for worker in workers for wrong in worker.wrong] == []
    kept += [told.get() for _ in range(told.qsize())]
    for (id, text), member in zip(kept, cycle(balanced.members), strict=False):
        assert_kept([member], id, text)
