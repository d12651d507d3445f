"""`toolwire doctor`: what each check finds, over real sockets, files and programs; and what it never does or shows."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sqlite3
import ssl
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme

from cli.terminal_golden import check_golden, make_environ, run_in_pipe
from forked_commands import TOOLWIRE, run_command, run_program, trust_file
from gateway.counter_stores import NEEDS_REDIS
from gateway.fake_clouds import Answer, Seen, serve_cloud
from gateway.list_server import list_server, openai_list
from gateway.postgres import PASSWORD, schema_of, server
from gateway.process import run_gateway
from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import body_of
from gateway.redis_server import own_server
from toolwire import __version__
from toolwire.agents import load_agents
from toolwire.cli.gateway.doctor.finding import Check, Finding, run_checks
from toolwire.gateway.store.sqlite_worker import MIGRATIONS
from waits import free_port, wait_until

SECRET = "sk-never-shown-0123456789"
ANY_PORT = "[server]\nport = 0\n"
MCP_SERVER = Path(__file__).parents[1] / "gateway" / "mcp_server.py"
STORE_V1 = Path(__file__).parents[1] / "gateway" / "store_v1.sql"


class Report(NamedTuple):
    code: int
    findings: dict[str, tuple[str, str]]
    """By subject, the state and the text: the message and, after an arrow, the hint."""

    def check(self, subject: str, state: str, *parts: str) -> None:
        assert subject in self.findings, self.findings
        found, text = self.findings[subject]
        assert found == state, text
        for part in parts:
            assert part in text


class Doctor:
    """Runs `toolwire doctor` in a folder, for a user who has no agents and no other variables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        self.programs.mkdir()

    def environ(self, **more: str) -> dict[str, str]:
        return {"PATH": str(self.programs), **more}

    def configure(self, text: str) -> None:
        (self.folder / "toolwire.toml").write_text(text)

    def install(self, name: str, script: str) -> None:
        program = self.programs / load_agents()[name].command
        program.write_text(script)
        program.chmod(0o755)

    def run(self, *words: str, prefix: tuple[str, ...] = (), **environ: str) -> Report:
        command, env = ["doctor", "--json", *words], make_environ(self.folder, self.environ(**environ))
        trust_file(self.folder, env)
        if prefix:
            done = run_program([*prefix, *TOOLWIRE, *command], self.folder, env)
        else:
            done = run_command(command, self.folder, env)
        assert done.err == ""
        assert SECRET not in done.out
        document = json.loads(done.out)
        findings = document["findings"]
        for state in ("problem", "warning"):
            assert document[f"{state}s"] == sum(one["state"] == state for one in findings)
        assert done.code == (1 if document["problems"] else 0)
        assert all(one["hint"] for one in findings if one["state"] != "ok"), "what to do about it"
        rows = {
            f"{one['check']} {one['name']}".strip(): (one["state"], f"{one['message']} → {one['hint']}")
            for one in findings
        }
        return Report(done.code, rows)


@pytest.fixture
def doctor(folder: Path) -> Doctor:
    return Doctor(folder)


def provider(name: str, url: str, more: str = "") -> str:
    return f'[providers.{name}]\nprotocols = ["openai-chat"]\nbase_url = "{url}"\n{more}\n'


# --- the whole report -------------------------------------------------------------------------------------------------


def test_nothing_is_configured(doctor: Doctor) -> None:
    doctor.configure(ANY_PORT)
    report = doctor.run()
    assert report.code == 0
    report.check("config", "ok", f"{doctor.folder}/toolwire.toml")
    report.check("providers", "warning", "none is configured", "OPENAI_API_KEY")
    report.check("store", "ok", "store.db will be created")
    report.check("port", "ok")
    report.check("agents", "ok", "not installed: ", "toolwire run --list")
    report.check("toolwire", "ok", __version__, f"Python {sys.version_info[0]}.{sys.version_info[1]}")
    report.check("packages", "ok", "msgspec ")
    assert not [*doctor.folder.rglob("store.db")], "a check does not create the store"


BROKEN = """[server]
port = 0
prot = 1
rest = 3
[providers.openai]
api_key_env = "TEAM_KEY"
[models]
fast = "nobody/x"
"""


