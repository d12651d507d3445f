"""The members of requests, for whoever decides by a body that goes on as it came."""

from __future__ import annotations

from toolwire.core.request_members import ObjectMembers, RequestMembers, ToolCosts, letter_set, read_spellings
from toolwire.protocols.openai_responses.http import COUNT_TOKENS_KEYS
from toolwire.protocols.openai_responses.names import REQUEST_KEYS, TURN_SOURCES

_CONVERSATIONS = frozenset("items metadata include".split())

_OPENAI = REQUEST_KEYS | COUNT_TOKENS_KEYS | _CONVERSATIONS | frozenset(
    """access_programs background context_management conversation image include max_tool_calls moderation multi_agent
    previous_response_id prompt prompt_cache_options prompt_cache_retention stream_options truncation user""".split()
)  # fmt: skip
"""From the parameters of `responses` (also the beta), `input_tokens` and `conversations` in openai 3.49.0."""

_COMPATIBLE = frozenset(
    # Codex
    """client_metadata"""
    # vLLM (`ResponsesRequest` in vllm/entrypoints/openai/protocol.py, looked up in November 2026) and OpenRouter
    """ top_k min_p repetition_penalty frequency_penalty presence_penalty seed stop request_id priority cache_salt
    mm_processor_kwargs chat_template_kwargs max_tokens session_id"""
    # Volcengine and BytePlus (docs.byteplus.com, "Create a model response") and Qwen (alibabacloud.com, "OpenAI
    # compatible - Responses"), November 2026. `verbosity` is Chat's, which some clients send here, too.
    """ thinking enable_thinking verbosity""".split()
)

REQUEST_MEMBERS = RequestMembers(
    outermost=_OPENAI | _COMPATIBLE,
    forwarded=_CONVERSATIONS,
    passing_rules=frozenset("route provider transforms".split()),  # OpenRouter, as in Chat
    passing_keys=frozenset({"search_parameters"}),  # xAI
    decisive=read_spellings(
        "model stream tools tool_choice input instructions store previous_response_id conversation background"
    ),
    judged=read_spellings(
        """type name function functions custom tools tool_calls tool_choice allowed_tools mode server_url server_label
        connector_id file_id file_ids vector_store_ids container container_id skill_id file_data max_tokens
        max_completion_tokens max_output_tokens=maxOutputTokens"""
    ),
    free=frozenset(
        """arguments parameters input_schema schema properties metadata client_metadata parsed parsed_arguments
        results""".split()
    ),
    turns=frozenset({"input"}),
    turn_sources=TURN_SOURCES,
    declarations=frozenset({"tools", "functions"}),
    tool_choices=frozenset({"tool_choice"}),
    tool_places=frozenset({"tools", "tool_choice"}),
    items_with_tools=frozenset("additional_tools tool_search_output mcp_list_tools mcp_tool_listing".split()),
    stored_tools={"prompt": dict},
    # OpenAI's pricing page and its guide on MCP (developers.openai.com/api/docs/guides/tools-connectors-mcp), as others
    # quoted them in 2026: a web search costs money for each call, MCP servers and a search for tools only their tokens.
    # The containers of `code_interpreter` and `shell`, pictures and searches in files cost what no answer says. Tiers
    # are those of Chat.
    tool_costs=ToolCosts(
        tokens_only=frozenset({"mcp", "tool_search"}),
        searches=frozenset({"web_search"}),
        audio_markers=(b'"input_audio"',),
        usual_values={"service_tier": frozenset({b'"auto"', b'"default"', b'"flex"', b'"scale"'})},
    ),
    cache_breakpoints=("prompt_cache_breakpoint",),
    objects=ObjectMembers(
        names=letter_set(["file_ids", "vector_store_ids"]),
        forwarded_names=letter_set(["file_ids", "vector_store_ids"]),
        id_holders=frozenset("prompt audio voice".split()),
        containers=letter_set(["container", "container_id"]),
        prefixes={"skillid": "skill_"},
        stored_items={"image_generation_call": "result"},
        answer_types=("_citation", "file_path", "_call", "_output", "_result"),
    ),
)
