"""A strict provider, and for each protocol it speaks a gateway in front of it that sends every model there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agents import install
from agents.agent import AgentWorkspace
from gateway.process import run_gateway
from gateway.provider import KEYS, PROTOCOLS, Provider, Script, ScriptedAnswer
from waits import free_port

MODELS = {
    "openai-chat": "gpt-4.1",
    "openai-responses": "gpt-5.5",
    "anthropic": "claude-opus-5-5",
    "gemini": "gemini-3.8-flash",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run every scene, not only the round trip")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The round trip of every pair; with `--full` everything."""
    if not config.getoption("--full"):
        items[:] = [item for item in items if item.get_closest_marker("full") is None]


@pytest.fixture(scope="session", autouse=True, name="installed")
def install_agents() -> None:
    if why := install.missing():
        pytest.skip(why)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Why nothing ran, for those who do not ask for reasons of skips."""
    if why := install.missing():
        terminalreporter.write_line(f"Note: {why}.")


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    provider = Provider(first=1000)  # ids as long as real ones: short ones are not trusted to be a turn's own
    provider.strangers = Script("", [], aside=lambda asked: ScriptedAnswer("ok"), limit=1_000_000)
    yield provider
    assert not provider.strangers.refused
    provider.close()


def configuration(url: str, target: str, port: int, more: str = "") -> str:
    """Every model goes to the provider that speaks this protocol; nothing is tried twice, and none ever rests."""
    lines = [f'[server]\nport = {port}\nretries = 0\ncooldown_after = 1000000\nlog_format = "none"\nloopback = false']
    for protocol in PROTOCOLS:
        base = url if protocol in ("anthropic", "gemini") else f"{url}/v1"
        lines.append(f'[providers.p-{protocol}]\nprotocols = ["{protocol}"]\nbase_url = "{base}"')
        lines.append(f'api_key = "{KEYS[protocol]}"')
    lines.append(f'[providers.deepseek]\nprotocols = ["openai-chat"]\nbase_url = "{url}/v1"')
    lines.append(f'api_key = "{KEYS["openai-chat"]}"\n[models."deepseek*"]\nprovider = "deepseek"')
    if target == "openai-chat":  # Qwen's models run on servers that accept fields which OpenAI refuses
        lines.append('[models."qwen*"]\nprovider = "p-openai-chat"')
    lines.append(f'[models."*"]\nprovider = "p-{target}"\nmodel = "{MODELS[target]}"')
    return "\n".join([*lines, more]) + "\n"


@contextmanager
def gateway(folder: Path, provider: Provider, target: str, more: str = "") -> Iterator[Path]:
    """The configuration of a gateway that runs, until the end of the block."""
    port = free_port()
    file = folder / "toolwire.toml"
    file.write_text(configuration(provider.url, target, port, more))
    with run_gateway(folder, "--config", str(file), "--port", str(port)):
        yield file


@pytest.fixture(scope="session")
def gateways(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield {
            target: stack.enter_context(gateway(tmp_path_factory.mktemp(target), provider, target))
            for target in PROTOCOLS
        }


@pytest.fixture
def desk(gateways: dict[str, Path], target: str, tmp_path: Path) -> AgentWorkspace:
    """A desk of its own for each test."""
    return laid(tmp_path, gateways[target])


def laid(folder: Path, config: Path) -> AgentWorkspace:
    workspace, home = folder / "workspace", folder / "home"
    workspace.mkdir()
    home.mkdir()
    return AgentWorkspace(workspace, home, config)
