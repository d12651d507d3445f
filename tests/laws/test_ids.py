"""Ids that are spelled for a client can be read again, and nothing else is taken for one of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolwire.ids import SAFE, SPELLED, spelled, unspelled

ANY = st.text(st.characters(), min_size=1, max_size=20)
LIMIT = 400


@given(ANY)
def test_a_spelled_id_is_legal_and_leads_back(id: str) -> None:
    spelling = spelled(id, SAFE, LIMIT)
    if SAFE.fullmatch(id):
        assert not spelling
    else:
        assert SAFE.fullmatch(spelling)
        assert unspelled(spelling) == id


@given(st.text("abf0129-_", max_size=20).map(lambda text: SPELLED + text))
def test_no_two_ids_are_read_as_one(id: str) -> None:
    own = unspelled(id)
    assert not own or spelled(own, SAFE, LIMIT) == id


def test_an_id_that_only_looks_like_one_stays() -> None:
    for id in ("tw-abc", "tw-", "tw-a-ff", "tw-a-2", "tw-a-62", "tw-a-2db", "call_1"):
        assert not unspelled(id), id
    assert unspelled("tw-functions-2eget_weather-3a0") == "functions.get_weather:0"
