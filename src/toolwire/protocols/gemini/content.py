"""Reading the parts of a content: text, thoughts, function calls and responses, media and provider tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

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
    get_list,
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


class ArgumentFragments:
    """The arguments of a call that come in pieces, each with its JSON path (Vertex AI streams them like this)."""

    __slots__ = ("_leaves", "_whole_arguments")

    def __init__(self) -> None:
        self._whole_arguments: Object = {}
        self._leaves: dict[str, list[str] | tuple[Json]] = {}

    def add(self, call: Object, path: Path) -> None:
        """Add the pieces of one `functionCall` (in camelCase)."""
        args = call.get("args")
        if isinstance(args, dict):
            self._whole_arguments.update(args)
        for number, item in enumerate(expect_list(call.get("partialArgs") or [], (path, "partialArgs"))):
            here = ((path, "partialArgs"), number)
            self._add_piece(names.PARTIAL_ARGUMENT_KEYS(expect_object(item, here)), here)

    def _add_piece(self, piece: Object, path: Path) -> None:
        where = get_text(piece, "jsonPath", path) or "$"
        text = get_text(piece, "stringValue", path)
        if text is None:
            values = [piece[key] for key in ("numberValue", "boolValue") if piece.get(key) is not None]
            self._leaves[where] = (values[0] if values else None,)
            return
        leaf = self._leaves.get(where)
        if isinstance(leaf, list):
            leaf.append(text)
        else:
            self._leaves[where] = [text]

    @property
    def is_empty(self) -> bool:
        return not self._whole_arguments and not self._leaves

    def json_text(self, path: Path) -> str:
        """The arguments so far as JSON text."""
        if self.is_empty:
            return ""
        root: Object = decode(encode_text(self._whole_arguments)) if self._whole_arguments else {}
        for where, leaf in self._leaves.items():
            steps = _parse_json_path(where, path)
            _set_at_path(root, steps, "".join(leaf) if isinstance(leaf, list) else leaf[0], where, path)
        return encode_text(root)


def _parse_json_path(where: str, path: Path) -> list[str | int]:
    steps: list[str | int] = []
    at = 1 if where.startswith("$") else 0
    if at == 0:
        where = f".{where}"
    while at < len(where):
        match = _PATH_STEP.match(where, at)
        if match is None:
            raise Malformed(path, f"the JSON path {where!r} cannot be read")
        name, index, single, double = match.groups()
        if index is not None:
            steps.append(min(int(index), _MAX_INDEX))
        else:
            quoted = single if single is not None else double
            steps.append(name if name is not None else re.sub(r"\\(.)", r"\1", quoted))
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


class OpenCall(Struct):
    """A call whose arguments are still coming in pieces."""

    id: str
    name: str
    seal: Seal | None
    path: Path
    wire: Object
    pieces: ArgumentFragments

    def make_call(self, origin: Origin | None = None, incomplete: bool = False) -> Call:
        origin = origin or Origin(NAME, self.path, self.wire, intact=False)
        text = self.pieces.json_text(self.path)
        return Call(self.id, self.name, text, seal=self.seal, incomplete=incomplete, origin=origin)


# --- media ----------------------------------------------------------------------------------------------------------

MediaKind = Literal["image", "file", "audio", "video"]

_MEDIA_KINDS: Mapping[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}

GOOGLE_FILE_PREFIXES = ("gs://", "files/", "https://generativelanguage.googleapis.com/")
"""Files that only Google can open."""

_YOUTUBE_PREFIXES = ("https://www.youtube.com/", "https://youtube.com/", "https://youtu.be/")

_URL_SAFE_TO_STANDARD = str.maketrans("-_", "+/")


def media_kind(mime: str) -> MediaKind:
    return _MEDIA_KINDS.get(mime.partition("/")[0], "file")


def to_standard_base64(data: str) -> str:
    """Google accepts both alphabets, padded or not; other providers want the standard one."""
    if "-" in data or "_" in data:
        data = data.translate(_URL_SAFE_TO_STANDARD)
    return data if len(data) % 4 == 0 else data + "=" * (-len(data) % 4)


def read_inline_data(node: Object, path: Path, origin: Origin | None, seal: Seal | None) -> Media:
    mime = get_text(node, "mimeType", path) or ""
    data = to_standard_base64(expect_text(node.get("data") or "", (path, "data")))
    name = get_text(node, "displayName", path) or ""
    return Media(media_kind(mime), mime, data=data, name=name, seal=seal, origin=origin)


def read_file_data(node: Object, path: Path, origin: Origin | None, seal: Seal | None) -> Media:
    mime = get_text(node, "mimeType", path) or ""
    uri = expect_text(node.get("fileUri") or "", (path, "fileUri"))
    at_google = uri.startswith(GOOGLE_FILE_PREFIXES)
    kind = "video" if not mime and uri.startswith(_YOUTUBE_PREFIXES) else media_kind(mime)
    return Media(
        kind,
        mime,
        url="" if at_google else uri,
        file_id=uri if at_google else "",
        name=get_text(node, "displayName", path) or "",
        seal=seal,
        origin=origin,
    )


class PartReadContext(ReadContext):
    """The context of a reader, with the call whose arguments are still coming."""

    protocol: str = NAME
    open_call: OpenCall | None = None

    def read_node(self, node: Object, path: Path, shape: KnownKeys) -> tuple[Object, Origin]:
        """A node in camelCase, and its origin."""
        if shape.camel_keys.issuperset(node):
            return node, Origin(NAME, path, node)
        return shape(node), self.read_origin(node, path, shape.all_keys)

    def provider_part_origin(self, node: Object, path: Path, shape: KnownKeys) -> Origin:
        """The origin of a part of a provider tool; the internal form has no field for its signature."""
        extra = {} if shape.all_keys.issuperset(node) else shape.select_unknown(node)
        for key, value in extra.items():
            if is_nonempty(value):
                self.note_unknown_field(
                    path, key, "seal-dropped" if key in names.TEXT_KEYS.all_keys else "unknown-field"
                )
        return Origin(NAME, path, node, extra)

    def read_inner_node(self, node: Object, path: Path, shape: KnownKeys) -> Object:
        """A node inside a part, in camelCase. Its unknown keys are noted; the part's origin keeps them."""
        if shape.camel_keys.issuperset(node):
            return node
        for key, value in node.items():
            if key not in shape.all_keys and is_nonempty(value):
                self.note_unknown_field(path, key)
        return shape(node)


