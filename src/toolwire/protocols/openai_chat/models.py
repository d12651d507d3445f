"""What each OpenAI model accepts in Chat Completions, by its name: keys, reasoning efforts and roles; how settings are
written for it; and the quirks of compatible servers.

Source: OpenAI's guides on reasoning (copies of 2026) and the types of the Python SDK `openai` 3.49.0, looked up in
November 2026; for compatible servers and single rows what is said there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import filterfalse
from operator import is_
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core import ids, tokens
from toolwire.core.body_changes import NOT_ACCEPTED, change_items, client_path, drop_members
from toolwire.core.codec import Quirk
from toolwire.core.ir import Request, Thinking
from toolwire.core.json_values import Json, Object, Path, without_keys
from toolwire.core.losses import Ledger
from toolwire.core.missing_reasoning import make_up_reasoning
from toolwire.core.provenance import is_verbatim
from toolwire.core.refusals import match_refusal
from toolwire.protocols.openai_chat.names import NAME, REASONING_KEYS, TOOL_SHAPES, USER_KEYS, is_own


class Family(Struct, frozen=True, kw_only=True):
    max_tokens_key: str = "max_tokens"
    """OpenAI's reasoning models refuse `max_tokens`; most compatible servers have nothing else."""
    user_key: str = "user"
    developer: bool = False
    """Does it have the role `developer`?"""
    efforts: tuple[str, ...] = ("none", "low", "medium", "high")
    """The values of `reasoning_effort`, empty where the key is refused; for OpenAI's models see `openai_efforts`."""
    stop: bool = True
    sampling: bool = True
    """Does it accept `temperature`, `top_p` and `logprobs`?"""
    reasoning_back: bool = False
    """Does it want its reasoning text back in `reasoning_content`?"""
    breakpoint: Literal["", "prompt_cache_breakpoint", "cache_control"] = ""
    no_effort_with_tools: bool = False
    """With function tools it refuses any effort but `none`."""
    tools: bool = True
    """Does it accept tools in Chat at all?"""
    default_effort: str = "none"
    """Its effort when none is given; needed only with `no_effort_with_tools`."""
    video: bool = True
    search: bool = False
    native: bool = False
    """The client sent a Chat request: it knows its model, so nothing is adapted but what OpenAI's models are known to
    refuse."""
    refused: frozenset[str] = frozenset()
    """Members of a request that a model of OpenAI is known to refuse."""


DEFAULT_FAMILY = Family()
_OPENAI = Family(developer=True, efforts=(), video=False)
_REASONING = replace(_OPENAI, max_tokens_key="max_completion_tokens", user_key="safety_identifier", stop=False)
_NO_EFFORT_WITH_TOOLS = replace(_REASONING, no_effort_with_tools=True)
_GPT_6 = replace(_NO_EFFORT_WITH_TOOLS, sampling=False, breakpoint="prompt_cache_breakpoint")

_FAMILIES: tuple[tuple[re.Pattern[str], Family], ...] = (
    # These two refuse `none` as well. With tools they work only in Responses, so no effort is forced on them here.
    (
        re.compile(r"gpt-6-astra|gpt-6\.1-sol"),
        replace(_GPT_6, no_effort_with_tools=False, tools=False),
    ),
    (re.compile(r"gpt-6"), _GPT_6),
    (re.compile(r"gpt-5\.(?:[6-9]|\d\d)"), replace(_GPT_6, sampling=True)),
    (re.compile(r"gpt-5\.[45]"), _NO_EFFORT_WITH_TOOLS),
    (re.compile(r"gpt-5"), _REASONING),
    (re.compile(r"o1(?:-|$)"), replace(_REASONING, stop=True)),
    (re.compile(r"o[34](?:-|$)"), _REASONING),
    (re.compile(r"gpt-oss"), Family()),
    (re.compile(r"gpt-|chatgpt-"), _OPENAI),
    (
        re.compile(r".*(?:deepseek|kimi|moonshot|qwen|qwq|glm|minimax|mimo|hunyuan|ernie|step-|longcat|ring-|seed-)"),
        Family(reasoning_back=True),
    ),
    (re.compile(r".*claude"), Family(breakpoint="cache_control")),
)
_SEARCH_MODELS = re.compile(r"search|sonar|:online$")


