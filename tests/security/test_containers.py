"""Containers, and files in them, that a provider makes while it answers belong to the key that got the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.raw_exchange import run_own_server
from security.recorded_provider import KEY_SETTINGS, Guarded, RecordedProvider, as_key, send_raw, serve_guarded
from toolwire.gateway import app
from toolwire.protocols import CODECS

CLAUDE = {"anthropic_version": "2023-06-01"}
OPENAI = '[providers.openai]\nprotocols = ["openai-chat", "openai-responses"]\nbase_url = "{url}"\napi_key = "sk-0123456789"\n'


def store(folder: Path) -> str:
    return f'[store]\nurl = "sqlite:///{folder}/store.db"\n'


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Guarded]:
    with serve_guarded(tmp_path, KEY_SETTINGS, store(tmp_path)) as made:
        yield made


# --- what the providers answer ---

FILE_RESULT = {
    "type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1",
    "content": {"type": "bash_code_execution_result", "stdout": "", "stderr": "", "return_code": 0,
                "content": [{"type": "bash_code_execution_output", "file_id": "file_made"}]},
}  # fmt: skip
TRICK = {
    "type": "tool_use",
    "id": "toolu_1",
    "name": "x",
    "input": {"container": {"id": "container_other"}, "file_id": "file_other"},
}
"""What the model wrote: it must not give rights."""
MESSAGE: dict[str, Any] = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-small", "stop_reason": "end_turn",
    "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
    "content": [{"type": "server_tool_use", "id": "srvtoolu_1", "name": "bash_code_execution", "input": {}},
                FILE_RESULT, TRICK, {"type": "text", "text": '"container":{"id":"container_other"}'}],
    "container": {"id": "container_1", "expires_at": "2026-12-01T00:00:00Z"},
}  # fmt: skip
CALL = {
    "type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "1", "container_id": "cntr_1",
    "outputs": None,
}  # fmt: skip
CITED = {
    "type": "container_file_citation", "container_id": "cntr_1", "file_id": "cfile_1", "filename": "a.png",
    "start_index": 0, "end_index": 1,
}  # fmt: skip
RESPONSE: dict[str, Any] = {
    "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "gpt-small",
    "tools": [{"type": "code_interpreter", "container": "cntr_other"}], "parallel_tool_calls": True,
    "tool_choice": "auto", "error": None, "incomplete_details": None, "metadata": {"container_id": "cntr_other"},
    "instructions": [{"type": "code_interpreter_call", "container_id": "cntr_other"}],
    "output": [
        CALL,
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "status": "completed",
         "arguments": '{"type":"code_interpreter_call","container_id":"cntr_other"}'},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "x", "annotations": [CITED]}]},
    ],
    "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "input_tokens_details": {"cached_tokens": 0},
              "output_tokens_details": {"reasoning_tokens": 0}},
}  # fmt: skip


def frame(event: dict[str, Any]) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def anthropic_stream() -> bytes:
    start = {**MESSAGE, "content": [], "stop_reason": None, "container": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(MESSAGE["content"]):
        events += [{"type": "content_block_start", "index": index, "content_block": block},
                   {"type": "content_block_stop", "index": index}]  # fmt: skip
    delta = {"stop_reason": "end_turn", "stop_sequence": None, "container": MESSAGE["container"]}
    events += [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}}, {"type": "message_stop"}]
    return "".join(map(frame, events)).encode()


def responses_stream() -> bytes:
    started = {**RESPONSE, "output": [], "status": "in_progress"}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": started}]
    for index, item in enumerate(RESPONSE["output"]):
        events += [{"type": "response.output_item.added", "output_index": index, "item": item},
                   {"type": "response.output_item.done", "output_index": index, "item": item}]  # fmt: skip
    events.append({"type": "response.completed", "response": RESPONSE})
    return "".join(frame({**event, "sequence_number": n}) for n, event in enumerate(events)).encode()


TOOLS = {"anthropic": {"type": "code_execution_20250825", "name": "code_execution"},
         "openai-responses": {"type": "code_interpreter", "container": {"type": "auto"}}}  # fmt: skip


def ask(gate: Guarded, protocol: str, key: str, stream: bool = False, **more: Any) -> tuple[int, bytes]:
    if protocol == "anthropic":
        path, body = (
            "/v1/messages",
            {"model": "anthropic/claude-small", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
        )
        answer: Any = anthropic_stream() if stream else MESSAGE
    else:
        path, body = "/v1/responses", {"model": "responses/gpt-small", "input": "Hi", "store": False}
        answer = responses_stream() if stream else RESPONSE
    gate.provider.replies[path] = (200, answer)
    gate.provider.headers[path] = {"kind": "text/event-stream"} if stream else {}
    sent = {**body, "stream": stream, "tools": [TOOLS[protocol]], **more}
    got = send_raw(
        gate.port, "POST", path, json.dumps(sent).encode(), as_key(key, **CLAUDE if protocol == "anthropic" else {})
    )
    return got.status, got.body


def use_container(id: str) -> dict[str, dict[str, Any]]:
    return {"anthropic": {"container": id},
            "openai-responses": {"tools": [{"type": "code_interpreter", "container": id}]}}  # fmt: skip


CONTAINERS = {"anthropic": "container_1", "openai-responses": "cntr_1"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("protocol", list(CONTAINERS))
def test_a_container_belongs_to_the_key_whose_answer_made_it(gate: Guarded, protocol: str, stream: bool) -> None:
    using = use_container(CONTAINERS[protocol])[protocol]
    assert ask(gate, protocol, "ann", **using)[0] == 403  # nobody knows it yet
    status, body = ask(gate, protocol, "ann", stream)
    assert status == 200
    assert CONTAINERS[protocol].encode() in body
    gate.take_arrived()
    assert ask(gate, protocol, "bob", **using)[0] == 403
    assert gate.take_arrived() == []
    assert ask(gate, protocol, "ann", stream, **using)[0] == 200
    assert len(gate.take_arrived()) == 1
    # Another key whose answer names it does not take it over.
    assert ask(gate, protocol, "bob", stream)[0] == 200
    assert ask(gate, protocol, "bob", **using)[0] == 403


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("protocol", list(CONTAINERS))
def test_what_the_model_or_the_client_wrote_gives_no_rights(gate: Guarded, protocol: str, stream: bool) -> None:
    assert ask(gate, protocol, "bob", stream)[0] == 200
    other = CONTAINERS[protocol].replace("1", "other")
    status, body = ask(gate, protocol, "bob", **use_container(other)[protocol])
    assert (status, b"has not created" in body) == (403, True)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_file_that_code_wrote_at_anthropic(gate: Guarded, stream: bool) -> None:
    assert ask(gate, "anthropic", "ann", stream)[0] == 200
    for id, key, status in (
        ("file_made", "ann", 200), ("file_made", "bob", 404), ("file_other", "ann", 404), ("file_nobody", "ann", 404),
    ):  # fmt: skip
        got = send_raw(gate.port, "GET", f"/v1/files/{id}/content", b"", as_key(key, **CLAUDE))
        assert got.status == status, (id, key, got)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_files_of_a_container_at_openai(tmp_path: Path, stream: bool) -> None:
    """The files of a container are reached through it."""
    provider = RecordedProvider()
    file = tmp_path / "toolwire.toml"
    file.write_text(f"[server]\nlog_format = 'none'\n{KEY_SETTINGS}{OPENAI.format(url=provider.url)}{store(tmp_path)}")
    with run_own_server(app(file)) as port:
        gate = Guarded(port, provider)
        assert ask(gate, "openai-responses", "ann", stream, model="openai/gpt-small")[0] == 200
        for key, status in (("ann", 200), ("bob", 404)):
            for path in ("/v1/containers/cntr_1", "/v1/containers/cntr_1/files/cfile_1/content"):
                assert send_raw(port, "GET", path, b"", as_key(key)).status == status, (key, path)
    provider.close()


def test_a_history_with_a_container_of_another_key(gate: Guarded) -> None:
    """With `auto`, OpenAI goes on with the container of the history."""
    history = [CALL, {"role": "user", "content": "Go on"}]
    assert ask(gate, "openai-responses", "bob", input=history)[0] == 403
    assert ask(gate, "openai-responses", "ann")[0] == 200
    assert ask(gate, "openai-responses", "bob", input=history)[0] == 403
    assert ask(gate, "openai-responses", "ann", input=history)[0] == 200
    # Toolwire itself writes an empty id, where the container is another provider's.
    assert ask(gate, "openai-responses", "bob", input=[{**CALL, "container_id": ""}, history[1]])[0] == 200


def test_a_container_in_metadata_or_arguments_is_the_users_own_word(gate: Guarded) -> None:
    metadata = {"metadata": {"container": "jar", "container_id": "7"}}
    assert ask(gate, "openai-responses", "ann", **metadata)[0] == 200
    call = {"type": "tool_use", "id": "toolu_1", "name": "x", "input": {"container": "jar"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    assert ask(gate, "anthropic", "ann", messages=turns)[0] == 200


def test_skills_of_another_key(gate: Guarded) -> None:
    for skills, status in (
        ([{"type": "custom", "skill_id": "skill_01"}], 403),
        ([{"type": "anthropic", "skill_id": "pptx", "version": "latest"}], 200),
    ):
        assert ask(gate, "anthropic", "bob", container={"skills": skills})[0] == status


def test_without_a_store_containers_are_closed(tmp_path: Path) -> None:
    with serve_guarded(tmp_path, KEY_SETTINGS, '[store]\nurl = "none"\n') as gate:
        assert ask(gate, "anthropic", "ann")[0] == 200
        status, body = ask(gate, "anthropic", "ann", container="container_1")
        assert (status, b"shared_objects" in body) == (403, True)


def test_a_team_that_shares_objects_shares_containers(tmp_path: Path) -> None:
    with serve_guarded(tmp_path, f"shared_objects = true\n{KEY_SETTINGS}", store(tmp_path)) as gate:
        assert ask(gate, "anthropic", "bob", container="container_1")[0] == 200


# --- a law: only the places that the provider fills in ---

IDS = {"anthropic": {"container_1", "file_made", "msg_1"}, "openai-responses": {"cntr_1", "cfile_1"}}
STREAMS: dict[str, Callable[[], bytes]] = {"anthropic": anthropic_stream, "openai-responses": responses_stream}


@pytest.mark.parametrize("protocol", list(IDS))
def test_whole_answers_and_streams_name_the_same_objects(protocol: str) -> None:
    find = CODECS[protocol].http.find_created_objects
    whole = MESSAGE if protocol == "anthropic" else RESPONSE
    assert set(find(whole)) == IDS[protocol]
    events = [json.loads(line[6:]) for line in STREAMS[protocol]().decode().splitlines() if line.startswith("data: ")]
    assert {id for event in events for id in find(event)} == IDS[protocol]


VALUES = st.recursive(
    st.none() | st.integers() | st.sampled_from(["", "x", "code_interpreter_call", "container_upload"]),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(
        st.sampled_from("type container content id file_id container_id output item message delta".split()), one, max_size=4
    ),
    max_leaves=12,
)  # fmt: skip


@given(
    st.dictionaries(
        st.sampled_from("container content output item response message delta content_block".split()), VALUES
    )
)
@example({"output": [{"type": []}]})
@example({"content": [{"type": {}}]})
def test_answers_of_any_shape_can_be_searched(body: dict[str, Any]) -> None:
    for protocol in IDS:
        assert all(isinstance(id, str) and id for id in CODECS[protocol].http.find_created_objects(body))