def test_problems_read_the_same_everywhere(doctor: Doctor) -> None:
    doctor.configure(BROKEN)
    refusals = [
        run_in_pipe(words, doctor.folder, doctor.environ())
        for words in (["doctor", "config"], ["serve"], ["run", "pi"])
    ]
    assert [refusal.code for refusal in refusals] == [2, 2, 2]
    named, *lines = refusals[0].err.splitlines()
    assert named == f"toolwire: the configuration is {doctor.folder}/toolwire.toml, a file of the working folder"
    assert [refusal.err.splitlines() for refusal in refusals[1:]] == [lines, lines]
    shown = [line.partition(": ")[::2] for line in lines if not line.startswith("hint: ")]
    assert [line.split(":")[1] for _, line in shown] == ["3", "4", "6", "8"], "all, in the order of the file"
    done = run_in_pipe(["doctor", "--json"], doctor.folder, doctor.environ())
    assert done.code == 1
    found = [one for one in json.loads(done.out)["findings"] if one["check"] == "config"]
    states = {"error": "problem", "warning": "warning"}
    assert [(one["state"], one["message"]) for one in found] == [(states[kind], line) for kind, line in shown]
    assert [f"hint: {one['hint']}" for one in found] == [line for line in lines if line.startswith("hint: ")]


def test_a_warning_has_its_line_in_the_log_too(doctor: Doctor) -> None:
    doctor.configure("[server]\n\nrest = 3\n")
    with run_gateway(doctor.folder) as process:
        line = json.loads(process.read_log_until("config_problem"))
    assert line["message"] == "toolwire.toml:3: `rest` has been renamed"
    assert line["message"] in run_in_pipe(["doctor", "config"], doctor.folder, doctor.environ()).err


@pytest.mark.parametrize("words", [["--ask"], ["--timeout", "0"], ["--timeout", "nan"], ["--timeout", "x"], ["more"]])
def test_bad_usage(words: list[str], doctor: Doctor) -> None:
    done = run_in_pipe(["doctor", *words], doctor.folder, doctor.environ())
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")


def test_a_mistake_in_one_check_does_not_hide_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    async def fail() -> list[Finding]:
        raise KeyError("x")

    async def pass_() -> list[Finding]:
        return [Finding("ok", "store")]

    found = asyncio.run(run_checks([Check("port", "1", fail()), Check("store", "", pass_())], 5))
    assert [(one.state, one.subject) for one in found] == [("problem", "port 1"), ("ok", "store")]
    assert "KeyError" in found[0].message
    assert capsys.readouterr() == ("", "")


# --- providers --------------------------------------------------------------------------------------------------------


