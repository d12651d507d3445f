"""Reading the parts of a content: text, thoughts, function calls and responses, media and provider tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from toolwire.core.ids import hex_digest
from toolwire.core.ir import (
    EMPTY_MAPPING,
    Call,
    Media,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Result,
    Seal,
    Text,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    decode,
    encode,
    encode_text,
    expect_list,
    expect_object,
    expect_text,
    get_bool,
    get_text,
    raise_wrong_type,
    require_text,
)
from toolwire.core.provenance import ReadContext, is_nonempty
from toolwire.protocols.gemini import names
from toolwire.protocols.gemini.names import NAME, KnownKeys, to_snake_case

# --- call arguments in pieces ---------------------------------------------------------------------------------------

_PATH_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_MAX_INDEX = 100_000


class OpenCall(Struct):
    """A call whose arguments come in pieces, each with its JSON path (Vertex AI streams them like this)."""

    id: str
    name: str
    seal: Seal | None
    path: Path
    wire: Object
    whole_arguments: Object = {}
    leaves: dict[str, list[str] | tuple[Json]] = {}
    """Values by their JSON path: the pieces of a text, or one other value."""
    index: int = 0
    """The index of the part in a stream."""

    def add(self, call: Object, path: Path) -> None:
        """Add the pieces of one `functionCall` (in camelCase)."""
        args = call.get("args")
        if isinstance(args, dict):
            self.whole_arguments.update(args)
        here = (path, "partialArgs")
        for number, item in enumerate(expect_list(call.get("partialArgs") or [], here)):
            at = (here, number)
            piece = names.PARTIAL_ARGUMENT_KEYS(expect_object(item, at))
            where = get_text(piece, "jsonPath", at) or "$"
            text = get_text(piece, "stringValue", at)
            leaf = self.leaves.get(where)
            if text is None:
                values = (piece[key] for key in ("numberValue", "boolValue") if piece.get(key) is not None)
                self.leaves[where] = (next(values, None),)
            elif isinstance(leaf, list):
                leaf.append(text)
            else:
                self.leaves[where] = [text]

    def json_text(self) -> str:
        """The arguments so far."""
        if not self.whole_arguments and not self.leaves:
            return ""
        root: Object = decode(encode(self.whole_arguments))
        for where, leaf in self.leaves.items():
            steps = _parse_json_path(where, self.path)
            _set_at_path(root, steps, "".join(leaf) if isinstance(leaf, list) else leaf[0], where, self.path)
        return encode_text(root)

    def make_call(self, origin: Origin | None = None, incomplete: bool = False) -> Call:
        origin = origin or Origin(NAME, self.path, self.wire, intact=False)
        return Call(self.id, self.name, self.json_text(), seal=self.seal, incomplete=incomplete, origin=origin)


def _parse_json_path(where: str, path: Path) -> list[str | int]:
    steps: list[str | int] = []
    at = 1 if where.startswith("$") else 0
    where = where if at else f".{where}"
    while at < len(where):
        match = _PATH_STEP.match(where, at)
        if match is None:
            raise Malformed(path, f"the JSON path {where!r} cannot be read")
        name, index, single, double = match.groups()
        if index is not None:
            steps.append(min(int(index), _MAX_INDEX))
        else:
            steps.append(name or re.sub(r"\\(.)", r"\1", single if single is not None else double))
        at = match.end()
    return steps


def _set_at_path(root: Object, steps: list[str | int], value: Json, where: str, path: Path) -> None:
    if not steps:
        raise Malformed(path, f"the JSON path {where!r} names no argument")
    node: Json = root
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        last = following is None
        new: Json = value if last else [] if isinstance(following, int) else {}
        if isinstance(step, int) and isinstance(node, list):
            node.extend([None] * (step + 1 - len(node)))
        elif not (isinstance(step, str) and isinstance(node, dict)):
            raise Malformed(path, f"the JSON path {where!r} does not fit the arguments before it")
        child = node[step] if isinstance(step, int) else node.get(step)
        if last or child is None:
            node[step] = child = new
        node = child


# --- media ----------------------------------------------------------------------------------------------------------

MediaKind = Literal["image", "file", "audio", "video"]
_MEDIA_KINDS: Mapping[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}

GOOGLE_FILE_PREFIXES = ("gs://", "files/", "https://generativelanguage.googleapis.com/")
"""Files that only Google can open."""
_YOUTUBE_PREFIXES = ("https://www.youtube.com/", "https://youtube.com/", "https://youtu.be/")
_URL_SAFE_TO_STANDARD = str.maketrans("-_", "+/")


class PartReadContext(ReadContext):
    """The context of a reader, with the call whose arguments are still coming."""

    protocol: str = NAME
    open_call: OpenCall | None = None
    code_count: int = 0
    code_id: str = ""
    """The id of the last executed code, which its result needs."""

    def read_node(self, item: Json, path: Path, shape: KnownKeys) -> tuple[Object, Origin]:
        """An object in camelCase, and its origin."""
        node = item if type(item) is dict else expect_object(item, path)
        if shape.camel_keys.issuperset(node):
            return node, Origin(NAME, path, node)
        return shape(node), self.read_origin(node, path, shape.all_keys)

    def provider_part_origin(self, node: Object, kind: str, path: Path) -> Origin:
        """The origin of a part of a provider tool; the internal form has no field for its signature."""
        extra = names.PART_KEYS[kind].select_unknown(node)
        for key in filter(lambda key: is_nonempty(extra[key]), extra):
            code = "seal-dropped" if key in names.TEXT_KEYS.all_keys else "unknown-field"
            self.note_unknown_field(path, key, code)
        return Origin(NAME, path, node, extra)

    def read_inner_node(self, item: Json, path: Path, shape: KnownKeys) -> Object:
        """An object inside a part, in camelCase. Its unknown keys are noted; the part's origin keeps them."""
        return self.read_node(item, path, shape)[0]


