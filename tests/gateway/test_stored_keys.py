"""Client keys in the store: gateways that share it see every change within seconds, and never let anybody in without a
key because a store or a file is missing."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from configs import load_config
from gateway.mcp_gateway import COMMAND
from gateway.postgres import own_server, schema_of, server
from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import (
    RawAnswer,
    RawConnection,
    Scene,
    ScriptedConnection,
    Served,
    answer,
    ask,
    body_of,
    call,
    open_call,
    request_of,
    run_uvicorn,
    stage,
    whole_answer,
)
from toolwire.cli import main
from toolwire.gateway import app
from toolwire.gateway.configuration.live_config import LiveConfig
from toolwire.gateway.features.keys import key_edits, stored_keys
from toolwire.gateway.features.keys.key_records import KeyEdit, KeyRecords, KeyRefused, StoredKeyList
from toolwire.gateway.settings.client_keys import hash_key, make_key, read_stored_keys
from toolwire.gateway.settings.config import ClientKey, StoreSettings
from toolwire.gateway.settings.problems import ConfigError
from toolwire.gateway.store import open_store
from toolwire.gateway.store.store import Store, StoreDown
from toolwire.gateway.surfaces.console.settings import ConsoleSettings
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE

MODELS = '[models]\nfast = "chat/gpt-4.1-s901x"\nlarge = "anthropic/claude-sonnet-4-5-s902x"\n'


@pytest.fixture(scope="module", autouse=True)
def _frequent_polls() -> Iterator[None]:
    """The gateways see a change after 0.05 seconds instead of one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_keys, "POLL_SECONDS", 0.05)
        yield


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/store.db" if request.param == "sqlite" else server().create_schema(schema_of(tmp_path))


@pytest.fixture
def pair(url: str, tmp_path: Path) -> Iterator[list[Served]]:
    """Two gateways on one store."""
    with ExitStack() as stack:
        both = [stack.enter_context(open_stage(tmp_path / name, url)) for name in ("one", "two")]
        for served in both:
            wait_until_loaded(served)
        yield both


def open_stage(folder: Path, url: str, server_lines: str = "", more: str = MODELS) -> Any:
    folder.mkdir()
    lines = f"store_keys = true\nretries = 0\ncooldown_after = 9999\n{server_lines}"
    return stage(folder, lines, f'{more}[store]\nurl = "{url}"\n')


def wait_until_loaded(served: Served) -> None:
    """The first request waits for the keys. What changes after it is in the log."""
    assert ask_with(served, make_key()).status == 401