@contextmanager
def tls_server() -> Iterator[int]:
    """A server whose certificate is from an unknown authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as bound:

        def accept() -> None:
            while True:
                try:
                    with context.wrap_socket(bound.accept()[0], server_side=True):
                        pass
                except ssl.SSLError:
                    continue
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield bound.getsockname()[1]
        finally:
            bound.shutdown(socket.SHUT_RDWR)


def test_providers_are_only_connected_to(doctor: Doctor) -> None:
    key = f'api_key = "{SECRET}"'
    with list_server({}) as lists, tls_server() as untrusted:
        doctor.configure(
            ANY_PORT
            + provider("fine", f"{lists.url}/v1", key)
            + provider("dead", f"http://127.0.0.1:{free_port()}/v1", key)
            + provider("lost", "https://nowhere.invalid/v1", key)
            + provider("plain", lists.url.replace("http://", "https://"), key)
            + provider("strange", f"https://127.0.0.1:{untrusted}", key)
            + provider("keyless", f"{lists.url}/v1", 'api_key_env = "TEAM_KEY"')
            + provider("own", f"{lists.url}/v1", "forward_auth = true")
        )
        report = doctor.run()
        assert lists.asked == [], "no request is sent"
    report.check("provider fine", "ok", "can be reached; has a key in the file")
    report.check("provider dead", "problem", "refused the connection → check that a server is running there")
    report.check("provider lost", "problem", "nowhere.invalid:443 cannot be resolved → check the host")
    report.check("provider plain", "problem", "it does not speak TLS on this port →")
    report.check("provider strange", "problem", "not from a trusted authority →", "ca_file")
    report.check("provider keyless", "warning", "it has no key → set TEAM_KEY")
    report.check("provider own", "ok", "clients send their own key")
    assert report.findings["config"][0] == "warning", "the variable is not set: as `doctor config` says"


def test_a_password_of_a_proxy_is_not_sent(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        url = f"http://me:{SECRET}@127.0.0.1:{proxy.getsockname()[1]}"
        doctor.configure(ANY_PORT + provider("far", "https://llm.example.com/v1", f'proxy = "{url}"'))
        report = doctor.run()
        report.check("provider far", "ok", "llm.example.com:443 (through the proxy 127.0.0.1:")
        connection, _ = proxy.accept()
        with connection:
            assert connection.recv(100) == b"", "nothing was sent"


LISTS = {
    "/good/v1/models": openai_list("m"),
    "/bad/v1/models": (401, {"error": {"message": f"Incorrect API key provided: {SECRET}"}}),
    "POST /tiny/v1/chat/completions": (200, {"id": "x", "choices": []}),
    "POST /refused/v1/chat/completions": (403, {"error": {"message": "no"}}),
    "/odd/v1/models": (200, b"<html>"),
    "POST /odd/v1/chat/completions": (400, {"error": {"message": "no such model"}}),
    "/busy/v1/models": (429, {"error": {"message": "slow down"}}),
    "/broken/v1/models": (503, b""),
    "/open/v1/models": (401, {"error": {"message": "log in"}}),
}
TRIED = {
    "good": ("ok", "accepts the key in TEAM_KEY, and lists 1 model"),
    "bad": ("problem", "refuses the key in TEAM_KEY: ", "answered with 401", "set TEAM_KEY to a valid key"),
    "tiny": ("ok", "accepts the key in TEAM_KEY, and small answers"),
    "refused": ("problem", "refuses the key in TEAM_KEY: ", "answered with 403"),
    "odd": ("warning", "the key was not proved: ", "400: no such model"),
    "nameless": ("warning", "the key was not tried: it has no list of models", 'NAME = "nameless/MODEL" in [models]'),
    "busy": ("warning", "the key was not proved: ", "429: slow down"),
    "broken": ("problem", "answered with 503"),
}


def test_keys_are_tried_when_asked(doctor: Doctor) -> None:
    with list_server(LISTS) as lists:
        tables = [provider(name, f"{lists.url}/{name}/v1", 'api_key_env = "TEAM_KEY"') for name in TRIED]
        rules = "".join(f'a-{name} = "{name}/small"\n' for name in ("tiny", "refused", "odd"))
        doctor.configure(f"{ANY_PORT}{''.join(tables)}{provider('open', f'{lists.url}/open/v1')}[models]\n{rules}")
        report = doctor.run("--try-keys", TEAM_KEY=SECRET)
        sent = [headers["authorization"] for path, headers in lists.asked if "/open/" not in path]
        assert set(sent) == {f"Bearer {SECRET}"}
    for name, (state, *parts) in TRIED.items():
        report.check(f"provider {name}", state, *parts)
    report.check("provider open", "problem", "wants a key: ", "`api_key_env` in [providers.open]")


def test_every_account_is_checked(doctor: Doctor) -> None:
    accounts = "".join(
        f'[[providers.team.accounts]]\nname = "{name}"\napi_key_env = "{name.upper()}_KEY"\n'
        for name in ("app", "infra", "new")
    )
    with list_server(LISTS) as lists:
        doctor.configure(ANY_PORT + provider("team", f"{lists.url}/good/v1") + accounts)
        report = doctor.run("--try-keys", APP_KEY=SECRET, INFRA_KEY=f"{SECRET}-2")
        sent = sorted(headers["authorization"] for _, headers in lists.asked)
        assert sent == [f"Bearer {SECRET}", f"Bearer {SECRET}-2"]
    report.check("provider team/app", "ok", "accepts the key in APP_KEY")
    report.check("provider team/infra", "ok", "accepts the key in INFRA_KEY")
    report.check("provider team/new", "warning", "it has no key → set NEW_KEY")


def test_credentials_of_clouds_are_tried_when_asked(doctor: Doctor) -> None:
    """Which source was found, whether it gives something, and whether the provider takes it."""

    def respond(seen: Seen) -> Answer:
        if seen.path.startswith("/metadata"):
            return Answer(200, {"access_token": SECRET, "expires_in": "3600"})
        if seen.path.startswith("/closed"):
            return Answer(403, {"error": {"message": "no right", "type": "permission_error"}})
        return Answer(200, body_of("anthropic", ScriptedAnswer("ok")))

    def cloud_of(url: str, name: str, auth: str, path: str = "") -> str:
        return f'[providers.{name}]\nkind = "azure"\nbase_url = "{url}{path}"\nprotocols = ["anthropic"]\n{auth}\n'

    with serve_cloud(respond) as cloud:
        managed, missing = 'auth = "managed-identity"', 'auth_command = ["no-such-program"]'
        tables = cloud_of(cloud.url, "good", managed) + cloud_of(cloud.url, "bad", missing)
        tables += cloud_of(cloud.url, "closed", managed, "/closed")
        rules = '[models]\na = "good/claude-1"\nb = "bad/claude-1"\nc = "closed/claude-1"\n'
        doctor.configure(ANY_PORT + tables + rules)
        untried = doctor.run()
        assert cloud.seen == []
        report = doctor.run("--try-keys", AZURE_POD_IDENTITY_AUTHORITY_HOST=cloud.url)
    untried.check("provider good", "ok", "uses the managed identity of this machine in Azure")
    found = "accepts the credentials (Microsoft Entra ID (managed identity), found by managed identity, for 60 more minutes)"
    report.check("provider good", "ok", found, "claude-1 answers")
    report.check("provider bad", "problem", "no credentials from the command `no-such-program`", "check `auth_command`")
    report.check("provider closed", "problem", "refuses the credentials", "check which models and regions")


def test_a_slow_provider(doctor: Doctor) -> None:
    with list_server(LISTS) as lists:
        lists.gate.clear()
        doctor.configure(ANY_PORT + provider("slow", f"{lists.url}/good/v1", f'api_key = "{SECRET}"'))
        report = doctor.run("--try-keys", "--timeout", "2")
    report.check("provider slow", "problem", "no answer within 2 seconds → --timeout allows more")


# --- the store --------------------------------------------------------------------------------------------------------

ENCRYPTED = '[store]\nurl = "sqlite://{file}"\nkey_env = "STORE_KEY"\n'
OPEN = '[store]\nurl = "sqlite://{file}"\n'


def make_store(file: Path, settings: str, doctor: Doctor, **environ: str) -> None:
    """A store as a gateway makes it."""
    doctor.configure(ANY_PORT + settings.format(file=file))
    done = run_in_pipe(["store", "stats"], doctor.folder, doctor.environ(**environ))
    assert done.code == 0, done


def test_a_good_store(doctor: Doctor) -> None:
    file = doctor.folder / "store.db"
    make_store(file, ENCRYPTED, doctor, STORE_KEY=SECRET)
    report = doctor.run(STORE_KEY=SECRET)
    version = len(MIGRATIONS)
    report.check("store", "ok", f"{file}: ", f"of at most 1.0 GiB, schema version {version}, encrypted with STORE_KEY")
    with closing(sqlite3.connect(file)) as opened:
        assert opened.execute("SELECT count(*) FROM entries").fetchone() == (0,), "nothing is left behind"


def test_a_store_that_cannot_be_decrypted(doctor: Doctor) -> None:
    file = doctor.folder / "store.db"
    make_store(file, OPEN, doctor)
    with closing(sqlite3.connect(file)) as opened, opened:
        row = ("", "response", "resp_1", "", 0, "", 1.0, 1e11, b"\0TWE1" + bytes(64))
        opened.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    doctor.run().check(
        "store", "problem", "the response `resp_1` is encrypted, and there is no key → name the variable"
    )


def test_a_store_that_is_read_only(doctor: Doctor) -> None:
    file = doctor.folder / "kept" / "store.db"
    file.parent.mkdir()
    make_store(file, OPEN, doctor)
    file.chmod(0o400)
    file.parent.chmod(0o500)
    prefix: tuple[str, ...] = ()
    if os.geteuid() == 0:  # root may write everything, unless it gives that up
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("root needs setpriv to give up its right to write everything")
        prefix = (setpriv, "--bounding-set=-dac_override,-dac_read_search")
    try:
        report = doctor.run(prefix=prefix)
        doctor.configure(f'{ANY_PORT}[store]\nurl = "sqlite://{file.parent}/new/store.db"\n')
        other = doctor.run(prefix=prefix)
    finally:
        file.parent.chmod(0o700)
    report.check("store", "problem", "the store", "cannot be used", "permissions")
    other.check("store", "problem", "cannot be created → check the permissions of")


def test_a_store_that_is_not_a_database(doctor: Doctor) -> None:
    file = doctor.folder / "store.db"
    file.write_text("Dear diary, " * 1000)
    doctor.configure(ANY_PORT + OPEN.format(file=file))
    doctor.run().check("store", "problem", "not a SQLite file, or is damaged → move it away")
    file.unlink()
    with closing(sqlite3.connect(file)) as opened:
        opened.execute("CREATE TABLE songs (name)")
    doctor.run().check("store", "problem", "belongs to another program → set [store] url")


def test_an_older_store_is_not_migrated(doctor: Doctor) -> None:
    """A gateway of the older version may be using it."""
    file = doctor.folder / "store.db"
    with closing(sqlite3.connect(file)) as opened:
        opened.executescript(STORE_V1.read_text())
    doctor.configure(ANY_PORT + OPEN.format(file=file))
    doctor.run().check("store", "warning", f"older version (1 of {len(MIGRATIONS)})", "migrates")
    with closing(sqlite3.connect(file)) as opened:
        assert opened.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_database_that_is_down(doctor: Doctor) -> None:
    url = f"postgresql://me:{SECRET}@127.0.0.1:{free_port()}/kept"
    doctor.configure(f'{ANY_PORT}[store]\nurl = "{url}"\n')
    doctor.run().check("store", "problem", "cannot be used")
    doctor.configure(f'{ANY_PORT}[store]\nurl = "postgresql://me:{SECRET}@nowhere.invalid/kept"\n')
    doctor.run().check("store", "problem", "nowhere.invalid:5432 cannot be resolved →")


def test_a_database_that_answers(doctor: Doctor) -> None:
    url = server().create_schema(schema_of(doctor.folder))
    doctor.configure(f'{ANY_PORT}[store]\nurl_env = "STORE_URL"\n')
    report = doctor.run(STORE_URL=url)
    report.check("store", "ok", "PostgreSQL at 127.0.0.1:", "schema version ", "not encrypted")
    assert all(PASSWORD not in text for _, text in report.findings.values())


def test_no_store(doctor: Doctor) -> None:
    doctor.configure(f'{ANY_PORT}[store]\nurl = "none"\n')
    doctor.run().check("store", "ok", "nothing is stored")


# --- MCP servers ------------------------------------------------------------------------------------------------------

PYTHON = json.dumps(sys.executable)
CRASHES = "import sys; sys.exit('no database for me')"
HANGS = "import signal; signal.pause()"
BABBLES = "import sys; print('hello, I am a server', flush=True); sys.stdin.read()"


LONG_ENOUGH = 600
"""Seconds in which a Python starts on the busiest machine."""


def mcp_server(name: str, script: str, seconds: int = LONG_ENOUGH) -> str:
    command = f"[{PYTHON}, '-c', {json.dumps(script)}]"
    return f'[mcp.{name}]\ncommand = {command}\nconnect_timeout = {seconds}\nmodels = ["*"]\n'


def test_mcp_servers(doctor: Doctor) -> None:
    far = '[mcp.far]\nurl = "https://nowhere.invalid/$TOKEN/mcp"\nmodels = ["*"]\n'
    lacks = f'[mcp.lacks]\ncommand = [{PYTHON}]\nenv = {{ A = "$NOT_SET" }}\nmodels = ["*"]\n'
    good = f'[mcp.good]\ncommand = [{PYTHON}, "{MCP_SERVER}"]\nconnect_timeout = {LONG_ENOUGH}\nmodels = ["*"]\n'
    programs = mcp_server("crashes", CRASHES) + mcp_server("hangs", HANGS, 1) + mcp_server("babbles", BABBLES, 3)
    doctor.configure(ANY_PORT + good + programs + far + lacks)
    report = doctor.run("--timeout", str(LONG_ENOUGH), TOKEN=SECRET)
    report.check("mcp good", "ok", "test-tools 1.2.3, ", " tools")
    report.check("mcp crashes", "problem", "no database for me → try to start it yourself: ")
    report.check("mcp hangs", "problem", "within 1 seconds →")
    report.check("mcp babbles", "problem", "→ try to start it yourself: ")
    report.check("mcp far", "problem", "nowhere.invalid:443 cannot be resolved →")
    report.check("mcp lacks", "problem", "NOT_SET is not set", "set NOT_SET")


def test_a_server_that_is_tried_again_says_why_it_failed(doctor: Doctor) -> None:
    """The slow one starts when the other one is tried for the second time."""
    once, twice = (json.dumps(str(doctor.folder / name)) for name in ("once", "twice"))
    crashes = (
        f"import os, sys; open({twice} if os.path.exists({once}) else {once}, 'w'); sys.exit('no database for me')"
    )
    slow = (
        f"import os, runpy, time\nwhile not os.path.exists({twice}): time.sleep(0.01)\n"
        f"runpy.run_path({json.dumps(str(MCP_SERVER))}, run_name='__main__')"
    )
    doctor.configure(ANY_PORT + mcp_server("crashes", crashes) + mcp_server("slow", slow))
    report = doctor.run("--timeout", str(LONG_ENOUGH))
    report.check("mcp slow", "ok", "test-tools 1.2.3, ", " tools")
    report.check("mcp crashes", "problem", "no database for me")


# --- the port ---------------------------------------------------------------------------------------------------------


def test_a_port_of_a_gateway(doctor: Doctor) -> None:
    with run_gateway(doctor.folder) as process:
        doctor.configure(f"[server]\nport = {process.port}\n")
        report = doctor.run()
    report.check(f"port {process.port}", "ok", f"a Toolwire gateway {__version__} is running")


@contextmanager
def page_server(headers: Mapping[str, str]) -> Iterator[int]:
    """Answers `ok` to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            for name, value in {"content-length": "3", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"ok\n")

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("headers", "state", "text"),
    [
        ({}, "problem", "another program uses it → stop it, or choose another"),
        ({"x-toolwire-version": "0.0.1"}, "warning", "a Toolwire gateway 0.0.1 uses it"),
    ],
)
def test_a_port_that_is_taken(headers: dict[str, str], state: str, text: str, doctor: Doctor) -> None:
    with page_server(headers) as port, page_server({}) as metrics:
        doctor.configure(f'[server]\nport = {port}\nmetrics_listen = "127.0.0.1:{metrics}"\n')
        report = doctor.run()
    report.check(f"port {port}", state, text)
    if state == "problem":
        report.check(f"port {metrics}", "problem", "cannot serve /metrics")


