"""The gateways that the suite can start: how to configure, start and call them. Their settings are in `*.toml`."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from fnmatch import fnmatchcase
from importlib.resources import files
from itertools import cycle, product
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

VERSION_TIMEOUT = 60
"""Seconds for a program to print its version: some take long to start."""


class NotInstalled(Exception):
    """A program that was not found."""


class ProgramFolders(Struct, frozen=True):
    """Where to look for programs: in these folders (such as `.venv/bin` or `node_modules/.bin`), then on PATH."""

    folders: tuple[Path, ...] = ()

    def find_program(self, program: str, package: str = "") -> str:
        """The first program of this name; one of an environment with this package of Python, if one is named."""
        for folder in (*map(str, self.folders), None):  # None stands for PATH
            found = shutil.which(program, path=folder)
            if found and (not package or [*Path(found).parents[1].glob(f"lib/python*/site-packages/{package}")]):
                return found
        raise NotInstalled(package or program)

    def read_output(self, program: str, *words: str) -> str:
        """What a program prints, without surrounding whitespace."""
        command = [self.find_program(program), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_TIMEOUT, check=False)
        return done.stdout.strip()


class Route(Struct, frozen=True):
    """What a client must send to reach a model of a provider."""

    model: str
    headers: Mapping[str, str] = {}


Router: TypeAlias = Callable[[str, str, str], Route | str]
"""From the client's protocol, the provider's and the model: what to ask for, or why that is not possible."""


class Target(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    install_hint: str = "`make conformance` in the sources of Toolwire installs it"
    """How to install it."""
    installed: str = ""
    """Where it comes from, for the page of results."""
    started: str = ""
    """How it is started, in words that a reader can repeat."""
    read_version: Callable[[ProgramFolders], str]
    """Reads the version of the installed program."""
    make_command: Callable[[int, str, Path, Sequence[tuple[str, str]]], Sequence[str]]
    """The command line, from the port to listen on, the provider's origin (`http://127.0.0.1:N`), an empty folder for
    the configuration, and all pairs of a provider's protocol and a model. It runs in that folder; its first word is
    looked up in the program folders."""
    find_route: Callable[[str, str, str, str], Route | str]
    """From the client's protocol, the provider's, the model and the provider's origin: what to send, or why the gateway
    does not support this pair."""
    package: str = ""
    """The package of Python that a command needs which is `python`."""
    environment: Mapping[str, str] = {}
    configured_cases: tuple[str, ...] = ()
    """Cases that need a special configuration, which the command provides."""
    ready_path: str = "/"
    """A path that is answered with a status below 500 when the gateway is up."""
    start_timeout: float = 60.0
    """Seconds to wait for the gateway to start."""


class ProviderPlacement(Struct, frozen=True, forbid_unknown_fields=True):
    """How a provider is configured in the gateway."""

    protocol: str
    kind: str
    """The gateway's name for this kind of provider."""
    base: str = ""
    """The path after the provider's origin."""
    models: tuple[str, ...] = ("*",)
    """Patterns of model names."""
    clients: tuple[str, ...] = ("*",)
    """Patterns of client protocols, for a gateway that is configured by each request."""
    settings: Mapping[str, Any] = {}


class ImpossiblePair(Struct, frozen=True, forbid_unknown_fields=True):
    why: str
    clients: tuple[str, ...] = ("*",)
    providers: tuple[str, ...] = ("*",)


