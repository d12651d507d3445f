"""What Gemini generateContent refuses with 400. Fields may be camelCase or snake_case; tools have their own file."""

from __future__ import annotations

from collections.abc import Iterator

from toolwire.conformance.dialects.gemini import is_base64
from toolwire.conformance.strict import gemini_tools
from toolwire.conformance.strict.check import Check, Json, Object, camel_key, numbered, objects, version

FIELDS = frozenset(
    "contents systemInstruction tools toolConfig safetySettings cachedContent generationConfig serviceTier"
    " labels store continuationToken model modelArmorConfig".split()
)
CONFIG = frozenset(
    "maxOutputTokens temperature topP topK candidateCount stopSequences seed presencePenalty"
    " frequencyPenalty responseLogprobs logprobs responseMimeType responseSchema responseJsonSchema"
    " _responseJsonSchema responseModalities mediaResolution speechConfig imageConfig thinkingConfig"
    " enableEnhancedCivicAnswers audioTranscriptionConfig routingConfig modelSelectionConfig audioTimestamp"
    " modelArmorConfig responseFormat".split()
)
DATA = (
    "text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult",
    "toolCall", "toolResponse",
)  # fmt: skip
BESIDE = frozenset({"thought", "thoughtSignature", "partMetadata", "mediaResolution", "videoMetadata"})


def camel(value: Json) -> Json:
    """A request with every field name in camelCase; what lies in free JSON keeps its keys."""
    if isinstance(value, list):
        return [camel(element) for element in value]
    if not isinstance(value, dict):
        return value
    out: Object = {}
    for key, inner in value.items():
        name = camel_key(key)
        out[name] = inner if name in FREE else camel(inner)
    return out


FREE = frozenset(
    {"args", "response", "parametersJsonSchema", "responseJsonSchema", "properties", "labels", "partMetadata"}
)


def is_third(model: str) -> bool:
    """Gemini 3 and later: ids, signatures, media in results, built-in tools beside functions."""
    made = version(model, "gemini")
    return made is not None and made >= (3, 0)


def fields(body: Object, model: str) -> Iterator[str]:
    for key in body.keys() - FIELDS:
        yield f'Invalid JSON payload received. Unknown name "{key}": Cannot find field.'
    if not objects(body.get("contents")):
        yield "contents: contents is not specified"
    for key in (body.get("generationConfig") or {}).keys() - CONFIG:
        yield f"Invalid JSON payload received. Unknown name \"{key}\" at 'generation_config': Cannot find field."


def config(body: Object, model: str) -> Iterator[str]:
    given: Object = body.get("generationConfig") or {}
    thinking: Object = given.get("thinkingConfig") or {}
    if "thinkingLevel" in thinking and "thinkingBudget" in thinking:
        yield "generation_config.thinking_config: set thinking_level or thinking_budget, not both"
    made = version(model, "gemini")
    if made is not None and "thinkingLevel" in thinking and made < (3, 0):
        yield "Thinking level is not supported for this model."
    if len(given.get("stopSequences") or []) > 5:
        yield "generation_config.stop_sequences: at most 5"
    schema = [key for key in ("responseSchema", "responseJsonSchema") if given.get(key) is not None]
    if len(schema) > 1:
        yield "generation_config: response_schema and response_json_schema are exclusive"
    if schema and given.get("responseMimeType") not in ("application/json", "text/x.enum"):
        yield "generation_config.response_mime_type must be application/json with a schema"
    functions = any(tool.get("functionDeclarations") for tool in objects(body.get("tools")))
    if functions and given.get("responseMimeType") == "application/json" and made is not None and made < (3, 0):
        yield "Function calling with a response mime type: 'application/json' is unsupported"
    if "responseSchema" in given:
        yield from gemini_tools.schema(given["responseSchema"], "generation_config.response_schema")


def parts(body: Object, model: str) -> Iterator[str]:
    contents = [(f"contents[{index}]", content) for index, content in numbered(body.get("contents"))]
    if isinstance(body.get("systemInstruction"), dict):
        contents.append(("system_instruction", body["systemInstruction"]))
    for at, content in contents:
        if content.get("role", "user") not in ("user", "model", "function", "system"):
            yield f"{at}.role: Please use a valid role: user, model."
        if not objects(content.get("parts")):
            yield f"{at}.parts: contents.parts must not be empty."
        for number, part in numbered(content.get("parts")):
            yield from _part(part, f"{at}.parts[{number}]")


