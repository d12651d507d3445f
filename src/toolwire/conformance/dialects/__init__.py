"""The dialects that cases are written in, by the protocol's name."""

from __future__ import annotations

from toolwire.conformance.dialects import anthropic, gemini, openai_chat, openai_responses
from toolwire.conformance.dialects.dialect import Dialect

DIALECTS: dict[str, Dialect] = {
    module.DIALECT.name: module.DIALECT for module in (openai_chat, openai_responses, anthropic, gemini)
}
