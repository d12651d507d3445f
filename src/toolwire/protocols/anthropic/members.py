"""The members of requests, for whoever decides by a body that goes on as it came."""

from __future__ import annotations

from toolwire.core.json_values import Json, Malformed, Object
from toolwire.core.request_members import ObjectMembers, RequestMembers, ToolCosts, letter_set, read_spellings
from toolwire.protocols.anthropic.http import COUNT_TOKENS_KEYS
from toolwire.protocols.anthropic.names import REQUEST_KEYS, key_set

_ANTHROPIC = REQUEST_KEYS | COUNT_TOKENS_KEYS | key_set(
    """betas compaction container context_management diagnostics fallback_credit_token inference_geo mcp_servers speed
    thread anthropic_version anthropic_beta"""
)  # fmt: skip
"""From `MessageCreateParams` (also the beta) of anthropic 2.8.0, without `fallbacks`, which chooses other models; the
last two are members on Bedrock and Vertex. `user_profile_id` and `workspace_id` are not sent in the body."""

_COMPATIBLE = key_set("session_id trace user")
"""OpenRouter's, for whoever looks at its logs (openrouter.ai/docs, "Create a message", November 2026)."""

_FORWARDED = key_set(
    """model prompt max_tokens_to_sample stop_sequences temperature top_k top_p metadata stream
    requests file files display_name display_title purpose expires_in_seconds"""
)
"""Of `/v1/complete` (the API reference of the old Text Completions), and from the parameters of batches, files and
skills in anthropic 2.8.0."""


def check_tool_servers(body: Object, removes_tools: bool) -> None:
    """MCP servers that a request names are judged by their `mcp_toolset` in `tools`."""
    servers = body.get("mcp_servers")
    for at, server in enumerate(servers) if isinstance(servers, list) else ():
        place = ((None, "mcp_servers"), at)
        if removes_tools and isinstance(server, dict) and server.get("tool_configuration"):  # of the first version
            what = "rules for tools are applied to the `mcp_toolset` of a server; leave this out"
            raise Malformed((place, "tool_configuration"), what)
        if not _has_toolset(body, server.get("name") if isinstance(server, dict) else None):
            raise Malformed(
                place, "rules for tools can only be applied to MCP servers with an `mcp_toolset` in `tools`"
            )


def _has_toolset(body: Object, server: Json) -> bool:
    tools = body.get("tools")
    return any(
        isinstance(tool, dict) and tool.get("type") == "mcp_toolset" and tool.get("mcp_server_name") == server
        for tool in (tools if isinstance(tools, list) else ())
    )


REQUEST_MEMBERS = RequestMembers(
    outermost=_ANTHROPIC | _COMPATIBLE,
    forwarded=_FORWARDED,
    # OpenRouter's choice among the providers of a model, as in Chat; it says what the answer cost.
    passing_rules=key_set("provider route"),
    decisive=read_spellings("model stream tools tool_choice messages system mcp_servers requests"),
    judged=read_spellings(
        """type name function functions definition custom tools tool_choice allowed_tools mode mcp_servers file_id
        file_ids container container_id skill_id max_tokens max_output_tokens=maxOutputTokens"""
    ),
    free=key_set("input_schema schema properties metadata arguments parameters"),
    free_objects=frozenset({"input"}),
    turns=frozenset({"messages"}),
    # `definition` is that of a tool which is added within a conversation (`tool_addition`, beta
    # `inline-tools-2026-09-15`; platform.claude.com, preserved-thinking, November 2026); elsewhere it is a text.
    declarations=key_set("tools functions definition"),
    tool_choices=key_set("tool_choice mcp_servers"),
    tool_places=key_set("tools tool_choice"),
    check_tool_servers=check_tool_servers,
    # From Anthropic's pricing page (platform.claude.com, "Tool use pricing"; copies of 2026, looked up in November):
    # searches of the web cost money, fetched pages, tools of MCP servers and searches for tools only their tokens. Code
    # execution costs the hours of its container, which no answer says; a container is used for nothing else.
    tool_costs=ToolCosts(
        tokens_only=key_set("web_fetch mcp_toolset tool_search_tool"),
        searches=key_set("web_search"),
        members=key_set("container"),
        markers=(b'"tool_addition"',),
        # Fast mode costs 6 times as much with Claude Opus 4.6 and 4.7, twice as much from 4.8 on; inference in the USA
        # 1.1 times (platform.claude.com, fast-mode and pricing, November 2026).
        usual_values={"speed": frozenset({b'"standard"'}), "inference_geo": frozenset({b'"global"'})},
    ),
    cache_breakpoints=("cache_control",),
    objects=ObjectMembers(
        names=letter_set(["file_ids"]),
        forwarded_names=letter_set(["file_ids"]),
        containers=letter_set(["container", "container_id"]),
        turns=letter_set(["previous_message_id"]),
        prefixes={"skillid": "skill_"},  # others are Anthropic's own
        answer_types=("_citation", "_output", "_result"),
    ),
)
