"""Checks of what is reached over the network: the providers, and the gateway's own port."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Sequence

from msgspec.structs import replace

from toolwire import __version__
from toolwire.agents.gateway import server_origin
from toolwire.cli.gateway.doctor.finding import Finding, Limits, State, split_advice
from toolwire.cli.gateway.serve import sdk_servers
from toolwire.gateway.configuration.load import parse_listen_address
from toolwire.gateway.features.cloud_credentials.feature import make_provider_senders, open_cloud_senders
from toolwire.gateway.features.cloud_credentials.leases import CredentialProblem
from toolwire.gateway.http.client import UpstreamClient, open_client
from toolwire.gateway.http.connect import read_proxy
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.messages import UpstreamRequest
from toolwire.gateway.models.probe import ProbeResult, probe_provider
from toolwire.gateway.serve import open_socket
from toolwire.gateway.settings.address import Address
from toolwire.gateway.settings.config import Config, Provider, ServerSettings
from toolwire.gateway.surfaces.routes import VERSION_HEADER

REFUSED_KEY = ("401", "403")
PORT_SECONDS = 5.0
"""For the program that uses the port to answer."""
MAX_PAGE = 4096


# --- providers --------------------------------------------------------------------------------------------------------


async def check_any_provider(config: Config) -> Sequence[Finding]:
    """Is there a provider at all, besides the embedded model?"""
    if any(not provider.embedded for provider in config.providers.values()):
        return []
    variables = ", ".join(row.key_env[0] for row in sdk_servers().values())
    hint = f"set one of {variables}, or name a provider in toolwire.toml"
    return [Finding("warning", "providers", "", "none is configured: only the embedded model answers", hint)]


async def check_provider(provider: Provider, config: Config, limits: Limits) -> Sequence[Finding]:
    """Has it a key? Can its addresses be reached? If keys may be tried: does it accept its key?"""
    async with open_client(config.server.timeouts) as client:
        addresses = {
            Address.parse(url, provider.proxies.get(protocol, ""), provider.ca_file): None
            for protocol, url in provider.base_urls.items()
        }
        failures = await asyncio.gather(*(try_address(client, address, limits) for address in addresses))
        problems = [failure for failure in failures if failure is not None]
        if problems:
            texts = dict.fromkeys(problem.detail for problem in problems)
            return [Finding("problem", "provider", provider.name, *split_advice(text)) for text in texts]
        places = ", ".join(dict.fromkeys(map(describe_address, addresses)))
        reached = f"{places} can be reached"
        return [await check_key(account, client, config, limits, reached) for account in provider.each_account]


async def check_key(
    provider: Provider, client: UpstreamClient, config: Config, limits: Limits, reached: str
) -> Finding:
    """The key of a provider that can be reached, or of one of its accounts."""
    if provider.is_key_missing:
        return Finding("warning", "provider", provider.label, f"{reached}, but it has no key", provider.key_state)
    if not limits.tries_keys or provider.forward_auth:
        return Finding("ok", "provider", provider.label, f"{reached}; {provider.key_state}")
    found = await check_access(provider, client) if provider.access.method else ""
    if isinstance(found, Finding):
        return found
    senders = make_provider_senders(config, client, os.environ)
    return judge_probe(provider, await probe_provider(senders, provider, config), found)


async def check_access(provider: Provider, client: UpstreamClient) -> Finding | str:
    """Are there credentials of the cloud? The source that has them, and when they end."""
    authorizer = open_cloud_senders(client, os.environ, lambda error: None).find_authorizer(provider.access)
    found = await authorizer.check()
    if isinstance(found, CredentialProblem):
        return Finding("problem", "provider", provider.label, found.describe(), found.hint)
    source = f"{authorizer.source}{f', found by {found.origin}' if found.origin else ''}"
    minutes = max(0, round((found.expires_at - time.time()) / 60))
    return f"{source}, for {minutes:,} more minutes" if found.has_end else f"{source}, which do not say when they end"


async def try_address(client: UpstreamClient, address: Address, limits: Limits) -> TransportError | None:
    """Connect. A proxy that wants a password gets it only if credentials may be sent: else only the proxy is tried."""
    if address.proxy and not limits.tries_keys and read_proxy(address.proxy).authorization:
        proxy = read_proxy(address.proxy)
        address = Address(proxy.scheme, proxy.host, proxy.port, ca_file=address.ca_file)
    return await client.try_connection(address)


def describe_address(address: Address) -> str:
    return f"{address.label} (through {read_proxy(address.proxy).label})" if address.proxy else address.label


def judge_probe(provider: Provider, result: ProbeResult, access: str = "") -> Finding:
    """What an answer says about the key, or about the credentials of a cloud (`access`)."""
    key = f"the key in {provider.api_key_env}" if provider.api_key_env else "the key in the file"
    key = f"the credentials ({access})" if access else key
    if not result.reason:
        accepted = f"accepts {key}, and " if provider.api_key or access else ""
        return Finding("ok", "provider", provider.label, f"{accepted}{result.detail}")
    if result.reason in REFUSED_KEY and provider.api_key:
        place = f"set {provider.api_key_env} to a valid key" if provider.api_key_env else "correct `api_key`"
        urls = dict.fromkeys(url.partition("?")[0] for url in provider.base_urls.values())
        hint = f"{place}, and check that it is for {', '.join(urls)}"
        return Finding("problem", "provider", provider.label, f"refuses {key}: {result.detail}", hint)
    if result.reason in REFUSED_KEY and access:
        hint = "check which models and regions this identity may use"
        return Finding("problem", "provider", provider.label, f"refuses {key}: {result.detail}", hint)
    if result.reason in REFUSED_KEY:
        hint = f"name the variable with its key: `api_key_env` in [providers.{provider.name}]"
        return Finding("problem", "provider", provider.label, f"wants a key: {result.detail}", hint)
    if result.reason == "no-list":
        hint = f'name one: NAME = "{provider.name}/MODEL" in [models]'
        return Finding("warning", "provider", provider.label, f"{_start_untried(access)}: {result.detail}", hint)
    if result.reason.isdecimal():  # an error of another kind says nothing about the key
        state: State = "problem" if result.reason.startswith("5") else "warning"
        return Finding(state, "provider", provider.label, f"the key was not proved: {result.detail}", "try it later")
    return Finding("problem", "provider", provider.label, *split_advice(result.detail))


def _start_untried(access: str) -> str:
    return f"there are credentials ({access}), and they were not tried" if access else "the key was not tried"


# --- the port ---------------------------------------------------------------------------------------------------------


async def check_port(config: Config) -> Sequence[Finding]:
    """Is the gateway's port free, or what uses it?"""
    server = config.server
    if not server.port:
        return [Finding("ok", "port", "", "any free one is used")]
    finding = await check_listening(server)
    metrics = parse_listen_address(server.metrics_listen)
    if metrics is None or not metrics[1] or finding.message.startswith("a Toolwire gateway"):
        return [finding]
    failed = try_listening(*metrics)
    if failed is None:
        return [finding, Finding("ok", "port", str(metrics[1]), "free, for /metrics")]
    hint = "stop the program that uses it, or change `metrics_listen` in [server]"
    return [finding, Finding("problem", "port", str(metrics[1]), f"cannot serve /metrics: {failed.strerror}", hint)]


