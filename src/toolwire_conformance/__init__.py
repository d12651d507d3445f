"""The conformance suite: cases as data, and a player that runs them against the library or a gateway. See README.md.

It needs a target's address and nothing of `toolwire`, so that it cannot share a mistake with what it judges.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Json: TypeAlias = Any
"""A JSON value of unknown shape."""

Object: TypeAlias = dict[str, Any]
