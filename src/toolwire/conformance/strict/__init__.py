"""What the real provider would refuse with 400, as a list of complaints; none means that it would take the request.

Each protocol's checks stand in a table of small functions; the rules are those of the vendors' own services.
"""

from __future__ import annotations

from typing import Any

from toolwire.conformance.strict import anthropic, gemini, openai_chat, openai_responses
from toolwire.conformance.strict.check import RequestCheck

CHECKS: dict[str, tuple[RequestCheck, ...]] = {
    "openai-chat": openai_chat.CHECKS,
    "openai-responses": openai_responses.CHECKS,
    "anthropic": anthropic.CHECKS,
    "gemini": gemini.CHECKS,
}


def find_violations(protocol: str, body: Any, model: str = "") -> list[str]:
    """All that the provider of this protocol would refuse in this body. `model` is for wires that keep it outside."""
    if not isinstance(body, dict):
        return ["the body is no JSON object"]
    name = protocol.replace("_", "-")
    model = model or str(body.get("model") or "")
    request = normalise_body(name, body)
    return list(dict.fromkeys(complaint for check in CHECKS.get(name, ()) for complaint in check(request, model)))


def normalise_body(protocol: str, body: Any) -> Any:
    """A request in the one spelling that expectations are written in, where a provider takes several."""
    return gemini.camel_case_fields(body) if protocol == "gemini" else body