def read_parts(items: list[Json], path: Path, reading: PartReadContext, from_model: bool = False) -> list[Part]:
    """All parts. A piece of an open call gives none until the call is whole, and an empty text of the model without a
    signature (the last chunk of a stream has one) gives none either."""
    parts: list[Part] = []
    for number, item in enumerate(items):
        part = read_part(item, (path, number), reading)
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
    node = expect_object(item, path)
    for key in node:
        reader = _PART_READERS.get(key)
        if reader is not None and node[key] is not None:
            return reader(node, key, path, reading)
    if names.TEXT_KEYS.all_keys.issuperset(node):
        return _read_text(node, "text", path, reading)
    kinds = [key for key, value in node.items() if value is not None and key not in names.TEXT_KEYS.all_keys] or [
        "part"
    ]
    return Opaque(kinds[0], reading.whole_origin(node, path))


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
    call = expect_object(node[key], here)
    if (plain_call := read_plain_call(node, call, path)) is not None:
        return plain_call
    if not names.CALL_KEYS.camel_keys.issuperset(call) or "name" not in call:
        call = reading.read_inner_node(call, here, names.CALL_FRAGMENT_KEYS)
        if is_call_fragment(call):
            return _read_call_fragment(node, call, here, path, reading)
    args = call.get("args")
    if args is not None and not isinstance(args, (dict, str)):
        raise_wrong_type((here, "args"), "an object", args)
    id, name = get_text(call, "id", here) or "", require_text(call, "name", here)
    origin = reading.read_origin(node, path, names.CALL_PART_KEYS.all_keys)
    seal = read_seal(node, path) if len(node) > 1 else None
    return Call(id, name, read_arguments(args), seal=seal, origin=origin)


def is_call_fragment(call: Object) -> bool:
    """Do the arguments of this call come in pieces?"""
    return "partialArgs" in call or "willContinue" in call or "name" not in call