class Operator:
    """Whoever runs `toolwire keys` with the file of a gateway."""

    def __init__(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._file, self._capsys = file, capsys

    def run(self, *words: str, code: int = 0) -> Any:
        assert main(("keys", *words, "--config", str(self._file), "--json")) == code
        out, err = self._capsys.readouterr()
        return json.loads(out) if code == 0 else err


@pytest.fixture
def operator(tmp_path: Path, pair: list[Served], capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator(tmp_path / "one" / "toolwire.toml", capsys)


def event(served: Served, kind: str, **fields: str) -> dict[str, Any]:
    """The next event of this kind in the log."""
    while True:
        found: dict[str, Any] = json.loads(served.lines.get(timeout=PATIENCE))
        if found.get("event") == kind and all(found.get(name) == value for name, value in fields.items()):
            return found


def wait_for_change(pair: list[Served], name: str, action: str) -> None:
    for served in pair:
        event(served, "client_key_changed", key_name=name, action=action)


def ask_with(served: Served, key: str, model: str = "fast") -> RawAnswer:
    return call(served, "openai-chat", model, False, {"authorization": f"Bearer {key}"} if key else {})


def play(pair: list[Served]) -> None:
    """The models of the file answer."""
    for served in pair:
        served.wire.scenes[b"s901x"] = Scene("s901x", "chat/gpt-4.1-s901x", [whole_answer("openai-chat")])
        served.wire.scenes[b"s902x"] = Scene("s902x", "anthropic/claude-sonnet-4-5-s902x", [whole_answer("anthropic")])


# --- changes ---


def test_every_gateway_sees_every_change(pair: list[Served], operator: Operator) -> None:
    play(pair)
    for served in pair:
        assert ask_with(served, make_key()).status == 401
        refused = ask_with(served, "")
        assert (refused.status, "`toolwire keys new NAME --store` makes it" in refused.json()["error"]["message"]) == (
            401,
            True,
        )
    made = operator.run("new", "ana", "--team", "app", "--models", "fast", "--store")
    wait_for_change(pair, "ana", "new")
    lines = [RawConnection(served.port) for served in pair]  # they stay open
    body = encode_json(request_of("openai-chat", "fast", False)).encode()

    def ask_again(key: str) -> list[int]:
        statuses = []
        for line in lines:
            line.send("POST", "/v1/chat/completions", body, {"authorization": f"Bearer {key}"})
            response = line.start()
            statuses.append(response.status)
            response.read()
        return statuses

    assert ask_again(made["key"]) == [200, 200]
    assert [ask_with(served, made["key"], "large").status for served in pair] == [403, 403]
    line = pair[0].line(ask_with(pair[0], made["key"]).id)
    assert (line["key_name"], line["team"]) == ("ana", "app")

    operator.run("limit", "ana", "--models", "fast", "large")
    wait_for_change(pair, "ana", "limit")
    assert [ask_with(served, made["key"], "large").status for served in pair] == [200, 200]

    operator.run("disable", "ana")
    wait_for_change(pair, "ana", "disable")
    assert "the key `ana` has these settings already" in operator.run("disable", "ana", code=2)
    assert ask_again(made["key"]) == [401, 401]
    assert "is disabled" in ask_with(pair[0], made["key"]).json()["error"]["message"]

    operator.run("enable", "ana")
    wait_for_change(pair, "ana", "enable")
    assert ask_again(made["key"]) == [200, 200]

    rotated = operator.run("rotate", "ana", "--grace", "1h")
    wait_for_change(pair, "ana", "rotate")
    assert ask_again(rotated["key"]) == ask_again(made["key"]) == [200, 200]
    again = operator.run("rotate", "ana", "--grace", "0s")
    wait_for_change(pair, "ana", "rotate")
    assert ask_again(again["key"]) == [200, 200]
    assert ask_again(made["key"]) == ask_again(rotated["key"]) == [401, 401]
    for line in lines:
        line.connection.close()


def test_the_audit_log_says_who_did_what_and_has_no_key(pair: list[Served], operator: Operator, url: str) -> None:
    made = operator.run("new", "ana", "--store")
    rotated = operator.run("rotate", "ana")
    operator.run("limit", "ana", "--providers", "anthropic", "--expires", "30d")
    operator.run("new", "ben", "--store")
    said = "".join(json.dumps(event(pair[0], "client_key_changed")) for _ in range(4))
    changes = operator.run("audit")
    assert [(one["name"], one["action"]) for one in changes] == [
        ("ana", "new"), ("ana", "rotate"), ("ana", "limit"), ("ben", "new"),
    ]  # fmt: skip
    assert [one["name"] for one in operator.run("audit", "ben")] == ["ben"]
    assert all("@" in one["author"] and one["at"].endswith("Z") for one in changes)
    assert changes[2]["detail"].startswith("providers anthropic; expires 2")
    shown = json.dumps(changes) + said + json.dumps(operator.run("list"))
    for secret in (made["key"], rotated["key"], made["sha256"], hash_key(rotated["key"])):
        assert secret not in shown

    async def dump() -> str:
        store = open_key_store(url)
        found = await KeyRecords(store).load(None)
        await store.close()
        return str(found)

    stored = asyncio.run(dump())
    assert hash_key(rotated["key"]) in stored
    assert made["key"] not in stored
    assert rotated["key"] not in stored


def test_what_a_key_has_stored_survives_its_rotation(pair: list[Served], operator: Operator) -> None:
    play(pair)
    made = operator.run("new", "ana", "--store")
    other = operator.run("new", "ben", "--store")
    wait_for_change(pair, "ben", "new")
    body = encode_json({"model": "fast", "input": "Hello", "store": True}).encode()
    got = ask(pair[0].port, "POST", "/v1/responses", body, {"authorization": f"Bearer {made['key']}"})
    path = f"/v1/responses/{got.json()['id']}"
    rotated = operator.run("rotate", "ana", "--grace", "0s")
    wait_for_change(pair, "ana", "rotate")

    def fetch(served: Served, key: str) -> int:
        return ask(served.port, "GET", path, headers={"authorization": f"Bearer {key}"}).status

    assert [fetch(served, rotated["key"]) for served in pair] == [200, 200]
    assert [fetch(served, other["key"]) for served in pair] == [404, 404]
    assert [fetch(served, made["key"]) for served in pair] == [401, 401]


# --- it fails closed ---


def test_a_store_that_is_down_lets_nobody_in(tmp_path: Path) -> None:
    """Before the keys were read, keys of the file work, others get 503, and nobody is served without a key."""
    key = make_key()
    lines = f'[[server.keys]]\nname = "file"\nsha256 = "{hash_key(key)}"\n'
    url = "postgresql://nobody@127.0.0.1:1/none"
    with open_stage(tmp_path / "down", url, lines) as served:
        play([served])
        problem = event(served, "client_keys_unavailable")
        assert problem["level"] == "error"
        assert ask_with(served, key).status == 200
        assert ask_with(served, "").status == 401
        got = ask_with(served, make_key())
        assert got.status == 503
        assert "the gateway cannot read its client keys at the moment" in got.json()["error"]["message"]
        assert got.headers["retry-after"] == "5"
        assert b"127.0.0.1" not in got.data  # anybody can ask: where the store is is not said
        assert ask(served.port, "GET", "/metrics").status == 401
        assert not served.wire.scenes[b"s901x"].asked[1:]


def test_a_damaged_file_of_a_store_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"not a database" * 100)
    with open_stage(tmp_path / "damaged", f"sqlite://{tmp_path}/store.db") as served:
        play([served])
        assert [ask_with(served, key).status for key in ("", make_key())] == [401, 503]


def test_known_keys_outlast_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While the store is away nobody can change a key, so those that are known stay in force, and no others."""
    file = tmp_path / "store.db"
    with open_stage(tmp_path / "one", f"sqlite://{file}") as served:
        play([served])
        wait_until_loaded(served)
        operator = Operator(tmp_path / "one" / "toolwire.toml", capsys)
        made = operator.run("new", "ana", "--store")
        wait_for_change([served], "ana", "new")
        for name in os.listdir(tmp_path):
            if name.startswith("store.db"):
                (tmp_path / name).rename(tmp_path / f"away-{name}")
        file.mkdir()
        event(served, "client_keys_unavailable")
        assert ask_with(served, made["key"]).status == 200
        assert ask_with(served, make_key()).status == 401
        assert ask_with(served, "").status == 401
        file.rmdir()
        for name in os.listdir(tmp_path):
            if name.startswith("away-"):
                (tmp_path / name).rename(tmp_path / name.removeprefix("away-"))
        event(served, "client_keys_available")
        operator.run("disable", "ana")
        wait_for_change([served], "ana", "disable")
        assert ask_with(served, made["key"]).status == 401


def test_a_database_that_crashes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gateway that knows its keys goes on. One that starts meanwhile lets nobody in, until the database is back."""
    with own_server() as database:
        url = database.create_schema(schema_of(tmp_path))
        with open_stage(tmp_path / "one", url) as first:
            play([first])
            wait_until_loaded(first)
            operator = Operator(tmp_path / "one" / "toolwire.toml", capsys)
            key = operator.run("new", "ana", "--store")["key"]
            wait_for_change([first], "ana", "new")
            database.stop("immediate")
            event(first, "client_keys_unavailable")
            assert [ask_with(first, one).status for one in (key, make_key(), "")] == [200, 401, 401]
            operator.run("disable", "ana", code=1)
            with open_stage(tmp_path / "two", url) as second:
                play([second])
                assert [ask_with(second, one).status for one in (key, make_key(), "")] == [503, 503, 401]
                database.start()
                event(first, "client_keys_available")
                event(second, "client_keys_available")
                assert [ask_with(served, key).status for served in (first, second)] == [200, 200]
                operator.run("disable", "ana")
                wait_for_change([first, second], "ana", "disable")
                assert [ask_with(served, key).status for served in (first, second)] == [401, 401]


def test_an_emptied_store_takes_all_keys_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new, empty database in place of the old one: nobody has a key any more, and everybody still needs one."""
    file = tmp_path / "store.db"
    with open_stage(tmp_path / "one", f"sqlite://{file}") as served:
        play([served])
        wait_until_loaded(served)
        made = Operator(tmp_path / "one" / "toolwire.toml", capsys).run("new", "ana", "--store")
        wait_for_change([served], "ana", "new")
        assert ask_with(served, made["key"]).status == 200
    for name in os.listdir(tmp_path):
        if name.startswith("store.db"):
            (tmp_path / name).unlink()
    with open_stage(tmp_path / "two", f"sqlite://{file}") as served:
        play([served])
        assert [ask_with(served, key).status for key in ("", made["key"])] == [401, 401]


def test_a_file_that_was_emptied_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    for text in ("[server]\nstore_keys = true\n", '[server]\nhost = "0.0.0.0"\nstore_keys = true\n'):
        file.write_text(text)
        live = LiveConfig(file, {"HOME": str(tmp_path)}, lambda found: None)
        for damaged in ("", "\n", "[server]\n", "[server]\nstore_keys = false\n", "[server]\nstore_ke"):
            file.write_text(damaged)
            assert not live.reload_if_changed(force=True)
            assert live.current.server.store_keys
    file.write_text("[server]\nkeys = []\n")
    assert not live.reload_if_changed(force=True)  # it listens for other machines
    file.write_text("[server]\nstore_keys = true\n")
    live = LiveConfig(file, {"HOME": str(tmp_path)}, lambda found: None)
    file.write_text("[server]\nkeys = []\n")
    assert live.reload_if_changed(force=True)


def test_a_gateway_that_does_not_use_the_keys_of_its_store_says_so(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/store.db"

    async def add() -> None:
        store = open_key_store(url)
        await KeyRecords(store).change("me", "new", key_edits.add_key(ClientKey(name="ana", sha256="ab" * 32)))
        await store.close()

    asyncio.run(add())
    with stage(tmp_path, more=f'[store]\nurl = "{url}"\n') as served:
        found = event(served, "config_problem")
        assert found["message"].startswith("the store has client keys, but this gateway serves everybody")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[server]\nhost = "0.0.0.0"\n', "server.host"),
        ('[server]\nhost = "0.0.0.0"\nstore_keys = false\n', "server.host"),
        ('[server]\nstore_keys = true\n[store]\nurl = "none"\n', "server.store_keys"),
        ("[server]\nstore_keys = 1\n", "server.store_keys"),
        ("[server]\nstore_keys = true\n[console]\nenabled = true\n", "console.enabled"),
    ],
)
def test_what_would_let_others_in_is_refused(tmp_path: Path, text: str, place: str) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(file, {"HOME": str(tmp_path)})
    assert [problem.location for problem in caught.value.problems] == [place]


def test_with_keys_in_the_store_the_gateway_may_listen_for_others(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text('[server]\nhost = "0.0.0.0"\nstore_keys = true\n')
    config = load_config(file, {"HOME": str(tmp_path)})
    assert config.server.needs_keys
    assert not config.section(ConsoleSettings).is_on(config.server)


# --- keys of the store and of the file ---


def test_a_key_of_the_file_wins_over_one_of_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite://{tmp_path}/store.db"
    with open_stage(tmp_path / "one", url):
        made = Operator(tmp_path / "one" / "toolwire.toml", capsys).run("new", "ana", "--store")
    key = make_key()
    lines = f'[[server.keys]]\nname = "ana"\nsha256 = "{hash_key(key)}"\nmodels = ["fast"]\n'
    with open_stage(tmp_path / "two", url, lines) as served:
        play([served])
        assert [ask_with(served, one).status for one in (key, made["key"])] == [200, 401]
        assert "two keys have the name `ana`" in event(served, "client_key_ignored")["message"]
        operator = Operator(tmp_path / "two" / "toolwire.toml", capsys)
        assert "toolwire.toml:" in operator.run("disable", "ana", code=2)
        assert "already" in operator.run("new", "ana", "--store", code=2)


def test_a_key_that_cannot_be_read_is_ignored() -> None:
    """A newer version may have written it: then it may have limits that this one does not know."""
    good = {"name": "ana", "sha256": "ab" * 32}
    tables = [
        good,
        {"name": "later", "sha256": "cd" * 32, "only_at_night": True},
        {"name": "broken"},
        {"name": "odd", "sha256": "ef" * 32, "models": "fast"},
        {"name": "same", "sha256": "AB" * 32},
        {"name": "ben", "sha256": "12" * 32},
    ]
    keys, problems = read_stored_keys(tables, ())
    assert [key.name for key in keys] == ["ana", "ben"]
    assert {problem.location.partition(".")[0] for problem in problems} == {"later", "broken", "odd", "same"}
    keys, _ = read_stored_keys(tables, [ClientKey(name="ana", sha256="99" * 32)])
    assert [key.name for key in keys] == ["same", "ben"]


# --- the records ---


def open_key_store(url: str) -> Store:
    store = open_store(StoreSettings(url=url), {})
    assert store is not None
    return store


def test_changes_at_the_same_time_are_all_kept(url: str) -> None:
    """Two operators change one key: neither change is lost, and the versions are in order."""

    async def run() -> None:
        stores = [open_key_store(url), open_key_store(url)]
        try:
            key = ClientKey(name="ana", sha256="ab" * 32)
            first = await asyncio.gather(
                *(KeyRecords(one).change("me", "new", key_edits.add_key(key)) for one in stores)
            )
            assert {type(one) for one in first} == {KeyEdit, KeyRefused}
            fields: list[dict[str, object]] = [
                {"team": "app"},
                {"models": ("fast",)},
                {"disabled": True},
                {"providers": ("x",)},
            ]
            edits = [key_edits.change_fields("ana", one) for one in fields]
            done = await asyncio.gather(
                *(KeyRecords(stores[number % 2]).change("me", "limit", edit) for number, edit in enumerate(edits))
            )
            assert all(isinstance(one, KeyEdit) for one in done)
            found = await KeyRecords(stores[0]).load(None)
            assert isinstance(found, StoredKeyList)
            ((key,), _) = read_stored_keys(found.tables, ())
            assert (key.team, key.models, key.disabled, key.providers) == ("app", ("fast",), True, ("x",))
            changes = await KeyRecords(stores[1]).list_changes()
            assert isinstance(changes, list)
            assert found.version == (changes[-1].number, changes[-1].at)
            assert await KeyRecords(stores[1]).load(found.version) is None
            since = await KeyRecords(stores[1]).load((changes[1].number, changes[1].at))
            assert isinstance(since, StoredKeyList)
            assert list(since.changes) == changes[2:]
            # A database that was restored from a backup, and changed since, can have the same number again.
            assert isinstance(await KeyRecords(stores[1]).load((found.version[0], 1.0)), StoredKeyList)
        finally:
            for store in stores:
                await store.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "edit",
    [
        key_edits.change_fields("nobody", {"disabled": True}),
        key_edits.rotate_key("nobody", "cd" * 32, time.time(), 60),
        key_edits.change_fields("ana", {"disabled": False}),
        key_edits.add_key(ClientKey(name="ana", sha256="cd" * 32)),
    ],
    ids=["unknown", "unknown-rotate", "unchanged", "taken"],
)
def test_a_change_that_is_refused_leaves_no_trace(url: str, edit: Callable[..., Any]) -> None:
    async def run() -> None:
        store = open_key_store(url)
        try:
            await KeyRecords(store).change("me", "new", key_edits.add_key(ClientKey(name="ana", sha256="ab" * 32)))
            before = await KeyRecords(store).load(None)
            assert isinstance(await KeyRecords(store).change("me", "limit", edit), KeyRefused)
            assert await KeyRecords(store).load(None) == before
        finally:
            await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("body", [b'{"team": "\xff"}', b"[" * 100_000, b"[]", b"{"])
def test_a_damaged_row_is_a_key_that_nobody_can_use(body: bytes, tmp_path: Path) -> None:
    async def run() -> None:
        store = open_key_store(f"sqlite://{tmp_path}/store.db")
        try:
            statement = "INSERT INTO toolwire_client_keys (name, body) VALUES ($1, $2)"
            await store.run_sql(lambda rows, _: rows.fetch(statement, "ana", body), writes=True)
            found = await KeyRecords(store).load(None)
            assert isinstance(found, StoredKeyList)
            keys, problems = read_stored_keys(found.tables, ())
            assert (found.tables, keys, len(problems)) == (({"name": "ana"},), (), 1)
        finally:
            await store.close()

    asyncio.run(run())


def test_a_store_that_is_down_is_a_value() -> None:
    async def run() -> None:
        store = open_key_store("postgresql://nobody@127.0.0.1:1/none")
        try:
            records = KeyRecords(store)
            edit = key_edits.add_key(ClientKey(name="ana", sha256="ab" * 32))
            for answer in (
                await records.load(None),
                await records.change("me", "new", edit),
                await records.list_changes(),
            ):
                assert isinstance(answer, StoreDown)
        finally:
            await store.close()

    asyncio.run(run())


# --- requests that have begun ---


def test_nothing_more_is_sent_for_a_key_that_was_disabled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The provider fails after the key was disabled: the fallback is not asked, in the foreground and in the
    background."""
    both = '[models.both]\nprovider = "chat"\nmodel = "gpt-4.1-s903x"\nfallbacks = ["fast"]\n'
    with open_stage(tmp_path / "one", f"sqlite://{tmp_path}/store.db", more=MODELS + both) as served:
        play([served])
        wait_until_loaded(served)
        operator = Operator(tmp_path / "one" / "toolwire.toml", capsys)
        for number, background in enumerate((False, True)):
            name = f"ana-{number}"
            headers = {"authorization": f"Bearer {operator.run('new', name, '--store')['key']}"}
            wait_for_change([served], name, "new")
            scene = served.wire.scenes[b"s903x"] = Scene("s903x", "chat/gpt-4.1-s903x", [fail_when_told])
            line = RawConnection(served.port)
            body = encode_json({"model": "both", "input": "Hello", "background": background}).encode()
            line.send("POST", "/v1/responses", body, headers)
            assert scene.reached.wait(PATIENCE)
            operator.run("disable", name)
            wait_for_change([served], name, "disable")
            scene.go.set()
            response = line.start()
            said = json.loads(response.read())
            if background:
                operator.run("enable", name)
                wait_for_change([served], name, "enable")
                path = f"/v1/responses/{said['id']}?stream=true"
                last = ask(served.port, "GET", path, headers=headers).frames[-1]
                assert '"response.failed"' in json.dumps(last.data)
            else:
                assert response.status == 500  # the first provider's error, as always
            assert not served.wire.scenes[b"s901x"].asked
            line.connection.close()


def fail_when_told(connection: ScriptedConnection) -> None:
    connection.wait_for_release()
    connection.send(answer(500, b"{}"))


def test_the_next_round_of_tools_is_not_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mcp = f'[mcp.docs]\n{COMMAND}\ntools = ["echo"]\nmodels = ["*"]\n'
    called = body_of("openai-chat", ScriptedAnswer("", (("docs__echo", {"text": "hi"}),)))

    def call_when_told(connection: ScriptedConnection) -> None:
        connection.wait_for_release()
        connection.send(answer(200, encode_json(called).encode()))

    with open_stage(tmp_path / "one", f"sqlite://{tmp_path}/store.db", more=MODELS + mcp) as served:
        wait_until_loaded(served)
        operator = Operator(tmp_path / "one" / "toolwire.toml", capsys)
        key = operator.run("new", "ana", "--store")["key"]
        wait_for_change([served], "ana", "new")
        scene = served.wire.scenes[b"s901x"] = Scene(
            "s901x", "chat/gpt-4.1-s901x", [call_when_told, whole_answer("openai-chat")]
        )
        line = open_call(served, "openai-chat", "fast", False, {"authorization": f"Bearer {key}"})
        assert scene.reached.wait(PATIENCE)
        operator.run("limit", "ana", "--models", "fast")  # a change that takes nothing away
        wait_for_change([served], "ana", "limit")
        operator.run("disable", "ana")
        wait_for_change([served], "ana", "disable")
        scene.go.set()
        response = line.start()
        assert (response.status, "is disabled" in response.read().decode()) == (401, True)
        assert len(scene.asked) == 1
        line.connection.close()


def test_without_a_lifespan_the_keys_are_read_with_the_first_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In an ASGI server that starts nothing."""
    file = tmp_path / "toolwire.toml"
    file.write_text(f'[server]\nstore_keys = true\n[store]\nurl = "sqlite://{tmp_path}/store.db"\n')
    operator = Operator(file, capsys)
    key = operator.run("new", "ana", "--store")["key"]
    with run_uvicorn(app(file), lifespan="off") as port:
        path, body = "/v1/chat/completions", encode_json(request_of("openai-chat", "loopback", False)).encode()
        assert ask(port, "POST", path, body, {"authorization": f"Bearer {key}"}).status == 200
        assert ask(port, "POST", path, body).status == 401


# --- the file ---


def test_changes_in_the_file_are_in_the_log(tmp_path: Path) -> None:
    keys = [make_key() for _ in range(3)]
    tables = [f'[[server.keys]]\nname = "key-{n}"\nsha256 = "{hash_key(key)}"\n' for n, key in enumerate(keys)]
    with stage(tmp_path, f"retries = 0\ncooldown_after = 9999\n{tables[0]}{tables[1]}") as served:
        file = tmp_path / "toolwire.toml"
        text = file.read_text().replace(tables[0], f"{tables[0]}disabled = true\n").replace(tables[1], tables[2])
        file.write_text(text)
        found = [event(served, "client_key_changed") for _ in range(3)]
    rows = [(one["key_name"], one["action"], one["detail"]) for one in found]
    assert rows == [("key-0", "change", "disabled true"), ("key-2", "new", "models *"), ("key-1", "remove", "")]
    assert not any(hash_key(key) in json.dumps(found) for key in keys)


# --- limits ---


def test_a_key_has_its_own_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the file and in the store, and they can be changed while the gateway runs."""
    key = make_key()
    lines = f'[[server.keys]]\nname = "file"\nsha256 = "{hash_key(key)}"\nlimits = {{ requests_per_minute = 1 }}\n'
    lines += '[models."chat/*".facts.prices]\ninput = 1\noutput = 1\n'
    with open_stage(tmp_path / "one", f"sqlite://{tmp_path}/store.db", lines) as served:
        play([served])
        operator = Operator(tmp_path / "one" / "toolwire.toml", capsys)
        wait_until_loaded(served)
        made = operator.run("new", "ci", "--store", "--limits", "requests_per_minute=1", "dollars_per_day=5")
        free = operator.run("new", "free", "--store")
        wait_for_change([served], "free", "new")
        for name, secret in (("file", key), ("ci", made["key"])):
            answers = [ask_with(served, secret) for _ in range(3)]  # in two minutes, if one ends between them
            assert {one.status for one in answers} == {200, 429}
            refused = next(one for one in answers if one.status == 429)
            assert f"`key {name} (own)`, 1 requests per minute" in refused.json()["error"]["message"]
        assert [ask_with(served, free["key"]).status for _ in range(3)] == [200, 200, 200]
        changed = operator.run("limit", "ci", "--limits", "requests_per_minute=none")
        assert changed["limits"] == {"dollars_per_day": 5.0}
        wait_for_change([served], "ci", "limit")
        assert [ask_with(served, made["key"]).status for _ in range(3)] == [200, 200, 200]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/files", 403),
        ("GET", "/v1/files/file-of-another", 404),
        ("DELETE", "/v1/files/file-of-another", 404),
        ("GET", "/v1/batches", 403),
        ("GET", "/v1/responses/resp_of_another", 404),
        ("GET", "/v1/conversations/conv_of_another", 404),
    ],
)
def test_keys_of_the_store_do_not_share_an_account(
    shared_gateway: tuple[Served, str], method: str, path: str, status: int
) -> None:
    """What is guarded among keys of the file is guarded among keys of the store, also if the file has none."""
    served, key = shared_gateway
    got = ask(served.port, method, path, headers={"authorization": f"Bearer {key}"})
    assert got.status == status, got.data


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    folder = tmp_path_factory.mktemp("shared")
    url = f"sqlite://{folder}/store.db"
    key = make_key()

    async def add() -> None:
        store = open_key_store(url)
        await KeyRecords(store).change("me", "new", key_edits.add_key(ClientKey(name="ana", sha256=hash_key(key))))
        await store.close()

    asyncio.run(add())
    with open_stage(folder / "one", url) as served:
        yield served, key
