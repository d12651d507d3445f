"""`toolwire store`: stats, gc and export, and what happens if the store cannot be used."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from configs import load_config
from gateway.postgres import PASSWORD, schema_of, server
from toolwire.gateway.features.costs.ledger import LedgerRow
from toolwire.gateway.features.costs.ledger_sqlite import SqliteLedger
from toolwire.gateway.settings.config import ClientKey
from toolwire.gateway.store import open_store, postgres_pool, sqlite_worker
from toolwire.gateway.store.repository import owner_of
from toolwire.gateway.store.sqlite import SqliteStore
from toolwire.gateway.store.store import Entry
from waits import free_port

KEY = ClientKey(name="ci", sha256="dbfc93fc9b0178455673a3bd50c368d32c8b386da6e46989b9a16a0e2f36bf2e")
OWNER = owner_of(KEY)
CLIENTS = f'[[server.keys]]\nname = "ci"\nsha256 = "{KEY.sha256}"\n'
ENTRIES = (
    Entry(
        owner=OWNER, kind="response", id="r1", body=b'{\n  "n": 1.50,\n "s": "\\u00e9"}', mark="completed", created=5.0
    ),
    Entry(owner=OWNER, kind="response", id="r2", body=b"\xff\x00", parent="r1", created=6.0),
    Entry(owner=OWNER, kind="item", id="i1", place=3, parent="r2", created=7.0),
    Entry(owner="", kind="seal", id="call_\0", body=b'"' + b"x" * 200_000 + b'"', created=8.0),
    Entry(owner="", kind="seal", id="old", body=b"1", created=4.0, expires=9.0),
)


def store_url(backend: str, folder: Path) -> str:
    return f"sqlite://{folder}/kept/store.db" if backend == "sqlite" else server().create_schema(schema_of(folder))


@pytest.fixture
def run(run_alone: Any) -> Any:
    return partial(run_alone, "store")


@pytest.fixture(params=["sqlite", "postgres"])
def filled_store(request: pytest.FixtureRequest, tmp_path: Path, run: Any) -> str:
    """The kind of store that `toolwire.toml` names and that holds `ENTRIES`."""
    url = store_url(request.param, tmp_path)
    (tmp_path / "toolwire.toml").write_text(f'{CLIENTS}[store]\nurl = "{url}"\nmax_bytes = 2147483648\n')
    store = open_store(load_config(tmp_path / "toolwire.toml", os.environ).store, os.environ)
    assert store is not None

    async def fill() -> None:
        assert await store.put(ENTRIES) is True
        await store.close()

    asyncio.run(fill())
    return str(request.param)


def collapse_spaces(out: str) -> list[str]:
    return [" ".join(line.split()) for line in out.splitlines()]


def test_stats(run: Any, filled_store: str) -> None:
    code, out, err = run("stats")
    assert (code, err) == (0, "")
    lines = collapse_spaces(out)
    place = {
        "sqlite": rf"store .*/kept/store\.db, schema version {len(sqlite_worker.MIGRATIONS)}",
        "postgres": rf"store PostgreSQL at .*:\d+, database postgres, schema version {len(postgres_pool.MIGRATIONS)}",
    }
    assert re.fullmatch(place[filled_store], lines[0])
    assert re.fullmatch(r"size \d+\.\d KiB of at most 2\.0 GiB", lines[1])
    assert lines[2:] == [
        "entries 4 of 2 owners, the oldest from 1970-01-01 00:00 UTC",
        "expired 1 (`toolwire store gc` removes them)",
        "encrypted no",
        "kinds",
        "item 1 0 bytes",
        "response 2 32 bytes",
        "seal 1 195.3 KiB",
    ]
    assert "\x1b" not in out


@pytest.mark.usefixtures("filled_store")
def test_stats_json(run: Any) -> None:
    code, out, err = run("stats", "--json")
    assert (code, err) == (0, "")
    stats = json.loads(out)
    assert stats["kinds"][1] == {"kind": "response", "entries": 2, "bytes": 32}
    assert (stats["owners"], stats["expired"], stats["oldest"], stats["limit"]) == (2, 1, 5.0, 2147483648)


@pytest.mark.usefixtures("filled_store")
def test_gc_removes_expired_entries_once(run: Any) -> None:
    assert run("gc") == (0, "expired                 1\nover the limit          0\nold rows of the ledger  0\n", "")
    assert run("gc", "--json") == (0, '{\n  "expired": 0,\n  "crowded": 0,\n  "ledger_rows": 0\n}\n', "")


def test_gc_reaches_the_limit_and_removes_no_entry_for_the_ledger(run: Any, tmp_path: Path) -> None:
    """The ledger has taken most of the file: its old rows go first."""
    file, limit = tmp_path / "store.db", 600_000

    async def fill() -> None:
        store = SqliteStore(file)
        assert await store.put([Entry(owner="", kind="seal", id=f"s{n}", body=bytes(2000)) for n in range(50)]) is True
        names = ("", "chat", "s", "ci", "", "agent", "", "openai", "", "gpt")
        rows = [LedgerRow(f"{n}", 1.0 + n, *names, 1, 1, None, None, None, 1, None, False) for n in range(8000)]
        for start in range(0, len(rows), 500):
            assert await SqliteLedger(store).add_rows(rows[start : start + 500]) is None
        await store.close()

    asyncio.run(fill())
    assert file.stat().st_size > limit
    (tmp_path / "toolwire.toml").write_text(
        f'[store]\nurl = "sqlite://{file}"\nmax_bytes = {limit}\n[costs]\nrow_ttl = 0\nttl = 0\n'
    )
    code, out, _ = run("gc", "--json")
    assert (code, json.loads(out)) == (0, {"expired": 0, "crowded": 0, "ledger_rows": 8000 - 375})
    assert file.stat().st_size < limit


@pytest.mark.usefixtures("filled_store")
def test_export_writes_a_line_per_entry(run: Any) -> None:
    code, out, err = run("export")
    assert (code, err) == (0, "")
    lines = {line["id"]: line for line in map(json.loads, out.splitlines())}
    assert list(lines) == list({line["id"]: 0 for line in map(json.loads, run("export", "-")[1].splitlines())})
    assert lines.keys() == {"r1", "r2", "i1", "call_\0"}
    expires = lines["r1"].pop("expires")
    assert expires > 1_700_000_000
    assert lines["r1"] == {
        "owner": OWNER, "key": "ci", "kind": "response", "id": "r1", "parent": "", "place": 0, "mark": "completed",
        "created": 5.0, "body": {"n": 1.5, "s": "é"},
    }  # fmt: skip
    assert '"body":{"n":1.50,"s":"\\u00e9"}' in out  # as it was written
    assert lines["r2"]["body_base64"] == "/wA="
    assert "body" not in lines["r2"]
    assert (lines["i1"]["place"], lines["i1"]["parent"], lines["i1"]["body_base64"]) == (3, "r2", "")
    assert "key" not in lines["call_\0"]
    assert lines["call_\0"]["body"] == "x" * 200_000


@pytest.mark.usefixtures("filled_store")
@pytest.mark.parametrize(
    ("who", "ids"),
    [
        ("ci", {"r1", "r2", "i1"}),
        (KEY.sha256, {"r1", "r2", "i1"}),
        (OWNER, {"r1", "r2", "i1"}),
        ("", {"call_\0"}),
        ("abc", set()),
    ],
)
def test_export_of_one_owner(run: Any, who: str, ids: set[str]) -> None:
    code, out, err = run("export", "--owner", who)
    assert (code, err) == (0, "")
    assert {json.loads(line)["id"] for line in out.splitlines()} == ids


@pytest.mark.usefixtures("filled_store")
def test_export_file_is_private(run: Any, tmp_path: Path) -> None:
    assert run("export", "kept.jsonl") == (0, "", "4 entries\n")
    file = tmp_path / "kept.jsonl"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text() == run("export")[1]
    assert not (tmp_path / "kept.jsonl.part").exists()
    code, out, err = run("export", "nowhere/kept.jsonl")
    assert (code, out) == (2, "")
    assert err == "error: cannot write nowhere/kept.jsonl: No such file or directory\nhint: check the path\n"


@pytest.mark.usefixtures("filled_store")
def test_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    command = f"'{sys.executable}' -m toolwire.cli store export --config toolwire.toml | head -c 1"
    ended = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=tmp_path, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"{", b"")


def test_default_file(run: Any, tmp_path: Path) -> None:
    code, out, _ = run("stats")
    assert code == 0
    version = len(sqlite_worker.MIGRATIONS)
    assert collapse_spaces(out)[0] == f"store {tmp_path}/state/toolwire/store.db, schema version {version}"
    assert collapse_spaces(out)[2:] == ["entries 0 of 0 owners", "expired 0", "encrypted no"]


@pytest.mark.parametrize("words", [("stats",), ("stats", "--json"), ("gc",), ("export",), ("export", "kept.jsonl")])
def test_store_down_exits_with_1(run: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    port = free_port()
    (tmp_path / "other.toml").write_text(f'[store]\nurl = "postgresql://me:{PASSWORD}@127.0.0.1:{port}/kept"\n')
    code, out, err = run(*words, "--config", "other.toml")
    assert (code, out) == (1, "")
    assert err == (
        f"error: the store in PostgreSQL at 127.0.0.1:{port}, database kept cannot be used: the server refuses connections\n"
        "hint: `toolwire doctor` checks the store and shows which one is configured\n"
    )
    assert {path.name for path in tmp_path.iterdir()} <= {"other.toml", "state"}


def test_undecryptable_entry_exits_with_1(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text('[store]\nkey_env = "STORE_KEY"\n')
    monkeypatch.setenv("STORE_KEY", "a-key-that-is-long-enough")
    store = open_store(load_config(file, os.environ).store, os.environ)
    assert store is not None

    async def fill() -> None:
        assert await store.put([Entry(owner="", kind="seal", id="s", body=b'"secret"')]) is True
        await store.close()

    asyncio.run(fill())
    assert '"body":"secret"' in run("export")[1]
    monkeypatch.setenv("STORE_KEY", "another-that-is-long-enough")
    code, out, err = run("export")
    assert (code, out) == (1, "")
    assert err.startswith("error: the seal `s` is encrypted, and no key in STORE_KEY fits")


BAD = {
    "unknown action": ("", ("grow",), "error: unknown action `grow`\nhint: choose from: stats, gc, export"),
    "a file for a count": ("", ("stats", "f"), "error: `stats` takes neither FILE nor --owner\nhint: use them with"),
    "an owner for a sweep": ("", ("gc", "--owner", "ci"), "error: `gc` takes neither FILE nor --owner"),
    "unknown key": (
        CLIENTS,
        ("export", "--owner", "cj"),
        "error: unknown client key `cj`\nhint: choose from: ci",
    ),
    "no keys": ("", ("export", "--owner", "ci"), "hint: without [[server.keys]] everything belongs to the owner ''"),
    "nothing stored": (
        '[store]\nurl = "none"',
        ("stats",),
        "error: nothing is stored: `url` in [store] is `none`\nhint: ",
    ),
    "a bad file": ('[store]\nurl = "mysql://x"', ("gc",), "error: toolwire.toml:2: not a valid store URL\nhint: "),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_usage_exits_with_2(run: Any, tmp_path: Path, name: str) -> None:
    file, words, message = BAD[name]
    (tmp_path / "toolwire.toml").write_text(file)
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert message in err
