"""A damaged configuration file never switches off what the running one protects: on reload, and for a new worker."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs import load_config
from forked_commands import run_command
from gateway.process import Process, run_gateway
from gateway.raw_exchange import CLIENT_KEY, Served, ask, stage
from step_count import count_steps
from toolwire.gateway.app import Gateway
from toolwire.gateway.configuration import config_watch, live_config, load
from toolwire.gateway.configuration.live_config import LiveConfig
from toolwire.gateway.configuration.load import ConfigFile
from toolwire.gateway.configuration.shared_config import SharedConfig
from toolwire.gateway.features.mcp.settings import McpSettings
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.problems import ConfigError
from toolwire.gateway.telemetry.telemetry import Telemetry
from waits import PATIENCE, wait_until

HASH = hashlib.sha256(CLIENT_KEY.encode()).hexdigest()
KEYS = f'[[server.keys]]\nname = "desk"\nsha256 = "{HASH}"\nmodels = ["loopback"]\nmetrics = true\n'
KEYED = f'[server]\nretries = 0\nallowed_hosts = ["gateway.example"]\n{KEYS}\n[translate]\nbinary_results = "summary"\n'
AUTH = {"authorization": f"Bearer {CLIENT_KEY}"}


class Watched:
    """A configuration in force, its file, and what was reported."""

    def __init__(self, folder: Path, text: str = KEYED) -> None:
        self.file = folder / "toolwire.toml"
        self.file.write_text(text)
        self.messages: list[str] = []
        self.live = LiveConfig(self.file, {}, lambda found: self.messages.extend(one.message for one in found))
        self.first = self.live.current

    def replace(self, data: bytes | str) -> Config:
        self.file.write_bytes(data if isinstance(data, bytes) else data.encode())
        self.live.reload_if_changed(force=True)
        return self.live.current


DAMAGED: dict[str, bytes | str] = {
    "empty": "",
    "blank": " \n\n\t\n",
    "comments": "# nothing\n",
    "byte order mark": b"\xef\xbb\xbf",
    "NUL bytes, as after a crash": b"\0" * 512,
    "no section server": '[translate]\nbinary_results = "summary"\n',
    "no keys": '[server]\nretries = 0\nallowed_hosts = ["gateway.example"]\n',
    "keys in a comment": "[server]\n# [[server.keys]]\n",
    "explicitly no keys, and a public address": '[server]\nhost = "0.0.0.0"\nkeys = []\n',
    "keys of another section": "[[keys]]\n",
    "keys that are not a list": '[server]\nkeys = "none"\n',
    "half a UTF-8 character": KEYED.encode() + b"# \xc3",
    "nested lists": "x = " + "[" * 100_000,
    "nested tables": "x = " + "{a = " * 5000 + "1" + "}" * 5000,
    "dotted keys": ".".join(["a"] * 3000) + " = 1",
    "a huge integer": "[server]\nport = " + "9" * 5000 + "\n" + KEYS,
    "a huge number": "[server]\ncooldown = " + "9" * 400 + "\n" + KEYS,
    "the key's list of models cut off": KEYED.partition("models")[0],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_leaves_the_old_one_in_force(tmp_path: Path, name: str) -> None:
    watched = Watched(tmp_path)
    assert watched.replace(DAMAGED[name]) is watched.first
    assert watched.messages
    assert watched.replace(KEYED + "# mended\n") is not watched.first


@given(st.integers(0, len(KEYED)))
def test_a_file_that_is_cut_off_anywhere_gives_nobody_more(length: int) -> None:
    cut = KEYED[:length]
    live = LiveConfig.__new__(LiveConfig)  # no file for each of hundreds of lengths
    live._text, live._path = KEYED, Path("toolwire.toml")
    live.current = load.read_config(KEYED, live._path, {}, {}, {})
    try:
        fresh = load.read_config(cut, live._path, {}, {}, {})
    except ConfigError:
        return
    if live._find_danger(cut, fresh) is None:
        assert [(key.sha256, key.models) for key in fresh.server.keys] == [(HASH, ("loopback",))]


def test_a_file_that_vanished_leaves_the_old_one_in_force(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.file.unlink()
    assert not watched.live.reload_if_changed()
    watched.file.mkdir()
    assert not watched.live.reload_if_changed()
    assert watched.live.current is watched.first
    assert len(watched.messages) == 2


def put_pipe(file: Path) -> None:
    os.mkfifo(file)


def put_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def put_terminal(file: Path) -> None:
    file.symlink_to("/dev/tty")


def put_folder(file: Path) -> None:
    file.mkdir()


NOT_FILES = {"pipe": put_pipe, "endless device": put_device, "terminal": put_terminal, "folder": put_folder}


@pytest.mark.parametrize("kind", NOT_FILES)
def test_what_is_not_a_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    NOT_FILES[kind](tmp_path / "toolwire.toml")
    done = run_command(["doctor", "config", "--config", str(tmp_path / "toolwire.toml")], tmp_path, os.environ)
    assert done.code == 2, done.out
    assert "toolwire.toml: cannot be read: " in done.err


@pytest.mark.parametrize("kind", NOT_FILES)
def test_a_gateway_whose_file_became_something_else_still_ends(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(KEYED)
    with run_gateway(tmp_path, "--config", str(file)) as process:
        file.unlink()
        NOT_FILES[kind](file)
        process.signal(signal.SIGHUP)
        process.read_log_until('"config_refused"')
        assert ask(process.port, "GET", "/v1/models", headers=AUTH).status == 200
        process.signal(signal.SIGTERM)
        assert process.wait_for_exit() == 0


def test_a_file_that_takes_long_to_read_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """As on a disk that hangs: the thread that reads the file waits for ever."""
    reached, never = threading.Event(), threading.Event()

    class HangingConfig(LiveConfig):
        def read_if_changed(self, force: bool = False) -> None:
            if force:
                reached.set()
                never.wait()

    file = tmp_path / "toolwire.toml"
    file.write_text(KEYED)

    async def run() -> None:
        live = HangingConfig(file, {}, lambda found: None)
        gateway = Gateway(live, Telemetry(live.current.server, lambda text: None))
        gateway.open()
        gateway.config_watch.start_reload()
        while not reached.is_set():
            await asyncio.sleep(0)
        await gateway.close()

    asyncio.run(run())
    never.set()


def test_keys_can_still_be_removed_by_saying_so(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    assert watched.replace("[server]\nkeys = []\n").server.keys == ()


def test_one_key_of_several_can_be_removed(tmp_path: Path) -> None:
    other = KEYS.replace("desk", "other").replace(HASH, "ab" * 32)
    watched = Watched(tmp_path, f"{KEYED}{other}")
    assert [key.name for key in watched.replace(KEYED).server.keys] == ["desk"]


@pytest.mark.parametrize("text", ["", "[server]\nport = 2\n"])
def test_without_keys_nothing_is_different(tmp_path: Path, text: str) -> None:
    watched = Watched(tmp_path, "[server]\nport = 2\nretries = 0\n")
    assert watched.replace(text) is not watched.first


def test_explicitly_no_keys_on_a_public_address_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text('[server]\nhost = "0.0.0.0"\nkeys = []\n')
    with pytest.raises(ConfigError, match="without keys would let anyone"):
        load_config(file, {})


# --- a file in the working folder ---

POWERS = f"""{KEYED}
[mcp.files]
command = ["files", "--all"]
env = {{ TOKEN = "$TOKEN" }}
models = ["*"]
[mcp.far]
url = "http://localhost:1/mcp"
headers = {{ authorization = "$TOKEN" }}
models = ["*"]
[providers.mine]
protocols = ["openai-chat"]
base_url = "http://localhost:1/v1"
api_key_env = "TOKEN"
[providers.theirs]
protocols = ["openai-chat"]
base_url = "http://localhost:2/v1"
forward_auth = true
"""
NEW_POWERS = {
    "a command": POWERS + '[mcp.evil]\ncommand = "evil"\nmodels = ["*"]\n',
    "another command": POWERS.replace('"files", "--all"', '"evil"'),
    "another argument": POWERS.replace("--all", "--evil"),
    "another folder": POWERS.replace("env = { TOKEN", 'cwd = "evil"\nenv = { TOKEN'),
    "another variable": POWERS.replace('env = { TOKEN = "$TOKEN" }', 'env = { TOKEN = "$TOKEN", PATH = "evil" }'),
    "a command instead of an address": POWERS.replace(
        'url = "http://localhost:1/mcp"\nheaders', 'command = "evil"\nenv'
    ),
    "another MCP server": POWERS.replace("localhost:1/mcp", "localhost:3/mcp"),
    "a variable in an address": POWERS + '[mcp.evil]\nurl = "http://localhost:3/$TOKEN"\nmodels = ["*"]\n',
    "another header": POWERS.replace('authorization = "$TOKEN"', 'authorization = "$TOKEN", x = "$OTHER"'),
    "another address": POWERS.replace("localhost:1/v1", "localhost:3/v1"),
    "another key": POWERS.replace('api_key_env = "TOKEN"', 'api_key_env = "OTHER"'),
    "a new provider": POWERS
    + '[providers.evil]\nprotocols = ["openai-chat"]\nbase_url = "http://localhost:3/"\napi_key_env = "OTHER"\n',
    "a proxy": POWERS.replace('api_key_env = "TOKEN"', 'api_key_env = "TOKEN"\nproxy = "http://localhost:3"'),
    "another address for the keys of clients": POWERS.replace("localhost:2", "localhost:3"),
}
SECRETS = {"TOKEN": "t" * 30, "OTHER": "o" * 30}


def watch_powers(folder: Path) -> Watched:
    watched = Watched(folder, POWERS)
    watched.live = LiveConfig(
        watched.file, SECRETS, lambda found: watched.messages.extend(f"{one.message} → {one.hint}" for one in found)
    )
    watched.first = watched.live.current
    watched.messages.clear()
    return watched


@pytest.mark.parametrize("change", NEW_POWERS)
def test_a_reload_in_the_working_folder_brings_no_command_and_sends_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """An agent that may write only in this folder must not get out of it."""
    project = tmp_path / "project"
    project.mkdir()
    for working_folder, in_folder in ((project, True), (tmp_path, True), (tmp_path.parent, True), (Path("/"), False)):
        monkeypatch.chdir(working_folder)
        watched = watch_powers(project)
        assert (watched.replace(NEW_POWERS[change]) is watched.first) == in_folder
        if in_folder:
            assert " would start a command, or send a key to an address, that is new → restart the gateway" in "".join(
                watched.messages
            )
        assert watched.replace(POWERS + "# the same again\n") is not watched.first or not in_folder


def test_a_reload_in_the_working_folder_still_changes_everything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    watched = watch_powers(tmp_path)
    changed = POWERS.replace(HASH, "ab" * 32).replace("[providers.mine]", '[models]\na = "mine/b"\n[providers.mine]')
    changed += "[providers.openai]\n"  # without a key that could be sent
    changed += '[providers.x]\nprotocols = ["openai-chat"]\nbase_url = "http://localhost:3/"\napi_key = "in the file"\n'
    assert watched.replace(changed).models[0].name == "a"
    assert list(watched.replace(KEYED).section(McpSettings).servers) == []


def test_a_link_out_of_the_working_folder_or_into_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder, other in ((inside, outside), (outside, inside)):
        for one in (inside, outside):
            one.mkdir(exist_ok=True)
        (other / "target.toml").write_text(POWERS)
        (folder / "toolwire.toml").symlink_to(other / "target.toml")
        monkeypatch.chdir(inside)
        watched = watch_powers(folder)
        assert watched.replace(NEW_POWERS["a command"]) is watched.first


@pytest.mark.parametrize("chain", [["inside/link"], ["outside/first", "inside/link"]])
def test_a_link_that_is_only_passed_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chain: list[str]) -> None:
    """Whoever may write in the working folder can replace it."""
    for name in ("inside", "outside", "real"):
        (tmp_path / name).mkdir()
    for link, target in zip(chain, [*chain[1:], "real"], strict=True):
        (tmp_path / link).symlink_to(tmp_path / target)
    monkeypatch.chdir(tmp_path / "inside")
    watched = watch_powers(tmp_path / chain[0])
    assert watched.replace(NEW_POWERS["a command"]) is watched.first


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_running_gateway_does_not_start_what_an_agent_wrote(tmp_path: Path, workers: str) -> None:
    file, ran = tmp_path / "toolwire.toml", tmp_path / "ran"
    file.write_text('[store]\nurl = "none"\n')
    command = [sys.executable, "-c", f"open({str(ran)!r}, 'w')"]
    with run_gateway(tmp_path, "--workers", workers) as process:
        file.write_text(
            f'[store]\nurl = "none"\n[mcp.evil]\ncommand = {command}\nmodels = ["*"]\nconnect_timeout = 5\n'
        )
        process.signal(signal.SIGHUP)
        assert "restart the gateway to use it" in process.read_log_until('"config_problem"')
        process.read_log_until('"config_refused"')
        body = b'{"model": "loopback", "messages": [{"role": "user", "content": "Hello"}]}'
        assert ask(process.port, "POST", "/v1/chat/completions", body).status == 200
    assert not ran.exists()


def test_a_worker_that_is_replaced_finds_no_file_that_was_not_there(tmp_path: Path) -> None:
    with run_gateway(tmp_path, "--workers", "2") as process:
        old = _workers(process, 2)
        (tmp_path / "toolwire.toml").write_text('[models]\nevil = "loopback/loopback"\n')
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(process.children() - old) >= 2)
        assert b'"evil"' not in ask(process.port, "GET", "/v1/models").data


# --- in a running gateway ---


@contextmanager
def serve_with_file(folder: Path) -> Iterator[tuple[Served, Path]]:
    with stage(folder, f"retries = 0\ncooldown_after = 9999\n{KEYS}") as served:
        yield served, folder / "toolwire.toml"


def test_authentication_stays_on_and_the_log_and_the_metrics_say_so(tmp_path: Path) -> None:
    with serve_with_file(tmp_path) as (served, file):
        whole = file.read_text()
        for refused, text in enumerate(("", "[server]\n", "x = " + "[" * 100_000), 1):
            file.write_text(text)
            served.gateway.config_watch.reload(True)
            assert ask(served.port, "GET", "/v1/models").status == 401
            got = ask(served.port, "GET", "/metrics", headers=AUTH)
            assert f'toolwire_config_reloads_total{{outcome="refused"}} {refused}\n'.encode() in got.data
        events = [line for line in list(served.lines.queue) if "config_refused" in line]
        assert len(events) == 3
        assert all('"level":"error"' in line for line in events)
        file.write_text(whole.replace(HASH, "0" * 64))
        served.gateway.config_watch.reload(True)
        assert ask(served.port, "GET", "/v1/models", headers=AUTH).status == 401


def test_the_file_is_read_in_a_thread_and_the_polling_never_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_watch, "POLL_SECONDS", 0.01)
    threads: list[str] = []
    done = threading.Event()
    with serve_with_file(tmp_path) as (served, file):
        read = LiveConfig.read_if_changed

        def watch(source: LiveConfig, force: bool = False) -> object:
            threads.append(threading.current_thread().name)
            if len(threads) == 1:
                raise ZeroDivisionError("a bug")
            found = read(source, force)
            if found is not None:
                done.set()
            return found

        loop_thread = next(one for one in threading.enumerate() if "(work)" in one.name)
        monkeypatch.setattr(LiveConfig, "read_if_changed", watch)
        file.write_text(file.read_text() + "# changed\n")
        assert done.wait(PATIENCE)
        assert loop_thread.name not in threads
        assert "ZeroDivisionError" in served.lines.get(timeout=PATIENCE)


WITHOUT_KEYS = '[providers.local]\nprotocols = ["openai-chat"]\nbase_url = "http://127.0.0.1:1/v1"\n'


def test_a_file_that_changes_while_it_is_read_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Editors and `cp` empty a file before they write it."""
    watched = Watched(tmp_path, WITHOUT_KEYS)
    read = live_config.read_file

    def read_while_written(path: Path) -> ConfigFile:
        path.write_text("")
        found = read(path)
        path.write_text(WITHOUT_KEYS + "# new\n")
        return found

    monkeypatch.setattr(live_config, "read_file", read_while_written)
    assert not watched.live.reload_if_changed(force=True)
    assert watched.live.current is watched.first
    monkeypatch.undo()
    assert watched.live.reload_if_changed()
    assert "local" in watched.live.current.providers