@lru_cache(maxsize=256)
def family(model: str, native: bool = False) -> Family:
    """`vendor/model` is served by a compatible server, such as OpenRouter, which has no such limits."""
    vendor, _, name = model.lower().rpartition("/")
    found = next((family for pattern, family in _FAMILIES if pattern.match(name)), DEFAULT_FAMILY)
    efforts = tokens.openai_efforts(name)
    if efforts is not None:
        found = replace(found, efforts=efforts, default_effort=tokens.openai_default_effort(name))
    if vendor and (found.no_effort_with_tools or not found.tools):
        found = replace(found, no_effort_with_tools=False, tools=True)
    if native:
        breakpoint = found.breakpoint or "prompt_cache_breakpoint"
        refused = frozenset() if vendor else _refused_members(found)
        return replace(found, native=True, reasoning_back=True, breakpoint=breakpoint, refused=refused)
    return replace(found, search=True) if _SEARCH_MODELS.search(name) else found


SAMPLING_MEMBERS = tuple(tokens.SAMPLING_DEFAULTS)
MEMBERS_WITH_TOOLS = frozenset({"tools", "functions", "tool_choice", "function_call", "parallel_tool_calls"})
"""Members that OpenAI refuses in a request without tools: "'tool_choice' is only allowed when 'tools' are specified",
"[] is too short - 'tools'" (its answers, November 2026)."""
JUDGED_MEMBERS = MEMBERS_WITH_TOOLS.union(("max_tokens", "stop", "reasoning_effort"), SAMPLING_MEMBERS)


def _refused_members(family: Family) -> frozenset[str]:
    refused: set[str] = set() if family.max_tokens_key == "max_tokens" else {"max_tokens"}
    refused |= set() if family.stop else {"stop"}
    return frozenset(refused if family.sampling else refused.union(SAMPLING_MEMBERS))


def supports_model(model: str, with_tools: bool) -> bool:
    """Some OpenAI models reason together with tools only in Responses, or accept tools only there."""
    known = family(model)
    return not with_tools or (known.tools and not known.no_effort_with_tools)


_REASONS_BY_DEFAULT = re.compile(r".*(?:deepseek(?!-chat)|qwq|qwen3\.[5-9]|kimi-k2\.[5-9]|-thinking|-reasoner)")
"""Kimi: inspect_ai#5152 (all that think but K3 refuse a forced call); August 2026."""


def can_force_call_unless_reasoning(model: str, reasons: bool | None) -> bool:
    """Can a call be forced on a server that refuses it while the model reasons? Some models reason by default."""
    return not (_REASONS_BY_DEFAULT.match(model.lower()) if reasons is None else reasons)


def supports_provider_tool(tool: str, model: str, with_functions: bool) -> bool:
    """In Chat only the search models search the web, and they always do."""
    return tool == "web_search" and family(model).search


# --- settings -------------------------------------------------------------------------------------------------------

MAX_STOP_SEQUENCES = 4
MAX_USER_LENGTH = 64
SAMPLING_SETTINGS = frozenset(SAMPLING_MEMBERS)


def key_as_sent(request: Request, keys: tuple[str, ...], default_key: str, family: Family) -> str:
    """The key that the client used, as long as the request goes to the model that it named."""
    wire = request.origin.wire if family.native and is_own(request.origin) else {}
    if not wire or wire.get("model") != request.model:
        return default_key
    return next((key for key in keys if wire.get(key) is not None and key not in family.refused), default_key)


