"""`toolwire keys`: what it prints, and what it writes into a configuration file."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cli.terminal_golden import check_golden
from configs import load_config
from forked_commands import trust_file
from toolwire.cli import main
from toolwire.gateway.configuration.key_file import append_table, replace_file
from toolwire.gateway.configuration.live_config import LiveConfig
from toolwire.gateway.settings.config import ClientKey, LimitAmounts

HASHES = {name: hashlib.sha256(f"tw-key-of-{name}".encode()).hexdigest() for name in ("ann", "ben")}
TWO_KEYS = f"""\
[server]
port = 9000

[[server.keys]]
name = "ann"
sha256 = "{HASHES["ann"]}"
metrics = true

[[server.keys]]  # the cheap models
name = "ben"
sha256 = "{HASHES["ben"]}"
models = ["fast", "claude-*"]
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    for name in ("TOOLWIRE_CONFIG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*words: str) -> tuple[int, str, str]:
        trust_file(tmp_path, os.environ)
        code = main(("keys", *words))
        out, err = capsys.readouterr()
        return code, out, err

    return run


def hash_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


# --- on a terminal ----------------------------------------------------------------------------------------------------


def test_new_on_a_terminal(folder: Path) -> None:
    check_golden("keys-new", ["keys", "new", "ann", "--models", "fast", "claude-*"], folder)


def test_write_on_a_terminal(folder: Path) -> None:
    file = folder / "toolwire.toml"
    words = ["keys", "new", "cem", "--write"]
    check_golden("keys-write", words, folder, prepare=lambda: file.write_text(TWO_KEYS))
    check_golden("keys-write-first", words, folder, prepare=lambda: file.write_text("[server]\nport = 9000"))
    check_golden("keys-write-new-file", words, folder, prepare=lambda: file.unlink(missing_ok=True))


def test_list_on_a_terminal(folder: Path) -> None:
    check_golden("keys-list-nothing", ["keys", "list"], folder)
    (folder / "toolwire.toml").write_text(TWO_KEYS)
    check_golden("keys-list", ["keys", "list"], folder)
    check_golden("keys-new-twice", ["keys", "new", "ben"], folder, code=2)


# --- new --------------------------------------------------------------------------------------------------------------


def test_new_prints_the_key_and_its_lines(run: Any, tmp_path: Path) -> None:
    code, out, err = run("new", "ann", "--models", "fast", "claude-*")
    key, blank, *lines = out.splitlines()
    assert (code, blank) == (0, "")
    assert re.fullmatch(r"tw-[A-Za-z0-9]{43}", key)
    assert key not in err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "toolwire.toml").write_text("\n".join(lines))
    expected = ClientKey(name="ann", sha256=hash_of(key), models=("fast", "claude-*"))
    assert load_config("toolwire.toml", {}).server.keys == (expected,)


def test_every_key_is_another_one(run: Any) -> None:
    assert run("new", "ann")[1].splitlines()[0] != run("new", "ann")[1].splitlines()[0]


def test_write_prints_only_the_key(run: Any, tmp_path: Path) -> None:
    code, out, _ = run("new", "ann", "--write")
    key = out.removesuffix("\n")
    text = (tmp_path / "toolwire.toml").read_text()
    assert (code, key not in text, hash_of(key) in text) == (0, True, True)
    assert load_config("toolwire.toml", {}).server.keys == (ClientKey(name="ann", sha256=hash_of(key)),)


def test_json(run: Any, tmp_path: Path) -> None:
    code, out, err = run("new", "ann", "--json")
    document = json.loads(out)
    assert (code, err, document["file"], document["line"]) == (0, "", None, None)
    assert hash_of(document["key"]) == document["sha256"]
    assert document["lines"] == f'[[server.keys]]\nname = "ann"\nsha256 = "{document["sha256"]}"\nmodels = ["*"]\n'
    (tmp_path / "toolwire.toml").write_text("[server]\n")
    written = json.loads(run("new", "ann", "--json", "--write")[1])
    assert (written["file"], written["line"]) == ("toolwire.toml", 3)
    assert (tmp_path / "toolwire.toml").read_text() == f"[server]\n\n{written['lines']}"


def test_names_and_patterns_are_quoted(run: Any) -> None:
    name, pattern = 'Ann "the [boss]" \\ Müller', "it's-*"
    key = json.loads(run("new", name, "--models", pattern, "--write", "--json")[1])
    assert load_config("toolwire.toml", {}).server.keys == (
        ClientKey(name=name, sha256=key["sha256"], models=(pattern,)),
    )


