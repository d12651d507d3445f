"""Request bodies: read as far as routing needs it, and with the model replaced."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolwire.core.codec import Members
from toolwire.core.ir import Failure
from toolwire.gateway.settings.config import ClientKey


class CheckedKeys(Struct, frozen=True, gc=False):
    """What is wrong with the outermost keys of a body (duplicate keys, odd spellings), and which of them may choose
    another model or tools."""

    problem: str = ""
    key: str = ""
    steering: tuple[str, ...] = ()


PLAIN_KEYS = CheckedKeys()


# msgspec takes the last of equal keys without a word. A `partial` is equal only to itself, so all of them are kept; and
# it is made without a call of a Python function.
_decode_pairs = msgspec.json.Decoder(dict[partial[Any], Raw], dec_hook=partial).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode
_MODEL_KEY = b'"model"'
_MODEL_PATTERN = re.compile(rb'"model"(?=[ \t\r\n]*:[ \t\r\n]*")')
_MAX_PLACES = 16
"""The model is not replaced in place if the key occurs more often."""


decode_members = _decode_fields
"""The outermost members of a body, one scan without decoding their values. Raises `msgspec.DecodeError`,
`UnicodeError` or `RecursionError`."""


def check_members(members: Members, body: bytes) -> CheckedKeys:
    """What is wrong with the outermost keys of a body with these members."""
    # Without white space, these keys and values fill the body exactly if no key is there twice: most clients write so.
    size = len("".join(members)) + sum(map(len, members.values())) + 4 * len(members) + 1
    if size == len(body) and USUAL_KEYS.issuperset(members):
        return PLAIN_KEYS
    return check_body_keys([name.args[0] for name in _decode_pairs(body)])


def list_members(value: bytes | Raw) -> list[tuple[str, Raw]]:
    """The keys and values of an object, also of a key that is there twice. Raises `msgspec.DecodeError` for another
    value."""
    return [(name.args[0], member) for name, member in _decode_pairs(value).items()]


# --- one reading of a body ---


USUAL_KEYS = frozenset(
    """model stream tools messages input contents system instructions tool_choice parallel_tool_calls max_tokens
    max_completion_tokens max_output_tokens temperature top_p top_k stop stop_sequences stream_options store include
    reasoning reasoning_effort text response_format metadata user prompt_cache_key service_tier thinking betas
    output_config context_management systemInstruction generationConfig toolConfig safetySettings cachedContent
    previous_response_id conversation background truncation client_metadata n seed""".split()
)
"""Keys that need no second look."""
_JUDGED_KEYS: Mapping[str, frozenset[str]] = {
    "".join(filter(str.isalnum, spellings.split()[0])).lower(): frozenset(spellings.split())
    for spellings in (
        "model", "stream", "tools", "tool_choice", "toolConfig tool_config", "functions", "function_call", "messages",
        "input", "contents", "system", "instructions", "systemInstruction system_instruction", "store", "requests",
        "previous_response_id", "conversation", "background", "cachedContent cached_content",
        "generationConfig generation_config",
    )
}  # fmt: skip
"""Keys by which the gateway decides, in the spellings that their protocols know, by their letters in lower case. Some
servers (those in Go) take a key in any case."""
_MODEL_STEERING_KEYS = frozenset(
    """models modelid modelids modelname modellist modelgroup modelinfo targetmodel fallback fallbacks fallbackmodel
    fallbackmodels contextwindowfallbacks preset presets engine engineid deployment deploymentid deploymentname plugins
    extrabody extraheaders extraquery headers apibase baseurl apikey virtualkey config userconfig customllmprovider
    litellmparams litellmmetadata optionalparams proxyserverrequest modelkwargs draftmodel searchmodel
    contextwindowfallbackdict contentpolicyfallbacks lora loras lorarequest adapterid adaptersource compoundcustom agent
    agentconfig""".split()
)
"""Keys by which servers such as OpenRouter, LiteLLM, Portkey, Groq and vLLM choose another model or other tools."""
_TOOL_STEERING_KEYS = frozenset("searchparameters enablesearch enablewebsearch".split())
"""Keys by which xAI and Qwen let a model search without a tool that rules could judge."""
_PROVIDER_STEERING_KEYS = frozenset("route router provider providers transforms".split())
"""Keys by which OpenRouter chooses among the providers of a model."""
_STEERING_KEYS = _MODEL_STEERING_KEYS | _TOOL_STEERING_KEYS | _PROVIDER_STEERING_KEYS
MAX_KEYS = 1_000
"""Outermost keys of a body. The largest API has some fifty."""


def check_body_keys(names: Sequence[str]) -> CheckedKeys:
    """Find duplicate JSON keys, odd spellings, and keys that choose a model, among the outermost keys of a body: what
    the gateway reads must be what the provider reads. `inner_keys.py` looks further where rules or limits apply."""
    if USUAL_KEYS.issuperset(names) and len(set(names)) == len(names):
        return PLAIN_KEYS
    if len(names) > MAX_KEYS:
        return CheckedKeys(f"the body has more than {MAX_KEYS:,} keys; no provider has so many", names[MAX_KEYS][:80])
    steering: list[str] = []
    spellings: dict[str, str] = {}
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return CheckedKeys(f"`{name[:80]}` is in the body twice, and servers differ in which they take", name[:80])
        seen.add(name)
        form = letters_of(name)
        known = _JUDGED_KEYS.get(form)
        if known is not None and name not in known:
            usual = min(known)
            return CheckedKeys(f"some servers take `{name[:80]}` for `{usual}`; use the usual spelling", name[:80])
        if known is not None and form in spellings:
            what = f"`{name}` and `{spellings[form]}` are the same field, and servers differ in which they take"
            return CheckedKeys(what, name)
        spellings[form] = name
        if form in _STEERING_KEYS:
            steering.append(name)
    return CheckedKeys("", "", tuple(steering)) if steering else PLAIN_KEYS


def find_steering_fields(names: Sequence[str]) -> CheckedKeys:
    """The same for the fields of a form, which may be there several times."""
    return CheckedKeys("", "", tuple(name for name in names if letters_of(name) in _STEERING_KEYS))


def letters_of(name: str) -> str:
    """A key without case, punctuation and invisible characters, as the most lenient server may read it."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name[:256]).casefold()))


