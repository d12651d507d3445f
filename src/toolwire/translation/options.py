"""The options of a translation, and how they change a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.envelopes import EnvelopeKeys
from toolwire.core.ir import EMPTY_MAPPING, Request, Settings, Tool, replace_fields
from toolwire.core.json_values import MAX_BYTES
from toolwire.core.losses import ADDED_ORIGIN, OFF, Ledger
from toolwire.policy.rules import Rule

DEFAULT_DIRECT_TOOLS = 32
"""More than any of the known agents has of its own."""


class Options(Struct, frozen=True, kw_only=True):
    """Options of `translate`, `Stream` and `Exchange`. All have defaults."""

    model: str = ""
    """The model's name at the provider, where it differs from the request's or is not in the body (Gemini)."""
    stream: bool | None = None
    """Does the client want a stream, where its protocol says so outside the body (Gemini)?"""
    max_output_tokens: int | None = None
    """The operator's limit: a higher limit in the request, or a missing one, becomes this."""
    model_output_limit: int | None = None
    """The model's own limit: a higher limit in the request becomes this."""
    binary_results: Literal["native", "summary"] = "native"
    """Media in tool results: sent as media where the target can, or always replaced by a line of text (`summary`)."""
    cache_breakpoints: bool = True
    """Set cache breakpoints for clients that cannot, where the target caches only what is marked (Anthropic)."""
    strict: bool = False
    """Raise `Refused` instead of losing anything."""
    max_bytes: int = MAX_BYTES
    """The largest body that is read, in bytes."""
    maker: str = ""
    """Who makes the provider's seals, as `protocol/provider/account/family`; by default the protocol's name."""
    stamp_seals: bool = False
    """Put seals into envelopes that name their maker, even for clients of the provider's protocol: for a gateway with
    several accounts, each of which refuses the seals of the others."""
    envelope_keys: EnvelopeKeys | None = None
    """The keys that sign envelopes; without them envelopes are not signed, and all are opened."""
    without_seals: bool = False
    """Leave out all seals, and thinking that needs one, because the provider has refused a seal."""
    has_memory: bool = False
    """Is there a store that keeps `memory_records` and returns them with the client's next request?"""
    tools: tuple[Tool, ...] = ()
    """Tools that are added to the client's, such as those of MCP servers. The caller runs their calls; the client does
    not see them."""
    substitutes: Mapping[str, Tool] = EMPTY_MAPPING
    """Functions to use instead of `web_search` and `web_fetch` where the provider does not run them. Their calls are
    run like those of `tools`; the client sees them as calls of the tool that it asked for."""
    expect_hidden_calls: bool = False
    """May the store have records of calls in earlier answers that the client did not see?"""
    shown_tools: frozenset[str] = frozenset()
    """Names of `tools` whose calls are shown to the client, as thinking."""
    tool_search: Literal["off", "gateway"] = "off"
    """Defer tools that the client has marked so, and those beyond `direct_tools`: the model finds them with a tool that
    is added. Its calls are run by `Exchange`; the client does not see them."""
    direct_tools: int = DEFAULT_DIRECT_TOOLS
    """With `tool_search`: how many tools are declared from the start, where the client has deferred none itself."""
    tool_format: str = "off"
    """How the model writes calls as text, if it does: "off", "auto" (the marks in the text decide), "eager" (also JSON
    without marks that ends the answer), or the name of a format, such as `hermes`. Such text becomes calls of the tools
    that the request offers."""
    repair_calls: bool = False
    """Repair names and arguments of calls, where the offered tools and their schemas leave one sure reading?"""
    on_bad_call: Literal["keep", "ask-again", "refuse"] = "keep"
    """A call of an offered tool whose arguments do not fit its schema and cannot be repaired: the client gets it as it
    is, the model is told what is wrong and asked once more, or the answer is an error."""
    tool_prompt: str = ""
    """Write the tools into the prompt, for a model or server without tools: the name of a format, such as `hermes`,
    "auto" (the model's family decides), or "" for no."""
    policy: tuple[Rule, ...] = ()
    """The operator's policy rules for this exchange."""
    now: int = 0
    """The time for fields that need one, in seconds since 1970. It is passed in, so that the same input gives the same
    output."""
    seed: str = ""
    """What made-up ids are derived from, besides their context."""
    status: int = 0
    """The HTTP status of the error to translate."""

    @property
    def repairs_answers(self) -> bool:
        """May answers to requests with tools have to be repaired?"""
        return self.tool_format != "off" or self.repair_calls


def apply_options(request: Request, options: Options, ledger: Ledger) -> tuple[Request, frozenset[str]]:
    """The request with the options' model, stream flag, output limit, cache setting and tools; and the names of the
    tools that were added."""
    changes: dict[str, Any] = {}
    if options.model and options.model != request.model:
        changes["model"] = options.model
    if options.stream is not None and options.stream != request.stream:
        changes["stream"] = options.stream
    if options.max_output_tokens is not None or options.model_output_limit is not None or not options.cache_breakpoints:
        settings = _apply_to_settings(request.settings, options, ledger)
        if settings is not request.settings:
            changes["settings"] = settings
    added_names: frozenset[str] = frozenset()
    if options.tools and (request.settings.count or 1) == 1:
        declared = {tool.name for tool in request.tools if isinstance(tool, Tool) and not tool.namespace}
        added = [mark_added(tool) for tool in options.tools if tool.name not in declared]
        added_names = frozenset(tool.name for tool in added)
        changes["tools"] = (*request.tools, *added)
    if changes:
        request = replace_fields(request, **changes)
    return request, added_names


def mark_added(tool: Tool) -> Tool:
    """A tool that the client has not sent: its losses are not reported."""
    return tool if tool.origin is ADDED_ORIGIN else replace(tool, origin=ADDED_ORIGIN)


def _apply_to_settings(settings: Settings, options: Options, ledger: Ledger) -> Settings:
    """Clamp `max_tokens` to the operator's limit or the one that the provider named, and apply the other options."""
    changes: dict[str, Any] = {}
    requested, most, limit = settings.max_tokens, options.model_output_limit, options.max_output_tokens
    why = ""
    if most is not None and requested is not None and requested > most and (limit is None or most <= limit):
        changes["max_tokens"], why = most, "the model allows no more"
    elif limit is not None and (requested is None or requested > limit):
        changes["max_tokens"], why = limit, "the operator set a limit"
    if why:
        what = f"the output is limited to {changes['max_tokens']:,} tokens"
        ledger.note("setting-clamped", settings.where.get("max_tokens"), what, why)
    if not options.cache_breakpoints and settings.cache is None and not ledger.is_same_protocol:
        changes["cache"] = OFF
    return replace(settings, **changes) if changes else settings
