"""Calls whose arguments come in pieces, each with its JSON path (the cloud platform streams them so)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
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
    source_path,
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
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, is_nonempty
from toolwire.protocols.gemini.names import (
    CALL_FRAGMENT_KEYS,
    CALL_KEYS,
    CALL_PART_KEYS,
    CODE_KEYS,
    CODE_PART_KEYS,
    CODE_RESULT_KEYS,
    CODE_RESULT_PART_KEYS,
    FILE_KEYS,
    FILE_PART_KEYS,
    INLINE_KEYS,
    INLINE_PART_KEYS,
    NAME,
    PARTIAL_ARGUMENT_KEYS,
    PROVIDER_CALL_KEYS,
    PROVIDER_CALL_PART_KEYS,
    PROVIDER_RESULT_KEYS,
    PROVIDER_RESULT_PART_KEYS,
    PROVIDER_TOOL_BY_TYPE,
    RESULT_KEYS,
    RESULT_PART_KEYS,
    TEXT_KEYS,
    KnownKeys,
    to_snake_case,
)

_PATH_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_MAX_INDEX = 100_000


class ArgumentFragments:
    """The arguments of one open call, put together from its pieces."""

    __slots__ = ("_leaves", "_whole_arguments")

    def __init__(self) -> None:
        self._whole_arguments: Object = {}
        self._leaves: dict[str, list[str] | tuple[Json]] = {}

    def add(self, call: Object, path: Path) -> None:
        """Take the pieces that one `functionCall` (in camelCase) brings."""
        args = call.get("args")
        if isinstance(args, dict):
            self._whole_arguments.update(args)
        for number, item in enumerate(expect_list(call.get("partialArgs") or [], (path, "partialArgs"))):
            here = ((path, "partialArgs"), number)
            self._add_piece(PARTIAL_ARGUMENT_KEYS(expect_object(item, here)), here)

    def _add_piece(self, piece: Object, path: Path) -> None:
        where = get_text(piece, "jsonPath", path) or "$"
        text = get_text(piece, "stringValue", path)
        if text is None:
            found = [piece[key] for key in ("numberValue", "boolValue") if piece.get(key) is not None]
            self._leaves[where] = (found[0] if found else None,)
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
        found = _PATH_STEP.match(where, at)
        if found is None:
            raise Malformed(path, f"the JSON path {where!r} cannot be read")
        name, index, single, double = found.groups()
        if index is not None:
            steps.append(min(int(index), _MAX_INDEX))
        else:
            quoted = single if single is not None else double
            steps.append(name if name is not None else re.sub(r"\\(.)", r"\1", quoted))
        at = found.end()
    return steps


def _set_at_path(root: Object, steps: list[str | int], value: Json, where: str, path: Path) -> None:
    if not steps:
        raise Malformed(path, f"the JSON path {where!r} names no argument")
    node: Json = root
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        last = following is None
        fresh: Json = value if last else [] if isinstance(following, int) else {}
        if isinstance(step, int) and isinstance(node, list):
            node.extend([None] * (step + 1 - len(node)))
        elif not (isinstance(step, str) and isinstance(node, dict)):
            raise Malformed(path, f"the JSON path {where!r} does not fit what came before it")
        held = node[step] if isinstance(step, int) else node.get(step)
        if last or held is None:
            node[step] = held = fresh
        node = held


# --- Images, documents, sound and film: inline as base64, or by address ---


MediaKind = Literal["image", "file", "audio", "video"]

_MEDIA_KINDS: Mapping[str, MediaKind] = MappingProxyType({"image": "image", "audio": "audio", "video": "video"})

_DEFAULT_MEDIA_TYPES: Mapping[str, str] = MappingProxyType(
    {"image": "image/png", "file": "application/pdf", "audio": "audio/wav", "video": "video/mp4"}
)

_MEDIA_TYPE_BY_EXTENSION: Mapping[str, str] = MappingProxyType(
    {
        "png": "image/png",
        "jpg": "image/jpeg",
        "jpeg": "image/jpeg",
        "webp": "image/webp",
        "gif": "image/gif",
        "heic": "image/heic",
        "pdf": "application/pdf",
        "txt": "text/plain",
        "mp3": "audio/mp3",
        "wav": "audio/wav",
        "mp4": "video/mp4",
        "webm": "video/webm",
    }
)

_GOOGLE_FILE_PREFIXES = ("gs://", "files/", "https://generativelanguage.googleapis.com/")
"""Addresses that only this provider can open."""

_YOUTUBE_PREFIXES = ("https://www.youtube.com/", "https://youtube.com/", "https://youtu.be/")

RESULT_MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
"""What a result may hold inside, from the third generation on."""

_URL_SAFE_TO_STANDARD = str.maketrans("-_", "+/")


def media_kind(mime: str) -> MediaKind:
    return _MEDIA_KINDS.get(mime.partition("/")[0], "file")


def to_standard_base64(data: str) -> str:
    """The wire takes both alphabets, padded or not; everybody else wants the standard one."""
    if "-" in data or "_" in data:
        data = data.translate(_URL_SAFE_TO_STANDARD)
    return data if len(data) % 4 == 0 else data + "=" * (-len(data) % 4)


def read_inline_data(inline: Object, path: Path, origin: Origin | None, seal: Seal | None = None) -> Media:
    node = INLINE_KEYS(inline)
    mime = get_text(node, "mimeType", path) or ""
    data = to_standard_base64(expect_text(node.get("data") or "", (path, "data")))
    name = get_text(node, "displayName", path) or ""
    return Media(media_kind(mime), mime, data=data, name=name, seal=seal, origin=origin)


def read_file_data(file: Object, path: Path, origin: Origin | None, seal: Seal | None = None) -> Media:
    node = FILE_KEYS(file)
    mime = get_text(node, "mimeType", path) or ""
    uri = expect_text(node.get("fileUri") or "", (path, "fileUri"))
    held = uri.startswith(_GOOGLE_FILE_PREFIXES)
    kind = "video" if not mime and uri.startswith(_YOUTUBE_PREFIXES) else media_kind(mime)
    return Media(
        kind,
        mime,
        url="" if held else uri,
        file=uri if held else "",
        name=get_text(node, "displayName", path) or "",
        seal=seal,
        origin=origin,
    )


def write_media(media: Media, ledger: Ledger, nested: bool = False) -> Object | None:
    """One data part; None when the media cannot be said here, which is noted."""
    own = media.origin is None or media.origin.protocol == NAME
    if media.detail not in ("", "auto"):
        ledger.note("no-counterpart", source_path(media), f"the detail `{media.detail}` was left out")
    if media.cache is not None:
        ledger.note("cache-dropped", source_path(media), "the cache breakpoint was left out")
    name = media.name if own or nested else ""
    if media.name and not name:
        ledger.note("no-counterpart", source_path(media), f"the file's name `{media.name}` was left out")
    mime, data, uri = media.mime, media.data, media.url
    if uri.startswith("data:"):
        head, _, data = uri[5:].partition(",")
        mime, uri = mime or head.partition(";")[0], ""
    if data:
        inline: Object = {"mimeType": mime or _default_media_type(media, ledger), "data": data}
        return {"inlineData": {**inline, "displayName": name} if name else inline}
    if media.file:
        if not own and not media.file.startswith(_GOOGLE_FILE_PREFIXES):
            ledger.note("media-dropped", source_path(media), f"the file `{media.file}` is held by another provider")
            return None
        uri = media.file
    if not uri:
        ledger.note("media-dropped", source_path(media), f"the {media.kind} has neither data nor an address")
        return None
    if not mime and not own:
        mime = _MEDIA_TYPE_BY_EXTENSION.get(uri.partition("?")[0].rpartition(".")[2].lower(), "")
    file: Object = {"mimeType": mime, "fileUri": uri} if mime else {"fileUri": uri}
    return {"fileData": {**file, "displayName": name} if name else file}


def _default_media_type(media: Media, ledger: Ledger) -> str:
    mime = _MEDIA_TYPE_BY_EXTENSION.get(media.name.rpartition(".")[2].lower()) or _DEFAULT_MEDIA_TYPES[media.kind]
    ledger.note("default-added", source_path(media), f"the media type was given as {mime}")
    return mime


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


class PartReadContext(ReadContext):
    """A pass of this room's reader: it also remembers a call that is still open."""

    protocol: str = NAME
    open_call: OpenCall | None = None

    def read_node(self, node: Object, path: Path, shape: KnownKeys) -> tuple[Object, Origin]:
        """A node in camelCase, and its origin."""
        if shape.camel_keys.issuperset(node):
            return node, Origin(NAME, path, node)
        return shape(node), self.read_origin(node, path, shape.all_keys)

    def provider_part_origin(self, node: Object, path: Path, shape: KnownKeys) -> Origin:
        """The origin of a part that has a signature, but no place for it in the internal form."""
        extra = {} if shape.all_keys.issuperset(node) else shape.select_unknown(node)
        for key, value in extra.items():
            if is_nonempty(value):
                self.note_unknown_field(path, key, "seal-dropped" if key in TEXT_KEYS.all_keys else "unknown-field")
        return Origin(NAME, path, node, extra)

    def read_inner_node(self, node: Object, path: Path, shape: KnownKeys) -> Object:
        """A node inside a part, in camelCase; its unknown keys are noted, the part's origin carries them."""
        if shape.camel_keys.issuperset(node):
            return node
        for key, value in node.items():
            if key not in shape.all_keys and is_nonempty(value):
                self.note_unknown_field(path, key)
        return shape(node)


