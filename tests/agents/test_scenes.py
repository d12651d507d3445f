"""The real agents, each on every provider's protocol: the round trip always, all scenes with `--full`. One that speaks
several protocols may make its round trips with one provider for each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from agents.agent import AgentWorkspace
from agents.all import AGENTS
from agents.conftest import laid
from agents.scenes import ROUND_TRIP, Scene, plays
from gateway.provider import Provider

PLAYS = [
    pytest.param(scene, name, target, id=f"{scene.name}-{name}-{target}", marks=() if scene is ROUND_TRIP else FULL)
    for FULL in (pytest.mark.full,)
    for scene, name, target in plays(AGENTS)
]
Playing = dict[tuple[str, str, str], Future[None]]


@pytest.fixture(scope="session")
def playing(
    request: pytest.FixtureRequest,
    provider: Provider,
    gateways: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Playing]:
    """All that is to be played, begun, as many at once as there are cores: agents think long before they ask."""
    pool = ThreadPoolExecutor(os.cpu_count())
    begun: Playing = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.originalname == test_the_agent_does_its_work.__name__:
            scene, name, target = (item.callspec.params[key] for key in ("scene", "name", "target"))
            desk = laid(tmp_path_factory.mktemp(f"{scene.name}-{name}-{target}"), gateways[target])
            begun[scene.name, name, target] = pool.submit(play, scene, name, desk, provider)
    yield begun
    pool.shutdown(cancel_futures=True)


def play(scene: Scene, name: str, desk: AgentWorkspace, provider: Provider) -> None:
    agent = AGENTS[name]
    scene.prepare(desk.workspace)
    talk = provider.script(*scene.steps(agent, desk.workspace), signed=scene.signed)
    talk.aside = agent.aside
    if talk.seal_checker:
        talk.seal_checker.forgives = agent.loses_seals
    given = scene.settings(agent, desk.workspace)
    ran = desk.run(agent, [*given, *agent.headless(f"{scene.prompt}. {talk.mark}")], talk, scene.model)
    scene.check(agent, desk.workspace, talk, ran)


@pytest.mark.parametrize(("scene", "name", "target"), PLAYS)
def test_the_agent_does_its_work(scene: Scene, name: str, target: str, playing: Playing) -> None:
    playing[scene.name, name, target].result()