def write_user(request: Request, user: str, out: Object, family: Family, ledger: Ledger) -> None:
    if len(user) > MAX_USER_LENGTH and family.user_key == "safety_identifier" and not family.native:
        where = request.settings.where.get("user")
        ledger.note("setting-clamped", where, f"a user of more than {MAX_USER_LENGTH} characters was hashed")
        user = ids.hex_digest(user, MAX_USER_LENGTH)
    out[key_as_sent(request, USER_KEYS, family.user_key, family)] = user


def write_stop_sequences(request: Request, stop: tuple[str, ...], out: Object, family: Family, ledger: Ledger) -> None:
    where = request.settings.where.get("stop")
    if not stop and not family.native:
        return  # OpenAI refuses an empty list
    if "stop" in family.refused or not (family.stop or family.native):
        ledger.note("no-counterpart", where, "`stop` was left out", "this model does not accept it")
        return
    out["stop"] = list(stop if family.native else stop[:MAX_STOP_SEQUENCES])
    if len(stop) > len(out["stop"]):
        ledger.note("setting-clamped", where, f"only {MAX_STOP_SEQUENCES} of {len(stop)} stop sequences were kept")


def find_reasoning_effort(request: Request, family: Family, has_tools: bool, ledger: Ledger) -> str | None:
    """The effort to write; None for the model's default."""
    asked, where = request.settings.thinking, request.settings.where.get("thinking")
    if asked is not None and asked.origin is not None and is_verbatim(asked.origin, NAME):
        return asked.effort
    effort = _reasoning_effort(asked, where, family, ledger) if asked is not None else ""
    if family.no_effort_with_tools and not family.native and has_tools and (effort or family.default_effort) != "none":
        why = "in Chat this model accepts function tools only without reasoning"
        code = "thinking-mapped" if effort else "default-added"
        ledger.note(code, where, f"the effort `{effort or family.default_effort}` became `none`", why)
        return "none"
    return effort or None


def _reasoning_effort(asked: Thinking, where: Path, family: Family, ledger: Ledger) -> str:
    if asked.summary not in ("", "none"):
        ledger.note("no-counterpart", where, f"the summary mode `{asked.summary}` was left out")
    word = tokens.asked_effort(asked)
    if word and not asked.effort and asked.mode != "off":
        ledger.note("thinking-mapped", where, f"a budget of {asked.budget} tokens became the effort `{word}`")
    if not word or family.native:
        return word
    if not family.efforts:
        if word != "none":
            ledger.note("no-counterpart", where, f"the effort `{word}` was left out", "this model does not reason")
        return ""
    fitting = tokens.nearest_effort(word, family.efforts)
    if fitting != word:
        ledger.note("thinking-mapped", where, f"the effort `{word}` became `{fitting}`")
    return fitting


# --- quirks: where compatible servers differ from OpenAI ------------------------------------------------------------

MAX_DESCRIPTION_LENGTH = 1024
"""The longest tool description that old servers accept."""
OPENAI_ONLY_KEYS: Mapping[str, Json] = {
    "store": False, "metadata": {}, "prompt_cache_key": "", "prompt_cache_options": {}, "prompt_cache_retention": "",
    "safety_identifier": "", "moderation": None, "prediction": None, "verbosity": "medium",
}  # fmt: skip
"""Keys that only OpenAI has, each with the default that can be left out without a note."""

Rewriter = Callable[[Object, str, Ledger], Object]
"""Takes a body and the model's name."""
NodeRewriter = Callable[[Object, int, Ledger], Object]
"""Takes a message, a tool, or the inner object of a tool, and its number."""


def _for_each(key: str, rewrite: NodeRewriter) -> Rewriter:
    def rewrite_body(body: Object, _model: str, ledger: Ledger) -> Object:
        return change_items(body, key, lambda number, one: rewrite(one, number, ledger))

    return rewrite_body