def test_a_file_that_is_empty_when_a_reload_is_asked_for_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_watch, "POLL_SECONDS", 1e6)
    with serve_with_file(tmp_path) as (served, file):
        whole, looks = file.read_text(), 0
        asked = served.gateway.config_watch

        def write_the_rest(_seconds: float) -> None:
            nonlocal looks
            looks += 1
            if looks < 3:
                file.write_text("# new\n" * looks)
            elif looks == 3:
                file.write_text(f"# new\n{whole}")

        monkeypatch.setattr(config_watch, "sleep", write_the_rest)
        file.write_text("")
        found = asked._read(forced=True)
        assert found is not None
        assert found.text == f"# new\n{whole}"


# --- workers ---


def _workers(process: Process, count: int) -> set[int]:
    """Until there are as many workers as there should be, and each answers."""
    wait_until(lambda: len(process.children()) >= count)
    return process.children()


@pytest.mark.parametrize("damage", ["empty", "gone", "no keys", "nested"])
def test_a_worker_that_is_replaced_starts_with_what_was_in_force(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(f"[server]\n{KEYS}")
    with run_gateway(tmp_path, "--config", str(file), "--workers", "2") as process:
        assert ask(process.port, "GET", "/v1/models", headers=AUTH).status == 200
        # A reload that was accepted counts, too: the new worker does not go back to what the first one read.
        file.write_text(f"[server]\n{KEYS.replace(HASH, 'ab' * 32)}")
        process.signal(signal.SIGHUP)
        for _ in range(2):
            process.read_log_until('"config_reloaded"')
        old = _workers(process, 2)
        file.unlink() if damage == "gone" else file.write_text(
            {"empty": "", "no keys": "[server]\nport = 1\n", "nested": "x = " + "[" * 100_000}[damage]
        )
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(process.children() - old) >= 2)
        for _ in range(4):
            assert ask(process.port, "GET", "/v1/models").status == 401
            assert ask(process.port, "GET", "/v1/models", headers=AUTH).status == 401


