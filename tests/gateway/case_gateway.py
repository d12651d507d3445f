"""The gateway between the player's client and its provider, for tests that write their own cases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from gateway.conftest import provider_name, serve_config
from gateway.provider import PROTOCOLS
from toolwire_conformance.case import read_case
from toolwire_conformance.player import play_case
from toolwire_conformance.targets import Route
from toolwire_conformance.transports import HttpTransport, ProviderServer
from waits import PATIENCE

Object = dict[str, Any]


@contextmanager
def open_case_transport(folder: Path) -> Iterator[HttpTransport]:
    """A gateway that tries nothing twice and keeps nothing, with a provider of every protocol."""
    stage = ProviderServer(drain_timeout=PATIENCE)
    lines = ['[server]\nretries = 0\ncooldown_after = 1000000\nlog_format = "none"\n[store]\nurl = "none"']
    for protocol in PROTOCOLS:
        lines.append(
            f'[providers.p-{provider_name(protocol)}]\nprotocols = ["{protocol}"]\nbase_url = "{stage.origin}"'
        )
    file = folder / "toolwire.toml"
    file.write_text("\n".join(lines))
    with closing(stage), serve_config(file) as url:
        find_route = lambda client, provider, model: Route(f"p-{provider_name(provider)}/{model}")  # noqa: E731
        yield HttpTransport(url, stage, find_route, timeout=PATIENCE, frame_timeout=PATIENCE)


def differences(
    client: Object, provider: str, exchanges: list[Object], sees: Object, through: HttpTransport
) -> list[str]:
    """Play one conversation; what was not as it should be."""
    body = {"client": client, "provider": {"protocol": provider, "exchanges": exchanges}, "client_sees": sees}
    [case] = read_case({"id": 1, "title": "T", "source": ["x/y#1"], **body})
    return list(play_case(case, through).differences)
