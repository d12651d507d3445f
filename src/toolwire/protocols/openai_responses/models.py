"""What OpenAI's models refuse in Responses, by their name. An unknown model is assumed to accept everything.

Source: OpenAI's guides on reasoning (copies of 2026), and what `openai_efforts` in `core/tokens.py` names; looked up
in November 2026."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from toolwire.core.codec import Quirk
from toolwire.core.tokens import EFFORTS, OPENAI_MAX_TOOLS, openai_efforts
from toolwire.protocols.openai_responses import names


class Family(Struct, frozen=True):
    efforts: tuple[str, ...] = EFFORTS
    """The reasoning efforts it accepts; empty if it does not reason."""
    sampling: bool = True
    """Does it accept `temperature` and `top_p`?"""
    is_known: bool = False
    """Is it known to be one of OpenAI's?"""


SAMPLING_MEMBERS = ("temperature", "top_p")
JUDGED_MEMBERS = frozenset({"tools", *SAMPLING_MEMBERS})
_WITHOUT_SAMPLING = re.compile(r"gpt-6|o[134](-|$)")


@lru_cache(maxsize=256)
def family(model: str) -> Family:
    name = model.rpartition("/")[2]
    efforts = openai_efforts(name)
    return Family(EFFORTS if efforts is None else efforts, not _WITHOUT_SAMPLING.match(name), efforts is not None)


_OTHER_VENDORS = re.compile(
    r"(?i).*(?:deepseek|kimi|moonshot|qwen|qwq|glm|minimax|mimo|llama|mistral|magistral|devstral|gemma|phi-|claude|gpt-oss)"
)


def supports_provider_tool(tool: str, model: str, with_functions: bool) -> bool:
    """Other vendors' models are served with this protocol too, mostly without OpenAI's tools. OpenAI's web search also
    fetches pages."""
    return (tool in names.PROVIDER_TOOL_TYPES or tool == "web_fetch") and not _OTHER_VENDORS.match(model)


QUIRKS: Mapping[str, Quirk] = {
    "no-hosted-tools": Quirk(
        about="the server runs no tools itself: no web search, no code", constraints={"server_runs_tools": False}
    ),
    "at-most-128-tools": Quirk(
        about="a request may declare at most 128 tools; the others are left out",
        constraints={"max_tools": lambda _model: OPENAI_MAX_TOOLS},
    ),
}