def test_an_address_of_another_machine(doctor: Doctor) -> None:
    doctor.configure(f"[server]\nport = {free_port()}\n")
    assert doctor.run().code == 0
    key = f'[[server.keys]]\nname = "a"\nsha256 = "{"ab" * 32}"\n'
    port = free_port()
    doctor.configure(f'[server]\nhost = "192.0.2.1"\nport = {port}\n{key}')
    doctor.run().check(f"port {port}", "problem", "cannot listen on 192.0.2.1")


# --- agents -----------------------------------------------------------------------------------------------------------


def test_agents(doctor: Doctor) -> None:
    doctor.configure(ANY_PORT)
    versions = {name: agent.version for name, agent in load_agents().items()}
    doctor.install("codex", f"#!/bin/sh\necho 'codex-cli {versions['codex']}'\n")
    doctor.install("claude", "#!/bin/sh\necho '1.0.3 (Claude Code)'\n")
    doctor.install("gemini", '#!/bin/sh\n[ -z "$OPENAI_API_KEY" ] && echo 99.0.1\n')
    doctor.install("goose", "#!/bin/sh\necho 'a library is missing' >&2\nexit 3\n")
    doctor.install("qwen", "#!/bin/sh\necho hello\n")
    doctor.install("pi", "no program")
    report = doctor.run(OPENAI_API_KEY=SECRET)
    report.check("agent codex", "ok", f"Codex {versions['codex']} →")
    report.check("agent claude", "warning", f"1.0.3 is older than {versions['claude']}", "update it: ")
    report.check("agent gemini", "ok", f"99.0.1 is newer than {versions['gemini']}")
    report.check("agent goose", "warning", "failed with 3: a library is missing → install it again: ")
    report.check("agent qwen", "warning", "prints no version: hello")
    report.check("agent pi", "warning", "Exec format error")
    report.check("agents", "ok", "not installed: aider")