@pytest.mark.parametrize("calls_before_the_end", [0, 1])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_worker_that_is_killed_while_it_hands_on_its_configuration_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls_before_the_end: int, share: float
) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(f"[server]\n{KEYS}")
    shared = SharedConfig(LiveConfig(file, {}, lambda _: None).accepted_file)
    for number in range(4):  # what was kept before is larger or smaller
        file.write_text(f"[server]\n{KEYS}# {number}{'x' * (number % 2) * 1000}\n")
        shared.save(LiveConfig(file, {}, lambda _: None).accepted_file)
    before = shared.load()
    file.write_text(f"[server]\n{KEYS.replace(HASH, 'ab' * 32)}")
    write, calls = os.pwrite, 0

    def write_and_end(descriptor: int, data: bytes, place: int) -> int:
        nonlocal calls
        calls += 1
        if calls <= calls_before_the_end:
            return write(descriptor, data, place)
        if place:  # the kernel does not stop within a few bytes
            write(descriptor, data[: int(len(data) * share)], place)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write_and_end)
        with pytest.raises(SystemExit):
            shared.save(LiveConfig(file, {}, lambda _: None).accepted_file)
    assert shared.load() == before
    assert before is not None
    assert "# 3x" in before.text
    shared.save(LiveConfig(file, {}, lambda _: None).accepted_file)
    after = shared.load()
    assert after is not None
    assert "ab" * 32 in after.text