def read_parts(items: list[Json], path: Path, reading: PartReadContext, from_model: bool = False) -> list[Part]:
    """All parts; a piece of an open call gives no part until the call is whole. Of what a model `said`, those are left
    out that only fill a place, as in the last chunk of a stream: empty and not signed."""
    parts: list[Part] = []
    for number, item in enumerate(items):
        here = (path, number)
        part: Part | None = None
        if item.__class__ is dict and len(item) == 1:
            if (text := item.get("text")).__class__ is str:
                if text or not from_model:
                    parts.append(Text(text, origin=Origin(NAME, here, item)))
                continue
            if (call := item.get("functionCall")).__class__ is dict:
                part = read_plain_call(item, call, here)
            elif (result := item.get("functionResponse")).__class__ is dict:
                part = _read_plain_result(item, result, here)
        if part is None:
            part = read_part(item, here, reading)
            if part is None or (from_model and isinstance(part, Text) and not part.text and part.seal is None):
                continue
        parts.append(part)
    return parts


def read_plain_call(node: Object, call: Object, path: Path) -> Call | None:
    """The short way for a call with a name, an object of arguments and perhaps an id; None for any other shape."""
    name, args = call.get("name"), call.get("args")
    id = call.get("id") if len(call) == 3 else ""
    if name.__class__ is not str or args.__class__ is not dict or id.__class__ is not str:
        return None
    if len(call) > 3 or len(node) > 1:
        return None
    return Call(id, name, encode(args).decode(), origin=Origin(NAME, path, node))


