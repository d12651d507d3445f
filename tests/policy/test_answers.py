"""Calls in whole and streamed answers are changed back for the client and checked; some do not reach it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolwire.core.codec import WriteContext
from toolwire.core.events import ArgumentsDelta, fold, unfold
from toolwire.core.ir import Call, Choice, Finish, Request, Response, Text, Tool, Turn
from toolwire.core.json_values import encode, expect_object
from toolwire.core.losses import Ledger
from toolwire.policy.effects import PolicyUndo, RefusedCall, ToolUndo
from toolwire.policy.rules import Reshape, Rule
from toolwire.protocols import CODECS, find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire.translation.streaming import StreamTranslation

SCHEMA = {
    "type": "object",
    "properties": {"command": {"type": "array", "items": {"type": "string"}}, "lines": {"type": "integer"}},
    "required": ["command"],
}


# --- one call ---------------------------------------------------------------------------------------------------------


def undo(validate: str) -> PolicyUndo:
    return PolicyUndo(
        {("", "sh"): ToolUndo("shell", None, SCHEMA, validate, "the rule `r`")}, {("", "gone"): "It is gone."}
    )


@pytest.mark.parametrize(
    ("arguments", "fixed", "wrong"),
    [
        ('{"command":["ls"],"lines":2.0}', '{"command":["ls"],"lines":2}', ""),
        ('{"command": ["ls"], "lines": 2}', '{"command": ["ls"], "lines": 2}', ""),
        ('{"command":["ls"],"lines":2.5}', None, "/lines: expected a whole number, got a number"),
        ('{"lines":1}', None, "the arguments: `command` is missing"),
        ('{"command":"ls"}', None, "/command: expected an array, got a string"),
        ('{"command":["ls"', None, "the arguments are not a JSON object"),
        ("[]", None, "the arguments are not a JSON object"),
    ],
)
@pytest.mark.parametrize("validate", ["report", "retry", "refuse"])
def test_arguments_are_held_to_what_the_client_declared(
    validate: str, arguments: str, fixed: str | None, wrong: str
) -> None:
    ledger = Ledger("", "")
    found = undo(validate).restore_call(Call("c", "sh", arguments), ledger)
    if not wrong:
        assert found == Call("c", "shell", fixed or "")
        assert ledger.codes == (("policy-arguments-fixed",) if fixed != arguments else ())
        return
    [loss] = ledger.losses
    assert (loss.code, loss.what, loss.why) == (
        "policy-arguments-invalid",
        f"the arguments of `shell`: {wrong}",
        "the rule `r`",
    )
    if validate == "report":
        assert found == Call("c", "shell", arguments)
    else:
        assert isinstance(found, RefusedCall)
        assert wrong in found.reason
        assert found.fatal == (validate == "refuse")


def test_a_call_that_was_cut_off_is_not_judged() -> None:
    found = undo("retry").restore_call(Call("c", "sh", '{"comm'), Ledger("", ""), incomplete=True)
    assert found == Call("c", "shell", '{"comm')


def test_a_call_of_what_was_taken_away_does_not_reach_the_client() -> None:
    found = undo("off").restore_call(Call("c", "gone", "{}"), Ledger("", ""))
    assert found == RefusedCall(Call("c", "gone", "{}"), "It is gone.")


# --- whole exchanges --------------------------------------------------------------------------------------------------

RULES = (
    Rule(
        name="sh",
        tool=("shell",),
        rename="run",
        reshape={"command": Reshape(conversion="shell-text", to="line")},
    ),
    Rule(name="gone", tool=("patch",), drop=True, guidance="Use {shell}."),
    Rule(name="plain", tool=("look",), rename="see"),
)
TOOLS = (
    Tool("shell", "Runs.", SCHEMA),
    Tool("patch", "Changes.", {"type": "object", "properties": {}}),
    Tool("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}}),
)
PAIRS = [(client, provider) for client in CODECS for provider in CODECS]


def start_exchange(client: str, provider: str, rules: tuple[Rule, ...] = RULES) -> Exchange:
    exchange = Exchange(find_codec(client), find_codec(provider), Options(policy=rules, model="m", seed="s"))
    request = Request("m", turns=(Turn("user", (Text("Hello"),)),), tools=TOOLS)
    exchange.translate_request(encode(find_codec(client).write_request(request, Ledger(client, client))))
    return exchange


CONTEXT = WriteContext(now=1, seed="s")


def answer(*calls: Call) -> Response:
    return Response("r1", "m", 1, (Choice(0, (Text("So."), *calls), Finish("calls")),))


def answer_with_calls(provider: str, *calls: Call) -> bytes:
    return encode(find_codec(provider).write_response(answer(*calls), Ledger(provider, provider), CONTEXT))


def frames(provider: str, *calls: Call) -> list[bytes]:
    """The same as a stream, its arguments in pieces."""
    writer = find_codec(provider).make_stream_writer(Ledger(provider, provider), CONTEXT)
    out: list[bytes] = []
    for event in unfold(answer(*calls)):
        if isinstance(event, ArgumentsDelta):
            pieces = [event.text[at : at + 3] for at in range(0, len(event.text), 3)]
            out += [writer.write(ArgumentsDelta(event.index, piece)) for piece in pieces]
        else:
            out.append(writer.write(event))
    return [*out, writer.close()]


def read_stream(client: str, data: bytes) -> Response:
    reader = find_codec(client).make_stream_reader()
    return fold([*reader.feed(data), *reader.close()])


def calls_of(response: Response) -> list[tuple[str, Any]]:
    return [
        (part.name, json.loads(part.arguments or "{}"))
        for choice in response.choices
        for part in choice.parts
        if isinstance(part, Call)
    ]


MADE = (Call("c1", "run", '{"line":"ls -l","lines":3}'), Call("c2", "see", '{"at":"it"}'))
MEANT = [("shell", {"command": ["bash", "-lc", "ls -l"], "lines": 3}), ("look", {"at": "it"})]


@pytest.mark.parametrize(("client", "provider"), PAIRS)
def test_a_whole_answer_comes_back_in_the_clients_names_and_shapes(client: str, provider: str) -> None:
    translation = start_exchange(client, provider).translate_response(answer_with_calls(provider, *MADE))
    response = find_codec(client).read_response(expect_object(translation.json(), None))
    assert calls_of(response) == MEANT
    assert response.choices[0].finish is not None
    assert response.choices[0].finish.kind in ("calls", "stop")


@pytest.mark.parametrize(("client", "provider"), PAIRS)
def test_a_stream_comes_back_in_the_clients_names_and_shapes(client: str, provider: str) -> None:
    stream = StreamTranslation(start_exchange(client, provider))
    data = b"".join(stream.feed(piece) for piece in frames(provider, *MADE)) + stream.close()
    assert calls_of(read_stream(client, data)) == MEANT
    assert stream.failure is None


@pytest.mark.parametrize(("client", "provider"), PAIRS)
def test_a_dropped_tool_that_is_called_anyway_does_not_reach_the_client(client: str, provider: str) -> None:
    translation = start_exchange(client, provider).translate_response(
        answer_with_calls(provider, Call("c1", "patch", "{}"))
    )
    response = find_codec(client).read_response(expect_object(translation.json(), None))
    assert calls_of(response) == []
    assert response.choices[0].finish is not None
    assert response.choices[0].finish.kind == "stop"
    assert "policy-call-refused" in [loss.code for loss in translation.losses]


@pytest.mark.parametrize(("client", "provider"), PAIRS)
def test_a_stream_that_calls_a_dropped_tool_waits_until_the_model_was_told(client: str, provider: str) -> None:
    stream = StreamTranslation(start_exchange(client, provider))
    data = b"".join(map(stream.feed, frames(provider, Call("c1", "patch", "{}")))) + stream.close()
    assert stream.needs_next_round
    assert stream.rounds is not None
    assert [one.refusal for one in stream.rounds.intercepted] == ["The tool `patch` is not available. Use run."]
    assert calls_of(read_stream(client, data)) == []


def test_only_calls_that_are_reshaped_are_held() -> None:
    """A call that is only renamed flows on piece by piece."""
    stream = StreamTranslation(start_exchange("openai-chat", "anthropic"))
    out = [stream.feed(piece) for piece in frames("anthropic", *MADE)]
    flowing = [
        json.loads(line[6:]) for data in out for line in data.decode().splitlines() if line.startswith("data: {")
    ]
    deltas = [
        (call["index"], call["function"].get("arguments", ""))
        for chunk in flowing
        for choice in chunk["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    assert [text for index, text in deltas if index == 0 and text] == ['{"command":["bash","-lc","ls -l"],"lines":3}']
    assert len([text for index, text in deltas if index == 1 and text]) > 2


REFUSING = (Rule(name="strictly", tool=("shell",), validate="refuse"),)
BAD = Call("c1", "shell", '{"command":1}')


@pytest.mark.parametrize(("client", "provider"), PAIRS)
def test_an_answer_with_bad_arguments_is_refused_in_the_clients_shape(client: str, provider: str) -> None:
    translation = start_exchange(client, provider, REFUSING).translate_response(answer_with_calls(provider, BAD))
    assert translation.failure is not None
    assert translation.failure.kind == "unprocessable"  # the provider has not failed
    failure = find_codec(client).read_error(translation.json(), translation.status, {})
    assert "the model's call of `shell` was refused" in failure.message
    stream = StreamTranslation(start_exchange(client, provider, REFUSING))
    data = b"".join(map(stream.feed, frames(provider, BAD))) + stream.close()
    assert stream.failure is not None
    assert read_stream(client, data).failure is not None


@pytest.mark.parametrize("client", CODECS)
def test_whole_numbers_are_put_right_in_streams_and_whole_answers(client: str) -> None:
    rules = (Rule(tool=("shell",), validate="report"),)
    call = Call("c1", "shell", '{"command":["ls"],"lines":2.0}')
    exchange = start_exchange(client, "openai-chat", rules)
    whole = find_codec(client).read_response(
        expect_object(exchange.translate_response(answer_with_calls("openai-chat", call)).json(), None)
    )
    stream = StreamTranslation(exchange)
    data = b"".join(map(stream.feed, frames("openai-chat", call))) + stream.close()
    for response in (whole, read_stream(client, data)):
        [part] = [part for choice in response.choices for part in choice.parts if isinstance(part, Call)]
        assert "2.0" not in part.arguments
        assert json.loads(part.arguments) == {"command": ["ls"], "lines": 2}


@pytest.mark.parametrize("protocol", CODECS)
def test_rules_that_say_nothing_here_leave_the_same_protocol_as_it_is(protocol: str) -> None:
    exchange = start_exchange(protocol, protocol, (Rule(tool=("telegraph",), drop=True),))
    assert not exchange.has_policy_undo
    body = answer_with_calls(protocol, Call("c1", "look", "{}"))
    assert exchange.translate_response(body).body == body
