"""A scripted provider and the real gateway in front of it, both on loopback, for all tests of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from gateway.provider import KEYS, PROTOCOLS, Provider

MODELS = {
    "openai-chat": "gpt-4.1",
    "openai-responses": "gpt-5.5",
    "anthropic": "claude-sonnet-5-5",
    "gemini": "gemini-3.8-flash",
}


def provider_name(protocol: str) -> str:
    """What the configuration calls the provider that speaks this protocol, and `m-` before it its model."""
    return protocol.removeprefix("openai-")


def configuration(url: str) -> str:
    """One provider for each protocol, all at one address; nothing is tried twice, and none ever rests."""
    lines = ['[server]\nretries = 0\ncooldown_after = 1000000\nlog_format = "none"']
    for protocol in PROTOCOLS:
        base = url if protocol in ("anthropic", "gemini") else f"{url}/v1"
        lines.append(f'[providers.{provider_name(protocol)}]\nprotocols = ["{protocol}"]\nbase_url = "{base}"')
        lines.append(f'api_key = "{KEYS[protocol]}"')
        lines.append(
            f'[models."m-{provider_name(protocol)}"]\nprovider = "{provider_name(protocol)}"\nmodel = "{MODELS[protocol]}"'
        )
    return "\n".join(lines) + "\n"


@contextmanager
def serve_config(file: Path) -> Iterator[str]:
    """The gateway by this file, in its own server, on a port of its own, until the end of the block."""
    from gateway.raw_exchange import run_own_server
    from toolwire.gateway import app

    with run_own_server(app(file)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    scripted = Provider()
    yield scripted
    scripted.close()


@pytest.fixture(scope="session")
def gateway(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("gateway") / "toolwire.toml"
    file.write_text(configuration(provider.url))
    with serve_config(file) as url:
        yield url


Test = TypeVar("Test", bound=Callable[..., None])


def only_where(meant: Callable[..., bool]) -> Callable[[Test], Test]:
    """Leave out combinations that mean nothing: they are not collected, so nothing passes without a look."""

    def mark_test(test: Test) -> Test:
        test.only = meant  # type: ignore[attr-defined]
        return test

    return mark_test


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if _is_meant(item)]


def _is_meant(item: pytest.Item) -> bool:
    meant = getattr(getattr(item, "function", None), "only", None)
    return meant is None or meant(**item.callspec.params)  # type: ignore[attr-defined]
