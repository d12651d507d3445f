"""Chromium, pages in it that are checked when their test is over, and a gateway that many exchanges have passed through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from console.browser import HERE, Browser, Page
from console.exchanges import play_claude_session, play_others, provider_settings
from console.install import MISSING, find_chromium
from gateway.npm import install_packages
from gateway.raw_exchange import Served, ask, stage
from toolwire.gateway.surfaces.console.api import API_PATH

Open = Callable[..., Page]


@pytest.fixture(scope="session")
def browser(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    chromium = find_chromium()
    if chromium is None:
        pytest.skip(MISSING)
    made = Browser(install_packages(pytestconfig, HERE), chromium, tmp_path_factory.mktemp("chromium"))
    yield made
    made.close()


@pytest.fixture
def gateways() -> Iterator[ExitStack]:
    """For gateways of one test: they end after its pages, which would say that they are gone."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def open_page(browser: Browser, gateways: ExitStack) -> Iterator[Open]:
    """Opens pages. After the test each is checked: no error, no dialog, no request to another host."""
    pages: list[Page] = []

    def open(served: Served | str, **options: Any) -> Page:
        pages.append(browser.open(served if isinstance(served, str) else served.url, **options))
        return pages[-1]

    yield open
    try:
        for page in pages:
            page.check()
    finally:
        for page in pages:
            page.close()


@dataclass(frozen=True)
class Gallery:
    """A gateway, and the ids of some exchanges that it has."""

    served: Served
    rows: list[dict[str, Any]]
    """Newest first."""

    def get(self, path: str) -> Any:
        return ask(self.served.port, "GET", API_PATH + path).json()

    def find(self, agent: str, at: int = 0) -> str:
        """The id of an exchange of this agent, by its number."""
        ids: list[str] = [row["id"] for row in reversed(self.rows) if row["agent"].lower().startswith(agent)]
        return ids[at]

    def session(self, agent: str) -> str:
        rows = self.get("sessions")["sessions"]
        return str(next(row["id"] for row in rows if row["agent"].lower().startswith(agent)))


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gallery]:
    with stage(tmp_path_factory.mktemp("gallery"), more=provider_settings("{plain}")) as served:
        play_others(served)
        play_claude_session(served)
        yield Gallery(served, ask(served.port, "GET", API_PATH + "exchanges").json()["exchanges"])
