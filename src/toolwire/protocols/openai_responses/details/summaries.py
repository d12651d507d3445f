"""Summaries of a conversation: how the model is asked for one, and what the client gets."""

from __future__ import annotations

from toolwire.core.envelopes import TOOLWIRE_MAKER, EnvelopeEntry, write_envelope
from toolwire.core.ids import derive_id
from toolwire.core.ir import Failure, Usage
from toolwire.core.json_values import Object
from toolwire.protocols.openai_responses.details.kept_answers import make_id, read_output, write_pending_response
from toolwire.protocols.openai_responses.details.kept_requests import (
    COMPACTION,
    COMPACTION_TRIGGER,
    add_missing_ids,
    clean_item,
    item_type,
    write_listed_item,
    write_user_message,
)
from toolwire.protocols.openai_responses.response import write_usage

SUMMARY_PROMPT = """\
This conversation has become long and will go on without its earlier messages. Write the summary from which another \
model can take over the work at this very point. It will see your summary and nothing else of what was said and done \
so far, except for the user's own messages.

Say, under short headings:
- what the user wants in the end, and how they want it done (wishes, rules, preferences, things they refused);
- what was decided, and why; what was tried and did not work;
- the state of the work: files that were read, made or changed and what stands in them, commands that were run and \
what came out, what runs or is open now;
- what is left to do, the next step first;
- everything that must be spelled exactly: names, paths, ids, versions, addresses, numbers, errors, pieces of code.

Write facts only, no greeting and no remark about this task. Call no tools, and do not go on with the work itself."""

_DROPPED_KEYS = frozenset(
    """previous_response_id conversation background stream stream_options context_management include
    max_output_tokens store tool_choice input text""".split()
)


def write_summary_request(body: Object, items: list[Object]) -> Object:
    """The same instructions and tools as before, so that what the provider has cached of them serves here too."""
    out = {key: value for key, value in body.items() if key not in _DROPPED_KEYS}
    text = body.get("text")
    if isinstance(text, dict) and text.get("verbosity") is not None:
        out["text"] = {"verbosity": text["verbosity"]}
    out["input"] = [
        *(clean_item(item) for item in items if item.get("type") != COMPACTION_TRIGGER),
        write_user_message(SUMMARY_PROMPT),
    ]
    if body.get("tools"):
        out["tool_choice"] = "none"
    out["store"] = False
    return out


def write_compact_response(body: Object, answer: Object, items: list[Object], seed: str, now: int) -> Object | Failure:
    """The new beginning of the conversation: what the user said, and the summary of all the rest."""
    item = _write_compaction_item(answer, seed)
    if isinstance(item, Failure):
        return item
    said = [clean_item(one) for one in items if item_type(one) == "message" and one.get("role") == "user"]
    return {
        "id": make_id("response", f"{seed}|compact"),
        "object": "response.compaction",
        "created_at": now,
        "output": [*map(write_listed_item, add_missing_ids(said, seed)), item],
        "usage": _summary_usage(answer),
    }


def write_summary_response(body: Object, answer: Object, seed: str, now: int) -> Object | Failure:
    item = _write_compaction_item(answer, seed)
    if isinstance(item, Failure):
        return item
    out = write_pending_response(body, now, "completed")
    return {
        **out,
        "id": make_id("response", seed),
        "completed_at": now,
        "output": [item],
        "usage": _summary_usage(answer),
    }


def _write_compaction_item(answer: Object, seed: str) -> Object | Failure:
    text = _read_summary_text(answer)
    if not text:
        return Failure("upstream", "the model gave no summary of the conversation", 502, "no_summary")
    sealed = write_envelope([EnvelopeEntry("summary", TOOLWIRE_MAKER, "", text)])
    return {"id": derive_id("cmp_", seed), "type": COMPACTION, "encrypted_content": sealed}


def _read_summary_text(answer: Object) -> str:
    messages = [item.get("content") for item in read_output(answer) if item.get("type") == "message"]
    parts = [part for content in messages if isinstance(content, list) for part in content if isinstance(part, dict)]
    texts = [part.get("text") for part in parts if part.get("type") == "output_text"]
    return "\n\n".join(text for text in texts if isinstance(text, str) and text.strip())


def _summary_usage(answer: Object) -> Object:
    usage = answer.get("usage")
    return usage if isinstance(usage, dict) else write_usage(Usage())