def _read_call_fragment(node: Object, call: Object, here: Path, path: Path, reading: PartReadContext) -> Call | None:
    name = get_text(call, "name", here)
    opens = name is not None
    if name is not None:
        if reading.open_call is not None:
            raise Malformed(here, f"a call starts before the arguments of `{reading.open_call.name}` are complete")
        id = get_text(call, "id", here) or ""
        reading.open_call = OpenCall(id, name, read_seal(node, path), path, node, ArgumentFragments())
    elif reading.open_call is None:
        raise Malformed(here, "`name` is missing, and there is no open call that these arguments could belong to")
    open_call = reading.open_call
    assert open_call is not None
    open_call.pieces.add(call, here)
    if get_bool(call, "willContinue", here):
        return None
    reading.open_call = None
    return open_call.make_call(reading.read_origin(node, path, names.CALL_PART_KEYS.all_keys) if opens else None)


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
    result = reading.read_inner_node(expect_object(node[key], here), here, names.RESULT_KEYS)
    name = get_text(result, "name", here) or ""
    response = result.get("response")
    value, error = unwrap_response(response, name)
    content: tuple[Part, ...] = ()
    if response is not None:
        text = value if isinstance(value, str) else encode_text(value)
        content = (Text(text, (), None, None, Origin(NAME, (here, "response"), None, EMPTY_MAPPING, False)),)
        value = None if isinstance(value, str) else value
    nested = get_list(result, "parts", here)
    if nested is not None:
        content += tuple(read_parts(nested, (here, "parts"), reading))
    return Result(
        get_text(result, "id", here) or "",
        content,
        error,
        name,
        value=value,
        origin=reading.read_origin(node, path, names.RESULT_PART_KEYS.all_keys),
    )


def _read_media(node: Object, key: str, path: Path, reading: PartReadContext) -> Media:
    here = (path, key)
    is_inline = key.startswith("inline")
    inner = reading.read_inner_node(
        expect_object(node[key], here), here, names.INLINE_KEYS if is_inline else names.FILE_KEYS
    )
    origin = reading.read_origin(node, path, (names.INLINE_PART_KEYS if is_inline else names.FILE_PART_KEYS).all_keys)
    return (read_inline_data if is_inline else read_file_data)(inner, here, origin, read_seal(node, path))


def _read_code(node: Object, key: str, path: Path, reading: PartReadContext) -> ProviderCall:
    here = (path, key)
    code = reading.read_inner_node(expect_object(node[key], here), here, names.CODE_KEYS)
    arguments = {name: code[name] for name in ("language", "code") if name in code}
    origin = reading.provider_part_origin(node, path, names.CODE_PART_KEYS)
    return ProviderCall(get_text(code, "id", here) or "", "code_execution", encode_text(arguments), origin)


def _read_code_result(node: Object, key: str, path: Path, reading: PartReadContext) -> ProviderResult:
    here = (path, key)
    result = reading.read_inner_node(expect_object(node[key], here), here, names.CODE_RESULT_KEYS)
    outcome = str(result.get("outcome") or "OUTCOME_OK")
    return ProviderResult(
        get_text(result, "id", here) or "",
        "code_execution",
        text=get_text(result, "output", here) or "",
        error="" if outcome in ("OUTCOME_OK", "1") else outcome,
        origin=reading.provider_part_origin(node, path, names.CODE_RESULT_PART_KEYS),
    )


def _read_provider_part(node: Object, key: str, path: Path, reading: PartReadContext) -> Part:
    """A `toolCall` or `toolResponse`; of an unknown tool it is carried whole."""
    here = (path, key)
    is_call = key in names.PROVIDER_CALL_PART_KEYS.all_keys
    shape = names.PROVIDER_CALL_KEYS if is_call else names.PROVIDER_RESULT_KEYS
    inner = shape(expect_object(node[key], here))
    tool = names.PROVIDER_TOOL_BY_TYPE.get(str(inner.get("toolType")).upper())
    if tool is None:
        return Opaque("toolCall" if is_call else "toolResponse", reading.whole_origin(node, path))
    reading.read_inner_node(node[key], here, shape)
    id = get_text(inner, "id", here) or ""
    if is_call:
        origin = reading.provider_part_origin(node, path, names.PROVIDER_CALL_PART_KEYS)
        return ProviderCall(id, tool, read_arguments(inner.get("args")), origin)
    origin = reading.provider_part_origin(node, path, names.PROVIDER_RESULT_PART_KEYS)
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
