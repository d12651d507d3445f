"""The list of models, page by page."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.room import Card
from toolwire.times import write_instant
from toolwire.wire import Object

USUAL, MOST = 20, 1000


def write_model(card: Card) -> Object:
    return {
        "type": "model",
        "id": card.id,
        "display_name": card.id,
        "created_at": write_instant(card.created),
        "lifecycle": "active",
        "deprecated_at": None,
        "retires_at": None,
        "line": None,
        "max_input_tokens": card.input_limit,
        "max_tokens": card.output_limit,
        "capabilities": None,
    }


def write_models(cards: tuple[Card, ...], query: Mapping[str, str]) -> Object:
    """The page behind `after_id`, or the one before `before_id`; an id that is not there begins at the beginning."""
    limit = _limit(query.get("limit", ""))
    places = {card.id: place for place, card in enumerate(cards)}
    before = places.get(query.get("before_id", ""))
    if before is not None:
        start, end = max(0, before - limit), before
        more = start > 0
    else:
        start = places.get(query.get("after_id", ""), -1) + 1
        end = min(start + limit, len(cards))
        more = end < len(cards)
    page = cards[start:end]
    return {
        "data": [write_model(card) for card in page],
        "has_more": more,
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
    }


def _limit(asked: str) -> int:
    return min(max(1, int(asked)), MOST) if asked.isascii() and asked.isdecimal() and len(asked) < 10 else USUAL
