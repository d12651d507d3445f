"""Reading the parts of a content: text, thoughts, calls, results, media, and what the provider's own tools did."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from toolwire.ir import (
    NOTHING,
    Call,
    HostedCall,
    HostedResult,
    Media,
    Opaque,
    Origin,
    Part,
    Reasoning,
    Result,
    Seal,
    Text,
)
from toolwire.protocols.gemini.details.fragments import Fragments
from toolwire.protocols.gemini.details.media import read_file, read_inline
from toolwire.protocols.gemini.names import (
    CALL,
    CALL_PART,
    CODE,
    CODE_PART,
    FILE,
    FILE_PART,
    FRAGMENT,
    HOSTED_CALL,
    HOSTED_CALL_PART,
    HOSTED_RESULT,
    HOSTED_RESULT_PART,
    INLINE,
    INLINE_PART,
    NAME,
    OUTCOME,
    OUTCOME_PART,
    RESULT,
    RESULT_PART,
    TEXT,
    TOOL_TYPES,
    Shape,
    snake,
)
from toolwire.reading import Reading, says_something
from toolwire.wire import (
    Json,
    Malformed,
    Object,
    Path,
    as_object,
    as_text,
    encode,
    encode_text,
    need_text,
    take_bool,
    take_list,
    take_text,
    wrong,
)


class OpenCall(Struct):
    """A call whose arguments are still coming in pieces."""

    id: str
    name: str
    seal: Seal | None
    path: Path
    wire: Object
    pieces: Fragments

    def closed(self, origin: Origin | None = None, incomplete: bool = False) -> Call:
        origin = origin or Origin(NAME, self.path, self.wire, intact=False)
        text = self.pieces.text(self.path)
        return Call(self.id, self.name, text, seal=self.seal, incomplete=incomplete, origin=origin)


class PartReading(Reading):
    """A pass of this room's reader: it also remembers a call that is still open."""

    protocol: str = NAME
    open: OpenCall | None = None

    def spelled(self, node: Object, path: Path, shape: Shape) -> tuple[Object, Origin]:
        """A node in camelCase, and its origin."""
        if shape.keys.issuperset(node):
            return node, Origin(NAME, path, node)
        return shape(node), self.origin(node, path, shape.known)

    def hosted(self, node: Object, path: Path, shape: Shape) -> Origin:
        """The origin of a part that has a signature, but no place for it in the internal form."""
        extra = {} if shape.known.issuperset(node) else shape.unknown(node)
        for key, value in extra.items():
            if says_something(value):
                self.stray(path, key, "seal-dropped" if key in TEXT.known else "unknown-field")
        return Origin(NAME, path, node, extra)

    def inner(self, node: Object, path: Path, shape: Shape) -> Object:
        """A node inside a part, in camelCase; its unknown keys are noted, the part's origin carries them."""
        if shape.keys.issuperset(node):
            return node
        for key, value in node.items():
            if key not in shape.known and says_something(value):
                self.stray(path, key)
        return shape(node)


def read_parts(items: list[Json], path: Path, reading: PartReading, said: bool = False) -> list[Part]:
    """All parts; a piece of an open call gives no part until the call is whole. Of what a model `said`, those are left
    out that only fill a place, as in the last chunk of a stream: empty and not signed."""
    parts: list[Part] = []
    for number, item in enumerate(items):
        here = (path, number)
        part: Part | None = None
        if item.__class__ is dict and len(item) == 1:
            if (text := item.get("text")).__class__ is str:
                if text or not said:
                    parts.append(Text(text, origin=Origin(NAME, here, item)))
                continue
            if (call := item.get("functionCall")).__class__ is dict:
                part = ordinary_call(item, call, here)
            elif (result := item.get("functionResponse")).__class__ is dict:
                part = _ordinary_result(item, result, here)
        if part is None:
            part = read_part(item, here, reading)
            if part is None or (said and isinstance(part, Text) and not part.text and part.seal is None):
                continue
        parts.append(part)
    return parts


def ordinary_call(node: Object, call: Object, path: Path) -> Call | None:
    """The short way for a call with a name, an object of arguments and perhaps an id; None for any other shape."""
    name, args = call.get("name"), call.get("args")
    id = call.get("id") if len(call) == 3 else ""
    if name.__class__ is not str or args.__class__ is not dict or id.__class__ is not str:
        return None
    if len(call) > 3 or len(node) > 1:
        return None
    return Call(id, name, encode(args).decode(), origin=Origin(NAME, path, node))


