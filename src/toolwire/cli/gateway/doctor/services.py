"""Checks of what the gateway works with: the store, the counters of limits, and the MCP servers."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from msgspec.structs import replace

from toolwire.cli.gateway.doctor.finding import Finding, Limits, State, split_advice
from toolwire.cli.gateway.store import format_size
from toolwire.gateway.features.limits.counters import ForgetfulCounters
from toolwire.gateway.features.limits.open_counters import open_counters
from toolwire.gateway.features.limits.settings import LimitSettings, is_redis_url
from toolwire.gateway.features.limits.unpriced import describe_unpriced, find_unpriced_models
from toolwire.gateway.features.mcp.command import connect_servers, down_hint
from toolwire.gateway.features.mcp.servers import ServerStatus
from toolwire.gateway.features.mcp.settings import McpServer, McpSettings
from toolwire.gateway.http.client import open_client
from toolwire.gateway.settings.address import Address, is_loopback
from toolwire.gateway.settings.config import Config, StoreSettings
from toolwire.gateway.settings.store import NO_STORE, find_url, hide_user, hosts_without_user, sqlite_path, store_url
from toolwire.gateway.store import open_store
from toolwire.gateway.store.sqlite_worker import MIGRATIONS, read_schema_version
from toolwire.gateway.store.store import Entry, Store, StoreDown, StoreStats

TEST_KIND = "doctor"
TEST_SECONDS = 60.0
"""After these the entry of the test expires, should it be left behind."""
POSTGRES_PORT, REDIS_PORT = 5432, 6379


# --- the store --------------------------------------------------------------------------------------------------------


async def check_store(config: Config, environ: Mapping[str, str], limits: Limits) -> Sequence[Finding]:
    url = store_url(config.store, environ)
    if url == NO_STORE:
        return [Finding("ok", "store", "", "none: nothing is stored")]
    path = sqlite_path(url)
    if path is not None:
        finding = await asyncio.to_thread(check_file, path)
    else:
        finding = None if limits.tries_keys else await check_address("store", url, config)
    return [finding or await check_entries(config.store, environ)]


def check_file(path: Path) -> Finding | None:
    """A file that is not there yet, or that a gateway will migrate, is not opened: this check must not change it, since
    an older gateway may be using it. None if it can be opened."""
    if not path.exists():
        folder = next(parent for parent in path.parents if parent.exists())
        if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
            return Finding("ok", "store", "", f"{path} will be created")
        hint = f"check the permissions of {folder}, or set `url` in [store]"
        return Finding("problem", "store", "", f"{path} cannot be created", hint)
    version = read_schema_version(path)
    if version is not None and 0 < version < len(MIGRATIONS):
        what = f"{path} has the tables of an older version ({version} of {len(MIGRATIONS)})"
        return Finding(
            "warning", "store", "", what, "the next gateway that starts migrates them; older ones stop using it"
        )
    return None


async def check_address(subject: str, url: str, config: Config) -> Finding | None:
    """A database on another machine is only connected to. None if it is on this machine: then it can be opened."""
    name, port = ("Redis", REDIS_PORT) if is_redis_url(url) else ("PostgreSQL", POSTGRES_PORT)
    hosts = [urlsplit(f"//{host}") for host in hosts_without_user(urlsplit(url).netloc).split(",")]
    remote = [host for host in hosts if host.hostname and not is_loopback(host.hostname)]
    if not remote:
        return None
    async with open_client(config.server.timeouts) as client:
        addresses = [Address("http", host.hostname or "", host.port or port) for host in remote]
        failures = [await client.try_connection(address) for address in addresses]
    places = ", ".join(address.label for address in addresses)
    if all(failure is not None for failure in failures):
        return Finding("problem", subject, "", *split_advice(failures[0].detail if failures[0] else places))
    return Finding("ok", subject, "", f"{name} at {places} can be reached; --try-keys opens it")


async def check_entries(settings: StoreSettings, environ: Mapping[str, str]) -> Finding:
    """Open the store, write, and read."""
    store = open_store(settings, environ)
    if store is None:
        return Finding("ok", "store", "", "none: nothing is stored")
    try:
        found = await use_store(store)
    finally:
        await store.close()
    if isinstance(found, StoreDown):
        return Finding("problem", "store", "", *split_advice(found.reason))
    encrypted = f"encrypted with {settings.key_env}" if found.encrypted else "not encrypted"
    limit = f" of at most {format_size(found.limit)}" if found.limit else ""
    what = f"{found.where}: {format_size(found.size)}{limit}, schema version {found.version}, {encrypted}"
    return Finding("ok", "store", "", what)


async def use_store(store: Store) -> StoreStats | StoreDown:
    entry = Entry(owner="", kind=TEST_KIND, id=secrets.token_hex(8), body=b"{}", expires=time.time() + TEST_SECONDS)
    added = await store.add(entry)  # unlike `put`, it never makes room by removing other entries
    if isinstance(added, StoreDown):
        return added
    deleted = await store.delete(entry.owner, entry.kind, [entry.id])
    if isinstance(deleted, StoreDown):
        return deleted
    async with aclosing(cast("AsyncGenerator[Entry | StoreDown, None]", store.export())) as entries:
        async for first in entries:  # can it be decrypted?
            if isinstance(first, StoreDown):
                return first
            break
    return await store.stats()


# --- limits -----------------------------------------------------------------------------------------------------------


async def check_limits(config: Config) -> Sequence[Finding]:
    """Limits in dollars, and models of which no price is known."""
    limits = config.section(LimitSettings).limits
    found = [(limit, find_unpriced_models(config, limit, time.time())) for limit in limits]
    hint = "add [models.NAME.facts.prices]; on_unknown_price says whether such models are refused"
    return [
        Finding("warning", "limits", limit.name, describe_unpriced(limit, names), hint)
        for limit, names in found
        if names
    ]


# --- the counters of limits -------------------------------------------------------------------------------------------


PERSISTENCE_TEXTS = {
    "nothing": "; after a restart of this Redis all of them are forgotten: it keeps nothing on disk",
    "snapshots": "; after a restart of this Redis they are as in its last snapshot, which may be an hour old",
    "unknown": "; whether they outlive a restart of this Redis is unknown: it does not answer CONFIG GET",
}
"""What is said of a server that does not write every change to its disk (`Persistence`)."""


async def check_counters(config: Config, environ: Mapping[str, str], limits: Limits) -> Sequence[Finding]:
    """The server of `[counters]`, if there is one; otherwise they are in the store."""
    url = find_url(config.section(LimitSettings).counters, environ)
    if not url:
        return []
    finding = None if limits.tries_keys else await check_address("counters", url, config)
    if finding is not None:
        return [finding]
    counters = open_counters(config, environ)
    try:
        found = await counters.list_counters()
        persistence = await counters.find_persistence() if isinstance(counters, ForgetfulCounters) else "all"
    finally:
        await counters.close()
    if isinstance(found, StoreDown):
        hint = "start it, or see [counters]; limits in dollars refuse requests without it"
        return [Finding("problem", "counters", "", found.reason, hint)]
    what = f"{hide_user(url)}: {len(found)} counters are in use"
    state: State = "warning" if persistence in ("nothing", "snapshots") else "ok"
    hint = "set `appendonly yes` in its configuration" if state == "warning" else ""
    return [Finding(state, "counters", "", f"{what}{PERSISTENCE_TEXTS.get(str(persistence), '')}", hint)]


# --- MCP servers ------------------------------------------------------------------------------------------------------


async def check_mcp_servers(config: Config, limits: Limits) -> Sequence[Finding]:
    """Start the programs, and list their tools. Servers on other machines get their credentials only if that is
    allowed: the URL itself may be one."""
    servers = config.section(McpSettings).servers
    remote = [server for server in servers.values() if is_remote(server) and not limits.tries_keys]
    used = {
        name: replace(server, connect_timeout=min(server.connect_timeout, limits.seconds))
        for name, server in servers.items()
        if server not in remote
    }
    reached = await asyncio.gather(*(check_mcp_address(server, config) for server in remote))
    if not used:
        return reached
    return [*map(judge_server, await connect_servers(config.with_section(McpSettings(servers=used)))), *reached]


def is_remote(server: McpServer) -> bool:
    return bool(server.url) and not is_loopback(urlsplit(server.url.reveal()).hostname or "")


async def check_mcp_address(server: McpServer, config: Config) -> Finding:
    if server.missing_variables:
        what = f"{', '.join(server.missing_variables)} is not set in the environment"
        return Finding("problem", "mcp", server.name, what, down_hint(server))
    async with open_client(config.server.timeouts) as client:
        failure = await client.try_connection(Address.parse(server.url.reveal()))
    if failure is not None:
        return Finding("problem", "mcp", server.name, *split_advice(failure.detail))
    return Finding("ok", "mcp", server.name, "can be reached; --try-keys lists its tools")


def judge_server(status: ServerStatus) -> Finding:
    server = status.settings
    if status.state == "up":
        count = len(status.tools)
        what = f"{status.version or server.display_name}, {count} tool{'' if count == 1 else 's'}"
        if count:
            return Finding("ok", "mcp", server.name, what)
        return Finding("warning", "mcp", server.name, what, f"check `tools` in [mcp.{server.name}]")
    return Finding("problem", "mcp", server.name, status.last_error, down_hint(server))
