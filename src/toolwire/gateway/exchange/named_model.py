"""The model that a forwarded request names: in its body, in a multipart form, or in its path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Literal

from msgspec import Struct, field

from toolwire.core.codec import Codec
from toolwire.core.ir import Failure
from toolwire.core.json_values import Malformed, Object, encode
from toolwire.core.request_members import letters_of
from toolwire.gateway.exchange.client_body import (
    NO_BODY,
    ClientBody,
    find_unknown_names,
    read_client_body,
    read_modelless_object,
)
from toolwire.gateway.exchange.gateway_request import PassthroughMatch

UPLOAD_PREFIX = "/upload/"
"""Paths below it take the bytes of a file, also if these are JSON."""
JSON_TYPE = "application/json"
"""Sent with every JSON body: another charset would make other keys of the same bytes."""


class NamedModel(Struct, frozen=True, kw_only=True):
    name: str = ""
    place: Literal["", "body", "form", "path"] = ""
    body: ClientBody = field(default_factory=lambda: NO_BODY)
    content_type: str = JSON_TYPE
    value_span: tuple[int, int] = (0, 0)
    """Where a form has the name."""

    def rewrite_body(self, model: str) -> bytes:
        if not self.name or self.name == model:
            return self.body.write()
        if self.place == "body":
            return self.body.write(model)
        if self.place == "form":
            start, end = self.value_span
            return self.body.data[:start] + model.encode() + self.body.data[end:]
        return _rename_in_body(self.body, model)


def read_named_model(codec: Codec, match: PassthroughMatch, content_type: str, data: bytes) -> NamedModel | Failure:
    """The model that a request names, "" if it names none. A failure if that is not certain."""
    place = match.endpoint.model_place
    kind = content_type.partition(";")[0].strip().lower()
    if not place:
        return _read_without_model(codec, match, kind, content_type, data)
    if place == "form" and kind == "multipart/form-data":
        return _read_form(codec, content_type, data)
    body = read_client_body(codec, data, is_forwarded=True)
    if isinstance(body, Failure):
        return body
    if body.names.problem:
        return Failure("invalid", body.names.problem, 400, "", body.names.name)
    if place != "path":
        return NamedModel(name=body.peek.model, place="body", body=body)
    models = _models_in_body(body)
    read_model = codec.request_members.read_model
    different = next((name for name in models if read_model(name) != match.model), None)
    if different is not None:
        what = f"the path names the model `{match.model}`, and the body another one, `{different[:80]}`"
        return Failure("invalid", what, 400, "", "model")
    return NamedModel(name=match.model, place="path", body=body)


def _read_without_model(
    codec: Codec, match: PassthroughMatch, kind: str, content_type: str, data: bytes
) -> NamedModel | Failure:
    """A request to an endpoint for which no model is chosen. Uploads are files, also those of type JSON."""
    is_json = "json" in kind or not kind
    sent_type = JSON_TYPE if is_json else content_type
    if not is_json or not data.strip() or match.path.startswith(UPLOAD_PREFIX):
        return NamedModel(body=ClientBody(codec, data), content_type=sent_type)
    body = read_modelless_object(codec, data)
    return body if isinstance(body, Failure) else NamedModel(body=body, content_type=sent_type)


# --- a model in the path, and again in the body (Gemini) ---


def _decode_object(body: ClientBody) -> Object:
    try:
        return body.judge()
    except Malformed:
        return {}


def _objects_with_model(codec: Codec, body: Object) -> Iterator[Object]:
    requests = body.get(codec.request_members.inner_requests)
    inner = requests if isinstance(requests, list) else (requests,)  # Google takes one object for a list of one
    for node in (body, *inner):
        if isinstance(node, dict) and "model" in node:
            yield node


def _models_in_body(body: ClientBody) -> list[str]:
    """The models that the body names, for itself and for each of the requests in it."""
    if b"model" not in body.data and b"\\u" not in body.data:
        return []
    return [str(node["model"]) for node in _objects_with_model(body.codec, _decode_object(body))]


def _rename_in_body(body: ClientBody, model: str) -> bytes:
    if not _models_in_body(body):
        return body.write()
    whole = deepcopy(_decode_object(body))
    collection = body.codec.http.model_collection
    for node in _objects_with_model(body.codec, whole):
        node["model"] = collection + model if str(node["model"]).startswith(collection) else model
    return encode(whole)


# --- a model in a multipart form ---

_BOUNDARY = re.compile(
    r"""multipart/form-data\s*;\s*boundary=(?:"([^"\\\s]{1,70})"|([^";,\\\s]{1,70}))\s*""", re.IGNORECASE
)
_DISPOSITION = re.compile(
    rb'form-data\s*;\s*name="([^"\\\r\n]*)"(?:\s*;\s*filename="[^"\r\n]*")?(?:\s*;\s*filename\*=[^;"\r\n]*)?',
    re.IGNORECASE,
)
_FIELD_END = re.compile(r"[\[.]")
"""Where the name of a member ends in that of a field, such as `image[0][file_id]`."""
NOT_A_FORM = "the body is not the multipart form that its content-type says, or it could be read in more than one way"


def read_form_names(content_type: str, body: bytes) -> list[str] | None:
    """The names of all fields of a multipart form; None if it could be read in more than one way."""
    names = [name for name, _, _ in _read_parts(body, content_type)]
    return [name.decode("utf-8", "replace") for name in names if name is not None] if None not in names else None


def _read_form(codec: Codec, content_type: str, data: bytes) -> NamedModel | Failure:
    spans: list[tuple[int, int]] = []
    names: list[str] = []
    for name, start, end in _read_parts(data, content_type):
        if name is None:
            return Failure("invalid", NOT_A_FORM, 400)
        names.append(name.decode("utf-8", "replace"))
        if letters_of(names[-1]) == "model":
            if name != b"model" or spans:
                return Failure("invalid", "the form names its `model` twice, or not exactly so", 400, "", "model")
            spans.append((start, end))
    outer_names = [_FIELD_END.split(name, maxsplit=1)[0] for name in names]
    unknown = find_unknown_names(codec.request_members, outer_names, is_forwarded=True)
    start, end = span = spans[0] if spans else (0, 0)
    try:
        name_of_model = data[start:end].decode()
    except UnicodeDecodeError:
        return Failure("invalid", "`model` must be text", 400, "", "model")
    body = ClientBody(codec, data, names=unknown)
    return NamedModel(name=name_of_model, place="form", body=body, content_type=content_type, value_span=span)


def _read_parts(body: bytes, content_type: str) -> Iterator[tuple[bytes | None, int, int]]:
    """The name and the span of each part; None as a name if the form is not exactly one."""
    boundary = _BOUNDARY.fullmatch(content_type.strip())
    delimiter = b"\r\n--" + (boundary[1] or boundary[2]).encode("latin-1") if boundary is not None else b""
    # The first delimiter has no line break before it.
    if not delimiter or not body.startswith(delimiter[2:] + b"\r\n"):
        yield None, 0, 0
        return
    at = len(delimiter)
    while True:
        head_end = body.find(b"\r\n\r\n", at - 2)
        next_at = body.find(delimiter, at)
        if head_end < 0 or next_at < head_end + 4:
            yield None, 0, 0
            return
        yield _part_name(body[at:head_end]), head_end + 4, next_at
        after = body[next_at + len(delimiter) : next_at + len(delimiter) + 2]
        at = next_at + len(delimiter) + 2
        if after == b"--" and body[at:] in (b"", b"\r\n"):
            return
        if after != b"\r\n":
            yield None, 0, 0
            return


def _part_name(head: bytes) -> bytes | None:
    """The name of a part from its headers, if there is no doubt about it."""
    names: list[bytes] = []
    for line in head.split(b"\r\n"):
        header, colon, value = line.partition(b":")
        if not line or not colon or b"\n" in line or b"\r" in line or header != header.strip():
            return None
        lower = header.lower()
        if lower == b"content-disposition":
            found = _DISPOSITION.fullmatch(value.strip())
            if found is None:
                return None
            names.append(found[1])
        elif lower == b"content-transfer-encoding":
            if value.strip().lower() not in (b"binary", b"8bit", b"7bit"):
                return None
        elif lower not in (b"content-type", b"content-length"):
            return None
    return names[0] if len(names) == 1 else None