def items_or_single(value: Json, path: Path) -> list[tuple[Json, Path]]:
    """The items of a list with their paths. Google also takes a single value where it allows a list."""
    if value.__class__ in (dict, str):
        return [(value, path)]
    return [] if value is None else [(item, (path, number)) for number, item in enumerate(expect_list(value, path))]


def read_parts(value: Json, path: Path, reading: PartReadContext, from_model: bool = False) -> list[Part]:
    """All parts. A piece of an open call gives none until the call is whole, and an empty text of the model without a
    signature (the last chunk of a stream has one) gives none either."""
    parts: list[Part] = []
    for item, at in items_or_single(value, path):
        part = read_part(item, at, reading)
        if part is None or (from_model and part.__class__ is Text and not part.text and part.seal is None):
            continue
        parts.append(part)
    return parts


def read_plain_call(node: Object, call: Object, path: Path) -> Call | None:
    """A call with a name, an object of arguments and perhaps an id, and nothing else; None for any other."""
    name, args = call.get("name"), call.get("args")
    id = call.get("id") if len(call) == 3 else ""
    if name.__class__ is not str or args.__class__ is not dict or id.__class__ is not str:
        return None
    if len(call) > 3 or len(node) > 1 or "functionCall" not in node:
        return None
    return Call(id, name, encode(args).decode(), origin=Origin(NAME, path, node))


def read_part(item: Json, path: Path, reading: PartReadContext) -> Part | None:
    node = item if type(item) is dict else expect_object(item, path)
    for key in node:
        reader = _PART_READERS.get(key)
        if reader is not None and node[key] is not None:
            return reader(node, key, path, reading)
    if names.TEXT_KEYS.all_keys.issuperset(node):
        return _read_text(node, "text", path, reading)
    kinds = (key for key, value in node.items() if value is not None and key not in names.TEXT_KEYS.all_keys)
    return Opaque(next(kinds, "part"), reading.whole_origin(node, path))


def read_seal(node: Object, path: Path) -> Seal | None:
    """The `thoughtSignature` of a part, as it came. Google's SDKs may change its base64 alphabet: compare decoded."""
    value = node.get("thoughtSignature")
    if value is None:
        value = node.get("thought_signature")
    return None if value is None else Seal(NAME, expect_text(value, (path, "thoughtSignature")))