# --- the cost of reading ---


def _steps(text: str, folder: Path) -> int:
    """The steps that reading a file takes."""
    file = folder / "toolwire.toml"
    file.write_text(text)

    def read() -> None:
        with suppress(ConfigError):
            load_config(file, {})

    read()  # what is done once is not counted
    return count_steps(read)


def _keys(count: int, more: str = "") -> str:
    rows = (f'[[server.keys]]\nname = "key {n}"\nsha256 = "{n:064x}"\n{more}' for n in range(1, count + 1))
    return "".join(rows)


LARGE = {
    "keys": _keys,
    "keys with a mistake": lambda count: _keys(count, "model = 1\n"),
    "models": lambda count: "".join(f'[models.m{n}]\nprovider = "loopback"\nfallbacks = ["m0"]\n' for n in range(1, count)),
    "a chain of fallbacks": lambda count: "".join(
        f'[models.m{n}]\nprovider = "loopback"\nfallbacks = ["m{n + 1}"]\n' for n in range(count)
    ),
    "renames": lambda count: "".join(f'[[policy]]\ntool = "a{n}"\nrename = "b{n}"\n' for n in range(count)),
    "old names": lambda count: "".join(f'[mcp.s{n}]\ncommand = "x"\nrounds = 3\n' for n in range(count)),
}  # fmt: skip


