"""The grid and the reported cases once more, through the gateway and real sockets: the player's client on one side, its
provider on the other, frame by frame where a case watches frames."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.conftest import provider_name, serve_config
from toolwire_conformance.case import Case, make_grid_cases, read_cases
from toolwire_conformance.peers import PEERS
from toolwire_conformance.player import AnswerCall, ClientCall, ClientView, play_case
from toolwire_conformance.reports import read_result
from toolwire_conformance.targets import Route
from toolwire_conformance.transports import HttpTransport, ProviderServer
from waits import PATIENCE

FOUND: dict[str, bool] = {}
CASES = {case.id: case for case in (*make_grid_cases(), *read_cases())}
OTHERS = {case.id: case for case in make_grid_cases([*PEERS.values()]) if case.id not in CASES}
"""Pairs of the grid in which other gateways are not compared."""
UNREACHED = frozenset({"134"})
"""What neither the library nor this gateway does."""
STATELESS = frozenset({"084:chat, without a store"})
"""Played on a gateway that keeps nothing."""
QUIRKS = {
    "011:mistral": "nine-letter-ids",
    "021": "repeated-deltas",
    "075": "empty-content",
    "135": "short-descriptions",
}
"""Servers that the configuration must name as what they are."""


RESERVED = 167
"""Asks for a model that has a fallback."""


class Through:
    """Carries the player's calls through a gateway, that which keeps things or the other one."""

    def __init__(self, stage: ProviderServer, keeping: str, stateless: str) -> None:
        self._ways = {
            True: HttpTransport(keeping, stage, self.route, timeout=PATIENCE, frame_timeout=PATIENCE),
            False: HttpTransport(stateless, stage, self.route, timeout=PATIENCE, frame_timeout=PATIENCE),
        }
        self.quirk = "p"
        self.kept = True
        self.reserved = False

    def route(self, client: str, provider: str, model: str) -> Route:
        if self.reserved:
            return Route("reserved")
        return Route(f"{self.quirk}-{provider_name(provider)}/{model or 'model'}")

    def send_call(self, asked: ClientCall, answer: AnswerCall) -> ClientView:
        return self._ways[self.kept].send_call(asked, answer)


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Through]:
    stage = ProviderServer(drain_timeout=PATIENCE)
    url = stage.origin
    lines = ['[server]\nretries = 0\ncooldown_after = 1000000\nlog_format = "none"']
    for protocol in PEERS:
        lines.append(f'[providers.p-{provider_name(protocol)}]\nprotocols = ["{protocol}"]\nbase_url = "{url}"')
    for quirk in QUIRKS.values():
        lines.append(f'[providers.{quirk}-chat]\nprotocols = ["openai-chat"]\nbase_url = "{url}"\nquirks = ["{quirk}"]')
    lines.append('[models.reserved]\nprovider = "p-anthropic"\nmodel = "claude-haiku-4-5"\nfallbacks = ["reserve"]')
    lines.append('[models.reserve]\nprovider = "p-anthropic"\nmodel = "claude-opus-5-5"')
    folder = tmp_path_factory.mktemp("cases")
    files = folder / "toolwire.toml", folder / "stateless.toml"
    files[0].write_text("\n".join(lines))
    files[1].write_text("\n".join([*lines, '[store]\nurl = "none"']))
    with serve_config(files[0]) as keeping, serve_config(files[1]) as stateless:
        yield Through(stage, keeping, stateless)
    stage.close()
    assert stage.unexpected_calls == []


def _play(id: str) -> str:
    """The id of a case without its stream mode."""
    return id.removesuffix(":whole").removesuffix(":stream")


@pytest.mark.parametrize("case", [pytest.param(case, id=id) for id, case in CASES.items()])
def test_the_case_through_the_gateway(case: Case, through: Through) -> None:
    if _play(case.id) in UNREACHED:
        pytest.skip(case.out_of_reach)
    quirky = case.turns[0].provider.protocol == "openai-chat"
    through.quirk = QUIRKS.get(_play(case.id)) or QUIRKS.get(case.id.partition(":")[0], "p") if quirky else "p"
    through.kept = _play(case.id) not in STATELESS
    through.reserved = case.number == RESERVED
    outcome = play_case(case, through, include_out_of_reach=True)
    FOUND[case.id] = outcome.passed
    assert outcome.passed, "\n".join(outcome.differences)


@pytest.mark.parametrize("case", [pytest.param(case, id=id) for id, case in OTHERS.items()])
def test_a_pair_that_is_not_compared(case: Case, through: Through) -> None:
    through.quirk, through.kept, through.reserved = "p", True, False
    outcome = play_case(case, through, include_out_of_reach=True)
    assert outcome.passed, "\n".join(outcome.differences)


def test_what_is_kept_of_a_run_is_still_so() -> None:
    """If not, run `toolwire conformance --target toolwire --json docs/conformance/toolwire.json`."""
    kept = {
        one.id: one.verdict
        for one in read_result(Path(__file__).parents[2] / "docs" / "conformance" / "toolwire.json").plays
    }
    assert FOUND
    assert kept.keys() == CASES.keys()
    assert not [id for id, passed in FOUND.items() if passed and kept[id] not in ("pass", "not played")]
    assert not [id for id, verdict in kept.items() if verdict == "pass" and not FOUND.get(id, True)]


def test_the_named_cases_are_there() -> None:
    plays = {_play(id) for id in CASES}
    assert plays >= UNREACHED | STATELESS
    assert {number for play in plays for number in (play, play.partition(":")[0])} >= QUIRKS.keys()
