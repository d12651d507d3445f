"""Ids that were escaped for a client can be unescaped, and no other id is taken for one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolwire.core.ids import ESCAPE_PREFIX, SAFE_ID_PATTERN, escape_id, unescape_id

ANY = st.text(st.characters(), min_size=1, max_size=20)
LIMIT = 400


@given(ANY)
def test_a_spelled_id_is_legal_and_leads_back(id: str) -> None:
    spelling = escape_id(id, SAFE_ID_PATTERN, LIMIT)
    if SAFE_ID_PATTERN.fullmatch(id):
        assert not spelling
    else:
        assert SAFE_ID_PATTERN.fullmatch(spelling)
        assert unescape_id(spelling) == id


@given(st.text("abf0129-_", max_size=20).map(lambda text: ESCAPE_PREFIX + text))
def test_no_two_ids_are_read_as_one(id: str) -> None:
    own = unescape_id(id)
    assert not own or escape_id(own, SAFE_ID_PATTERN, LIMIT) == id


def test_an_id_that_only_looks_like_one_stays() -> None:
    for id in ("tw-abc", "tw-", "tw-a-ff", "tw-a-2", "tw-a-62", "tw-a-2db", "call_1"):
        assert not unescape_id(id), id
    assert unescape_id("tw-functions-2eget_weather-3a0") == "functions.get_weather:0"
