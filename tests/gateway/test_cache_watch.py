"""The prompt cache made visible: what a turn read from it, what it could have read, and where a prefix broke."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.exchange_records import make_record
from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import Served, answer, ask, body_of, call, stage
from toolwire.core import ir
from toolwire.core.ir import Usage
from toolwire.core.losses import Ledger
from toolwire.gateway.features.cache_watch import cache_watch
from toolwire.gateway.features.cache_watch.cache_prefix import compared_form, first_difference, split_prompt
from toolwire.gateway.features.cache_watch.cache_watch import CacheWatch, SentPrompt
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.telemetry.record import CacheReport, CallUsage, ExchangeRecord
from toolwire.protocols import CODECS
from waits import PATIENCE

PROTOCOLS = sorted(CODECS)
LONG = "You are a careful assistant. " * 200
KNOWN = {"anthropic": Provider(name="anthropic", kind="anthropic", protocols=("anthropic",))}


def tool(name: str, text: str = "") -> ir.Tool:
    return ir.Tool(name, text or f"Does {name}.", {"type": "object", "properties": {"name": {"type": "string"}}})


def body_in(
    protocol: str, *texts: str, system: str = LONG, tools: tuple[str, ...] = ("read", "write"), note: str = ""
) -> bytes:
    roles = ("user", "assistant")
    turns = tuple(ir.Turn(roles[number % 2], (ir.Text(text),)) for number, text in enumerate(texts))
    declared = tuple(tool(name, note if name == tools[0] else "") for name in tools)
    request = ir.Request("m", tools=declared, system=(ir.Text(system),), turns=turns)
    return json.dumps(CODECS[protocol].write_request(request, Ledger(protocol, protocol))).encode()


class Session:
    """Exchanges of one session, one after the other."""

    def __init__(self, protocol: str = "anthropic", watch: CacheWatch | None = None, session: str = "s") -> None:
        self.protocol, self.session = protocol, session
        self.watch = watch or CacheWatch()
        self.watch.configure(KNOWN)
        self.at = 1_800_000_000.0

    def send(
        self,
        body: bytes,
        usage: Usage | None,
        provider: str = "anthropic",
        account: str = "",
        model: str = "claude-sonnet-4-5",
        seconds: float = 10.0,
        is_estimated: bool = False,
    ) -> tuple[ExchangeRecord, bool]:
        """The record, and whether it is warned of."""
        self.at += seconds
        one = CallUsage(provider, model, account, usage, is_estimated)
        record = make_record(started_at=self.at, session=self.session)
        self.watch.note_exchange(record, [SentPrompt(one, self.protocol, body)])
        return record, bool(self.watch.take_broken())


FIRST = Usage(input=5000, output=10, cache_read=0, cache_write=5000)
HIT = Usage(input=5100, output=10, cache_read=5000, cache_write=100)
MISS = Usage(input=5100, output=10, cache_read=0, cache_write=5100)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_session_that_grows_reads_what_was_sent_before(protocol: str) -> None:
    session = Session(protocol)
    first, _ = session.send(body_in(protocol, "One"), FIRST)
    assert first.cache is None
    second, warned = session.send(body_in(protocol, "One", "Two", "Three"), HIT)
    assert second.cache is not None
    assert (second.cache.expected, second.cache.read, second.cache.missed) == (5000, 5000, 0)
    assert (second.cache.cause, second.cache.place, warned) == ("", "", False)


CHANGES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "a tool more": ({"tools": ("read", "write", "grep")}, "tools", "added grep", "/tools/2"),
    "a tool less": ({"tools": ("read",)}, "tools", "removed write", "/"),
    "other tools": ({"tools": ("read", "grep")}, "tools", "added grep and removed write", "/tools/1"),
    "the order of tools": ({"tools": ("write", "read")}, "tools", "another order", "/tools/0"),
    "another declaration": ({"note": "Reads files."}, "tools", "the declaration of the tool read", "/tools/0"),
    "a time": ({"system": LONG.replace("careful", "careful 10:15:07", 1) + LONG}, "time", "a time, a date", ""),
    "other instructions": ({"system": LONG.replace("careful", "careless") + LONG}, "", "", ""),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if name != "gemini"])
def test_a_broken_prefix_has_its_place_and_cause(protocol: str, change: str) -> None:
    fields, cause, reason, place = CHANGES[change]
    session = Session(protocol)
    session.send(body_in(protocol, "One", system=LONG + LONG), FIRST)
    record, warned = session.send(body_in(protocol, "One", "Two", "Three", **{"system": LONG + LONG, **fields}), MISS)
    report = record.cache
    assert report is not None
    assert warned
    assert (report.expected, report.read, report.missed) == (5000, 0, 5000)
    key = CODECS[protocol].constraints.instructions_key
    assert report.cause == (cause or ("instructions" if key else "history"))
    assert reason in report.reason
    if place.startswith("/tools") and CODECS[protocol].constraints.tools_key != "tools":
        place = f"/{CODECS[protocol].constraints.tools_key}{place}"
    assert report.place.startswith(place or f"/{key or 'messages/0'}")
    assert len(report.excerpt) <= cache_watch.EXCERPT
    if change == "a time":
        assert "10:15:07" in report.excerpt


@pytest.mark.parametrize("shift", range(0, cache_watch.EXCERPT, 5))
def test_an_excerpt_has_no_half_of_a_credential(shift: int) -> None:
    """The log removes those that it recognises as a whole."""
    key = "0123456789abcdef" * 2
    bodies = [
        body_in("anthropic", *texts, system=f"{LONG[: 600 + shift]} {key} the time is {time}, and {key} {LONG}")
        for time, texts in (("10:15:07", ["One"]), ("10:16:08", ["One", "Two", "Three"]))
    ]
    session = Session()
    session.send(bodies[0], FIRST)
    report = session.send(bodies[1], MISS)[0].cache
    assert report is not None
    assert report.cause == "time"
    rest = report.excerpt.replace(key, "")
    assert not any(key[at : at + 4] in rest for at in range(13))


def test_a_rewritten_message_is_found() -> None:
    session = Session()
    session.send(body_in("anthropic", "One", "Two", "Three"), FIRST)
    body = body_in("anthropic", "One", "Another two", "Three", "Four", "Five")
    report = session.send(body, MISS)[0].cache
    assert report is not None
    assert (report.cause, report.place) == ("history", "/messages/1")
    assert "Another two" in report.excerpt


@pytest.mark.parametrize(
    ("changes", "cause"),
    [({"model": "claude-opus-4-5"}, "model"), ({"provider": "other"}, "model"), ({"account": "b"}, "account")],
)
def test_another_model_or_account_has_a_cache_of_its_own(changes: dict[str, str], cause: str) -> None:
    session = Session()
    session.send(body_in("anthropic", "One"), FIRST, account="a")
    record, warned = session.send(body_in("anthropic", "One", "Two", "Three"), MISS, **{"account": "a", **changes})
    assert record.cache is not None
    assert (record.cache.cause, record.cache.place, warned) == (cause, "/model", True)
    # Back again: the prefix is still in the first cache.
    back = session.send(body_in("anthropic", "One", "Two", "Three"), HIT, account="a")[0].cache
    assert back is not None
    assert (back.expected, back.missed, back.place) == (5000, 0, "")


def test_only_the_first_break_of_a_session_is_warned_of() -> None:
    session = Session()
    texts = ["One"]
    warnings = []
    for number in range(4):
        record, warned = session.send(body_in("anthropic", *texts, system=f"{LONG} {number}"), MISS)
        warnings.append((warned, record.cache is not None and record.cache.place != ""))
        texts += ["Yes.", "And?"]
    assert warnings == [(False, False), (True, True), (False, True), (False, True)]
    other = Session(watch=session.watch, session="another")
    other.send(body_in("anthropic", "One"), FIRST)
    assert other.send(body_in("anthropic", "One", "Two", "Three", system=LONG + "!"), MISS)[1]


def test_a_cache_that_was_not_read_though_nothing_changed() -> None:
    session = Session()
    session.send(body_in("anthropic", "One"), FIRST)
    record, warned = session.send(body_in("anthropic", "One", "Two", "Three"), MISS, seconds=301)
    assert record.cache is not None
    assert (record.cache.cause, record.cache.missed, warned) == ("expired", 5000, False)
    again = session.send(body_in("anthropic", "One", "Two", "Three", "Four", "Five"), MISS)[0].cache
    assert again is not None
    assert (again.cause, again.missed) == ("unknown", 5100)


SILENT: dict[str, tuple[Usage | None, Usage | None, bool]] = {
    "the provider says nothing of a cache": (Usage(5000, 1), Usage(5100, 1), False),
    "the prompt is too short to be cached": (Usage(900, 1, 0), Usage(1000, 1, 0), False),
    "no usage": (FIRST, None, False),
    "no usage before": (None, MISS, False),
    "an estimate": (FIRST, MISS, True),
}


@pytest.mark.parametrize("case", SILENT)
def test_nothing_is_said_if_nothing_is_known(case: str) -> None:
    first, second, is_estimated = SILENT[case]
    session = Session()
    session.send(body_in("anthropic", "One"), first)
    body = body_in("anthropic", "One", "Two", "Three", system="Changed.")
    record, warned = session.send(body, second, is_estimated=is_estimated)
    assert record.cache is None
    assert not warned


def test_side_requests_of_an_agent_do_not_break_anything() -> None:
    session = Session()
    session.send(body_in("anthropic", "One", "Two", "Three"), FIRST)
    title, warned = session.send(body_in("anthropic", "Write a title.", system="Titles.", tools=("t",)), MISS)
    assert (title.cache, warned) == (None, False)
    record, warned = session.send(body_in("anthropic", "One", "Two", "Three", "Four", "Five"), HIT)
    assert record.cache is not None
    assert (record.cache.place, warned) == ("", False)
    shorter, warned = session.send(body_in("anthropic", "A summary of it all."), MISS)
    assert (shorter.cache, warned) == (None, False)


def test_marks_of_what_to_cache_may_move() -> None:
    """Claude Code marks the last message, and writes its text as a part then."""
    mark = {"cache_control": {"type": "ephemeral", "ttl": "5m"}}
    tools = [{"name": "read", "input_schema": {}}, {"name": "write", "input_schema": {}, **mark}]
    system = [{"type": "text", "text": LONG, **mark}]
    marked = {"role": "user", "content": [{"type": "text", "text": "One", **mark}]}
    plain = {"role": "user", "content": "One"}
    answered = {"role": "assistant", "content": [{"type": "text", "text": "Two"}]}
    bodies = [
        {"tools": tools, "system": system, "messages": [marked]},
        {"tools": [{"name": "read", "input_schema": {}}, {"name": "write", "input_schema": {}}], "system": system,
         "messages": [plain, answered, marked]},
    ]  # fmt: skip
    session = Session()
    first, second = (json.dumps(body, separators=(",", ":")).encode() for body in bodies)
    session.send(first, FIRST)
    report = session.send(second, HIT)[0].cache
    assert report is not None
    assert report.place == ""


def test_an_independent_request_with_the_same_question_breaks_nothing() -> None:
    session = Session()
    session.send(body_in("anthropic", "One"), FIRST)
    record, warned = session.send(body_in("anthropic", "One", system=LONG + "!"), MISS)
    assert (record.cache, warned) == (None, False)


def test_what_a_break_costs() -> None:
    session = Session()
    usage = Usage(input=100_000, output=10, cache_read=0, cache_write=100_000)
    session.send(body_in("anthropic", "One"), usage)
    report = session.send(body_in("anthropic", "One", "Two", "Three", system=LONG + "!"), usage)[0].cache
    assert report is not None
    # Sonnet 4.5: $3.75 for a million tokens that are written, $0.30 for a million that are read.
    assert report.cost == Decimal("0.345")
    unknown = Session()
    unknown.send(body_in("anthropic", "1"), usage, model="nobody-knows")
    broken = unknown.send(body_in("anthropic", *"123", system=LONG + "!"), usage, model="nobody-knows")[0].cache
    assert broken is not None
    assert broken.cost is None


def test_rounds_of_one_answer_are_added() -> None:
    session = Session()
    session.send(body_in("anthropic", "One"), FIRST)
    bodies = [body_in("anthropic", "One", "Two", "Three"), body_in("anthropic", "One", "Two", "Three", "Four", "Five")]
    record = make_record(started_at=session.at, session="s")
    calls = [CallUsage("anthropic", "claude-sonnet-4-5", "", usage) for usage in (HIT, HIT)]
    prompts = [SentPrompt(one, "anthropic", body) for one, body in zip(calls, bodies, strict=True)]
    session.watch.note_exchange(record, prompts)
    assert record.cache is not None
    assert (record.cache.expected, record.cache.read) == (10_100, 10_000)


def test_the_extra_cost_of_rounds_is_unknown_if_that_of_one_is() -> None:
    known = CacheReport(5_000, 0, 0, 5_000, "time", cost=Decimal("0.5"))
    unknown, hit = CacheReport(5_000, 0, 0, 5_000, "time"), CacheReport(5_000, 5_000, 0)
    for first, second, cost in ((known, known, 1), (known, hit, Decimal("0.5")), (known, unknown, None)):
        assert cache_watch._join_reports(first, second).cost == cost
        assert cache_watch._join_reports(second, first).cost == cost


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_watch, "MAX_SESSIONS", 10)
    monkeypatch.setattr(cache_watch, "MAX_BYTES", 200_000)
    watch = CacheWatch()
    for number in range(50):
        session = Session(watch=watch, session=str(number))
        for branch in range(10):
            session.send(body_in("anthropic", f"{branch} {number}", "Two", "Three"), FIRST)
        assert watch.kept_bytes <= 200_000


def test_of_a_session_only_some_prompts_are_kept() -> None:
    session = Session()
    bodies = [body_in("anthropic", f"{branch} a", f"{branch} b") for branch in range(cache_watch.MAX_PROMPTS + 3)]
    for body in bodies:
        session.send(body, FIRST)
    assert session.watch.kept_bytes == sum(map(len, bodies[3:]))


def test_what_the_provider_has_found_in_its_cache_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents send long prompts again with every turn: they are read only if something is missing."""
    session = Session()
    session.send(body_in("anthropic", "One"), FIRST)
    split: list[bytes] = []
    monkeypatch.setattr(cache_watch, "split_prompt", lambda body, protocol: split.append(body))
    report = session.send(body_in("anthropic", "One", "Two", "Three"), HIT)[0].cache
    assert report is not None
    assert (report.expected, report.read, report.missed) == (5000, 5000, 0)
    assert split == []


TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)


@settings(deadline=None)
@given(st.sampled_from(PROTOCOLS), st.lists(TEXTS.filter(str.strip), min_size=1, max_size=6), TEXTS, st.data())
def test_a_prompt_is_a_prefix_of_every_longer_one(protocol: str, texts: list[str], system: str, data: Any) -> None:
    more = data.draw(st.lists(TEXTS.filter(str.strip), max_size=4))
    before, after = (
        split_prompt(body_in(protocol, *some, system=system), protocol) for some in (texts, [*texts, *more])
    )
    assert before is not None
    assert after is not None
    forms = [[*map(compared_form, prompt.pieces)] for prompt in (before, after)]
    assert first_difference(*forms) is None
    places = [before.shape.place(number) for number in range(len(before.pieces))]
    whole = json.loads(body_in(protocol, *texts, system=system))
    for place, piece in zip(places, before.pieces, strict=True):
        found: Any = whole
        for step in place.split("/")[1:]:
            found = found[int(step) if isinstance(found, list) else step]
        assert json.loads(piece) == found


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"messages":5}', b'{"tools":{},"messages":[]}', b"\xff"])
def test_what_is_not_a_prompt_is_not_looked_at(body: bytes) -> None:
    record, warned = Session().send(body, FIRST)
    assert (record.cache, warned) == (None, False)