class GatewayTable(Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    installed: str
    started: str
    places: tuple[ProviderPlacement, ...]
    """The first match is used."""
    environment: Mapping[str, str] = {}
    settings: Mapping[str, Any] = {}
    """Copied into the gateway's configuration."""
    impossible: tuple[ImpossiblePair, ...] = ()

    def find_obstacle(self, client: str, provider: str) -> str:
        """Why the gateway does not offer this pair, if it does not."""
        for pair in self.impossible:
            if _matches_any(client, pair.clients) and _matches_any(provider, pair.providers):
                return pair.why
        return ""

    def find_placement(self, protocol: str, model: str, client: str = "") -> ProviderPlacement:
        return next(
            place
            for place in self.places
            if place.protocol == protocol and _matches_any(model, place.models) and _matches_any(client, place.clients)
        )


def _matches_any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def read_table(name: str) -> GatewayTable:
    return msgspec.toml.decode(files(__package__).joinpath(f"{name}.toml").read_bytes(), type=GatewayTable)


def model_alias(protocol: str, model: str) -> str:
    """A unique name for each model and protocol. The model comes first, because some gateways look at prefixes."""
    return f"{model}--{protocol}"


WriteRoute: TypeAlias = Callable[[str, str, str, str], Route]
"""As `Target.find_route`, for a pair that the gateway offers."""


def _write_alias(_client: str, provider: str, model: str, _origin: str) -> Route:
    return Route(model_alias(provider, model))


def _from_table(table: GatewayTable, write_route: WriteRoute = _write_alias) -> dict[str, Any]:
    """The fields of a target that its table has, and its routes."""
    fields = {name: getattr(table, name) for name in ("title", "installed", "started", "environment")}
    return fields | {"find_route": lambda *pair: table.find_obstacle(*pair[:2]) or write_route(*pair)}


# --- starting and stopping ------------------------------------------------------------------------------------------


POLL_INTERVAL = 0.1
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "SYSTEMROOT")
"""Variables that the gateway gets. Keys, proxies and the user's home are left out, so that all runs are alike."""
STOP_TIMEOUT = 10
LOG_LINES = 15
"""Lines of the log that are shown if it does not start."""


class GatewayNotStarted(Exception):
    """A gateway that ended or did not answer; the message is the end of its log."""


@contextmanager
def start_target(
    target: Target, origin: str, models: Sequence[tuple[str, str]], folders: ProgramFolders
) -> Iterator[str]:
    """Run the gateway during the block; gives its URL. `origin` is the URL of the providers."""
    with tempfile.TemporaryDirectory(prefix="toolwire-conformance-") as name:
        folder, port = Path(name), find_free_port()
        command = list(target.make_command(port, origin, folder, models))
        command[0] = folders.find_program(command[0], target.package)
        log = folder / "gateway.log"
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        # The program folders come first on PATH, because programs there start others.
        path = os.pathsep.join([*map(str, folders.folders), kept.get("PATH", "")])
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**kept, "PATH": path, "HOME": str(folder), **target.environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            url = f"http://127.0.0.1:{port}"
            if not wait_for_answer(url + target.ready_path, target.start_timeout, process):
                raise GatewayNotStarted("\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:]))
            yield url
        finally:
            _stop_process(process)


def find_free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def wait_for_answer(url: str, timeout: float, process: subprocess.Popen[bytes] | None = None) -> bool:
    """Wait for an answer with a status below 500, until the timeout or the end of the process."""
    deadline = time.monotonic() + timeout
    place = urlsplit(url)
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    while process is None or process.poll() is None:
        connection = kind(place.netloc, timeout=5)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", place.path or "/")
            with closing(connection), connection.getresponse() as response:
                if response.status < 500:
                    return True
        connection.close()
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_INTERVAL)
    return False


def _stop_process(process: subprocess.Popen[bytes]) -> None:
    """Stop the process and its children, first with SIGTERM."""
    for name in ("SIGTERM", "SIGKILL"):
        with suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.Signals[name])
            else:  # Windows
                process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT)
            return


# --- Toolwire: a provider for each protocol and quirk ---------------------------------------------------------------


TOOLWIRE_CONFIG_HEAD = (
    '[server]\nretries = 0\ncooldown_after = 1000000\nlog_format = "none"\n\n[store]\nurl = "sqlite://{store}"\n'
)
TOOLWIRE_TABLE = tomllib.loads((files(__package__) / "toolwire.toml").read_text("utf-8"))
TOOLWIRE_QUIRKS: dict[tuple[str, str], str] = {
    (row["protocol"], row["model"]): row["quirk"] for row in TOOLWIRE_TABLE["quirks"]
}
TOOLWIRE_FALLBACKS: dict[tuple[str, str], str] = {
    (row["protocol"], row["model"]): row["fallback"] for row in TOOLWIRE_TABLE["fallbacks"]
}


