"""A run of the suite: the grid of all protocol pairs and the reported cases, and a verdict on each play.

A play is one case in one variant and one stream mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from msgspec import Struct

from toolwire.conformance.case import Case, CaseTurn, Client, ClientExpectation, Provider, ProviderExchange, read_cases
from toolwire.conformance.peers import PEERS
from toolwire.conformance.peers.peer import ModelAnswer, ScenarioTool
from toolwire.conformance.player import CaseOutcome, Transport, play_case
from toolwire.conformance.transports import Router
from toolwire.core.json_values import Json, Object

PROMPT = "What is the weather in Málaga and in Rome?"
WEATHER_TOOL = ScenarioTool(
    "get_weather",
    "The weather forecast for a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
)
CLOCK_TOOL = ScenarioTool(
    "get_time",
    "The local time in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
TOOLS = (WEATHER_TOOL, CLOCK_TOOL)
FIRST_CALL = (WEATHER_TOOL.name, {"city": "Málaga", "days": 3})
SECOND_CALL = (WEATHER_TOOL.name, {"city": "Rome", "days": 1})
RESULT_TEXTS = ("27 degrees, light wind", "19 degrees, some rain")
FINAL_TEXT = "Málaga: 27 degrees. Rome: 19 degrees."
NO_SEAL_SLOT = "clients of this protocol cannot keep a seal: only a gateway that stores it can return it"


class GridKind(Struct, frozen=True):
    """One conversation that is played on every pair of protocols, whole and streamed."""

    name: str
    title: str
    answer: ModelAnswer
    tools: tuple[ScenarioTool, ...] = TOOLS
    second_request: str = ""
    """A second request with results: `own`, written by the client, or `echo`, with what the gateway answered."""


GRID_KINDS = (
    GridKind("text", "Text", ModelAnswer(FINAL_TEXT), ()),
    GridKind("call", "One call", ModelAnswer(calls=(FIRST_CALL,))),
    GridKind(
        "two-calls", "Text and two calls of the same tool", ModelAnswer("I will look.", (FIRST_CALL, SECOND_CALL))
    ),
    GridKind(
        "second-turn",
        "A history with two calls and their results",
        ModelAnswer("I will look.", (FIRST_CALL, SECOND_CALL)),
        second_request="own",
    ),
    GridKind(
        "echo",
        "The gateway's own answer as history",
        ModelAnswer("I will look.", (FIRST_CALL, SECOND_CALL)),
        second_request="echo",
    ),
    GridKind(
        "sealed-echo",
        "The same with sealed reasoning",
        ModelAnswer(calls=(FIRST_CALL, SECOND_CALL), is_sealed=True),
        second_request="echo",
    ),
)


def make_grid_cases() -> list[Case]:
    """The cases of the grid, by client, provider, kind and mode."""
    return [case for client in PEERS for provider in PEERS for case in _pair_cases(client, provider)]


def _pair_cases(client: str, provider: str) -> Iterator[Case]:
    ours, theirs = PEERS[client], PEERS[provider]
    for kind in GRID_KINDS:
        if kind.answer.is_sealed and not theirs.provider_seals:
            continue
        for stream in (False, True):
            name = f"grid:{ours.short_name}>{theirs.short_name}:{kind.name}" + (":stream" if stream else "")
            kept = NO_SEAL_SLOT if kind.answer.is_sealed and not ours.has_seal_slot else ""
            yield Case(name, 0, kind.title, (), tuple(_grid_turns(kind, client, provider, stream)), kept)


def _grid_turns(kind: GridKind, client: str, provider: str, stream: bool) -> Iterator[CaseTurn]:
    ours, theirs = PEERS[client], PEERS[provider]
    model = theirs.sealing_model if kind.answer.is_sealed else theirs.model
    named = {"model": model} if PEERS[client].http.has_model_in_body else {}
    request = named | ours.write_first_request(PROMPT, kind.tools)

    def make_turn(request: Object, expected: Json, answer: ModelAnswer) -> CaseTurn:
        exchange = ProviderExchange(expect=expected, body=theirs.write_answer(answer))
        return CaseTurn(
            Client(client, request, stream, model),
            Provider(provider, (exchange,)),
            ClientExpectation(body=ours.expect_answer(answer)),
        )

    if kind.second_request != "own":
        yield make_turn(request, theirs.expect_first_request(PROMPT, kind.tools), kind.answer)
    if kind.second_request:
        later = {**request, ours.turns_key: [*request[ours.turns_key], *_follow_up_history(kind, client)]}
        yield make_turn(later, theirs.expect_later_request(PROMPT, kind.answer, RESULT_TEXTS), ModelAnswer(FINAL_TEXT))


def _follow_up_history(kind: GridKind, client: str) -> list[Json]:
    """The model's turn and the results, as the client sends them."""
    if kind.second_request == "echo":
        return [{"$echo": 0}, {"$results": 0, "of": list(RESULT_TEXTS)}]
    answer = PEERS[client].complete_answer(PEERS[client].write_answer(kind.answer), PEERS[client].model)
    return [*PEERS[client].history_turns(answer), *PEERS[client].write_results(answer, RESULT_TEXTS)]