def _read_text(node: Object, key: str, path: Path, reading: PartReadContext) -> Text | Reasoning:
    text = node.get(key)
    if len(node) == 1 and text.__class__ is str:
        return Text(text, origin=Origin(NAME, path, node))
    text = "" if text is None else expect_text(text, (path, key))
    origin = reading.read_origin(node, path, names.TEXT_KEYS.all_keys)
    seal = read_seal(node, path)
    if get_bool(node, "thought", path):
        return Reasoning(text, "summary", seal=seal, origin=origin)
    return Text(text, seal=seal, origin=origin)


def read_arguments(args: Json) -> str:
    """Arguments as JSON text, "" for none. Some servers send text already."""
    if args is None:
        return ""
    return args if isinstance(args, str) else encode_text(args)


def _read_call(node: Object, key: str, path: Path, reading: PartReadContext) -> Call | None:
    here = (path, key)
    call = node[key] if type(node[key]) is dict else expect_object(node[key], here)
    if (plain_call := read_plain_call(node, call, path)) is not None:
        return plain_call
    if not names.CALL_KEYS.camel_keys.issuperset(call) or "name" not in call:
        call = reading.read_inner_node(call, here, names.INNER_KEYS["functionCall"])
        if is_call_fragment(call):
            return _read_call_fragment(node, call, here, path, reading)
    args = call.get("args")
    if args is not None and not isinstance(args, (dict, str)):
        raise_wrong_type((here, "args"), "an object", args)
    id, name = get_text(call, "id", here) or "", require_text(call, "name", here)
    origin = reading.read_origin(node, path, names.PART_KEYS["functionCall"].all_keys)
    seal = read_seal(node, path) if len(node) > 1 else None
    return Call(id, name, read_arguments(args), seal=seal, origin=origin)


def is_call_fragment(call: Object) -> bool:
    """Do the arguments of this call come in pieces?"""
    return "partialArgs" in call or "willContinue" in call or "name" not in call


def _read_call_fragment(node: Object, call: Object, here: Path, path: Path, reading: PartReadContext) -> Call | None:
    name = get_text(call, "name", here)
    open_call, reading.open_call = reading.open_call, None
    if name is not None:
        if open_call is not None:
            raise Malformed(here, f"a call starts before the arguments of `{open_call.name}` are complete")
        open_call = OpenCall(get_text(call, "id", here) or "", name, read_seal(node, path), path, node)
    elif open_call is None:
        raise Malformed(here, "`name` is missing, and there is no open call that these arguments could belong to")
    open_call.add(call, here)
    if get_bool(call, "willContinue", here):
        reading.open_call = open_call
        return None
    return open_call.make_call(
        None if name is None else reading.read_origin(node, path, names.PART_KEYS["functionCall"].all_keys)
    )


_WRAPPER_KEYS = frozenset({"output", "result", "content", "error"})


def unwrap_response(response: Json, name: str) -> tuple[Json, bool | None]:
    """The result of a function without the object that Gemini requires around it, and whether it is an error."""
    if isinstance(response, dict):
        if len(response) == 1:
            key = next(iter(response))
            if key in _WRAPPER_KEYS:
                return response[key], True if key == "error" else None
        elif len(response) == 2 and "content" in response and response.get("name", ...) == name:
            return response["content"], None
    return response, None


def _read_result(node: Object, key: str, path: Path, reading: PartReadContext) -> Result:
    here = (path, key)
    result = reading.read_inner_node(node[key], here, names.INNER_KEYS["functionResponse"])
    name = get_text(result, "name", here) or ""
    response = result.get("response")
    value, error = unwrap_response(response, name)
    content: tuple[Part, ...] = ()
    if response is not None:
        text = value if isinstance(value, str) else encode_text(value)
        content = (Text(text, (), None, None, Origin(NAME, (here, "response"), None, EMPTY_MAPPING, False)),)
        value = None if isinstance(value, str) else value
    if nested := result.get("parts"):
        content += tuple(read_parts(nested, (here, "parts"), reading))
    id = get_text(result, "id", here) or ""
    origin = reading.read_origin(node, path, names.PART_KEYS["functionResponse"].all_keys)
    return Result(id, content, error, name, value=value, origin=origin)


