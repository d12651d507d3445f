"""What OpenAI's models refuse in Responses, by their name. An unknown model is assumed to accept everything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from toolwire.core.codec import Quirk
from toolwire.core.tokens import EFFORTS
from toolwire.protocols.openai_responses.names import PROVIDER_TOOL_TYPES


class Family(Struct, frozen=True):
    efforts: tuple[str, ...] = EFFORTS
    """The reasoning efforts it accepts; empty if it does not reason."""
    sampling: bool = True
    """Does it accept `temperature` and `top_p`?"""


FAMILIES: tuple[tuple[re.Pattern[str], Family], ...] = (
    (re.compile(r"gpt-6(-astra|\.1-sol)"), Family(EFFORTS[1:], sampling=False)),
    (re.compile(r"gpt-6"), Family(sampling=False)),
    (re.compile(r"(chatgpt-)?(gpt-)?4o|gpt-(3|4)|chatgpt-"), Family(efforts=())),
    (re.compile(r"o[134](-|$)"), Family(("low", "medium", "high"), sampling=False)),
)
"""The first match counts; the name is matched without what is before the last slash."""


@lru_cache(maxsize=256)
def family(model: str) -> Family:
    name = model.rpartition("/")[2]
    return next((family for pattern, family in FAMILIES if pattern.match(name)), Family())


_OTHER_VENDORS = re.compile(
    r"(?i).*(?:deepseek|kimi|moonshot|qwen|qwq|glm|minimax|mimo|llama|mistral|magistral|devstral|gemma|phi-|claude|gpt-oss)"
)


def supports_provider_tool(tool: str, model: str, with_functions: bool) -> bool:
    """Other vendors' models are served with this protocol too, mostly without OpenAI's tools. OpenAI's web search also
    fetches pages."""
    return (tool in PROVIDER_TOOL_TYPES or tool == "web_fetch") and not _OTHER_VENDORS.match(model)


QUIRKS: Mapping[str, Quirk] = {
    "no-hosted-tools": Quirk(
        about="the server runs no tools itself: no web search, no code", constraints={"server_runs_tools": False}
    )
}