def _read_plain_result(node: Object, result: Object, path: Path) -> Result | None:
    """The short way for a result of one text with a name and perhaps an id; None for any other shape."""
    name, response = result.get("name"), result.get("response")
    id = result.get("id") if len(result) == 3 else ""
    if name.__class__ is not str or response.__class__ is not dict or id.__class__ is not str or len(result) > 3:
        return None
    text = response.get("output")
    if text.__class__ is not str or len(response) != 1:
        return None
    said = Text(text, origin=Origin(NAME, ((path, "functionResponse"), "response"), None, EMPTY_MAPPING, False))
    return Result(id, (said,), None, name, origin=Origin(NAME, path, node))


def read_part(item: Json, path: Path, reading: PartReadContext) -> Part | None:
    node = expect_object(item, path)
    for key in node:
        reader = _PART_READERS.get(key)
        if reader is not None and node[key] is not None:
            return reader(node, key, path, reading)
    if TEXT_KEYS.all_keys.issuperset(node):
        return _read_text(node, "text", path, reading)
    kinds = [key for key, value in node.items() if value is not None and key not in TEXT_KEYS.all_keys] or ["part"]
    return Opaque(kinds[0], reading.whole_origin(node, path))


def read_seal(node: Object, path: Path) -> Seal | None:
    """The signature beside a part's data, as it is spelled: compare two of them decoded, the alphabets are mixed."""
    value = node.get("thoughtSignature")
    if value is None:
        value = node.get("thought_signature")
        if value is None:
            return None
    return Seal(NAME, expect_text(value, (path, "thoughtSignature")))