def _ordinary_result(node: Object, result: Object, path: Path) -> Result | None:
    """The short way for a result of one text with a name and perhaps an id; None for any other shape."""
    name, response = result.get("name"), result.get("response")
    id = result.get("id") if len(result) == 3 else ""
    if name.__class__ is not str or response.__class__ is not dict or id.__class__ is not str or len(result) > 3:
        return None
    text = response.get("output")
    if text.__class__ is not str or len(response) != 1:
        return None
    said = Text(text, origin=Origin(NAME, ((path, "functionResponse"), "response"), None, NOTHING, False))
    return Result(id, (said,), None, name, origin=Origin(NAME, path, node))


def read_part(item: Json, path: Path, reading: PartReading) -> Part | None:
    node = as_object(item, path)
    for key in node:
        reader = _READERS.get(key)
        if reader is not None and node[key] is not None:
            return reader(node, key, path, reading)
    if TEXT.known.issuperset(node):
        return _read_text(node, "text", path, reading)
    kinds = [key for key, value in node.items() if value is not None and key not in TEXT.known] or ["part"]
    return Opaque(kinds[0], reading.whole(node, path))


def read_seal(node: Object, path: Path) -> Seal | None:
    """The signature beside a part's data, as it is spelled: compare two of them decoded, the alphabets are mixed."""
    value = node.get("thoughtSignature")
    if value is None:
        value = node.get("thought_signature")
        if value is None:
            return None
    return Seal(NAME, as_text(value, (path, "thoughtSignature")))


def _read_text(node: Object, key: str, path: Path, reading: PartReading) -> Text | Reasoning:
    text = node.get(key)
    if not isinstance(text, str):
        text = "" if text is None else as_text(text, (path, key))
    origin = reading.origin(node, path, TEXT.known)
    seal = read_seal(node, path)
    if take_bool(node, "thought", path):
        return Reasoning(text, "summary", seal=seal, origin=origin)
    return Text(text, seal=seal, origin=origin)


def read_arguments(args: Json) -> str:
    """Arguments as JSON text: "" when there are none; text, which some servers send, stays as it is."""
    if args is None:
        return ""
    return args if isinstance(args, str) else encode_text(args)


def _read_call(node: Object, key: str, path: Path, reading: PartReading) -> Call | None:
    here = (path, key)
    call = as_object(node[key], here)
    if not CALL.keys.issuperset(call) or "name" not in call:
        call = reading.inner(call, here, FRAGMENT)
        if is_piece(call):
            return _read_piece(node, call, here, path, reading)
    args = call.get("args")
    if args is not None and not isinstance(args, (dict, str)):
        wrong((here, "args"), "an object", args)
    id, name = take_text(call, "id", here) or "", need_text(call, "name", here)
    origin = reading.origin(node, path, CALL_PART.known)
    seal = read_seal(node, path) if len(node) > 1 else None
    return Call(id, name, read_arguments(args), seal=seal, origin=origin)


def is_piece(call: Object) -> bool:
    """Do the arguments of this call come in several pieces?"""
    return "partialArgs" in call or "willContinue" in call or "name" not in call


def _read_piece(node: Object, call: Object, here: Path, path: Path, reading: PartReading) -> Call | None:
    name = take_text(call, "name", here)
    opens = name is not None
    if name is not None:
        if reading.open is not None:
            raise Malformed(here, f"a call begins while the arguments of `{reading.open.name}` are still coming")
        id = take_text(call, "id", here) or ""
        reading.open = OpenCall(id, name, read_seal(node, path), path, node, Fragments())
    elif reading.open is None:
        raise Malformed(here, "`name` is missing, and no call is open whose arguments this could continue")
    whole = reading.open
    assert whole is not None
    whole.pieces.add(call, here)
    if take_bool(call, "willContinue", here):
        return None
    reading.open = None
    return whole.closed(reading.origin(node, path, CALL_PART.known) if opens else None)


_WRAPS = frozenset({"output", "result", "content", "error"})


def unwrapped(response: Json, name: str) -> tuple[Json, bool | None]:
    """What a function answered, without the object that this wire demands around it, and whether it is an error."""
    if isinstance(response, dict):
        if len(response) == 1:
            key = next(iter(response))
            if key in _WRAPS:
                return response[key], True if key == "error" else None
        elif len(response) == 2 and "content" in response and response.get("name", ...) == name:
            return response["content"], None
    return response, None


