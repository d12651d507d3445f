"""Tools that a provider runs itself, and that cost money which no limit can count. What is known of their prices is in
the `tool_costs` of each protocol (`members.py` there)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from toolwire.core.codec import Codec, Members
from toolwire.core.ir import AnyTool, Media, Opaque, Part, Result, Tool, Usage, list_declared_tools, read_service_tier
from toolwire.core.json_values import Json, decode, encode, parse_object
from toolwire.core.request_members import RequestMembers, ToolCosts
from toolwire.gateway.exchange.client_body import ClientBody, decode_members
from toolwire.gateway.exchange.gateway_request import PreparedRequest
from toolwire.gateway.exchange.inner_members import find_unjudged_tools
from toolwire.gateway.models.prices import PriceFinder
from toolwire.policy.rules import matches_globs, tool_name

_SEARCHING_MODELS = ("*-search-preview*", "*-search-api*", "*:online", "perplexity/sonar*", "groq/compound*")
"""Models that search by themselves, each search with a price of its own: those of OpenAI (developers.openai.com,
pricing; that their usage does not count it: QuantumNous/new-api#1108), with OpenRouter's plugin (openrouter.ai,
model-variants/online), Perplexity's at OpenRouter (its page of `sonar`: $5 for 1,000), and Groq's, with up to ten
calls of tools (console.groq.com, compound/systems). November 2026. Whether the last three count their searches where
they have a price was not found: it is assumed that they do not."""
_OUTPUT_KINDS = ("output_audio", "output_image")
RESERVED_SEARCHES = 4
"""Searches that a request reserves if its model may search. Most answers need fewer."""
_NOTHING = frozenset({b"null", b"false", b"[]", b"{}", b'""'})


class HostedTool(Struct, frozen=True):
    """A tool that may cost money besides its tokens."""

    name: str
    """As the provider calls it."""
    kind: str = ""
    """As rules call it; "" for what is not a tool that a rule could drop."""
    prices: tuple[str, ...] = ()
    """The usage counts what has these prices (fields of `Rates`): if they are known, nothing is missing."""
    service_tier: str = ""
    """The same for the prices of this tier."""
    is_unknown: bool = False
    """Is it a member of the request that its protocol does not have?"""

    def is_counted(self, finder: PriceFinder | None) -> bool:
        """Do these prices of the model say what it costs?"""
        if finder is None or not (self.prices or self.service_tier):
            return False
        has_prices = all(finder.find_rate(name, 0) is not None for name in self.prices)
        return has_prices and (not self.service_tier or finder.has_tier(self.service_tier))


def list_hosted_tools(body: ClientBody, prepared: PreparedRequest) -> tuple[HostedTool, ...]:
    """Those in a request as its provider gets it: `prepared` is written from the client's `body`, which has been
    judged. Raises Malformed."""
    codec, sent = prepared.upstream.codec, prepared.body
    members, known = decode_members(sent), codec.request_members
    costs = known.tool_costs
    # What the protocol does not know may choose tools or models of the server. A translation leaves it out.
    unknown = () if prepared.exchange.is_cross_protocol else _list_unknown(body)
    found = [HostedTool(name) for name in (*costs.members, *known.stored_tools) if _has_value(members, name)]
    found += [HostedTool(name, is_unknown=True) for name in unknown if _has_value(members, name)]
    found += _list_model_settings(known, members, len(sent))
    found += [HostedTool(marker.decode().strip('"')) for marker in costs.markers if sent.find(marker) >= 0]
    for marker in (one for one in costs.audio_markers if sent.find(one) >= 0):
        if any(_has_audio(part, marker) for turn in body.read_request().turns for part in turn.parts):
            found.append(HostedTool("input_audio", prices=("input_audio",)))
    found += [
        _read_setting(name, bytes(members[name]))
        for name, usual in costs.usual_values.items()
        if _has_value(members, name) and bytes(members[name]) not in usual
    ]
    if matches_globs(prepared.upstream.model.lower(), _SEARCHING_MODELS):
        found.append(HostedTool("web_search"))
    is_declared = any(sent.find(marker) >= 0 for marker in _declaration_markers(codec))  # turns can declare tools, too
    if not is_declared and codec.count_tools(members) == 0 and known.tool_choices.isdisjoint(members):
        return tuple(found)
    # A translation adds no tools of a provider, and reading the client's request costs nothing if it was translated.
    tools = list_declared_tools(body.read_request())
    if all(type(tool) is Tool for tool in tools):
        return tuple(found)
    if not prepared.is_passthrough:
        written = parse_object(sent, len(sent))
        tools = list_declared_tools(codec.read_request(written))
    return (*found, *(hosted for tool in tools if (hosted := _read_tool(costs, tool)) is not None))


def _list_model_settings(known: RequestMembers, members: Members, size: int) -> Iterator[HostedTool]:
    for holder, free in known.tool_costs.model_settings.items():
        settings = parse_object(bytes(members[holder]), size) if _has_value(members, holder) else {}
        for name, value in settings.items():
            is_free = name in free or (name in known.declarations and _cost_tokens_only(known.tool_costs, value))
            if value and not is_free:
                yield HostedTool(name, is_unknown=True)


def _cost_tokens_only(costs: ToolCosts, tools: Json) -> bool:
    """For tools that no reader looks for. One without a type is the client's own."""
    return isinstance(tools, list) and all(
        isinstance(tool, dict) and costs.is_tokens_only(str(tool.get("type", "custom"))) for tool in tools
    )