@pytest.mark.parametrize("kind", LARGE)
def test_the_work_of_reading_grows_with_the_file_and_not_faster(tmp_path: Path, kind: str) -> None:
    small, large = (_steps(LARGE[kind](count), tmp_path) for count in (200, 800))
    assert large < 5 * small


def test_ten_thousand_keys_are_read_and_found(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(_keys(10_000) + KEYS)
    config = load_config(file, {})
    assert len(config.server.keys) == 10_001


NUMBERS = ["inf", "1e300", "nan", "-1", "9" * 30, "0x7fffffffffffffffffff"]
PLACES = {
    "cooldown": "server",
    "heartbeat": "server",
    "max_body": "server",
    "retries": "server",
    "connect": "server.timeouts",
    "shutdown": "server.timeouts",
    "ttl": "store",
    "max_bytes": "store",
    "background_lease": "store",
    "timeout": 'mcp.a]\ncommand = "x"\nmodels = ["*"]\n#',
}


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("key", PLACES)
def test_numbers_that_no_timer_or_counter_takes_are_refused(tmp_path: Path, key: str, number: str) -> None:
    watched = Watched(tmp_path)
    table = "" if PLACES[key] == "server" else f"[{PLACES[key]}]\n"
    text = KEYED.replace("[server]\nretries = 0\n", f"[server]\n{key} = {number}\n") if not table else KEYED
    assert watched.replace(text if not table else f"{KEYED}{table}{key} = {number}\n") is watched.first
    assert any(key in message for message in watched.messages)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.touch()
    os.truncate(file, load.MAX_FILE_BYTES + 1)
    done = run_command(["doctor", "config", "--config", str(file)], tmp_path, os.environ)
    assert done.code
    assert "bytes" in done.err
