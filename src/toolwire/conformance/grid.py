"""Every client's protocol on every provider's: the plain things, as cases like any others."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from toolwire.conformance.case import Case, Client, Exchange, Json, Object, Provider, Sees, Turn
from toolwire.conformance.dialects import DIALECTS
from toolwire.conformance.dialects.talks import TALKS, Says, Tool

PROMPT = "What is the weather in Málaga and in Rome?"
WEATHER = Tool(
    "get_weather",
    "The weather forecast for a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
)
CLOCK = Tool(
    "get_time",
    "The local time in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
TOOLS = (WEATHER, CLOCK)
CALL = (WEATHER.name, {"city": "Málaga", "days": 3})
ANOTHER = (WEATHER.name, {"city": "Rome", "days": 1})
RESULTS = ("27 degrees, light wind", "19 degrees, some rain")
ENDING = "Málaga: 27 degrees. Rome: 19 degrees."
NO_SLOT = "clients of this protocol have no place for a seal: only a gateway that keeps it can give it back"


class Kind(Struct, frozen=True):
    """One thing that is tried on every pair, whole and streamed."""

    name: str
    title: str
    says: Says
    tools: tuple[Tool, ...] = TOOLS
    follows: str = ""
    """Is there a second request, with results: made by the client, or an echo of what the gateway gave?"""


KINDS = (
    Kind("text", "Words", Says(ENDING), ()),
    Kind("call", "One call", Says(calls=(CALL,))),
    Kind("two-calls", "Words and two calls of the same tool", Says("I will look.", (CALL, ANOTHER))),
    Kind(
        "second-turn",
        "A history with two calls and their results",
        Says("I will look.", (CALL, ANOTHER)),
        follows="own",
    ),
    Kind("echo", "The gateway's own answer as history", Says("I will look.", (CALL, ANOTHER)), follows="echo"),
    Kind("sealed-echo", "The same with sealed thoughts", Says(calls=(CALL, ANOTHER), sealed=True), follows="echo"),
)


def grid() -> list[Case]:
    """All plays of the grid, by client, provider, kind and mode."""
    return [case for client in TALKS for provider in TALKS for case in _pair(client, provider)]


def _pair(client: str, provider: str) -> Iterator[Case]:
    ours, theirs = TALKS[client], TALKS[provider]
    for kind in KINDS:
        if kind.says.sealed and not theirs.seals:
            continue
        for stream in (False, True):
            name = f"grid:{ours.short}>{theirs.short}:{kind.name}" + (":stream" if stream else "")
            kept = NO_SLOT if kind.says.sealed and not ours.slot else ""
            yield Case(name, 0, kind.title, (), tuple(_turns(kind, client, provider, stream)), kept)


def _turns(kind: Kind, client: str, provider: str, stream: bool) -> Iterator[Turn]:
    ours, theirs = TALKS[client], TALKS[provider]
    model = theirs.thinker if kind.says.sealed else theirs.model
    named = {"model": model} if DIALECTS[client].wire.in_body else {}
    request = named | ours.ask(PROMPT, kind.tools)

    def turn(request: Object, expected: Json, says: Says) -> Turn:
        exchange = Exchange(expect=expected, body=theirs.answer(says))
        return Turn(Client(client, request, stream, model), Provider(provider, (exchange,)), Sees(body=ours.sees(says)))

    if kind.follows != "own":
        yield turn(request, theirs.hears(PROMPT, kind.tools), kind.says)
    if kind.follows:
        later = {**request, ours.turns: [*request[ours.turns], *_history(kind, client)]}
        yield turn(later, theirs.recalls(PROMPT, kind.says, RESULTS), Says(ENDING))


def _history(kind: Kind, client: str) -> list[Json]:
    """The model's turn and the results, as the client has them."""
    if kind.follows == "echo":
        return [{"$echo": 0}, {"$results": 0, "of": list(RESULTS)}]
    answer = DIALECTS[client].complete(TALKS[client].answer(kind.says), TALKS[client].model)
    return [*DIALECTS[client].history(answer), *TALKS[client].results(answer, RESULTS)]