@lru_cache(maxsize=32)
def _declaration_markers(codec: Codec) -> tuple[bytes, ...]:
    return tuple(b'"%b"' % name.encode() for name in sorted(codec.request_members.declarations))


def estimate_extra(tools: Sequence[HostedTool]) -> Usage:
    """What a request with these tools uses besides its tokens."""
    searches = RESERVED_SEARCHES if any("search" in tool.prices for tool in tools) else None
    return Usage(searches=searches, service_tier=next((tool.service_tier for tool in tools if tool.service_tier), ""))


def list_forwarded_tools(body: ClientBody) -> tuple[HostedTool, ...]:
    """The same for a request that is only forwarded, of which nobody reads the tools. Raises Malformed."""
    known = body.codec.request_members
    declared = find_unjudged_tools(known, body.judge())
    found = [HostedTool(name) for name in known.tool_costs.members if _has_value(body.members, name)]
    found += [HostedTool(name, is_unknown=True) for name in _list_unknown(body) if _has_value(body.members, name)]
    return (*found, HostedTool(str(declared[1]))) if declared is not None else tuple(found)


def _list_unknown(body: ClientBody) -> tuple[str, ...]:
    return tuple(name for name in body.names.unknown if name not in body.codec.request_members.passing_rules)


def _has_audio(part: Part, marker: bytes) -> bool:
    """Is it audio? What only its own protocol can read may have some where the marker is."""
    if isinstance(part, Result):
        return any(_has_audio(inner, marker) for inner in part.content)
    if isinstance(part, Media):
        return part.kind == "audio"
    return isinstance(part, Opaque) and encode(part.origin.wire).find(marker) >= 0


def _read_setting(name: str, value: bytes) -> HostedTool:
    """What has to be known of a setting that makes tokens dearer."""
    prices = tuple(kind for kind in _OUTPUT_KINDS if value.find(kind.removeprefix("output_").encode()) >= 0)
    setting = decode(value, max_bytes=len(value))
    tier = setting.get("type") if isinstance(setting, dict) else setting  # of Bedrock
    return HostedTool(name, prices=prices, service_tier=read_service_tier(tier))


def _has_value(members: Members, name: str) -> bool:
    return name in members and bytes(members[name]) not in _NOTHING


def _read_tool(costs: ToolCosts, tool: AnyTool) -> HostedTool | None:
    if isinstance(tool, Tool):
        return None  # the client runs it
    kind = tool_name(tool).kind
    if costs.is_tokens_only(kind):
        return None
    wire = tool.origin.wire if tool.origin is not None else None
    own = wire.get("type") if isinstance(wire, dict) else None
    return HostedTool(own if isinstance(own, str) else kind, kind, ("search",) if kind in costs.searches else ())
