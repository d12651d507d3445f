"""What Anthropic Messages refuses with 400: fields, thinking, caching. Turns and tools have their own files."""

from __future__ import annotations

from collections.abc import Iterator

from toolwire.conformance.strict import anthropic_tools, anthropic_turns
from toolwire.conformance.strict.check import Check, Json, Object, objects, unknown_keys, version

FAMILIES = "claude-(?:opus|sonnet|haiku|fable|mythos)"
KNOWN = frozenset(
    "model max_tokens messages system tools tool_choice thinking output_config stop_sequences stream"
    " metadata service_tier cache_control container speed inference_geo diagnostics temperature top_p top_k"
    " mcp_servers context_management compaction thread fallbacks fallback_credit_token".split()
)
THINKING = {
    "adaptive": frozenset({"type", "display", "block_binding"}),
    "enabled": frozenset({"type", "budget_tokens", "display", "block_binding"}),
    "disabled": frozenset({"type"}),
    "between_tools": frozenset({"type", "block_binding"}),
}


def fields(body: Object, model: str) -> Iterator[str]:
    yield from unknown_keys(body, KNOWN)
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "model: Field required"
    limit = body.get("max_tokens")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        yield "max_tokens: Field required"
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        yield "messages: at least one message is required"
    for key in (body.get("metadata") or {}).keys() - {"user_id"}:
        yield f"metadata.{key}: Extra inputs are not permitted"
    for key in (body.get("output_config") or {}).keys() - {"effort", "format", "task_budget"}:
        yield f"output_config.{key}: Extra inputs are not permitted"
    for index, text in enumerate(body.get("stop_sequences") or []):
        if not isinstance(text, str) or not text.strip():
            yield f"stop_sequences.{index}: each stop sequence must contain non-whitespace"


def system(body: Object, model: str) -> Iterator[str]:
    content = body.get("system")
    if content is None or isinstance(content, str):
        return
    for index, block in enumerate(content):
        if not isinstance(block, dict) or block.get("type") != "text":
            yield f"system.{index}: Input should be a text block"
        elif not str(block.get("text", "")).strip():
            yield f"system.{index}: text content blocks must be non-empty"


def sampling(body: Object, model: str) -> Iterator[str]:
    """Newer models take no sampling parameters, older ones not both of two."""
    made = version(model, FAMILIES)
    if made is None or made < (4, 7):
        return
    for key, default in (("temperature", 1), ("top_p", 1), ("top_k", None)):
        if body.get(key) not in (None, default):
            yield f"{key}: not supported for this model"


def thinking(body: Object, model: str) -> Iterator[str]:
    config = body.get("thinking")
    if config is None:
        return
    kind = config.get("type")
    if kind not in THINKING:
        yield f"thinking.type: {kind!r} is not known"
        return
    yield from unknown_keys(config, THINKING[kind], "thinking.")
    if kind == "enabled":
        budget = config.get("budget_tokens")
        if not isinstance(budget, int) or budget < 1024:
            yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        elif isinstance(body.get("max_tokens"), int) and budget >= body["max_tokens"]:
            yield "max_tokens must be greater than thinking.budget_tokens"
    yield from _thinking_for(kind, model)


def _thinking_for(kind: str, model: str) -> Iterator[str]:
    made = version(model, FAMILIES)
    if kind == "enabled" and made is not None and made >= (4, 7):
        yield 'thinking.type: "enabled" is not supported for this model'
    if kind == "disabled" and _always_thinks(model):
        yield 'thinking.type: "disabled" is not supported for this model'
    if kind == "between_tools" and made is not None and not (made >= (5, 5) and "sonnet" in model):
        yield 'thinking.type: "between_tools" is not supported for this model'


def _always_thinks(model: str) -> bool:
    made = version(model, FAMILIES) or (0, 0)
    return "fable" in model or "mythos" in model or (made >= (5, 5) and ("opus" in model or "sonnet" in model))


def breakpoints(body: Object, model: str) -> Iterator[str]:
    count = int(body.get("cache_control") is not None)
    for part in ("system", "tools", "messages"):
        count += _marked(body.get(part))
    if count > 4:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {count}."


def _marked(value: Json) -> int:
    """How many blocks bear a breakpoint, inputs of calls and schemas left aside."""
    if isinstance(value, list):
        return sum(map(_marked, value))
    if not isinstance(value, dict):
        return 0
    inner = value.get("content")
    return int(value.get("cache_control") is not None) + (_marked(inner) if isinstance(inner, list) else 0)


def formats(body: Object, model: str) -> Iterator[str]:
    config = (body.get("output_config") or {}).get("format")
    if config is None:
        return
    if config.get("type") != "json_schema" or not isinstance(config.get("schema"), dict):
        yield "output_config.format: expected a json_schema with its schema"
    else:
        yield from anthropic_tools.grammar_schema(config["schema"], "output_config.format.schema")


def servers(body: Object, model: str) -> Iterator[str]:
    for server in objects(body.get("mcp_servers")):
        if not server.get("url") or not server.get("name"):
            yield "mcp_servers: url and name are required"


CHECKS: tuple[Check, ...] = (
    fields,
    system,
    sampling,
    thinking,
    breakpoints,
    formats,
    servers,
    *anthropic_turns.CHECKS,
    *anthropic_tools.CHECKS,
)