def _read_result(node: Object, key: str, path: Path, reading: PartReading) -> Result:
    here = (path, key)
    result = reading.inner(as_object(node[key], here), here, RESULT)
    name = take_text(result, "name", here) or ""
    response = result.get("response")
    value, error = unwrapped(response, name)
    content: tuple[Part, ...] = ()
    if response is not None:
        text = value if isinstance(value, str) else encode_text(value)
        content = (Text(text, (), None, None, Origin(NAME, (here, "response"), None, NOTHING, False)),)
        value = None if isinstance(value, str) else value
    nested = take_list(result, "parts", here)
    if nested is not None:
        content += tuple(read_parts(nested, (here, "parts"), reading))
    return Result(
        take_text(result, "id", here) or "",
        content,
        error,
        name,
        value=value,
        origin=reading.origin(node, path, RESULT_PART.known),
    )


def _read_inline(node: Object, key: str, path: Path, reading: PartReading) -> Media:
    inner = reading.inner(as_object(node[key], (path, key)), (path, key), INLINE)
    return read_inline(inner, (path, key), reading.origin(node, path, INLINE_PART.known), read_seal(node, path))


def _read_file(node: Object, key: str, path: Path, reading: PartReading) -> Media:
    inner = reading.inner(as_object(node[key], (path, key)), (path, key), FILE)
    return read_file(inner, (path, key), reading.origin(node, path, FILE_PART.known), read_seal(node, path))


def _read_code(node: Object, key: str, path: Path, reading: PartReading) -> HostedCall:
    here = (path, key)
    code = reading.inner(as_object(node[key], here), here, CODE)
    arguments = {name: code[name] for name in ("language", "code") if name in code}
    origin = reading.hosted(node, path, CODE_PART)
    return HostedCall(take_text(code, "id", here) or "", "code_execution", encode_text(arguments), origin)


def _read_outcome(node: Object, key: str, path: Path, reading: PartReading) -> HostedResult:
    here = (path, key)
    result = reading.inner(as_object(node[key], here), here, OUTCOME)
    outcome = str(result.get("outcome") or "OUTCOME_OK")
    return HostedResult(
        take_text(result, "id", here) or "",
        "code_execution",
        text=take_text(result, "output", here) or "",
        error="" if outcome in ("OUTCOME_OK", "1") else outcome,
        origin=reading.hosted(node, path, OUTCOME_PART),
    )


def _read_hosted_call(node: Object, key: str, path: Path, reading: PartReading) -> HostedCall | Opaque:
    here = (path, key)
    call = HOSTED_CALL(as_object(node[key], here))
    tool = TOOL_TYPES.get(str(call.get("toolType")).upper())
    if tool is None:
        return Opaque("toolCall", reading.whole(node, path))
    reading.inner(node[key], here, HOSTED_CALL)
    origin = reading.hosted(node, path, HOSTED_CALL_PART)
    return HostedCall(take_text(call, "id", here) or "", tool, read_arguments(call.get("args")), origin)


def _read_hosted_result(node: Object, key: str, path: Path, reading: PartReading) -> HostedResult | Opaque:
    here = (path, key)
    result = HOSTED_RESULT(as_object(node[key], here))
    tool = TOOL_TYPES.get(str(result.get("toolType")).upper())
    if tool is None:
        return Opaque("toolResponse", reading.whole(node, path))
    reading.inner(node[key], here, HOSTED_RESULT)
    origin = reading.hosted(node, path, HOSTED_RESULT_PART)
    text = read_arguments(result.get("response"))
    return HostedResult(take_text(result, "id", here) or "", tool, text=text, origin=origin)


_Reader = Callable[[Object, str, Path, PartReading], "Part | None"]


def _both_spellings(readers: dict[str, _Reader]) -> dict[str, _Reader]:
    return readers | {snake(key): reader for key, reader in readers.items()}


_READERS = _both_spellings(
    {
        "text": _read_text,
        "functionCall": _read_call,
        "functionResponse": _read_result,
        "inlineData": _read_inline,
        "fileData": _read_file,
        "executableCode": _read_code,
        "codeExecutionResult": _read_outcome,
        "toolCall": _read_hosted_call,
        "toolResponse": _read_hosted_result,
    }
)