def make_toolwire_command(port: int, origin: str, folder: Path, models: Sequence[tuple[str, str]]) -> Sequence[str]:
    file = folder / "toolwire.toml"
    providers = {_provider_name(*pair): pair for pair in models}
    lines = [_write_provider(name, *pair, origin) for name, pair in providers.items()]
    rules = [_write_model_rule(*pair) for pair in models if pair in TOOLWIRE_FALLBACKS]
    file.write_text("\n".join([TOOLWIRE_CONFIG_HEAD.format(store=folder / "store.db"), *lines, *rules]))
    return ["toolwire", "serve", "--config", str(file), "--port", str(port)]


def _write_provider(name: str, protocol: str, model: str, origin: str) -> str:
    quirk = TOOLWIRE_QUIRKS.get((protocol, model))
    quirks = f'quirks = ["{quirk}"]\n' if quirk else ""
    return f'[providers.{name}]\nprotocols = ["{protocol}"]\nbase_url = "{origin}"\n{quirks}'


def _write_model_rule(protocol: str, model: str) -> str:
    name = _provider_name(protocol, model)
    fallback = f"{name}/{TOOLWIRE_FALLBACKS[protocol, model]}"
    return f'[models."{model}"]\nprovider = "{name}"\nmodel = "{model}"\nfallbacks = ["{fallback}"]\n'


def _provider_name(protocol: str, model: str) -> str:
    return f"{TOOLWIRE_QUIRKS.get((protocol, model), 'scripted')}-{protocol}"


def find_toolwire_route(_client: str, provider: str, model: str, _origin: str) -> Route | str:
    return Route(model if (provider, model) in TOOLWIRE_FALLBACKS else f"{_provider_name(provider, model)}/{model}")


TOOLWIRE = Target(
    name="toolwire",
    title="Toolwire",
    install_hint="pip install toolwire",
    installed="these sources",
    started="toolwire serve --config toolwire.toml --port PORT",
    read_version=lambda folders: _read_version(folders, "toolwire"),
    make_command=make_toolwire_command,
    find_route=find_toolwire_route,
    ready_path="/readyz",
    configured_cases=tuple(TOOLWIRE_TABLE["configured_cases"]),
)


def _read_version(folders: ProgramFolders, program: str) -> str:
    return folders.read_output(program, "--version").rpartition(" ")[2]


def _read_package_version(folders: ProgramFolders, python: str, package: str) -> str:
    return folders.read_output(python, "-c", f"from importlib.metadata import version; print(version('{package}'))")


def _read_npm_version(folders: ProgramFolders, program: str, package: str) -> str:
    """Read from its package, which also tells it apart from other programs of the same name."""
    for folder in Path(folders.find_program(program)).resolve().parents:
        if (file := folder / "package.json").is_file():
            found = json.loads(file.read_bytes())
            if found.get("name") == package:
                return str(found["version"])
    raise NotInstalled(package)


# --- LiteLLM: one deployment for each model and protocol ------------------------------------------------------------


LITELLM_TABLE = read_table("litellm")


def read_litellm_version(folders: ProgramFolders) -> str:
    """Read from its package, because the program takes long to start."""
    return _read_package_version(
        folders, str(Path(folders.find_program("litellm")).resolve().with_name("python")), "litellm"
    )