def _read_text(node: Object, key: str, path: Path, reading: PartReadContext) -> Text | Reasoning:
    text = node.get(key)
    if not isinstance(text, str):
        text = "" if text is None else expect_text(text, (path, key))
    origin = reading.read_origin(node, path, TEXT_KEYS.all_keys)
    seal = read_seal(node, path)
    if get_bool(node, "thought", path):
        return Reasoning(text, "summary", seal=seal, origin=origin)
    return Text(text, seal=seal, origin=origin)


def read_arguments(args: Json) -> str:
    """Arguments as JSON text: "" when there are none; text, which some servers send, stays as it is."""
    if args is None:
        return ""
    return args if isinstance(args, str) else encode_text(args)


def _read_call(node: Object, key: str, path: Path, reading: PartReadContext) -> Call | None:
    here = (path, key)
    call = expect_object(node[key], here)
    if not CALL_KEYS.camel_keys.issuperset(call) or "name" not in call:
        call = reading.read_inner_node(call, here, CALL_FRAGMENT_KEYS)
        if is_call_fragment(call):
            return _read_call_fragment(node, call, here, path, reading)
    args = call.get("args")
    if args is not None and not isinstance(args, (dict, str)):
        raise_wrong_type((here, "args"), "an object", args)
    id, name = get_text(call, "id", here) or "", require_text(call, "name", here)
    origin = reading.read_origin(node, path, CALL_PART_KEYS.all_keys)
    seal = read_seal(node, path) if len(node) > 1 else None
    return Call(id, name, read_arguments(args), seal=seal, origin=origin)


def is_call_fragment(call: Object) -> bool:
    """Do the arguments of this call come in several pieces?"""
    return "partialArgs" in call or "willContinue" in call or "name" not in call


def _read_call_fragment(node: Object, call: Object, here: Path, path: Path, reading: PartReadContext) -> Call | None:
    name = get_text(call, "name", here)
    opens = name is not None
    if name is not None:
        if reading.open_call is not None:
            raise Malformed(here, f"a call begins while the arguments of `{reading.open_call.name}` are still coming")
        id = get_text(call, "id", here) or ""
        reading.open_call = OpenCall(id, name, read_seal(node, path), path, node, ArgumentFragments())
    elif reading.open_call is None:
        raise Malformed(here, "`name` is missing, and no call is open whose arguments this could continue")
    whole = reading.open_call
    assert whole is not None
    whole.pieces.add(call, here)
    if get_bool(call, "willContinue", here):
        return None
    reading.open_call = None
    return whole.make_call(reading.read_origin(node, path, CALL_PART_KEYS.all_keys) if opens else None)


_WRAPPER_KEYS = frozenset({"output", "result", "content", "error"})


def unwrap_response(response: Json, name: str) -> tuple[Json, bool | None]:
    """What a function answered, without the object that this wire demands around it, and whether it is an error."""
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
    result = reading.read_inner_node(expect_object(node[key], here), here, RESULT_KEYS)
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
        origin=reading.read_origin(node, path, RESULT_PART_KEYS.all_keys),
    )


