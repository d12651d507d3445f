"""What some models behind Converse refuse, and the words by which they say so. What is refused is left out or rewritten
in the body, and reported; a refusal in these words is answered with a second request that has the quirk.

From reports of 2025 and 2026, looked up in November 2026: strands-agents/sdk-python#1223 and litellm#6053 (text beside
results), pi#3739 and obot#4101 (streams with tools), AWS's error texts as they are quoted there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from toolwire.core.body_changes import change_items, client_path
from toolwire.core.codec import Quirk
from toolwire.core.json_values import Json, Object, Path, without_keys
from toolwire.core.losses import Ledger
from toolwire.protocols.bedrock_converse.content import CACHE_POINT
from toolwire.protocols.bedrock_converse.http import write_path

_REFUSED = "this model refuses it"


def _change_lists(body: Object, change: Callable[[list[Json], Path], list[Json]], ledger: Ledger) -> Object:
    """The body with the lists of blocks of its messages, its instructions and its tools changed."""
    out = body
    for holder, key in ((None, "system"), ("toolConfig", "tools")):
        node = body if holder is None else body.get(holder)
        if isinstance(node, dict) and isinstance(entries := node.get(key), list):
            changed = change(entries, client_path(ledger, *filter(None, (holder, key))))
            if changed is not entries:
                out = out | ({key: changed} if holder is None else {holder: {**node, key: changed}})
    return _change_messages(out, lambda _role, blocks, path: change(blocks, path), ledger)


def _change_messages(body: Object, change: Callable[[Json, list[Json], Path], list[Json]], ledger: Ledger) -> Object:
    def change_message(number: int, message: Object) -> Object:
        blocks = message.get("content")
        if not isinstance(blocks, list):
            return message
        changed = change(message.get("role"), blocks, client_path(ledger, "messages", number))
        return message if changed is blocks else {**message, "content": changed}

    return change_items(body, "messages", change_message)


def _has(block: Json, member: str) -> bool:
    return isinstance(block, dict) and member in block


def drop_cache_points(body: Object, _model: str, ledger: Ledger) -> Object:
    def change(blocks: list[Json], path: Path) -> list[Json]:
        kept = [block for block in blocks if not _has(block, CACHE_POINT)]
        if len(kept) == len(blocks):
            return blocks
        ledger.note("cache-dropped", path, "cache points were left out", _REFUSED)
        return kept

    return _change_lists(body, change, ledger)


def drop_tool_choice(body: Object, _model: str, ledger: Ledger) -> Object:
    config = body.get("toolConfig")
    if not isinstance(config, dict) or "toolChoice" not in config or config["toolChoice"] == {"auto": {}}:
        return body
    where = client_path(ledger, "toolConfig", "toolChoice")
    ledger.note("choice-weakened", where, "the model may, but need not call a tool", _REFUSED)
    return body | {"toolConfig": without_keys(config, ["toolChoice"])}


def drop_statuses(body: Object, _model: str, ledger: Ledger) -> Object:
    """Results without their status; a failed one says so in its text."""

    def change(_role: Json, blocks: list[Json], path: Path) -> list[Json]:
        if not any(_has(block, "toolResult") and _has(block["toolResult"], "status") for block in blocks):
            return blocks
        ledger.note("error-marked", path, "the status of results was left out", _REFUSED)
        return [_without_status(block) if _has(block, "toolResult") else block for block in blocks]

    return _change_messages(body, change, ledger)


def _without_status(block: Object) -> Object:
    result = block["toolResult"]
    if not _has(result, "status"):
        return block
    out = without_keys(result, ["status"])
    if result["status"] == "error":
        out["content"] = [{"text": "[tool error]"}, *(result.get("content") or [])]
    return {**block, "toolResult": out}


def drop_signatures(body: Object, _model: str, ledger: Ledger) -> Object:
    def change(_role: Json, blocks: list[Json], path: Path) -> list[Json]:
        out = [_without_signature(block) for block in blocks]
        if all(new is old for new, old in zip(out, blocks, strict=True)):
            return blocks
        ledger.note("seal-dropped", path, "the signatures of thinking were left out", _REFUSED)
        return out

    return _change_messages(body, change, ledger)


def _without_signature(block: Json) -> Json:
    inner = block["reasoningContent"] if _has(block, "reasoningContent") else None
    text = inner.get("reasoningText") if isinstance(inner, dict) else None
    if not isinstance(text, dict) or "signature" not in text:
        return block
    return {**block, "reasoningContent": {"reasoningText": without_keys(text, ["signature"])}}


def separate_tool_blocks(body: Object, _model: str, ledger: Ledger) -> Object:
    """Messages that have either text or calls and results: text beside results goes into the last result, and text
    beside calls is left out."""

    def change(role: Json, blocks: list[Json], path: Path) -> list[Json]:
        member = "toolResult" if role == "user" else "toolUse"
        texts = [block for block in blocks if _has(block, "text")]
        last = max((number for number, block in enumerate(blocks) if _has(block, member)), default=-1)
        if not texts or last < 0:
            return blocks
        out = [block for block in blocks if not _has(block, "text")]
        if role != "user":
            ledger.note("part-dropped", path, "text beside a call was left out", _REFUSED)
            return out
        ledger.note("turn-moved", path, "text beside results was put into the last of them", _REFUSED)
        place = max(number for number, block in enumerate(out) if _has(block, member))
        result = out[place][member]
        out[place] = {member: {**result, "content": [*(result.get("content") or []), *texts]}}
        return out

    return _change_messages(body, change, ledger)


def drop_stop_sequences(body: Object, _model: str, ledger: Ledger) -> Object:
    config = body.get("inferenceConfig")
    if not isinstance(config, dict) or "stopSequences" not in config:
        return body
    where = client_path(ledger, "inferenceConfig", "stopSequences")
    ledger.note("no-counterpart", where, "stop sequences were left out", _REFUSED)
    return body | {"inferenceConfig": without_keys(config, ["stopSequences"])}


QUIRKS: Mapping[str, Quirk] = {
    "no-tool-streaming": Quirk(
        about="The model calls no tools in a stream: it is asked for a whole answer, which is sent to the client as a "
        "stream (Llama, Palmyra).",
        http={"request_path": lambda model, _stream: write_path(model, "converse")},
        refusal=re.compile(r"(?i)doesn't support tool use in streaming mode"),
    ),
    "no-forced-tools": Quirk(
        about="The model cannot be made to call a tool: `toolChoice` is left out (Llama, DeepSeek, some of Nova).",
        rewrite_body=drop_tool_choice,
        markers=(b'"toolChoice"',),
        refusal=re.compile(r"(?i)doesn't support the toolConfig\.toolChoice"),
    ),
    "no-cache-points": Quirk(
        about="The model takes no `cachePoint`.",
        rewrite_body=drop_cache_points,
        markers=(b'"cachePoint"',),
        refusal=re.compile(
            r"(?i)(?:doesn't|does not|did not) (?:support|allow) (?:the )?(?:prompt caching|cache ?points?)"
        ),
    ),
    "no-result-status": Quirk(
        about="The model takes no `status` of a result: a failed one is marked in its text.",
        rewrite_body=drop_statuses,
        markers=(b'"status"',),
        refusal=re.compile(r"(?i)doesn't support the [\w.]*(?:toolResult\.)?status field"),
    ),
    "no-signatures": Quirk(
        about="The model takes its thinking back without a signature only.",
        rewrite_body=drop_signatures,
        markers=(b'"signature"',),
        refusal=re.compile(r"(?i)doesn't support the reasoningContent\.reasoningText\.signature field"),
    ),
    "no-text-beside-tools": Quirk(
        about="The model refuses text beside calls and results in one message (Llama 4).",
        rewrite_body=separate_tool_blocks,
        markers=(b'"toolUse"', b'"toolResult"'),
        refusal=re.compile(r"(?i)tool (?:result|use) blocks cannot be provided in the same turn"),
    ),
    "no-stop-sequences": Quirk(
        about="The model takes no stop sequences (GLM).",
        rewrite_body=drop_stop_sequences,
        markers=(b'"stopSequences"',),
        refusal=re.compile(r"(?i)doesn't support the (?:inferenceConfig\.)?stopSequences field"),
    ),
}
