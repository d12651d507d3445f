"""Summaries of a conversation: how the model is asked for one, and what the client gets."""

from __future__ import annotations

from toolwire.envelopes import OURS, Entry, envelope
from toolwire.ids import made
from toolwire.ir import Failure, Usage
from toolwire.protocols.openai_responses.details.kept_answers import begun, new, output
from toolwire.protocols.openai_responses.details.kept_requests import (
    COMPACTION,
    TRIGGER,
    cleaned,
    kind_of,
    named,
    shown,
    user_message,
)
from toolwire.protocols.openai_responses.response import write_usage
from toolwire.wire import Object

ASK = """\
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

_LEFT_OUT = frozenset(
    """previous_response_id conversation background stream stream_options context_management include
    max_output_tokens store tool_choice input text""".split()
)


def summons(body: Object, items: list[Object]) -> Object:
    """The same instructions and tools as before, so that what the provider has cached of them serves here too."""
    out = {key: value for key, value in body.items() if key not in _LEFT_OUT}
    text = body.get("text")
    if isinstance(text, dict) and text.get("verbosity") is not None:
        out["text"] = {"verbosity": text["verbosity"]}
    out["input"] = [*(cleaned(item) for item in items if item.get("type") != TRIGGER), user_message(ASK)]
    if body.get("tools"):
        out["tool_choice"] = "none"
    out["store"] = False
    return out


def summarised(body: Object, answer: Object, items: list[Object], seed: str, now: int) -> Object | Failure:
    """The new beginning of the conversation: what the user said, and the summary of all the rest."""
    item = _item(answer, seed)
    if isinstance(item, Failure):
        return item
    said = [cleaned(one) for one in items if kind_of(one) == "message" and one.get("role") == "user"]
    return {
        "id": new("response", f"{seed}|compact"),
        "object": "response.compaction",
        "created_at": now,
        "output": [*map(shown, named(said, seed)), item],
        "usage": _usage(answer),
    }


def summary(body: Object, answer: Object, seed: str, now: int) -> Object | Failure:
    item = _item(answer, seed)
    if isinstance(item, Failure):
        return item
    out = begun(body, now, "completed")
    return {**out, "id": new("response", seed), "completed_at": now, "output": [item], "usage": _usage(answer)}


def _item(answer: Object, seed: str) -> Object | Failure:
    text = _text(answer)
    if not text:
        return Failure("upstream", "the model gave no summary of the conversation", 502, "no_summary")
    sealed = envelope([Entry("summary", OURS, "", text)])
    return {"id": made("cmp_", seed), "type": COMPACTION, "encrypted_content": sealed}


def _text(answer: Object) -> str:
    messages = [item.get("content") for item in output(answer) if item.get("type") == "message"]
    parts = [part for content in messages if isinstance(content, list) for part in content if isinstance(part, dict)]
    texts = [part.get("text") for part in parts if part.get("type") == "output_text"]
    return "\n\n".join(text for text in texts if isinstance(text, str) and text.strip())


def _usage(answer: Object) -> Object:
    usage = answer.get("usage")
    return usage if isinstance(usage, dict) else write_usage(Usage())
