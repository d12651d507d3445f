"""Log probabilities of the tokens of an answer (`logprobsResult`), read and written."""

from __future__ import annotations

from toolwire.core.ir import EMPTY_MAPPING, Logprobs, Origin, TokenLogprob
from toolwire.core.json_values import Json, Object, Path, is_number
from toolwire.core.logprobs import LogprobsReadContext, note_unknown_token_keys
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext
from toolwire.protocols.gemini import names
from toolwire.protocols.gemini.names import NAME

_CARRIED_TOKEN_KEYS = names.TOKEN_KEYS.all_keys - {"tokenId", "token_id"}
"""No other protocol has the number of a token."""


def read_logprobs(value: Json, path: Path, reading: ReadContext) -> Logprobs:
    """The chosen tokens, each with the most likely ones at its place. What cannot be read is noted. `path` is that of
    the candidate."""
    inner = LogprobsReadContext(NAME)
    logprobs = _read_result(value, (path, "logprobsResult"), inner)
    if logprobs is None:
        reading.note_unknown_field(path, "logprobsResult")
        return ()
    reading.unknown_fields += inner.unknown_fields
    return logprobs


def _read_result(value: Json, path: Path, reading: LogprobsReadContext) -> Logprobs | None:
    if not isinstance(value, dict):
        return None
    node = names.LOGPROBS_KEYS(value)
    note_unknown_token_keys(node, names.LOGPROBS_KEYS.camel_keys, path, reading)
    chosen, top = node.get("chosenCandidates") or [], node.get("topCandidates") or []
    if not isinstance(chosen, list) or not isinstance(top, list) or len(top) > len(chosen):
        return None
    origin = Origin(NAME, path, None, EMPTY_MAPPING, False)
    found: list[TokenLogprob] = []
    for number, item in enumerate(chosen):
        others: list[TokenLogprob] = []
        if number < len(top):
            row, at = top[number], ((path, "topCandidates"), number)
            if not isinstance(row, dict):
                return None
            note_unknown_token_keys(row, names.TOP_LOGPROBS_KEYS.all_keys, at, reading)
            for place, other in enumerate(row.get("candidates") or []):
                token = _read_token(other, (), origin, ((at, "candidates"), place), reading)
                if token is None:
                    return None
                others.append(token)
        token = _read_token(item, tuple(others), origin, ((path, "chosenCandidates"), number), reading)
        if token is None:
            return None
        found.append(token)
    return tuple(found)


def _read_token(
    item: Json, top: Logprobs, origin: Origin, path: Path, reading: LogprobsReadContext
) -> TokenLogprob | None:
    if not isinstance(item, dict):
        return None
    node = names.TOKEN_KEYS(item)
    token, logprob, id = map(node.get, ("token", "logProbability", "tokenId"))
    if not isinstance(token, str) or not is_number(logprob) or not (id is None or type(id) is int):
        return None
    note_unknown_token_keys(item, _CARRIED_TOKEN_KEYS, path, reading)
    return TokenLogprob(token, logprob, None, top, id, origin)


def write_logprobs(logprobs: Logprobs, ledger: Ledger) -> Object:
    out: Object = {"chosenCandidates": [_write_token(token, ledger) for token in logprobs]}
    if any(token.top for token in logprobs):
        top = [{"candidates": [_write_token(one, ledger) for one in token.top]} for token in logprobs]
        out["topCandidates"] = top
    return out


def _write_token(token: TokenLogprob, ledger: Ledger) -> Object:
    if token.bytes is not None and token.bytes != tuple(token.token.encode()):
        what = f"the bytes {list(token.bytes)} of the token {token.token!r} were left out"
        ledger.note("no-counterpart", token.origin.path if token.origin is not None else None, what)
    known: Object = {} if token.id is None else {"tokenId": token.id}
    return {"token": token.token, **known, "logProbability": token.logprob}