FILES = {
    "empty": b"",
    "blank": b"\n\n",
    "comment": b"# nothing yet",
    "no line end": b"[server]\nport = 9000",
    "one line end": b"[server]\nport = 9000\n",
    "windows": b"[server]\r\nport = 9000\r\n",
    "windows, no line end": b"[server]\r\nport = 9000",
    "byte order mark": b"\xef\xbb\xbf[server]\nport = 9000\n",
    "keys": TWO_KEYS.encode(),
    "server after its keys": TWO_KEYS[TWO_KEYS.index("[[") :].encode() + b"[server]\nport = 9000\n",
    "a host that needs keys": b'[server]\nhost = "0.0.0.0"\n',
    "subtables": b"[server.timeouts]\nconnect = 3\n",
    "another list": b'[[policy]]\nname = "x"\ntool = "web_*"\ndrop = true\n',
    "text of several lines": b'[[policy]]\ntool = "x"\ndrop = true\nguidance = """\n[[server.keys]]\nEnd.""" # comment',
    "dotted": b"server.port = 9000\n",
    "old names": b"[server]\nrest = 3\n",
    "odd characters": '# Schlüssel für Ümit\n[models]\n"ü" = "loopback/loopback"\n\t\n'.encode(),
    "variables that are not set": b'[store]\nurl_env = "NOT_SET"\nkey_env = "NOT_SET"\n[server]\nsecret_env = "NOT_SET"\n',
}


@pytest.mark.parametrize("case", FILES)
def test_nothing_else_in_the_file_changes(case: str, run: Any, tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_bytes(FILES[case])
    file.chmod(0o640)
    code, out, err = run("new", "new one", "--write", "--json")
    assert code == 0, err
    data, document = file.read_bytes(), json.loads(out)
    added = data.removeprefix(FILES[case])
    assert data == FILES[case] + added
    assert added.decode().replace("\r\n", "\n").strip("\n") == document["lines"].strip("\n")
    if b"\r\n" in FILES[case]:
        assert added.count(b"\n") == added.count(b"\r\n")
    assert file.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [file]
    assert data.decode().splitlines()[document["line"] - 1] == "[[server.keys]]"
    assert "new one" in run("list")[1]


REFUSED = {
    "an empty list": ("[server]\nkeys = []\n", "toolwire.toml:2: a key cannot be added"),
    "a list of tables": (
        f'[server]\nkeys = [{{name = "a", sha256 = "{HASHES["ann"]}"}}]\n',
        ":2: a key cannot be added",
    ),
    "a table in one line": ("server = { port = 9000 }\n", ":1: a key cannot be added"),
    "not TOML": ("[server\n", "toolwire.toml:1: invalid TOML"),
    "not a server": ("server = 3\n", "`server` must be a table"),
    "a mistake": ("[server]\nprot = 3\n", "toolwire.toml:2: unknown key `prot`\nhint: did you mean `port`?"),
    "a mistake elsewhere": ('[models]\nx = "nobody/x"\n', "toolwire.toml:2: unknown provider `nobody`"),
    "a key that is not valid": ('[[server.keys]]\nname = "a"\nsha256 = "tw-plain"\n', ":3: not a SHA-256 hash"),
    "the same name": (TWO_KEYS.replace('"ann"', '"new one"'), ":4: a key has the name `new one` already"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_files_that_are_refused(case: str, run: Any, tmp_path: Path) -> None:
    text, problem = REFUSED[case]
    file = tmp_path / "toolwire.toml"
    file.write_text(text)
    code, out, err = run("new", "new one", "--write")
    assert (code, out) == (2, "")
    assert problem in err
    assert file.read_text() == text
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["new"], "whose key is it?"),
        (["new", " "], "the name of a key must have letters"),
        (["new", "a\nb"], "the name of a key must have letters"),
        (["new", "a", "--models", "fast,slow"], "--models: `fast,slow` is not a name or a pattern"),
        (["new", "a", "--models", ""], "--models: `` is not a name or a pattern"),
        (["new", "a", "--config", "nowhere.toml", "--write"], "nowhere.toml: cannot be read: No such file"),
        (["list", "ann"], "`list` takes no NAME"),
        (["list", "--write"], "`list` takes no --write"),
        (["list", "--mcp-servers", "docs"], "`list` takes no --mcp-servers"),
        (["disable", "ann", "--models", "fast"], "`disable` takes no --models"),
        (["new", "ann", "--grace", "1h"], "`new` takes no --grace"),
        (["new", "ann", "--write", "--store"], "--write and --store exclude each other"),
        (["new", "ann", "--team", "\x07"], "the name of a team must have letters"),
        (["new", "ann", "--expires", "soon"], "--expires: `soon` is not a time"),
        (["new", "ann", "--expires", "2020-01-01"], "--expires: `2020-01-01` has passed"),
        (["new", "ann", "--store"], "no gateway would use the keys of the store"),
        (["new", "a*"], "the name of a key cannot have `*` or `?`"),
        (["new", "ann", "--limits", "dollars=5"], "--limits: unknown amount `dollars`"),
        (["new", "ann", "--limits", "dollars_per_day=-5"], "--limits: `dollars_per_day=-5` is not an amount"),
        (["new", "ann", "--limits", "parallel_requests=[]"], "--limits: `parallel_requests=[]` is not an amount"),
        (["disable"], "whose key is it?"),
        (["rotate", "ann"], "no gateway would use the keys of the store"),
        (["rotate", "ann", "--grace", "later"], "--grace: `later` is not a duration"),
        (["limit", "ann"], "what may the key do?"),
        ([], "missing: action"),
    ],
)
def test_bad_usage(words: list[str], problem: str, run: Any, tmp_path: Path) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {problem}")
    assert "\nhint: " in err
    assert list(tmp_path.iterdir()) == []


# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_file_in_force_is_used(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, home = tmp_path / "other.toml", tmp_path / ".config" / "toolwire" / "toolwire.toml"
    home.parent.mkdir(parents=True)
    for file in (home, other):
        file.write_text("")
    run("new", "ann", "--write")
    assert 'name = "ann"' in home.read_text()
    run("new", "ben", "--write", "--config", str(other))
    monkeypatch.setenv("TOOLWIRE_CONFIG", str(other))
    run("new", "cem", "--write")
    assert [key.name for key in load_config(other, {}).server.keys] == ["ben", "cem"]
    assert not (tmp_path / "toolwire.toml").exists()


def test_links_stay_links(run: Any, tmp_path: Path) -> None:
    target = tmp_path / "real" / "team.toml"
    target.parent.mkdir()
    target.write_text("")
    link = tmp_path / "toolwire.toml"
    link.symlink_to("real/team.toml")
    assert run("new", "ann", "--write")[0] == 0
    assert link.is_symlink()
    assert 'name = "ann"' in target.read_text()
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_the_owner_stays(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text("")
    os.chown(file, 1234, 2345)
    assert run("new", "ann", "--write")[0] == 0
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 2345)


def test_a_file_that_changes_meanwhile_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_bytes(b"[server]\n")
    with pytest.raises(OSError, match="changed at the same time"):
        replace_file(file, b"", append_table(b"", "x"))
    assert file.read_bytes() == b"[server]\n"
    assert list(tmp_path.iterdir()) == [file]


