"""A scripted provider, and a configuration for programs that have Toolwire inside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.clients import IN_PROCESS, close_all
from gateway.conftest import configuration
from gateway.provider import Provider
from gateway.raw_exchange import RawProvider


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    scripted = Provider()
    yield scripted
    scripted.close()


@pytest.fixture(scope="module")
def wire() -> Iterator[RawProvider]:
    provider = RawProvider()
    yield provider
    provider.close()
    assert provider.faults == []


@pytest.fixture(scope="module")
def config(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("in-process") / "toolwire.toml"
    file.write_text(configuration(provider.url))
    return file


@pytest.fixture(scope="module")
def base(config: Path) -> Iterator[str]:
    """In place of the address of a gateway."""
    yield f"{IN_PROCESS}{config}"
    close_all()