def _part(part: Object, at: str) -> Iterator[str]:
    held = [key for key in DATA if part.get(key) is not None]
    if len(held) != 1:
        yield f"{at}.data: required oneof field 'data' must have one initialized field, has {held}"
    for key in part.keys() - BESIDE - set(DATA):
        yield f"Invalid JSON payload received. Unknown name \"{key}\" at '{at}': Cannot find field."
    if part.get("thoughtSignature") is not None and not is_base64(part["thoughtSignature"]):
        yield f"{at}.thought_signature: Base64 decoding failed"
    yield from _call(part.get("functionCall"), part.get("functionResponse"), at)
    media = part.get("inlineData")
    if isinstance(media, dict) and not (media.get("mimeType") and media.get("data") is not None):
        yield f"{at}.inline_data: mime_type and data are required"


def _call(call: Json, response: Json, at: str) -> Iterator[str]:
    if isinstance(call, dict):
        if not call.get("name") and not call.get("partialArgs") and "willContinue" not in call and call:
            yield f"{at}.function_call.name: Name cannot be empty."
        if not isinstance(call.get("args", {}), (dict, type(None))):
            yield f"{at}.function_call.args: Proto field is not repeating, cannot start list."
    if isinstance(response, dict):
        if not response.get("name"):
            yield f"{at}.function_response.name: Name cannot be empty."
        if not isinstance(response.get("response"), dict):
            yield f"{at}.function_response.response: must be an object"


# --- turns ----------------------------------------------------------------------------------------------------------


def _held(content: Object, key: str) -> list[Object]:
    return [part[key] for part in objects(content.get("parts")) if isinstance(part.get(key), dict)]


def _steps(body: Object) -> Iterator[tuple[int, str, Object]]:
    """Contents with their role; neighbours of one role count as one, as the service takes them."""
    last: tuple[int, str, Object] | None = None
    for index, content in numbered(body.get("contents")):
        role = "model" if content.get("role") == "model" else "user"
        if last is not None and role == last[1]:
            last = (
                last[0],
                role,
                {**last[2], "parts": [*objects(last[2].get("parts")), *objects(content.get("parts"))]},
            )
            continue
        if last is not None:
            yield last
        last = (index, role, content)
    if last is not None:
        yield last


def turns(body: Object, model: str) -> Iterator[str]:
    """Calls follow a user's turn, and all their responses stand together right after them."""
    calls: list[Object] = []
    first = True
    for index, role, content in _steps(body):
        responses = _held(content, "functionResponse")
        if role == "user":
            yield from _responses(index, calls, responses)
            calls = []
        else:
            calls = [call for call in _held(content, "functionCall") if call.get("name")]
            if calls and first:
                yield FIRST
        first = False
    if calls:
        yield f"the conversation ends in {len(calls)} function calls without responses"


FIRST = "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the"
    " function call turn."
)


def _responses(index: int, calls: list[Object], responses: list[Object]) -> Iterator[str]:
    if len(calls) != len(responses):
        yield f"contents[{index}]: {COUNT} ({len(calls)} calls, {len(responses)} responses)"
        return
    if sorted(call.get("name", "") for call in calls) != sorted(response.get("name", "") for response in responses):
        yield f"contents[{index}]: function responses have other names than the calls"
    ids = sorted(call.get("id") or "" for call in calls)
    if ids != sorted(response.get("id") or "" for response in responses):
        yield f"contents[{index}]: functionResponse.id does not match functionCall.id"
    elif len(set(ids)) < len(ids) and any(ids):
        yield f"contents[{index}]: function call ids are not unique"


def signatures(body: Object, model: str) -> Iterator[str]:
    """In the current turn, the first call of each step is signed; earlier turns are not looked at."""
    if not is_third(model):
        return
    steps = list(_steps(body))
    begins = [at for at, (_, role, content) in enumerate(steps) if role == "user" and _begins(content)]
    for index, role, content in steps[max(begins, default=0) :]:
        first = next(
            (part for part in objects(content.get("parts")) if isinstance(part.get("functionCall"), dict)), None
        )
        if role == "model" and first is not None and not first.get("thoughtSignature"):
            name = first["functionCall"].get("name")
            yield f"Function call `{name}` in the `{index + 1}.` content block is missing a `thought_signature`"


def _begins(content: Object) -> bool:
    """A user's turn with text of its own begins a new turn; media beside responses belong to them."""
    return not _held(content, "functionResponse") or any(part.get("text") for part in objects(content.get("parts")))


def response_media(body: Object, model: str) -> Iterator[str]:
    for index, content in numbered(body.get("contents")):
        for response in _held(content, "functionResponse"):
            if response.get("parts") and version(model, "gemini") is not None and not is_third(model):
                yield f"contents[{index}]: function_response.parts is not supported for this model"


CHECKS: tuple[Check, ...] = (fields, config, parts, turns, signatures, response_media, *gemini_tools.CHECKS)