def test_a_running_gateway_reads_the_key(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(TWO_KEYS)
    live = LiveConfig(file, {}, lambda problems: None)
    run("new", "cem", "--write")
    assert live.reload_if_changed()
    assert [key.name for key in live.current.server.keys] == ["ann", "ben", "cem"]


# --- list -------------------------------------------------------------------------------------------------------------


def test_list_shows_no_hash(run: Any, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text(TWO_KEYS)
    code, out, err = run("list")
    assert (code, err) == (0, "")
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "name team may use state place hash",
        f"ann * and /metrics toolwire.toml:4 {HASHES['ann'][:8]}…",
        f"ben fast, claude-* toolwire.toml:9 {HASHES['ben'][:8]}…",
    ]
    document = json.loads(run("list", "--json")[1])
    assert [(key["name"], key["models"], key["line"]) for key in document] == [
        ("ann", ["*"], 4),
        ("ben", ["fast", "claude-*"], 9),
    ]
    assert not any(sha256[:9] in run("list", *more)[1] for sha256 in HASHES.values() for more in ((), ("--json",)))


def test_list_of_nothing(run: Any, tmp_path: Path) -> None:
    assert json.loads(run("list", "--json")[1]) == []
    code, out, err = run("list")
    assert (code, out) == (0, "")
    assert "toolwire keys new NAME --write" in err


# --- what a key may do ------------------------------------------------------------------------------------------------


def test_rights_are_written_to_the_file_and_shown(run: Any, tmp_path: Path) -> None:
    rights = ["--team", "app", "--models", "fast", "--providers", "anthropic", "--mcp-servers", "docs"]
    rights += ["--limits", "dollars_per_day=5", "tokens_per_day=1_000_000"]
    code, out, _ = run("new", "ana", *rights, "--expires", "2126-12-31", "--write", "--json")
    assert code == 0
    (key,) = load_config(tmp_path / "toolwire.toml", {}).server.keys
    expected = {"team": "app", "models": ("fast",), "providers": ("anthropic",), "mcp_servers": ("docs",)}
    limits = LimitAmounts(dollars_per_day=5.0, tokens_per_day=1_000_000)
    digest = hash_of(json.loads(out)["key"])
    assert key == ClientKey(name="ana", sha256=digest, expires="2126-12-31", limits=limits, **expected)
    (document,) = json.loads(run("list", "--json")[1])
    assert {name: document[name] for name in (*expected, "expires", "disabled")} == {
        "team": "app",
        "models": ["fast"],
        "providers": ["anthropic"],
        "mcp_servers": ["docs"],
        "expires": "2126-12-31",
        "disabled": False,
    }
    assert "fast; of anthropic; 1,000,000 tokens per day, $5 per day; MCP: docs" in run("list")[1]


def test_a_duration_becomes_a_time(run: Any, tmp_path: Path) -> None:
    lines = json.loads(run("new", "ana", "--expires", "30d", "--json")[1])["lines"]
    assert re.search(r'^expires = "20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"$', lines, re.MULTILINE)
    assert "expires" not in json.loads(run("new", "ana", "--expires", "never", "--json")[1])["lines"]


def test_a_key_of_the_file_is_changed_there(run: Any, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text(TWO_KEYS.replace("port = 9000", "store_keys = true"))
    for words in (["disable", "ben"], ["limit", "ben", "--models", "x"], ["rotate", "ben"]):
        code, _, err = run(*words)
        assert code == 2
        assert "the key `ben` is in toolwire.toml:9, not in the store" in err


def test_a_store_that_is_down_is_said_in_one_line(run: Any, tmp_path: Path) -> None:
    url = "postgresql://nobody:hunter2@127.0.0.1:1/none"
    (tmp_path / "toolwire.toml").write_text(f'[server]\nstore_keys = true\n[store]\nurl = "{url}"\n')
    for words in (["list"], ["audit"], ["new", "ana", "--store"], ["disable", "ana"]):
        code, out, err = run(*words)
        assert (code, out) == (1, "")
        assert err.startswith("error: ")
        assert "toolwire doctor" in err
        assert "hunter2" not in err


# --- the key of the console -------------------------------------------------------------------------------------------


def test_the_consoles_key_is_printed_with_its_lines(run: Any) -> None:
    code, out, err = run("new", "ann", "--console")
    key, _, lines = out.partition("\n\n")
    assert code == 0
    assert tomllib.loads(lines) == {"console": {"sha256": hash_of(key)}}
    assert "# the key of ann" in lines
    assert "browser" in err
    shown = json.loads(run("new", "ann", "--console", "--json")[1])
    assert (shown["sha256"], shown["file"]) == (hash_of(shown["key"]), None)


@pytest.mark.parametrize(
    "before",
    [
        "",
        "[server]\nport = 9000",
        "[console]\n",
        "[console]",
        "[console]  # what is seen\nmax_bytes = 1000000\n\n[server]\nport = 9000\n",
        "[server]\r\nport = 9000\r\n[console]\r\nenabled = true\r\n",
        TWO_KEYS,
        f"{TWO_KEYS}[console]\nenabled = true\n",
        None,
    ],
)
def test_the_consoles_key_is_added_and_nothing_else_changes(before: str | None, run: Any, tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    if before is not None:
        file.write_bytes(before.encode())
    code, out, err = run("new", "ann", "--console", "--write")
    assert code == 0
    after = file.read_bytes().decode()
    table = {"sha256": hash_of(out.strip())}
    old = tomllib.loads(before or "")
    assert tomllib.loads(after) == {**old, "console": {**old.get("console", {}), **table}}
    place = int(re.search(r"toolwire\.toml:(\d+)", "".join(err.split()))[1])  # type: ignore[index]
    assert "sha256" in after.splitlines()[place - 1]
    assert after.count("\r\n") in (0, after.count("\n"))
    for line in (before or "").splitlines():
        assert line in after.splitlines()


@pytest.mark.parametrize(
    ("before", "problem"),
    [
        (f'[console]\nsha256 = "{HASHES["ann"]}"\n', "has a key already"),
        ("console = { enabled = true }\n", "cannot be added"),
        ("console = {}\n", "cannot be added"),
        ("console.enabled = true\n", "cannot be added"),
    ],
)
def test_files_that_do_not_take_the_consoles_key(before: str, problem: str, run: Any, tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(before)
    code, out, err = run("new", "ann", "--console", "--write")
    assert code != 0
    assert problem in err
    assert out == ""
    assert file.read_text() == before


@pytest.mark.parametrize(
    "words", [["--store"], ["--team", "app"], ["--models", "fast"], ["--limits", "dollars_per_day=1"]]
)
def test_the_consoles_key_is_no_clients_key(words: list[str], run: Any) -> None:
    code, out, err = run("new", "ann", "--console", *words)
    assert (code, out) == (2, "")
    assert "key of the console" in err
