"""Log probabilities of tokens in the shape that both OpenAI protocols have, read and written.

They are read leniently: a list that cannot be read is reported as left out, and the answer itself stays whole.
"""

from __future__ import annotations

from msgspec import field

from toolwire.core.ir import EMPTY_MAPPING, Logprobs, Origin, TokenLogprob, UnknownField
from toolwire.core.json_values import Json, Object, Path, is_number
from toolwire.core.provenance import ReadContext, is_nonempty

_TOKEN_KEYS = frozenset({"token", "logprob", "bytes", "top_logprobs"})


class LogprobsReadContext(ReadContext):
    """The context of a reader of tokens, with the unknown keys that it has noted."""

    noted: set[str] = field(default_factory=set)


def note_unknown_token_keys(node: Object, known: frozenset[str], path: Path, reading: LogprobsReadContext) -> None:
    """Note each unknown key of the tokens of a list once."""
    for key, value in node.items():
        if key not in known and is_nonempty(value):
            new = UnknownField(path, key)
            if (name := identify_field(new)) not in reading.noted:
                reading.noted.add(name)
                reading.unknown_fields.append(new)


def identify_field(field: UnknownField) -> str:
    """The key of an unknown field after the name of its list: the same for all tokens of a list."""
    path = field.path
    while path is not None and not isinstance(path[1], str):
        path = path[0]
    return field.key if path is None else f"{path[1]}/{field.key}"


def read_openai_logprobs(items: Json, path: Path, reading: LogprobsReadContext) -> Logprobs | None:
    """The tokens of a list of `{token, logprob, bytes, top_logprobs}`; None for a list that cannot be read."""
    if items is None:
        return ()
    if not isinstance(items, list):
        return None
    origin = Origin(reading.protocol, path, None, EMPTY_MAPPING, False)
    found: list[TokenLogprob] = []
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            return None
        token, logprob, bytes_, top = map(item.get, ("token", "logprob", "bytes", "top_logprobs"))
        others = () if top is None else read_openai_logprobs(top, ((path, number), "top_logprobs"), reading)
        if not isinstance(token, str) or not is_number(logprob) or others is None or not _is_bytes(bytes_):
            return None
        if not _TOKEN_KEYS.issuperset(item):
            note_unknown_token_keys(item, _TOKEN_KEYS, (path, number), reading)
        found.append(TokenLogprob(token, logprob, None if bytes_ is None else tuple(bytes_), others, None, origin))
    return tuple(found)


def _is_bytes(value: Json) -> bool:
    return value is None or (isinstance(value, list) and all(type(byte) is int for byte in value))


def write_openai_logprobs(logprobs: Logprobs, derives_bytes: bool = False) -> list[Object]:
    """`derives_bytes`: bytes that are not known are those of the token's text (Responses has no null there)."""
    return [
        {**_write_token(token, derives_bytes), "top_logprobs": [_write_token(one, derives_bytes) for one in token.top]}
        for token in logprobs
    ]


def _write_token(token: TokenLogprob, derives_bytes: bool) -> Object:
    value: list[int] | None = None if token.bytes is None else list(token.bytes)
    if value is None and derives_bytes:
        value = list(token.token.encode())
    return {"token": token.token, "logprob": token.logprob, "bytes": value}