# --- through the gateway ----------------------------------------------------------------------------------------------

SECRET = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("cache")) as staged:
        yield staged


def cache_answer(input: int, read: int, written: int) -> bytes:
    body = body_of("anthropic", ScriptedAnswer("Hello."))
    body["usage"] = {
        "input_tokens": input,
        "output_tokens": 5,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
    }
    return answer(200, json.dumps(body).encode())


@pytest.mark.parametrize("client", ["anthropic", "openai-chat"])
def test_the_log_the_metrics_and_the_console_say_it(served: Served, client: str) -> None:
    scene = served.scene("anthropic", cache_answer(10, 0, 5000), cache_answer(100, 0, 5000), cache_answer(0, 5100, 10))
    turns = [{"role": "user", "content": f"One {client}"}]
    sent = []
    for stamp in ("10:15:01", "10:16:02", "10:16:02"):
        system = f"{LONG} It is {stamp}, the key is {SECRET}. {LONG}"
        first = [{"role": "system", "content": system}] if client == "openai-chat" else []
        fields: dict[str, Any] = {"messages": [*first, *turns]}
        fields |= {} if first else {"system": system}
        sent.append(call(served, client, scene.model, False, **fields))
        assert sent[-1].status == 200
        turns += [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "And now?"}]
    lines = [json.loads(line) for line in _wait(served, sent[-1].id)]
    exchanges = {line["request_id"]: line for line in lines if line["event"] == "exchange"}
    expected = [exchanges[got.id].get("cache_expected_tokens") for got in sent]
    assert expected == [None, 5010, 5100]
    (broken,) = [line for line in lines if line["event"] == "cache_prefix_broken"]
    assert (broken["cause"], broken["place"], broken["level"]) == ("time", "/system", "warn")
    assert (broken["expected_tokens"], broken["read_tokens"], broken["missed_tokens"]) == (5010, 0, 5010)
    assert broken["session"] == exchanges[sent[1].id]["session"]
    assert "excerpt" not in broken
    assert broken["extra_cost_usd"] > 0
    assert SECRET not in json.dumps(lines)
    metrics = ask(served.port, "GET", "/metrics").data.decode()
    assert 'toolwire_cache_breaks_total{provider="anthropic",cause="time"}' in metrics
    assert "toolwire_cache_missed_tokens_total{" in metrics
    assert "toolwire_cache_missed_cost_usd_total{" in metrics
    rows = ask(served.port, "GET", "/console/api/v1/sessions").json()["sessions"]
    row = next(row for row in rows if row["title"] == f"One {client}")
    assert (row["tokens"]["cache_expected"], row["tokens"]["cache_missed"]) == (10_110, 5010)
    turns_shown = ask(served.port, "GET", f"/console/api/v1/sessions/{row['id']}").json()["turns"]
    assert [turn["prefix_break"] and turn["prefix_break"]["place"] for turn in turns_shown] == [None, "/system", None]
    assert SECRET not in json.dumps(turns_shown)


