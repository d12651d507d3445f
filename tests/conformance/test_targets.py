"""How other gateways are set up. They are not run here: `make conformance` does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import urllib.request
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from toolwire_conformance.case import load_all_cases
from toolwire_conformance.peers import PEERS
from toolwire_conformance.player import asked_models
from toolwire_conformance.targets import TARGETS, NotInstalled, ProgramFolders, Route, Target, start_target

ORIGIN = "http://127.0.0.1:9000"
ASKED = [("openai-chat", "gpt-5.5"), ("openai-chat", "deepseek-chat"), ("openai-responses", "gpt-5.5"), ("gemini", "g")]
PORTKEY = "@portkey-ai/gateway"


def write_configuration(name: str, folder: Path, asked: list[tuple[str, str]]) -> tuple[list[str], Any]:
    """The command line, and the configuration as the gateway reads it."""
    command = [*TARGETS[name].make_command(8000, ORIGIN, folder, asked)]
    (file,) = (file for file in folder.rglob("*") if file.is_file())
    read = tomllib.loads if file.suffix == ".toml" else json.loads
    return [word.replace(str(file), file.name) for word in command], read(file.read_text())


def test_litellm_configuration(tmp_path: Path) -> None:
    command, config = write_configuration("litellm", tmp_path, ASKED)
    assert command == ["litellm", "--config", "litellm.yaml", "--host", "127.0.0.1", "--port", "8000"]
    assert config["router_settings"] == {"num_retries": 0, "disable_cooldowns": True}
    assert [(one["model_name"], one["litellm_params"]["model"]) for one in config["model_list"]] == [
        ("gpt-5.5--openai-chat", "custom_openai/gpt-5.5"),
        ("deepseek-chat--openai-chat", "custom_openai/deepseek-chat"),
        ("gpt-5.5--openai-responses", "openai/responses/gpt-5.5"),
        ("g--gemini", "gemini/g"),
    ]
    bases = [one["litellm_params"]["api_base"].removeprefix(ORIGIN) for one in config["model_list"]]
    assert bases == ["/v1", "/v1", "/v1", "/v1beta"]


def test_rosetta_configuration(tmp_path: Path) -> None:
    command, config = write_configuration("llm-rosetta", tmp_path, ASKED)
    assert command[:3] == ["llm-rosetta-gateway", "--config", "config.jsonc"]
    assert {alias: (one["provider"], one["upstream_model"]) for alias, one in config["models"].items()} == {
        "gpt-5.5--openai-chat": ("openai", "gpt-5.5"),
        "deepseek-chat--openai-chat": ("deepseek", "deepseek-chat"),
        "gpt-5.5--openai-responses": ("openai_responses", "gpt-5.5"),
        "g--gemini": ("google", "g"),
    }
    assert config["providers"]["google"] == {"type": "google", "base_url": ORIGIN, "api_key": "test"}


def test_portkey_headers(tmp_path: Path) -> None:
    target = TARGETS["portkey"]
    assert [*target.make_command(8000, ORIGIN, tmp_path, ASKED)] == ["gateway", "--port=8000", "--headless"]
    route = target.find_route("openai-chat", "anthropic", "claude-opus-5-5", ORIGIN)
    assert isinstance(route, Route)
    assert (route.model, json.loads(route.headers["x-portkey-config"])) == (
        "claude-opus-5-5",
        {
            "provider": "anthropic",
            "custom_host": f"{ORIGIN}/v1",
            "api_key": "test",
            "override_params": {"max_tokens": 32000},
        },
    )


def test_switchyard_configuration(tmp_path: Path) -> None:
    command, config = write_configuration("switchyard", tmp_path, ASKED)
    assert (command[0], command[3:]) == ("python", ["routes.toml", "8000"])
    assert config["llm_clients"]["openai_chat"]["base_url"] == f"{ORIGIN}/v1"
    routes = {route["id"]: config["targets"][route["target"]] for route in config["routes"].values()}
    assert routes == {
        "gpt-5.5--openai-chat": {"id": "gpt-5.5", "llm_client": "openai_chat"},
        "deepseek-chat--openai-chat": {"id": "deepseek-chat", "llm_client": "openai_chat"},
        "gpt-5.5--openai-responses": {"id": "gpt-5.5", "llm_client": "openai_responses"},
    }


def test_claude_code_router_configuration(tmp_path: Path) -> None:
    command, config = write_configuration("claude-code-router", tmp_path, ASKED)
    assert (command, config["PORT"]) == (["ccr", "start"], 8000)
    assert {one["name"]: (one["api_base_url"].removeprefix(ORIGIN), one["models"]) for one in config["Providers"]} == {
        "deepseek": ("/v1/chat/completions", ["deepseek-chat"]),
        "openai": ("/v1/chat/completions", ["gpt-5.5"]),
        "responses": ("/v1/responses", ["gpt-5.5"]),
        "anthropic": ("/v1/messages", []),
        "gemini": ("/v1beta/models/", ["g"]),
    }
    assert TARGETS["claude-code-router"].find_route("anthropic", "gemini", "g", ORIGIN) == Route("gemini,g")


def test_nine_router_has_another_node_for_each_call(tmp_path: Path) -> None:
    command, config = write_configuration("9router", tmp_path, ASKED)
    assert command[-1] == "8000"
    nodes = {node["prefix"]: (node["type"], node.get("apiType"), node["baseUrl"]) for node in config["providerNodes"]}
    assert {one["provider"] for one in config["providerConnections"]} == {one["id"] for one in config["providerNodes"]}
    routes = [TARGETS["9router"].find_route("gemini", "openai-responses", "gpt-5.5", ORIGIN) for _ in range(2)]
    prefixes = [route.model.partition("/")[0] for route in routes if isinstance(route, Route)]
    assert len(set(prefixes)) == 2
    assert {nodes[prefix] for prefix in prefixes} == {("openai-compatible", "responses", f"{ORIGIN}/v1")}


def test_programs_of_an_environment_with_a_package(tmp_path: Path) -> None:
    places = []
    for name in ("without", "with"):
        place = tmp_path / name / "bin"
        place.mkdir(parents=True)
        (place / "python").write_text("#!/bin/sh\n")
        (place / "python").chmod(0o755)
        places.append(place)
    (tmp_path / "with/lib/python3.11/site-packages/switchyard_rust").mkdir(parents=True)
    folders = ProgramFolders(tuple(places))
    assert folders.find_program("python") == str(places[0] / "python")
    assert folders.find_program("python", "switchyard_rust") == str(places[1] / "python")
    with pytest.raises(NotInstalled, match="no_such_package"):
        folders.find_program("python", "no_such_package")


COMPARED = [name for name, peer in PEERS.items() if peer.is_compared]
NOT_OFFERED = {"portkey": 11, "switchyard": 7, "claude-code-router": 12, "9router": 4}
"""How many of the sixteen pairs."""


@pytest.mark.parametrize("name", TARGETS)
def test_every_pair_has_a_route_or_a_reason(name: str) -> None:
    ways = [TARGETS[name].find_route(*pair, "gpt-5.5", ORIGIN) for pair in product(COMPARED, repeat=2)]
    reasons = [way for way in ways if isinstance(way, str)]
    assert all(" " in reason and "\n" not in reason for reason in reasons)
    assert len(reasons) == NOT_OFFERED.get(name, 0)


@pytest.mark.parametrize("name", ["litellm", "llm-rosetta"])
def test_every_model_is_configured(name: str, tmp_path: Path) -> None:
    asked = asked_models(load_all_cases())
    _, config = write_configuration(name, tmp_path, asked)
    known = [one["model_name"] for one in config["model_list"]] if name == "litellm" else list(config["models"])
    routes = [TARGETS[name].find_route("anthropic", *pair, ORIGIN) for pair in asked]
    assert known == [route.model for route in routes if isinstance(route, Route)]
    assert len(set(known)) == len(asked) > 10


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "toolwire"])
def test_not_installed(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "toolwire.cli", "conformance", "--target", name, "--from", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(tmp_path)}, check=False)
    assert done.returncode == 2
    error, hint = done.stderr.splitlines()
    assert "is not installed" in error
    assert "make conformance" in hint


def install_program(folder: Path, package: dict[str, str]) -> ProgramFolders:
    """A program `gateway` that belongs to a package."""
    (folder / "package.json").write_text(json.dumps(package))
    file = folder / "gateway"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return ProgramFolders((folder,))


def test_portkey_version(tmp_path: Path) -> None:
    assert TARGETS["portkey"].read_version(install_program(tmp_path, {"name": PORTKEY, "version": "1.2.3"})) == "1.2.3"


def test_another_program_named_gateway_is_not_portkey(tmp_path: Path) -> None:
    with pytest.raises(NotInstalled, match=PORTKEY):
        TARGETS["portkey"].read_version(install_program(tmp_path, {"name": "another", "version": "1.2.3"}))


TELLS_ITS_ENVIRONMENT = """
import http.server, json, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(dict(os.environ)).encode())
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_gateway_does_not_see_the_users_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    target = Target(
        name="plain",
        title="Plain",
        install_hint="",
        read_version=lambda _: "1",
        make_command=lambda port, *_: [sys.executable, "-c", TELLS_ITS_ENVIRONMENT, str(port)],
        find_route=lambda *_: "nowhere",
        environment={"A_SWITCH": "on"},
    )
    with start_target(target, ORIGIN, [], ProgramFolders()) as url, urllib.request.urlopen(url) as answer:
        seen = json.loads(answer.read())
    assert "SOME_API_KEY" not in seen
    assert seen["A_SWITCH"] == "on"
    assert seen["HOME"] not in ("", os.environ.get("HOME"))