# --- playing and judging --------------------------------------------------------------------------------------------


Verdict: TypeAlias = Literal["pass", "wrong", "unsupported", "not played"]
VERDICTS: tuple[Verdict, ...] = ("pass", "wrong", "unsupported", "not played")
PARTS = ("grid", "cases")


class PlayResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one play. `client` and `provider` are short names of protocols."""

    id: str
    title: str
    client: str
    provider: str
    stream: bool
    verdict: Verdict
    differences: tuple[str, ...] = ()
    why: str = ""
    """Why it is unsupported or was not played."""

    @property
    def part(self) -> str:
        return "grid" if self.id.startswith("grid:") else "cases"

    @property
    def kind(self) -> str:
        """The kind of conversation, for a play of the grid."""
        return self.id.split(":", 2)[2]

    @property
    def main_difference(self) -> str:
        """The most important difference, or why there was no play."""
        return self.why or (self.differences[0] if self.differences else "")


def load_all_cases() -> list[Case]:
    return [*make_grid_cases(), *read_cases()]


def select_cases(cases: Iterable[Case], patterns: Sequence[str] = (), only: str = "") -> list[Case]:
    """The cases of a part whose id begins with a match of one of the patterns."""
    return [
        case
        for case in cases
        if only in ("", "grid" if case.number == 0 else "cases")
        and (not patterns or any(fnmatchcase(case.id, pattern + "*") for pattern in patterns))
    ]


def strip_mode(id: str) -> str:
    return id.removesuffix(":whole").removesuffix(":stream")


def asked_models(cases: Iterable[Case]) -> list[tuple[str, str]]:
    """Each protocol of a provider with each model that it is asked for."""
    pairs = {(turn.provider.protocol, _turn_model(turn)) for case in cases for turn in case.turns}
    return sorted(pair for pair in pairs if pair[1])


def _turn_model(turn: CaseTurn) -> str:
    return turn.client.model or str(turn.client.request.get("model", ""))


def run_cases(
    cases: Sequence[Case],
    transport: Transport,
    router: Router,
    is_configured: Callable[[str], bool],
) -> Iterator[PlayResult]:
    """Play the cases in order. `is_configured` takes an id without the mode: is the gateway set up for that case?."""
    for case in cases:
        yield _make_play_result(case, *_play_for_verdict(case, transport, router, is_configured))


def _play_for_verdict(
    case: Case, transport: Transport, router: Router, is_configured: Callable[[str], bool]
) -> tuple[Verdict, CaseOutcome]:
    for turn in case.turns:
        route = router(turn.client.protocol, turn.provider.protocol, _turn_model(turn))
        if isinstance(route, str):
            return "unsupported", CaseOutcome(case.id, False, unsupported=route)
    include = not case.configured or is_configured(strip_mode(case.id))
    outcome = play_case(case, transport, include_out_of_reach=include, same_mode=False, is_formal=False)
    if outcome.passed:
        return "pass", outcome
    if outcome.unsupported:
        return "unsupported", outcome
    return ("not played" if outcome.out_of_reach else "wrong"), outcome


def _make_play_result(case: Case, verdict: Verdict, outcome: CaseOutcome) -> PlayResult:
    first = case.turns[0] if case.turns else None
    return PlayResult(
        id=case.id,
        title=case.title,
        client=PEERS[first.client.protocol].short_name if first else "",
        provider=_provider_names(case),
        stream=bool(first and first.client.stream),
        verdict=verdict,
        differences=outcome.differences if verdict == "wrong" else (),
        why=outcome.out_of_reach or outcome.unsupported,
    )


def _provider_names(case: Case) -> str:
    """The provider's protocol, or several if a session changes its provider."""
    return ", ".join(dict.fromkeys(PEERS[turn.provider.protocol].short_name for turn in case.turns))