def test_the_log_has_an_excerpt_only_where_it_may_have_text(tmp_path: Path) -> None:
    with stage(tmp_path, "log_bodies = true\n") as served:
        scene = served.scene("anthropic", cache_answer(10, 0, 5000), cache_answer(100, 0, 5000))
        messages = [{"role": "user", "content": "One"}]
        for stamp in ("10:15:01", "10:16:02"):
            system = f"{LONG} It is {stamp}, the key is {SECRET}. {LONG}"
            sent = call(served, "anthropic", scene.model, False, messages=messages, system=system)
            messages += [{"role": "assistant", "content": "Two"}, {"role": "user", "content": "Three"}]
        lines = [json.loads(line) for line in _wait(served, sent.id)]
    (broken,) = [line for line in lines if line["event"] == "cache_prefix_broken"]
    assert "10:16:02" in broken["excerpt"]
    assert SECRET not in json.dumps(lines)


def _wait(served: Served, request_id: str) -> list[str]:
    """All log lines, up to that of an exchange and what was written with it."""
    lines: list[str] = []
    while not lines or f'"request_id":"{request_id}"' not in lines[-1]:
        lines.append(served.lines.get(timeout=PATIENCE))
    ask(served.port, "GET", "/metrics")  # it writes what is left
    while not served.lines.empty():
        lines.append(served.lines.get())
    return lines


