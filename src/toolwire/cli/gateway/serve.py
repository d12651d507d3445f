"""`toolwire serve`: run the gateway. Says where it is and how to use it; the log goes to standard error."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from toolwire import __version__, terminal
from toolwire.agents import find_program, load_agents
from toolwire.core.json_values import encode
from toolwire.gateway.configuration.load import config_file_places, open_config_file
from toolwire.gateway.features.mcp.settings import McpSettings
from toolwire.gateway.settings.client_keys import (
    CLIENT_KEY_VARIABLE,
    NEW_KEY_COMMAND,
    NEW_STORED_KEY_COMMAND,
    RUN_KEY_NAME,
)
from toolwire.gateway.settings.config import Config, Provider
from toolwire.gateway.settings.providers import KnownServer, known_servers
from toolwire.gateway.surfaces.console.settings import ConsoleSettings
from toolwire.protocols import CODECS
from toolwire.terminal import CommandError
from toolwire.terminal.text import shorten_text

ANY_KEY, PLACEHOLDER_KEY = "any", "YOUR-KEY"
DEFAULT_AGENT = "claude"
SHOWN_LINES = 5
"""Providers and MCP servers that the banner lists."""
MAX_LINE_WIDTH = 160


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--config", metavar="FILE", help="configuration file (default: $TOOLWIRE_CONFIG, ./toolwire.toml, …)")
    add("--host", help="address to listen on (default: 127.0.0.1)")
    add("--port", type=int, help="port to listen on (default: 8642; 0: any free port)")
    add("--workers", type=int, help="number of processes that share the port (default: 1)")
    route = "answer requests for NAME with MODEL (a configured name, or `provider/model`); overrides the file; "
    add("--route", metavar="NAME=MODEL", action="append", default=[], help=f"{route}may be repeated")
    log = "format of the log (default: auto, which is text on a terminal and json elsewhere)"
    add("--log-format", "--log", dest="log_format", choices=("auto", "json", "text", "none"), help=log)
    level = "minimum log level; debug also logs the tools and the calls of every request, on both sides"
    add("--log-level", choices=("debug", "info", "warn", "error"), help=level)
    # For a parent process that holds the other end of this pipe: the gateway stops when the pipe closes.
    add("--lifeline", type=int, help=argparse.SUPPRESS)
    # For `toolwire run`, which makes a key of its own if the file has keys: the hash of that key.
    add("--run-key", metavar="SHA256", help=argparse.SUPPRESS)
    # Also for `toolwire run`: the hash of the file that it has read, and that the user may have trusted as it was.
    add("--config-hash", metavar="SHA256", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    from toolwire.cli.config import refuse_config
    from toolwire.cli.trust import name_file, open_file
    from toolwire.gateway import serve
    from toolwire.gateway.settings.problems import ConfigError

    given = {name: getattr(args, name) for name in ("host", "port", "workers", "log_format", "log_level")}
    settings = {name: value for name, value in given.items() if value is not None}
    if args.run_key:
        settings["keys"] = [{"name": RUN_KEY_NAME, "sha256": args.run_key}]
    try:
        # A parent process names the file, or means none: it has asked about the one of the working folder.
        judge = (lambda _: False) if args.lifeline is not None else name_file if sys.stderr.isatty() else lambda _: True
        file = open_file(args.config, judge)
        if args.config_hash and (file is None or file.digest != args.config_hash):
            raise CommandError(f"{args.config} has just been changed", "try again")
        return serve.serve(file, settings, announce, read_routes(args.route), args.lifeline)
    except ConfigError as error:
        raise refuse_config(error) from None
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        hint = (
            "stop the program that uses it, or choose another --port" if is_taken else "choose another --host or --port"
        )
        raise CommandError(f"cannot listen on {error.filename}: {error.strerror}", hint) from None


def read_routes(texts: Sequence[str]) -> dict[str, str]:
    """The routes by name. A name may contain `=`, a model may not."""
    routes: dict[str, str] = {}
    for text in texts:
        name, _, model = text.rpartition("=")
        if not name or not model:
            raise CommandError(f"--route: invalid route `{text}`", "write NAME=MODEL, such as --route fast=groq/MODEL")
        routes[name] = model
    return routes


# --- what it says when it is ready ------------------------------------------------------------------------------------


def announce(origin: str, config: Config) -> None:
    """A page for people on standard error, or lines for a shell on standard output. The log says it for programs."""
    is_terminal = sys.stderr.isatty()
    has_reader = not (is_terminal and sys.stdout.isatty())  # asked now: the terminal may be gone after the next line
    if is_terminal:
        sys.stderr.writelines(banner(origin, config))
        sys.stderr.flush()
    if has_reader:
        with suppress(OSError):  # the gateway serves also when nobody reads this
            for sdk in sdk_settings(origin):
                line = f"export {sdk.url_variable}={sdk.base_url}"
                sys.stdout.write(f"{line:56}  # {sdk.vendor} SDK\n")
            sys.stdout.flush()


def banner(origin: str, config: Config) -> Iterator[str]:
    """Where the gateway is, what it uses and what that lacks, and lines to copy."""
    yield f"{_paint(f'Toolwire {__version__}', 'head')} on {_paint(origin, 'ok')}   (stop it with Ctrl-C)\n\n"
    yield terminal.format_table(list(summary_rows(origin, config)), stream=sys.stderr)
    key = PLACEHOLDER_KEY if config.server.needs_keys else ANY_KEY
    yield f"\n{_paint('Point a program at it', 'head')}, in its own terminal:\n"
    for sdk in sdk_settings(origin):
        yield f"  export {sdk.url_variable}={sdk.base_url} {sdk.key_variable}={key}\n"
    if config.server.needs_keys:
        found = open_config_file(None, os.environ)  # what the command finds without being asked about it
        is_found = found is not None and found.path == config.file
        option = "" if is_found or config.file is None else f" --config {shlex.quote(str(config.file.absolute()))}"
        command = terminal.command_line(NEW_STORED_KEY_COMMAND if config.server.store_keys else NEW_KEY_COMMAND)
        yield f"  {PLACEHOLDER_KEY} is a client's key; to make one: {command}{option}\n"
    yield f"\n{_paint('Try', 'head')}:\n"
    yield from (f"  {command}\n" for command in commands_to_try(origin, config, key))
    yield "\n"


def _paint(text: str, colour: str) -> str:
    return terminal.paint_text(text, colour, sys.stderr)


def summary_rows(origin: str, config: Config) -> Iterator[tuple[str, str]]:
    """The file, the console, the providers, the models, and what is missing."""
    places = " and ".join(
        str(place) if place.is_absolute() else f"./{place}" for place in config_file_places(os.environ)
    )
    yield "config", str(config.file.absolute()) if config.file else f"none; looked for {places}"
    if config.section(ConsoleSettings).is_on(config.server):
        yield "console", f"{origin}/ shows every exchange in a browser"
    elif config.section(ConsoleSettings).enabled:
        yield "console", "off: it needs a key of its own, `sha256` in [console]"
    providers = [provider for provider in config.providers.values() if not provider.is_demo]
    lines = [f"{provider.name}: {provider_state(provider)}" for provider in providers]
    if config.file is None:
        lines += [
            f"{name}: set {row.key_env[0]}" for name, row in sdk_servers().items() if name not in config.providers
        ]
    yield from _label_rows("providers", lines)
    yield from _label_rows("models", [", ".join(rule.name for rule in config.models)] if config.models else [])
    lacking = [server for server in config.section(McpSettings).servers.values() if server.missing_variables]
    yield from _label_rows("mcp", [f"{server.name}: set {', '.join(server.missing_variables)}" for server in lacking])


def _label_rows(label: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    shown = [shorten_text(line, MAX_LINE_WIDTH) for line in lines[:SHOWN_LINES]]
    if len(lines) > SHOWN_LINES:
        shown.append(f"and {len(lines) - SHOWN_LINES} more: see `{terminal.command_line('toolwire doctor config')}`")
    yield from ((label if number == 0 else "", line) for number, line in enumerate(shown))


def provider_state(provider: Provider) -> str:
    """What it lacks, or where its key comes from."""
    if provider.embedded:
        return f"a model for tests, built in; {provider.key_state}"
    if provider.forward_auth or provider.api_key_env or provider.api_key:
        return provider.key_state
    return f"{provider.key_state}, at {next(iter(provider.base_urls.values()), '').partition('?')[0]}"


class SdkSettings(NamedTuple):
    """The variables of a vendor's SDK."""

    vendor: str
    url_variable: str
    base_url: str
    key_variable: str