def refuse_keys(keys: CheckedKeys, key: ClientKey | None, has_policy: bool) -> Failure | None:
    """Why a body must not be sent; None if it may. A key for certain models, or rules for tools, do not allow a body
    that can choose others."""
    if keys.problem:
        return Failure("invalid", keys.problem, 400, "", keys.key)
    restricted = key is not None and key.is_restricted
    for name in keys.steering if restricted or has_policy else ():
        form = letters_of(name)
        is_refused = form in _MODEL_STEERING_KEYS or (
            restricted if form in _PROVIDER_STEERING_KEYS else has_policy and form in _TOOL_STEERING_KEYS
        )
        if is_refused:
            who = f"the key `{key.name}` is limited to certain models" if restricted and key is not None else ""
            who = who or "this gateway has rules for tools ([[policy]])"
            what = f"{who}, and `{name[:80]}` could choose another model or tools; leave it out"
            return Failure("permission", what, 403, "", name[:80])
    return None


# --- the model's name ---


def replace_model(body: bytes, model: str) -> bytes:
    """The same bytes with another model."""
    name = _encode(model)
    at = body.find(_MODEL_KEY)
    if at >= 0 and body.find(_MODEL_KEY, at + 1) < 0:
        spliced = _splice_model(body, at, name)
        if _find_model(spliced) == model:
            return spliced
    elif at >= 0 and (outer := _splice_outer_model(body, model, name)):
        return outer
    # The key occurs twice, or with escapes: write the outermost keys again, each once.
    fields = _decode_fields(body)
    fields["model"] = Raw(name)
    return _encode(fields)


def _splice_model(body: bytes, at: int, name: bytes) -> bytes:
    start = at + len(_MODEL_KEY)
    while body[start : start + 1] in (b" ", b"\t", b"\r", b"\n", b":"):
        start += 1
    return body[:start] + name + body[body.find(b'"', start + 1) + 1 :]


def _splice_outer_model(body: bytes, model: str, name: bytes) -> bytes | None:
    """Where `"model"` occurs several times, such as in the parameters of a tool: replace the outermost one, if there is
    only one."""
    current = _find_model(body)
    places = [found.start() for found in _MODEL_PATTERN.finditer(body)]
    if current is None or current == model or len(places) > _MAX_PLACES:
        return None
    for at in reversed(places):
        spliced = _splice_model(body, at, name)
        if _find_model(spliced) == model:
            without = _find_model(body[:at] + b'""' + body[at + len(_MODEL_KEY) :])
            return spliced if without == "" else None
    return None


def _find_model(body: bytes) -> str | None:
    """The outermost model of a body, "" if it names none; None if it cannot be read."""
    try:
        members = _decode_fields(body)
        return _decode_text(members["model"]) if "model" in members else ""
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


# --- how much there is to read ---

MAX_VALUES = 250_000
"""JSON values in a request. The longest conversations of agents have some ten thousand; decoding more than this would
stop the event loop for too long, because Python does nothing else meanwhile."""
_OTHER_BYTES = bytes(set(range(256)) - set(b"{[,"))


def has_too_many_values(body: bytes, limit: int = MAX_VALUES) -> bool:
    """Are there more values than the limit? Mostly decided by counting bytes that begin or separate values."""
    if len(body) < 2 * limit or len(body.translate(None, _OTHER_BYTES)) <= limit:
        return False
    if body.count(b'"') - body.count(b'\\"') > 4 * limit:
        return True  # each value has at most a key and a string, with two quotes each
    # Text may contain many such bytes, for instance a table with commas: count only what is outside of strings.
    outside = b"".join(body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    return len(outside.translate(None, _OTHER_BYTES)) > limit