def make_litellm_command(port: int, origin: str, folder: Path, models: Sequence[tuple[str, str]]) -> Sequence[str]:
    deployments = []
    for protocol, model in models:
        place = LITELLM_TABLE.find_placement(protocol, model)
        to = {"model": f"{place.kind}/{model}", "api_base": origin + place.base, "api_key": "test", **place.settings}
        deployments.append({"model_name": model_alias(protocol, model), "litellm_params": to})
    file = folder / "litellm.yaml"
    file.write_text(json.dumps({"model_list": deployments, **LITELLM_TABLE.settings}, indent=1))  # JSON is YAML
    return ["litellm", "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]


LITELLM = Target(
    name="litellm",
    **_from_table(LITELLM_TABLE),
    read_version=read_litellm_version,
    make_command=make_litellm_command,
    ready_path="/health/liveliness",
    start_timeout=180.0,
)


# --- llm-rosetta ----------------------------------------------------------------------------------------------------


ROSETTA_PROGRAM = "llm-rosetta-gateway"
ROSETTA_TABLE = read_table("rosetta")


def make_rosetta_command(port: int, origin: str, folder: Path, models: Sequence[tuple[str, str]]) -> Sequence[str]:
    providers = {
        place.kind: {"type": place.kind, "base_url": origin + place.base, "api_key": "test"}
        for place in ROSETTA_TABLE.places
    }
    upstream = {}
    for protocol, model in models:
        place = ROSETTA_TABLE.find_placement(protocol, model)
        settings = {"provider": place.kind, "upstream_model": model, **place.settings}
        upstream[model_alias(protocol, model)] = settings
    file = folder / "config.jsonc"
    file.write_text(json.dumps({**ROSETTA_TABLE.settings, "providers": providers, "models": upstream}, indent=1))
    return [ROSETTA_PROGRAM, "--config", str(file), "--host", "127.0.0.1", "--port", str(port), "--no-banner"]


ROSETTA = Target(
    name="llm-rosetta",
    **_from_table(ROSETTA_TABLE),
    read_version=lambda folders: _read_version(folders, ROSETTA_PROGRAM),
    make_command=make_rosetta_command,
    ready_path="/health",
)


# --- Portkey: no configuration, the headers of each request name the provider ---------------------------------------


PORTKEY_PACKAGE = "@portkey-ai/gateway"
PORTKEY_TABLE = read_table("portkey")


def write_portkey_route(client: str, provider: str, model: str, origin: str) -> Route:
    place = PORTKEY_TABLE.find_placement(provider, model, client)
    config = {"provider": place.kind, "custom_host": origin + place.base, "api_key": "test", **place.settings}
    return Route(model, {"x-portkey-config": json.dumps(config)})


PORTKEY = Target(
    name="portkey",
    **_from_table(PORTKEY_TABLE, write_portkey_route),
    read_version=lambda folders: _read_npm_version(folders, "gateway", PORTKEY_PACKAGE),
    make_command=lambda port, *_: ["gateway", f"--port={port}", "--headless"],
)


# --- Switchyard: a client for each protocol, a target and a route for each model ------------------------------------


SWITCHYARD_PACKAGE = "switchyard_rust"
SWITCHYARD_TABLE = read_table("switchyard")
SWITCHYARD_SERVER = """
import signal, sys
from switchyard_rust.server import Server
with Server(sys.argv[1], int(sys.argv[2])):
    signal.pause()
"""


def make_switchyard_command(port: int, origin: str, folder: Path, models: Sequence[tuple[str, str]]) -> Sequence[str]:
    lines = ["schema_version = 1"]
    for place in SWITCHYARD_TABLE.places:
        lines.append(f'[llm_clients.{place.kind}]\nformat = "{place.kind}"\nbase_url = "{origin}{place.base}"')
        lines.append('api_key_env = "SCRIPTED_KEY"\nmax_retries = 0')
    for number, (protocol, model) in enumerate(models):
        if not SWITCHYARD_TABLE.find_obstacle("", protocol):
            kind = SWITCHYARD_TABLE.find_placement(protocol, model).kind
            lines.append(f'[targets.m{number}]\nid = "{model}"\nllm_client = "{kind}"')
            lines.append(f'[routes.m{number}]\nid = "{model_alias(protocol, model)}"')
            lines.append(f'type = "passthrough"\ntarget = "m{number}"')
    file = folder / "routes.toml"
    file.write_text("\n".join(lines))
    return ["python", "-c", SWITCHYARD_SERVER, str(file), str(port)]


SWITCHYARD = Target(
    name="switchyard",
    **_from_table(SWITCHYARD_TABLE),
    read_version=lambda folders: _read_package_version(
        folders, folders.find_program("python", SWITCHYARD_PACKAGE), "nemo-switchyard"
    ),
    make_command=make_switchyard_command,
    package=SWITCHYARD_PACKAGE,
    ready_path="/health",
)


# --- claude-code-router: a provider for each kind, with its models --------------------------------------------------


CLAUDE_CODE_ROUTER_PACKAGE = "@musistudio/claude-code-router"
CLAUDE_CODE_ROUTER_TABLE = read_table("claude_code_router")


def make_claude_code_router_command(
    port: int, origin: str, folder: Path, models: Sequence[tuple[str, str]]
) -> Sequence[str]:
    providers = {
        place.kind: {
            "name": place.kind,
            "api_base_url": origin + place.base,
            "api_key": "test",
            "models": [],
            **place.settings,
        }
        for place in CLAUDE_CODE_ROUTER_TABLE.places
    }
    for protocol, model in models:
        providers[CLAUDE_CODE_ROUTER_TABLE.find_placement(protocol, model).kind]["models"].append(model)
    settings = {**CLAUDE_CODE_ROUTER_TABLE.settings, "PORT": port, "Router": {}}
    file = folder / ".claude-code-router" / "config.json"  # in its home, which is this folder
    file.parent.mkdir()
    file.write_text(json.dumps({**settings, "Providers": [*providers.values()]}, indent=1))
    return ["ccr", "start"]


def write_claude_code_router_route(_client: str, provider: str, model: str, _origin: str) -> Route:
    return Route(f"{CLAUDE_CODE_ROUTER_TABLE.find_placement(provider, model).kind},{model}")


CLAUDE_CODE_ROUTER = Target(
    name="claude-code-router",
    **_from_table(CLAUDE_CODE_ROUTER_TABLE, write_claude_code_router_route),
    read_version=lambda folders: _read_npm_version(folders, "ccr", CLAUDE_CODE_ROUTER_PACKAGE),
    make_command=make_claude_code_router_command,
)


# --- 9router: nodes for compatible servers --------------------------------------------------------------------------


NINE_ROUTER_TABLE = read_table("nine_router")
NINE_ROUTER_SERVER = (
    'PORT="$0" HOSTNAME=127.0.0.1 exec node "$(dirname "$(readlink -f "$(command -v 9router)")")/app/custom-server.js"'
)
NINE_ROUTER_NODES = 600
"""After an error it rests a model of a node for half a minute or more, and has no setting against that: with so many
in turn, errors of one case do not count for the next."""


def make_nine_router_command(port: int, origin: str, folder: Path, _models: Sequence[tuple[str, str]]) -> Sequence[str]:
    nodes, connections = [], []
    for place, number in product(NINE_ROUTER_TABLE.places, range(NINE_ROUTER_NODES)):
        prefix = f"{place.settings['prefix']}{number}"
        data = {**place.settings, "prefix": prefix, "baseUrl": origin + place.base}
        id = f"{place.kind}-{prefix}"
        nodes.append({"id": id, "type": place.kind, "name": prefix, **data})
        account = {"id": id, "provider": id, "authType": "apikey", "name": prefix, "apiKey": "test", "isActive": True}
        connections.append({**account, "providerSpecificData": data})
    file = folder / ".9router" / "db.json"  # in its home, which is this folder
    file.parent.mkdir()
    tables = {**NINE_ROUTER_TABLE.settings, "providerNodes": nodes, "providerConnections": connections}
    file.write_text(json.dumps(tables, indent=1))
    return ["sh", "-c", NINE_ROUTER_SERVER, str(port)]


_NINE_ROUTER_NUMBERS = {place.protocol: cycle(range(NINE_ROUTER_NODES)) for place in NINE_ROUTER_TABLE.places}


def write_nine_router_route(_client: str, provider: str, model: str, _origin: str) -> Route:
    prefix = NINE_ROUTER_TABLE.find_placement(provider, model).settings["prefix"]
    return Route(f"{prefix}{next(_NINE_ROUTER_NUMBERS[provider])}/{model}")


NINE_ROUTER = Target(
    name="9router",
    **_from_table(NINE_ROUTER_TABLE, write_nine_router_route),
    read_version=lambda folders: _read_npm_version(folders, "9router", "9router"),
    make_command=make_nine_router_command,
    ready_path="/api/settings",
)


TARGETS: dict[str, Target] = {
    target.name: target for target in (TOOLWIRE, LITELLM, ROSETTA, PORTKEY, SWITCHYARD, CLAUDE_CODE_ROUTER, NINE_ROUTER)
}