def sdk_settings(origin: str) -> Iterator[SdkSettings]:
    variables = {variable: row.key_env[0] for row in sdk_servers().values() for variable in row.base_url_env}
    for codec in CODECS.values():
        if codec.http.sdk_base_url is not None:
            vendor, variable, path = codec.http.sdk_base_url
            yield SdkSettings(vendor, variable, f"{origin}{path}", variables[variable])


def sdk_servers() -> dict[str, KnownServer]:
    """The vendors whose SDKs can be pointed at the gateway by a variable."""
    sdks = [codec.http.sdk_base_url for codec in CODECS.values()]
    variables = {sdk[1] for sdk in sdks if sdk is not None}
    return {name: row for name, row in known_servers().items() if variables & {*row.base_url_env}}


def commands_to_try(origin: str, config: Config, key: str) -> Iterator[str]:
    """Two commands that work as they are."""
    model = find_usable_model(config)
    credential = f" -H 'authorization: Bearer {key}'" if config.server.needs_keys else ""
    if model:
        body = encode({"model": model, "messages": [{"role": "user", "content": "Hello"}]}).decode()
        yield f"curl {origin}/v1/chat/completions{credential} -d {shlex.quote(body)}"
    else:
        yield f"curl {origin}/v1/models{credential}"
    agents = {DEFAULT_AGENT: load_agents()[DEFAULT_AGENT], **load_agents()}
    installed = (name for name, agent in agents.items() if find_program(agent, os.environ, Path.cwd()).path)
    agent = next(installed, DEFAULT_AGENT)
    variable = f"{CLIENT_KEY_VARIABLE}={key} " if config.server.needs_keys else ""
    command = terminal.command_line(f"toolwire run {agent}")
    yield f"{variable}{command}{f' --model {shlex.quote(model)}' if model else ''}"


def find_usable_model(config: Config) -> str:
    """A configured model whose provider lacks nothing, or the embedded one; empty if there is none."""
    for rule in config.models:
        provider = config.providers.get(rule.provider)
        if not set("*?[") & set(rule.name) and provider is not None and not provider.is_key_missing:
            return rule.name
    return next((provider.models[0] for provider in config.providers.values() if provider.embedded), "")
