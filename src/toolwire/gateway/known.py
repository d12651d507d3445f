"""What the head of a request says, worked out once for all requests with the same head on one connection."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from toolwire.gateway.access import Visitor
from toolwire.gateway.lines import Headers, Line, State
from toolwire.ir import Failure
from toolwire.room import Asked, Room

Sent: TypeAlias = dict[Line, tuple[Headers, Headers]]


class Known(Struct, frozen=True, eq=False):
    """It holds under one configuration only: under another one all is worked out anew."""

    room: Room
    asked: Asked | None
    """None for all but the endpoints of a protocol."""
    visitor: Visitor | Failure
    """Who asks, or why nobody is let in with such a head."""
    key: str
    """The name of the client's key."""
    request_id: str
    """The client's own id of the request, if it is one that can be kept."""
    sent: Sent
    """What providers got to see of it, by line: headers that the body called for, and with them all."""


Memory: TypeAlias = dict[State, Known]
"""What is known of a head, under the configuration in force."""