def test_it_can_be_turned_off(tmp_path: Any) -> None:
    with stage(tmp_path, "watch_cache = false") as staged:
        scene = staged.scene("anthropic", cache_answer(10, 0, 5000))
        for system in (LONG, LONG + "!"):
            got = call(staged, "anthropic", scene.model, False, system=system)
        line = staged.line(got.id)
        assert "cache_expected_tokens" not in line
        assert "toolwire_cache" not in ask(staged.port, "GET", "/metrics").data.decode()
        assert not staged.features.cache_watch._sessions


@pytest.mark.parametrize(
    ("texts", "most"),
    [(["x" * 5_000_000], 3), (["x"] * 20_000, 2), (["x" * 50_000], 7)],
    ids=["large prompts", "many turns", "small prompts"],
)
def test_the_event_loop_does_not_compare_large_prompts_for_long(
    texts: list[str], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session()
    for number in range(cache_watch.MAX_PROMPTS):
        session.send(body_in("anthropic", f"{number}", *texts), FIRST)
    split: list[bytes] = []

    def count_split(body: bytes, protocol: str) -> Any:
        split.append(body)
        return split_prompt(body, protocol)

    monkeypatch.setattr(cache_watch, "split_prompt", count_split)
    session.send(body_in("anthropic", "7", *texts), MISS)
    assert len(split) == most