def _read_inline(node: Object, key: str, path: Path, reading: PartReadContext) -> Media:
    inner = reading.read_inner_node(expect_object(node[key], (path, key)), (path, key), INLINE_KEYS)
    return read_inline_data(
        inner, (path, key), reading.read_origin(node, path, INLINE_PART_KEYS.all_keys), read_seal(node, path)
    )


def _read_file(node: Object, key: str, path: Path, reading: PartReadContext) -> Media:
    inner = reading.read_inner_node(expect_object(node[key], (path, key)), (path, key), FILE_KEYS)
    return read_file_data(
        inner, (path, key), reading.read_origin(node, path, FILE_PART_KEYS.all_keys), read_seal(node, path)
    )


def _read_code(node: Object, key: str, path: Path, reading: PartReadContext) -> ProviderCall:
    here = (path, key)
    code = reading.read_inner_node(expect_object(node[key], here), here, CODE_KEYS)
    arguments = {name: code[name] for name in ("language", "code") if name in code}
    origin = reading.provider_part_origin(node, path, CODE_PART_KEYS)
    return ProviderCall(get_text(code, "id", here) or "", "code_execution", encode_text(arguments), origin)


def _read_code_result(node: Object, key: str, path: Path, reading: PartReadContext) -> ProviderResult:
    here = (path, key)
    result = reading.read_inner_node(expect_object(node[key], here), here, CODE_RESULT_KEYS)
    outcome = str(result.get("outcome") or "OUTCOME_OK")
    return ProviderResult(
        get_text(result, "id", here) or "",
        "code_execution",
        text=get_text(result, "output", here) or "",
        error="" if outcome in ("OUTCOME_OK", "1") else outcome,
        origin=reading.provider_part_origin(node, path, CODE_RESULT_PART_KEYS),
    )


def _read_provider_call(node: Object, key: str, path: Path, reading: PartReadContext) -> ProviderCall | Opaque:
    here = (path, key)
    call = PROVIDER_CALL_KEYS(expect_object(node[key], here))
    tool = PROVIDER_TOOL_BY_TYPE.get(str(call.get("toolType")).upper())
    if tool is None:
        return Opaque("toolCall", reading.whole_origin(node, path))
    reading.read_inner_node(node[key], here, PROVIDER_CALL_KEYS)
    origin = reading.provider_part_origin(node, path, PROVIDER_CALL_PART_KEYS)
    return ProviderCall(get_text(call, "id", here) or "", tool, read_arguments(call.get("args")), origin)


def _read_provider_result(node: Object, key: str, path: Path, reading: PartReadContext) -> ProviderResult | Opaque:
    here = (path, key)
    result = PROVIDER_RESULT_KEYS(expect_object(node[key], here))
    tool = PROVIDER_TOOL_BY_TYPE.get(str(result.get("toolType")).upper())
    if tool is None:
        return Opaque("toolResponse", reading.whole_origin(node, path))
    reading.read_inner_node(node[key], here, PROVIDER_RESULT_KEYS)
    origin = reading.provider_part_origin(node, path, PROVIDER_RESULT_PART_KEYS)
    text = read_arguments(result.get("response"))
    return ProviderResult(get_text(result, "id", here) or "", tool, text=text, origin=origin)


_PartReader = Callable[[Object, str, Path, PartReadContext], "Part | None"]


def _with_snake_case(readers: dict[str, _PartReader]) -> dict[str, _PartReader]:
    return readers | {to_snake_case(key): reader for key, reader in readers.items()}


_PART_READERS = _with_snake_case(
    {
        "text": _read_text,
        "functionCall": _read_call,
        "functionResponse": _read_result,
        "inlineData": _read_inline,
        "fileData": _read_file,
        "executableCode": _read_code,
        "codeExecutionResult": _read_code_result,
        "toolCall": _read_provider_call,
        "toolResponse": _read_provider_result,
    }
)