async def check_listening(server: ServerSettings) -> Finding:
    name = str(server.port)
    failed = try_listening(server.host, server.port)
    if failed is None:
        return Finding("ok", "port", name, f"free on {server.host}")
    if failed.errno != errno.EADDRINUSE:
        hint = "change `host` or `port` in [server], or use --host and --port"
        return Finding("problem", "port", name, f"cannot listen on {server.host}: {failed.strerror}", hint)
    version = await ask_version(server)
    if not version:
        hint = "stop it, or choose another: `port` in [server], or `toolwire serve --port`"
        return Finding("problem", "port", name, "another program uses it", hint)
    if version != __version__:
        what = f"a Toolwire gateway {version} uses it, and this is {__version__}"
        return Finding("warning", "port", name, what, "restart the gateway to use this version")
    return Finding("ok", "port", name, f"a Toolwire gateway {version} is running")


def try_listening(host: str, port: int) -> OSError | None:
    try:
        open_socket(host, port).close()
    except OSError as error:
        return error
    return None


async def ask_version(server: ServerSettings) -> str:
    """The version of the gateway at this address; "" if it is something else."""
    timeouts = replace(server.timeouts, connect=PORT_SECONDS, first_byte=PORT_SECONDS)
    try:
        async with open_client(timeouts) as client, asyncio.timeout(PORT_SECONDS):
            request = UpstreamRequest(Address.parse(server_origin(server)), "GET", "/livez", (), b"")
            response = await client.send_request(request)
            if isinstance(response, TransportError):
                return ""
            page = await response.read(MAX_PAGE)
            return response.headers.get(VERSION_HEADER, "")[:40] if page == b"ok\n" else ""
    except TimeoutError:
        return ""
