"""`toolwire conformance`: against Toolwire itself, and against gateways with faults."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.tampering_proxy import TamperingProxy, run_proxy
from toolwire.cli import main
from toolwire_conformance.targets import find_free_port

CHAT = "grid:chat>chat:*"


@pytest.fixture
def port() -> int:
    return find_free_port()


@pytest.fixture
def gateway(port: int) -> Iterator[TamperingProxy]:
    with run_proxy(f"http://127.0.0.1:{port}") as gateway:
        yield gateway


def run(gateway: TamperingProxy, port: int, *words: str) -> int:
    return main(["conformance", gateway.url, "--provider-port", str(port), "--name", "Proxy", *words])


def verdicts(file: Path) -> dict[str, str]:
    return {play["id"]: play["verdict"] for play in json.loads(file.read_text())["plays"]}


def test_toolwire_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page = tmp_path / "a.json", tmp_path / "a.html"
    words = ["conformance", "--target", "toolwire", "--case", "grid:*>gemini:sealed-echo", "--case", "075"]
    assert main([*words, "--json", str(file), "--page", str(page)]) == 0
    shown = capsys.readouterr()
    assert re.search(r"^  chat +· +· +· +2/2$", shown.out, re.MULTILINE)
    assert "Grid: 8 pass, 0 wrong, 0 unsupported, 0 not played" in shown.out
    assert "Reported cases: 1 pass" in shown.out
    assert "[9/9] 9 pass" in shown.err
    saved = json.loads(file.read_text())
    assert saved["gateway"]["name"] == "toolwire"
    assert saved["gateway"]["version"]
    assert saved["command"] == "toolwire conformance --target toolwire --case 'grid:*>gemini:sealed-echo' --case 075"
    text = page.read_text()
    assert "grid:responses>gemini:sealed-echo:stream" in text
    assert not re.search(r"(src|href)=|https?://(?!127)", text.replace("http://127.0.0.1", ""))
    assert main([*words, "--json", str(file), "--against", str(file)]) == 0
    assert "0 passed before and do not now" in capsys.readouterr().out
    assert json.loads(file.read_text()) == saved


def test_prints_the_configuration_that_a_gateway_needs(
    gateway: TamperingProxy, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(gateway, port, "--case", "grid:chat>chat:text", "--model-template", "to-{protocol}/{model}") == 0
    err = capsys.readouterr().err
    assert f"hint:   openai-chat at http://127.0.0.1:{port}/v1\n" in err
    assert "hint:     to-openai-chat/gpt-4.1 is gpt-4.1\n" in err


def test_all_verdicts(gateway: TamperingProxy, port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.json"
    gateway.fault = "drops call"
    cases = ["--case", CHAT, "--case", "grid:responses>chat:text", "--case", "135"]
    assert run(gateway, port, *cases, "--json", str(file)) == 0
    found = verdicts(file)
    assert found["grid:chat>chat:call"] == found["grid:chat>chat:two-calls:stream"] == "pass"
    assert found["grid:chat>chat:two-calls"] == "wrong"
    assert found["grid:responses>chat:text"] == "unsupported"
    assert found["135"] == "not played"
    out = capsys.readouterr().out
    assert re.search(
        r"^wrong +grid:chat>chat:two-calls +chat → chat +whole +client.*tool_calls: expected 2", out, re.MULTILINE
    )
    assert re.search(
        r"^unsupported +grid:responses>chat:text +responses → chat +whole +answered 404", out, re.MULTILINE
    )
    assert re.search(r"^  chat +8/10 ", out, re.MULTILINE)
    assert re.search(r"^  responses +– ", out, re.MULTILINE)


def test_gateway_that_hangs(gateway: TamperingProxy, port: int, tmp_path: Path) -> None:
    gateway.fault = "hangs"
    file = tmp_path / "a.json"
    assert run(gateway, port, "--case", "grid:chat>chat:text", "--patience", "0.2", "--json", str(file)) == 0
    plays = json.loads(file.read_text())["plays"]
    assert [play["verdict"] for play in plays] == ["wrong", "wrong"]
    assert plays[0]["differences"][0] == "the answer did not end within 0.2 seconds"


def test_against_option_finds_regressions(
    gateway: TamperingProxy, port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    assert run(gateway, port, "--case", CHAT, "--json", str(good)) == 0
    gateway.fault = "drops call"
    assert run(gateway, port, "--case", CHAT, "--json", str(bad), "--against", str(good)) == 1
    out = capsys.readouterr().out
    assert "2 passed before and do not now, 0 pass now and did not before" in out
    assert re.search(r"^worse +grid:chat>chat:two-calls +wrong: ", out, re.MULTILINE)
    gateway.fault = ""
    assert run(gateway, port, "--case", CHAT, "--against", str(bad)) == 0
    assert re.search(r"^better +grid:chat>chat:echo$", capsys.readouterr().out, re.MULTILINE)


def test_compare_option(gateway: TamperingProxy, port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    cases = ["--case", CHAT, "--case", "005"]
    for file, fault in zip(files, ("", "drops"), strict=True):
        gateway.fault = "drops call" if fault else ""
        run(gateway, port, *cases, "--json", str(file))
    capsys.readouterr()
    page, markdown = tmp_path / "c.html", tmp_path / "c.md"
    words = ["conformance", "--compare", *map(str, files)]
    assert main([*words, "--markdown", str(markdown), "--page", str(page)]) == 0
    text = markdown.read_text()
    assert "| `two-calls` | 1/1 | 0/1 |\n" in text
    assert "| Proxy |  | 10 | 0 | 0 |" in text
    assert re.search(r"^\| 005 \| The id .* \| . \| . \|$", text, re.MULTILINE)
    assert page.read_text().count('"command"') == 2
    assert main(words) == 0
    assert capsys.readouterr().out == text


def test_list_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "--list", "--only", "cases", "--case", "021"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "021:to anthropic  An id that is repeated in every delta is one id"
    assert "grid:" not in out


def test_a_protocol_that_is_not_compared_is_played_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["conformance", "--all-protocols", "--case", "grid:converse>converse:call"]
    assert main([*words, "--target", "toolwire"]) == 0
    assert "Grid: 2 pass, 0 wrong" in capsys.readouterr().out
    assert main([*words, "--list"]) == 0
    assert capsys.readouterr().out.split()[0] == "grid:converse>converse:call"
    assert main(["conformance", "--list", "--only", "grid"]) == 0
    assert "converse" not in capsys.readouterr().out


def test_sends_key_and_headers(gateway: TamperingProxy, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "sk-mine")
    assert run(gateway, port, "--case", "grid:chat>chat:text", "--key-env", "MINE", "--header", "X-Team: red") == 0
    assert gateway.headers["authorization"] == "Bearer sk-mine"
    assert gateway.headers["x-team"] == "red"


BAD: list[tuple[list[str], str]] = [
    ([], "give either the URL of a gateway or --target"),
    (["http://127.0.0.1:1", "--target", "toolwire"], "give either the URL of a gateway or --target"),
    (["http://127.0.0.1:1", "--case", "nothing"], "no case has such an id"),
    (["127.0.0.1:8642", "--provider-port", "0"], "is not the URL of a gateway"),
    (["http://127.0.0.1:9", "--provider-port", "0", "--wait", "0"], "no answer from"),
    (["http://127.0.0.1:9", "--provider-port", "0", "--model-template", "{x}"], "invalid template"),
    (["http://127.0.0.1:9", "--provider-port", "0", "--header", "x"], "a header has no value"),
    (["http://127.0.0.1:9", "--key-env", "NOT_SET_AT_ALL"], "NOT_SET_AT_ALL is not set"),
    (["http://127.0.0.1:9", "--against", "missing.json"], "cannot read missing.json"),
    (["--compare", "missing.json"], "cannot read missing.json"),
    (["--target", "toolwire", "--markdown", "x.md"], "--markdown needs --compare"),
]


@pytest.mark.parametrize(("words", "message"), BAD, ids=[" ".join(words) or "nothing" for words, _ in BAD])
def test_bad_usage(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", *words]) == 2
    assert message in capsys.readouterr().err


def test_compare_of_an_invalid_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"plays": 1}')
    assert main(["conformance", "--compare", str(file)]) == 2
    assert "is not a saved result" in capsys.readouterr().err


def test_provider_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["conformance", "http://127.0.0.1:9", "--provider-port", str(port)]) == 2
    assert f"the test providers cannot listen on port {port}" in capsys.readouterr().err


def test_target_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["conformance", "--target", "litellm", "--case", "001"]) == 2
    assert "is not installed" in capsys.readouterr().err


def test_target_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "toolwire"
    program.write_text("#!/bin/sh\necho toolwire 9.9\necho no such option >&2\nexit 3\n")
    program.chmod(0o755)
    assert main(["conformance", "--target", "toolwire", "--from", str(tmp_path), "--case", "001"]) == 2
    err = capsys.readouterr().err
    assert "starting Toolwire 9.9" in err
    assert "no such option" in err


def test_progress_on_a_terminal(gateway: TamperingProxy, port: int) -> None:
    command = [sys.executable, "-m", "toolwire.cli", "conformance", gateway.url, "--provider-port", str(port)]
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    done = subprocess.run(
        [*command, "--case", "grid:chat>chat:text"],
        stderr=theirs,
        stdout=subprocess.DEVNULL,
        env={**environment, "TERM": "xterm"},
        check=True,
    )
    os.close(theirs)
    text = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "\r\x1b[K[1/2] 1 pass  grid:chat>chat:text\r\x1b[K[2/2] 2 pass" in text
