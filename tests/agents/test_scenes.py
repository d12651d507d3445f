"""The real agents, each on every provider's protocol: the round trip always, all scenes with `--full`."""

from __future__ import annotations

import pytest

from agents.agent import Desk
from agents.all import AGENTS
from agents.scenes import ROUND_TRIP, Scene, plays
from gateway.provider import Provider

PLAYS = [
    pytest.param(scene, name, target, id=f"{scene.name}-{name}-{target}", marks=() if scene is ROUND_TRIP else FULL)
    for FULL in (pytest.mark.full,)
    for scene, name, target in plays(AGENTS)
]


@pytest.mark.parametrize(("scene", "name", "target"), PLAYS)
def test_the_agent_does_its_work(scene: Scene, name: str, target: str, desk: Desk, provider: Provider) -> None:
    agent = AGENTS[name]
    scene.prepare(desk.workspace)
    talk = provider.script(*scene.steps(agent, desk.workspace), signed=scene.signed)
    talk.aside = agent.aside
    given = agent.with_probe(desk.workspace) if scene.probe else []
    ran = desk.run(agent, [*given, *agent.headless(f"{scene.prompt}. {talk.mark}")], talk, scene.model)
    scene.check(agent, desk.workspace, talk, ran)
