"""What each OpenAI model accepts in Chat Completions, by its name: keys, reasoning efforts and roles; and how settings
are written for it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core import ids, tokens
from toolwire.core.ir import Request, Settings, Thinking
from toolwire.core.json_values import Object, Path
from toolwire.core.losses import Ledger
from toolwire.core.provenance import is_verbatim
from toolwire.protocols.openai_chat.names import MAX_STOP_SEQUENCES, MAX_USER_LENGTH, NAME, USER_KEYS, is_own

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


class Family(Struct, frozen=True, kw_only=True):
    max_tokens_key: str = "max_tokens"
    """OpenAI's reasoning models refuse `max_tokens`; most compatible servers have nothing else."""
    user_key: str = "user"
    developer: bool = False
    """Does it have the role `developer`?"""
    efforts: tuple[str, ...] = ("none", "low", "medium", "high")
    """The values of `reasoning_effort`; empty where the key is refused."""
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
    """The client sent a Chat request: it knows its model, so nothing is adapted."""


_OPENAI = Family(developer=True, efforts=(), video=False)
_REASONING = replace(
    _OPENAI, max_tokens_key="max_completion_tokens", user_key="safety_identifier", efforts=EFFORTS, stop=False
)
_NO_EFFORT_WITH_TOOLS = replace(_REASONING, no_effort_with_tools=True)
_GPT_6 = replace(_NO_EFFORT_WITH_TOOLS, sampling=False, breakpoint="prompt_cache_breakpoint", default_effort="medium")

_FAMILIES: tuple[tuple[re.Pattern[str], Family], ...] = (
    # These two refuse `none` as well. With tools they work only in Responses, so no effort is forced on them here.
    (
        re.compile(r"gpt-6-astra|gpt-6\.1-sol"),
        replace(_GPT_6, no_effort_with_tools=False, tools=False, efforts=EFFORTS[1:]),
    ),
    (re.compile(r"gpt-6"), _GPT_6),
    (re.compile(r"gpt-5\.(?:[6-9]|\d\d)"), replace(_GPT_6, sampling=True)),
    (re.compile(r"gpt-5\.5"), replace(_NO_EFFORT_WITH_TOOLS, default_effort="medium")),
    (re.compile(r"gpt-5\.4"), _NO_EFFORT_WITH_TOOLS),
    (re.compile(r"gpt-5"), _REASONING),
    (re.compile(r"o1(?:-|$)"), replace(_REASONING, stop=True)),
    (re.compile(r"o[34](?:-|$)"), _REASONING),
    (re.compile(r"gpt-oss"), Family(efforts=("low", "medium", "high"))),
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
    """The family of a model. `vendor/model` is served by a compatible server (OpenRouter), which has no such limits."""
    vendor, _, name = model.lower().rpartition("/")
    found = next((family for pattern, family in _FAMILIES if pattern.match(name)), Family())
    if vendor and (found.no_effort_with_tools or not found.tools):
        found = replace(found, no_effort_with_tools=False, tools=True)
    if native:
        return replace(
            found, native=True, reasoning_back=True, breakpoint=found.breakpoint or "prompt_cache_breakpoint"
        )
    return replace(found, search=True) if _SEARCH_MODELS.search(name) else found


def supports_model(model: str, with_tools: bool) -> bool:
    """Some OpenAI models reason together with tools only in Responses, or accept tools only there."""
    if not with_tools:
        return True
    known = family(model)
    return known.tools and not known.no_effort_with_tools


_REASONS_BY_DEFAULT = re.compile(r".*(?:deepseek(?!-chat)|qwq|qwen3\.[5-9]|-thinking|-reasoner)")


def can_force_call_unless_reasoning(model: str, reasons: bool | None) -> bool:
    """Can a call be forced on a server that refuses it while the model reasons? Some models reason by default."""
    return not (_REASONS_BY_DEFAULT.match(model.lower()) if reasons is None else reasons)


def supports_provider_tool(tool: str, model: str, with_functions: bool) -> bool:
    """In Chat only the search models search the web, and they always do."""
    return tool == "web_search" and family(model).search


# --- settings -------------------------------------------------------------------------------------------------------

_SAMPLING_SETTINGS = frozenset({"temperature", "top_p", "logprobs", "top_logprobs"})


def is_setting_refused(field: str, has_tools: bool, family: Family) -> bool:
    """Would the model answer this setting with an error?"""
    if family.native:
        return False
    return (field == "parallel" and not has_tools) or (field in _SAMPLING_SETTINGS and not family.sampling)


def key_as_sent(request: Request, keys: tuple[str, ...], default_key: str, family: Family) -> str:
    """The key that the client used, as long as the request goes to the model that it named."""
    wire = request.origin.wire if family.native and is_own(request.origin) else {}
    if not wire or wire.get("model") != request.model:
        return default_key
    return next((key for key in keys if wire.get(key) is not None), default_key)


def write_user(request: Request, user: str, out: Object, family: Family, ledger: Ledger) -> None:
    if len(user) > MAX_USER_LENGTH and family.user_key == "safety_identifier" and not family.native:
        where = request.settings.where.get("user")
        ledger.note("setting-clamped", where, f"a user of more than {MAX_USER_LENGTH} characters was hashed")
        user = ids.hex_digest(user, MAX_USER_LENGTH)
    out[key_as_sent(request, USER_KEYS, family.user_key, family)] = user


def write_stop_sequences(
    settings: Settings, stop: tuple[str, ...], out: Object, family: Family, ledger: Ledger
) -> None:
    if not family.stop and not family.native:
        ledger.note(
            "no-counterpart", settings.where.get("stop"), "`stop` was left out", "this model does not accept it"
        )
        return
    out["stop"] = list(stop if family.native else stop[:MAX_STOP_SEQUENCES])
    if len(stop) > len(out["stop"]):
        what = f"only {MAX_STOP_SEQUENCES} of {len(stop)} stop sequences were kept"
        ledger.note("setting-clamped", settings.where.get("stop"), what)


def write_reasoning_effort(request: Request, out: Object, family: Family, has_tools: bool, ledger: Ledger) -> None:
    asked, where = request.settings.thinking, request.settings.where.get("thinking")
    if asked is not None and asked.origin is not None and is_verbatim(asked.origin, NAME):
        out["reasoning_effort"] = asked.origin.wire
        return
    effort = _reasoning_effort(asked, where, family, ledger) if asked is not None else ""
    if family.no_effort_with_tools and not family.native and has_tools and (effort or family.default_effort) != "none":
        why = "in Chat this model accepts function tools only without reasoning"
        code = "thinking-mapped" if effort else "default-added"
        ledger.note(code, where, f"the effort `{effort or family.default_effort}` became `none`", why)
        effort = "none"
    if effort:
        out["reasoning_effort"] = effort


def _reasoning_effort(asked: Thinking, where: Path, family: Family, ledger: Ledger) -> str:
    """The effort to write, "" for the model's default."""
    if asked.summary not in ("", "none"):
        ledger.note("no-counterpart", where, f"the summary mode `{asked.summary}` was left out")
    word = asked.effort or ("none" if asked.mode == "off" else "")
    if not word and asked.budget is not None:
        word = tokens.effort_for_budget(asked.budget)
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