def _for_each_tool(rewrite: NodeRewriter) -> Rewriter:
    def rewrite_tool(tool: Object, number: int, ledger: Ledger) -> Object:
        kind = next((kind for kind in TOOL_SHAPES if isinstance(tool.get(kind), dict)), None)
        inner = None if kind is None else rewrite(tool[kind], number, ledger)
        return tool if kind is None or inner is tool[kind] else tool | {kind: inner}

    return _for_each("tools", rewrite_tool)


def _add_empty_content(message: Object, _number: int, _ledger: Ledger) -> Object:
    if not message.get("tool_calls") or message.get("content") is not None:
        return message
    return message | {"content": ""}


def _join_text_parts(message: Object, number: int, ledger: Ledger) -> Object:
    content = message.get("content")
    if not isinstance(content, list) or not all(
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str) for part in content
    ):
        return message
    for place, part in enumerate(content):
        for key in filterfalse({"type", "text"}.__contains__, part):
            where = client_path(ledger, "messages", number, "content", place, key)
            ledger.note("no-counterpart", where, f"`{key}` of a text was left out", "this server accepts strings only")
    return message | {"content": "\n".join(part["text"] for part in content)}


def _replace_developer_role(message: Object, number: int, ledger: Ledger) -> Object:
    if message.get("role") != "developer":
        return message
    where = client_path(ledger, "messages", number, "role")
    ledger.note("role-mapped", where, "the role `developer` became `system`", "this server has no role `developer`")
    return message | {"role": "system"}


def _shorten_description(tool: Object, number: int, ledger: Ledger) -> Object:
    text = tool.get("description")
    if not isinstance(text, str) or len(text) <= MAX_DESCRIPTION_LENGTH:
        return tool
    what = f"the description of `{_tool_name(tool)}` was cut to {MAX_DESCRIPTION_LENGTH:,} of {len(text):,} characters"
    ledger.note("description-cut", client_path(ledger, "tools", number), what)
    return tool | {"description": text[: MAX_DESCRIPTION_LENGTH - 1] + "…"}


def _drop_strict(tool: Object, number: int, ledger: Ledger) -> Object:
    if "strict" not in tool:
        return tool
    if tool["strict"]:
        where = client_path(ledger, "tools", number)
        ledger.note("no-counterpart", where, f"`strict` of `{_tool_name(tool)}` was left out", NOT_ACCEPTED)
    return without_keys(tool, ["strict"])


def _tool_name(tool: Object) -> str:
    name = tool.get("name")
    return name if isinstance(name, str) else ""