def test_an_agent_that_hangs(doctor: Doctor) -> None:
    """It is ended with what it has started."""
    doctor.configure(ANY_PORT)
    doctor.install("codex", f"#!/bin/sh\n{sys.executable} -c '{HANGS}' &\necho $! > {doctor.folder}/child\nwait\n")
    doctor.run("--timeout", "3").check("agent codex", "problem", "no answer within 3 seconds")
    child = doctor.folder / "child"
    if child.exists() and (number := child.read_text()):  # otherwise it was ended before it started anything
        wait_until(lambda: has_ended(int(number)))


def test_an_agent_that_leaves_a_program_behind(doctor: Doctor) -> None:
    """Its output stays open: its version is known all the same, and what it has started ends."""
    doctor.configure(ANY_PORT)
    text = f"#!/bin/sh\n{sys.executable} -c '{HANGS}' &\necho $! > {doctor.folder}/child\necho 99.0.1\n"
    doctor.install("codex", text)
    doctor.run("--timeout", "10").check("agent codex", "ok", "Codex 99.0.1 is newer than")
    wait_until(lambda: has_ended(int((doctor.folder / "child").read_text())))


def has_ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


# --- the terminal -----------------------------------------------------------------------------------------------------


def test_the_report_on_a_terminal(doctor: Doctor) -> None:
    with list_server({}) as lists:
        doctor.configure(
            ANY_PORT
            + provider("fine", f"{lists.url}/v1", f'api_key = "{SECRET}"')
            + provider("dead", f"http://127.0.0.1:{free_port()}/v1")
            + provider("keyless", f"{lists.url}/v1", 'api_key_env = "TEAM_KEY"')
            + '[mcp.lacks]\ncommand = "x"\nenv = { A = "$NOT_SET" }\nmodels = ["*"]\n'
        )
        check_golden("doctor", ["doctor"], doctor.folder, code=1, environ=doctor.environ())


