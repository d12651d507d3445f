"""What the real provider would refuse with status 400. An empty list means that it would accept the request.

The checks of each protocol are small functions in the table `CHECKS` of its module; the rules are those of the vendors'
own services.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolwire.conformance.strict import anthropic, gemini, openai_chat, openai_responses
from toolwire.conformance.strict.check import RequestCheck

CHECKS: dict[str, tuple[RequestCheck, ...]] = {
    "openai-chat": openai_chat.CHECKS,
    "openai-responses": openai_responses.CHECKS,
    "anthropic": anthropic.CHECKS,
    "gemini": gemini.CHECKS,
}
NORMALISERS: dict[str, Callable[[Any], Any]] = {"gemini": gemini.camel_case_fields}


def find_violations(protocol: str, body: Any, model: str = "") -> list[str]:
    """What the provider would refuse in this body. `model` is for bodies that do not contain it (Gemini)."""
    if not isinstance(body, dict):
        return ["the body is not a JSON object"]
    name = protocol.replace("_", "-")
    model = model or str(body.get("model") or "")
    request = normalise_body(name, body)
    return list(dict.fromkeys(violation for check in CHECKS.get(name, ()) for violation in check(request, model)))


def normalise_body(protocol: str, body: Any) -> Any:
    """A request with the field names that expectations use: Gemini accepts snake_case too."""
    normalise = NORMALISERS.get(protocol)
    return normalise(body) if normalise else body
