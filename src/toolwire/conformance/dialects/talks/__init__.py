"""Talks with tools, by the protocol's name."""

from __future__ import annotations

from toolwire.conformance.dialects.talks import anthropic, gemini, openai_chat, openai_responses
from toolwire.conformance.dialects.talks.talk import Says, Talk, Tool

__all__ = ["TALKS", "Says", "Talk", "Tool"]

TALKS: dict[str, Talk] = {
    "openai-chat": openai_chat.TALK,
    "openai-responses": openai_responses.TALK,
    "anthropic": anthropic.TALK,
    "gemini": gemini.TALK,
}