def test_a_refused_configuration_on_a_terminal(doctor: Doctor) -> None:
    doctor.configure(BROKEN)
    check_golden("doctor-refused", ["doctor"], doctor.folder, code=1, environ=doctor.environ())


def test_the_help(folder: Path) -> None:
    check_golden("help-doctor", ["doctor", "--help"], folder)


# --- the counters of limits -------------------------------------------------------------------------------------------


@NEEDS_REDIS
def test_the_server_of_counters(doctor: Doctor) -> None:
    from redis import Redis

    with own_server() as redis:
        doctor.configure(f'{ANY_PORT}[counters]\nurl = "{redis.url()}"\n')
        doctor.run().check("counters", "ok", f"redis://127.0.0.1:{redis.port}/0: 0 counters are in use")
        with Redis.from_url(redis.url()) as operator:
            operator.config_set("appendonly", "no")
            doctor.run().check(
                "counters", "warning", "0 counters are in use; after a restart of this Redis all of them"
            )
            operator.config_set("save", "3600 1")
            doctor.run().check("counters", "warning", "as in its last snapshot", "set `appendonly yes`")
            operator.acl_setuser("default", enabled=True, commands=["-config"])
            doctor.run().check("counters", "ok", "0 counters are in use; whether they outlive", "is unknown")
        redis.stop()
        doctor.run().check("counters", "problem", f"redis://127.0.0.1:{redis.port}/0 cannot be used", "see [counters]")
        redis.start()