def _read_media(node: Object, key: str, path: Path, reading: PartReadContext) -> Media:
    here = (path, key)
    is_inline = key.startswith("inline")
    part_type = "inlineData" if is_inline else "fileData"
    inner = reading.read_inner_node(node[key], here, names.INNER_KEYS[part_type])
    origin, seal = reading.read_origin(node, path, names.PART_KEYS[part_type].all_keys), read_seal(node, path)
    mime = get_text(inner, "mimeType", here) or ""
    kind: MediaKind = _MEDIA_KINDS.get(mime.partition("/")[0], "file")
    field = "data" if is_inline else "fileUri"
    value = expect_text(inner.get(field) or "", (here, field))
    name = get_text(inner, "displayName", here) or ""
    if is_inline:
        # Google accepts both alphabets of base64, padded or not; other providers want the standard one.
        data = value.translate(_URL_SAFE_TO_STANDARD) if "-" in value or "_" in value else value
        return Media(kind, mime, data=data + "=" * (-len(data) % 4), name=name, seal=seal, origin=origin)
    if not mime and value.startswith(_YOUTUBE_PREFIXES):
        kind = "video"
    if value.startswith(GOOGLE_FILE_PREFIXES):
        return Media(kind, mime, file_id=value, name=name, seal=seal, origin=origin)
    return Media(kind, mime, url=value, name=name, seal=seal, origin=origin)


def _read_code(node: Object, key: str, path: Path, reading: PartReadContext) -> ProviderCall:
    here = (path, key)
    code = reading.read_inner_node(node[key], here, names.INNER_KEYS["executableCode"])
    arguments = {name: code[name] for name in ("language", "code") if name in code}
    origin = reading.provider_part_origin(node, "executableCode", path)
    reading.code_count += 1
    made = f"{names.CODE_ID_PREFIX}{hex_digest(f'{reading.code_count} {arguments}', 16)}"
    reading.code_id = get_text(code, "id", here) or made
    return ProviderCall(reading.code_id, "code_execution", encode_text(arguments), origin)


def _read_code_result(node: Object, key: str, path: Path, reading: PartReadContext) -> ProviderResult:
    here = (path, key)
    result = reading.read_inner_node(node[key], here, names.INNER_KEYS["codeExecutionResult"])
    outcome = str(result.get("outcome") or "OUTCOME_OK")
    error = "" if outcome in ("OUTCOME_OK", "1") else outcome
    id, text = get_text(result, "id", here) or reading.code_id, get_text(result, "output", here) or ""
    origin = reading.provider_part_origin(node, "codeExecutionResult", path)
    return ProviderResult(id, "code_execution", text=text, error=error, origin=origin)


def _read_provider_part(node: Object, key: str, path: Path, reading: PartReadContext) -> Part:
    """A `toolCall` or `toolResponse`; of an unknown tool it is carried whole."""
    here = (path, key)
    kind = "toolCall" if key in names.PART_KEYS["toolCall"].all_keys else "toolResponse"
    shape = names.INNER_KEYS[kind]
    inner = shape(expect_object(node[key], here))
    tool = names.PROVIDER_TOOL_BY_TYPE.get(str(inner.get("toolType")).upper())
    if tool is None:
        return Opaque(kind, reading.whole_origin(node, path))
    reading.read_inner_node(node[key], here, shape)
    id = get_text(inner, "id", here) or ""
    origin = reading.provider_part_origin(node, kind, path)
    if kind == "toolCall":
        return ProviderCall(id, tool, read_arguments(inner.get("args")), origin)
    return ProviderResult(id, tool, text=read_arguments(inner.get("response")), origin=origin)


_PartReader = Callable[[Object, str, Path, PartReadContext], "Part | None"]
_CAMEL_PART_READERS: dict[str, _PartReader] = {
    "text": _read_text,
    "functionCall": _read_call,
    "functionResponse": _read_result,
    "inlineData": _read_media,
    "fileData": _read_media,
    "executableCode": _read_code,
    "codeExecutionResult": _read_code_result,
    "toolCall": _read_provider_part,
    "toolResponse": _read_provider_part,
}
_PART_READERS = _CAMEL_PART_READERS | {to_snake_case(key): reader for key, reader in _CAMEL_PART_READERS.items()}
