"""The gateway runs where uvloop, `fork`, `poll` and POSIX signals do not exist, and the library needs only msgspec."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

from forked_commands import start_program
from gateway.process import run_gateway
from gateway.raw_exchange import ask
from install.clean_runs import EXTRA_PACKAGES, RESTRICTED, run_restricted, start_restricted
from waits import PATIENCE

QUESTION = b'{"model":"loopback","messages":[{"role":"user","content":"Say ok."}]}'
STREAMED = QUESTION[:-1] + b',"stream":true}'


@pytest.mark.parametrize("missing", [("uvloop",), EXTRA_PACKAGES, ("windows", *EXTRA_PACKAGES)], ids=" ".join)
def test_every_module_can_be_imported(missing: tuple[str, ...]) -> None:
    done = run_restricted(missing, "--import-all")
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 150


@pytest.mark.parametrize("missing", ["uvloop", "re2", "windows"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves(missing: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.process.start_process", partial(start_restricted, missing))
    with run_gateway(tmp_path) as process:
        answer = ask(process.port, "POST", "/v1/chat/completions", QUESTION)
        assert answer.status == 200
        answer = ask(process.port, "POST", "/v1/chat/completions", STREAMED)
        assert (answer.status, answer.data[-8:]) == (200, b"[DONE]\n\n")
        process.signal(number)
        assert process.wait_for_exit() == 0


def test_it_asks_providers_again_without_poll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second request finds the connection of the first, and checks that it is still open."""
    with run_gateway(tmp_path) as provider:
        lines = f'[providers.other]\nprotocols = ["openai-chat"]\nbase_url = "http://127.0.0.1:{provider.port}/v1"\n'
        (tmp_path / "toolwire.toml").write_text(lines)
        monkeypatch.setattr("gateway.process.start_process", partial(start_restricted, "windows"))
        with run_gateway(tmp_path) as process:
            body = QUESTION.replace(b"loopback", b"other/loopback")
            assert [ask(process.port, "POST", "/v1/chat/completions", body).status for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("missing", ["uvloop", "windows"])
def test_it_ends_with_whoever_holds_its_lifeline(missing: str, tmp_path: Path) -> None:
    command = [*RESTRICTED, missing, "serve", "--port", "0", "--lifeline", "0"]
    with start_program(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert "http://" in process.stdout.readline()
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def test_several_workers_run_on_asyncio_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.process.start_process", partial(start_restricted, "uvloop"))
    with run_gateway(tmp_path, "--workers", "2") as process:
        assert ask(process.port, "POST", "/v1/chat/completions", QUESTION).status == 200
        process.signal(signal.SIGTERM)
        assert process.wait_for_exit() == 0


def test_several_workers_are_refused_where_there_is_no_fork(tmp_path: Path) -> None:
    done = run_restricted(("windows",), "serve", "--port", "0", "--workers", "2", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot run several workers" in done.stderr
    assert "Traceback" not in done.stderr


LIBRARY = """
import sys
allowed = {*sys.stdlib_module_names, "msgspec", "toolwire"}
class Finder:
    def find_spec(self, name, *_):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Finder())
import toolwire

body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
for target in ("gemini", "anthropic", "openai-responses", "unified"):
    toolwire.translate(body, "request", source="openai-chat", target=target)
loaded = {name.partition(".")[0] for name in sys.modules}
print(*sorted(loaded & {"msgspec", "re2", "httptools", "uvloop", "asyncio", "backports"}))
"""


def test_the_library_imports_only_msgspec() -> None:
    """Installed or not, the gateway's packages are not loaded by it."""
    command = [sys.executable, "-S", "-c", LIBRARY]  # without `.pth` files, which import what they like
    paths = [path for path in sys.path if path]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, cwd=tempfile.gettempdir(), env=environ, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("msgspec\n", "")