def _move_late_instructions(body: Object, _model: str, ledger: Ledger) -> Object:
    """Instructions at the start in one message, and later ones as the user's."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return body
    out: list[Json] = []
    for number, message in enumerate(messages):
        if not out or not isinstance(message, dict) or message.get("role") not in SYSTEM_ROLES:
            out.append(message)
            continue
        where, first = client_path(ledger, "messages", number), out[0]
        if len(out) == 1 and isinstance(first, dict) and first.get("role") in SYSTEM_ROLES:
            ledger.note("turns-joined", where, "the instructions at the start became one message", SYSTEM_FIRST)
            out[0] = first | {"content": _join_contents(first.get("content"), message.get("content"))}
        else:
            what = f"instructions in the middle (role `{message['role']}`) became a message of the user"
            ledger.note("role-mapped", where, what, SYSTEM_FIRST)
            out.append(message | {"role": "user"})
    return body if len(out) == len(messages) and all(map(is_, out, messages)) else body | {"messages": out}


SYSTEM_ROLES = frozenset({"system", "developer"})
SYSTEM_FIRST = "this server takes instructions only in its first message"


def _join_contents(first: Json, second: Json) -> Json:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    both = ([{"type": "text", "text": one}] if isinstance(one, str) else one or [] for one in (first, second))
    return [part for parts in both for part in parts]


def _fill_reasoning(body: Object, model: str, ledger: Ledger) -> Object:
    """Give every message of the assistant its `reasoning_content`: other models, and clients that leave it out, have
    none. With tools DeepSeek V4 refuses a message without it, and also an empty one (its guide to the thinking mode;
    hermes-agent#18263, OmniRoute#3632; November 2026)."""
    messages, thinking = body.get("messages"), body.get("thinking")
    is_off = body.get("reasoning_effort") == "none" or (
        isinstance(thinking, dict) and thinking.get("type") == "disabled"
    )
    if not isinstance(messages, list) or is_off or model.lower().endswith("deepseek-chat"):
        return body
    if not body.get("tools") and not any(isinstance(one, dict) and one.get("tool_calls") for one in messages):
        return body
    return _fill_each_reasoning(body, model, ledger)


def _fill_message_reasoning(message: Object, number: int, ledger: Ledger) -> Object:
    if message.get("role") != "assistant" or any(message.get(key) for key in REASONING_KEYS):
        return message
    what = "`reasoning_content` was made up for a message without it"
    ledger.note("reasoning-added", client_path(ledger, "messages", number), what, "this server refuses it otherwise")
    return message | {"reasoning_content": make_up_reasoning(_list_calls(message.get("tool_calls")))}


def _list_calls(calls: Json) -> Iterator[tuple[str, str]]:
    for call in calls if isinstance(calls, list) else ():
        inner = call.get("function") or call.get("custom") if isinstance(call, dict) else None
        if isinstance(inner, dict):
            yield _tool_name(inner), str(inner.get("arguments", inner.get("input", "")))


def _rename_old_limit(body: Object, _model: str, ledger: Ledger) -> Object:
    """For models that reason, behind a name that does not say so (a deployment at Azure, a model behind a gateway)."""
    if "max_tokens" not in body:
        return body
    limit, where = body["max_tokens"], client_path(ledger, "max_tokens")
    ledger.note("setting-mapped", where, "`max_tokens` became `max_completion_tokens`", NOT_ACCEPTED)
    out = without_keys(body, ["max_tokens"])
    return out if out.get("max_completion_tokens") is not None else out | {"max_completion_tokens": limit}


def _rename_max_tokens_key(body: Object, _model: str, ledger: Ledger) -> Object:
    if "max_completion_tokens" not in body:
        return body
    limit, other = body["max_completion_tokens"], body.get("max_tokens")
    if limit is not None and other is not None and other != limit:
        what = "`max_tokens` was replaced by `max_completion_tokens`"
        ledger.note("no-counterpart", client_path(ledger, "max_tokens"), what)
    renamed = {"max_completion_tokens": "max_tokens"}
    out = {renamed.get(key, key): value for key, value in body.items() if key != "max_tokens"}
    return out if limit is not None else out | {"max_tokens": other}


def _send_allowed_tools_only(body: Object, _model: str, ledger: Ledger) -> Object:
    """Send the allowed tools instead of all tools with a choice of some, which only OpenAI knows."""
    choice = body.get("tool_choice")
    subset = choice.get("allowed_tools") if isinstance(choice, dict) else None
    if not isinstance(subset, dict):
        return body
    tools, listed = body.get("tools"), subset.get("tools")
    allowed = {_declared_name(tool) for tool in listed} if isinstance(listed, list) else set()
    kept = [tool for tool in tools if _declared_name(tool) in allowed] if isinstance(tools, list) else []
    out = without_keys(body, ["tool_choice", "tools"])
    if kept:
        out |= {"tools": kept, "tool_choice": "required" if subset.get("mode") == "required" else "auto"}
    what = "only the allowed tools are sent" if kept else "no tools are sent, because none of them is allowed"
    why = "this server does not know `allowed_tools`"
    ledger.note("choice-mapped", client_path(ledger, "tool_choice"), what, why)
    return out


def _weaken_choice(body: Object, _model: str, ledger: Ledger) -> Object:
    """Let the model decide on a server that refuses a forced call always: Z.AI ("Tool choice must be auto"), Meta
    (vectorize-io/hindsight#4246; September 2026)."""
    choice = body.get("tool_choice")
    if choice is None or choice in ("auto", "none"):
        return body
    what, why = "the model may call a tool, but need not", "this server takes only `auto` as a tool choice"
    ledger.note("choice-weakened", client_path(ledger, "tool_choice"), what, why)
    return body | {"tool_choice": "auto"}


def _declared_name(tool: Json) -> str:
    """The name of a tool, or of one in a list of allowed tools."""
    inner = tool.get(tool.get("type")) if isinstance(tool, dict) and isinstance(tool.get("type"), str) else None
    return _tool_name(inner) if isinstance(inner, dict) else ""


def _guide_json(body: Object, _model: str, _ledger: Ledger) -> Object:
    form = body.get("response_format")
    if not isinstance(form, dict) or not isinstance(form.get("json_schema"), dict):
        return body
    return without_keys(body, ["response_format"]) | {"guided_json": form["json_schema"].get("schema")}


_fill_each_reasoning = _for_each("messages", _fill_message_reasoning)


QUIRKS: Mapping[str, Quirk] = {
    "nine-letter-ids": Quirk(
        about="the ids of calls must be exactly nine letters and digits (Mistral)",
        constraints={"call_id_pattern": re.compile(r"[A-Za-z0-9]{9}"), "max_call_id_length": 9},
    ),
    "function-tools-only": Quirk(
        about="there are no custom tools; they are sent as functions",
        constraints={"tool_kinds": frozenset({"function"})},
    ),
    "no-hosted-tools": Quirk(
        about="the server runs no tools itself, not even a web search", constraints={"server_runs_tools": False}
    ),
    "empty-content": Quirk(
        about="a message with calls needs `content`, if only an empty one",
        rewrite_body=_for_each("messages", _add_empty_content),
    ),
    "plain-text-content": Quirk(
        about="text must be a string, not a list of parts", rewrite_body=_for_each("messages", _join_text_parts)
    ),
    "short-descriptions": Quirk(
        about=f"the description of a tool has at most {MAX_DESCRIPTION_LENGTH} characters",
        rewrite_body=_for_each_tool(_shorten_description),
    ),
    "max-tokens-key": Quirk(
        about="the limit on output tokens is called `max_tokens`", rewrite_body=_rename_max_tokens_key
    ),
    "new-tokens-key": Quirk(
        about="the limit on output tokens is called `max_completion_tokens`, and `max_tokens` is refused",
        rewrite_body=_rename_old_limit,
        refusal=re.compile(r"(?is)\bmax_tokens\b.{0,80}\buse\b.{0,20}\bmax_completion_tokens\b"),
    ),
    "no-sampling": Quirk(
        about="settings of the sampling are refused: " + ", ".join(tokens.SAMPLING_DEFAULTS),
        rewrite_body=drop_members(tokens.SAMPLING_DEFAULTS),
        refusal=match_refusal(
            tokens.SAMPLING_DEFAULTS, r"\b(?:temperature|top_p)\b.{0,60}\bdoes not support\b.{0,60}\bOnly the default\b"
        ),
    ),
    "no-effort": Quirk(
        about="`reasoning_effort` is refused",
        rewrite_body=drop_members({"reasoning_effort": None}),
        refusal=match_refusal(["reasoning_effort"]),
    ),
    "no-developer-role": Quirk(
        about="there is no role `developer`",
        rewrite_body=_for_each("messages", _replace_developer_role),
        refusal=re.compile(r"(?s)\brole\b.{0,80}\bdeveloper\b|\bdeveloper\b.{0,80}\brole\b|Unexpected message role"),
    ),
    "no-stream-options": Quirk(
        about="`stream_options` is refused, so a stream may have no usage",
        refusal=match_refusal(["stream_options"]),
        rewrite_body=drop_members({"stream_options": {}}),
        constraints={"counts_on_request": False},
    ),
    "system-first": Quirk(
        about="system messages are refused after the first message; they are sent as the user's",
        rewrite_body=_move_late_instructions,
        refusal=re.compile(r"[Ss]ystem message must be (?:at the beginning|the first)"),
    ),
    "repeated-deltas": Quirk(
        about="deltas repeat the id and name of their call, which SDKs would join: streams are rewritten",
    ),
    "sealed-reasoning": Quirk(
        about="`reasoning_details` hold seals, which are stored for clients that do not send them back",
        constraints={"seal_slots": frozenset({"reasoning"})},
    ),
    "sealed-calls": Quirk(
        about="calls have seals in `extra_content`, which are stored for clients that do not send them back",
        constraints={"seal_slots": frozenset({"reasoning", "call"})},
    ),
    "reasoning-back": Quirk(
        about="`reasoning_content` must be sent back with calls; it is stored for clients that leave it out, and made"
        " up where another model has answered",
        constraints={"needs_reasoning_returned": True},
        rewrite_body=_fill_reasoning,
    ),
    "reasoning-required": Quirk(
        about="the same for every message, also where the model or the request does not seem to think",
        constraints={"needs_reasoning_returned": True},
        rewrite_body=_fill_each_reasoning,
        refusal=re.compile(
            r"reasoning_content\W.{0,80}\b(?:must be passed back|is missing|is required)\b"
            r"|(?i:\bmissing\b).{0,20}\breasoning_content\b"
        ),
    ),
    "thinking-unforced": Quirk(
        about="a reasoning model cannot be forced to call a tool; `choice` in a rule says what to do instead",
        constraints={"can_force_tools": can_force_call_unless_reasoning},
    ),
    "unforced": Quirk(
        about='no call can be forced, the model decides; with `choice = "refuse"` in a rule such a request is refused',
        rewrite_body=_weaken_choice,
        markers=(b"tool_choice",),
        constraints={"can_force_tools": lambda _model, _reasons: False},
    ),
    "schema-for-calls": Quirk(
        about="`response_format` holds any model to a JSON schema; used for that of a call, if one is required and the"
        " tools are in the prompt",
        constraints={"takes_schema_for_calls": True},
    ),
    "frames-for-calls": Quirk(
        about="`response_format` takes `structural_tag` (vLLM, SGLang), which holds the arguments of calls in text to"
        " their schema; used if the tools are in the prompt",
        constraints={"takes_frames_for_calls": True},
    ),
    "guided-json": Quirk(
        about="the JSON schema of an answer goes into `guided_json` (vLLM before 0.12)", rewrite_body=_guide_json
    ),
    "no-strict": Quirk(
        about="`strict` is refused in tools",
        rewrite_body=_for_each_tool(_drop_strict),
        refusal=match_refusal(["strict"], is_nested=True),
    ),
    "no-allowed-tools": Quirk(
        about="`allowed_tools` is not known as a tool choice; only the allowed tools are sent",
        rewrite_body=_send_allowed_tools_only,
        markers=(b"allowed_tools",),
        # Here it is the value that is refused.
        refusal=match_refusal(["allowed_tools"], r"(?i:\bun(?:known|expected|supported)\b.{0,60}?\ballowed_tools\b)"),
    ),
    "at-most-128-tools": Quirk(
        about="a request may declare at most 128 tools; the others are left out",
        constraints={"max_tools": lambda _model: tokens.OPENAI_MAX_TOOLS},
    ),
    "no-parallel-flag": Quirk(
        about="`parallel_tool_calls` is refused",
        rewrite_body=drop_members({"parallel_tool_calls": True}),
        refusal=match_refusal(["parallel_tool_calls"]),
    ),
    "no-store-fields": Quirk(
        about="fields that only OpenAI has are refused: " + ", ".join(OPENAI_ONLY_KEYS),
        rewrite_body=drop_members(OPENAI_ONLY_KEYS),
        refusal=match_refusal(OPENAI_ONLY_KEYS),
    ),
}
