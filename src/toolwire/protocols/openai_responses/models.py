"""What OpenAI's models refuse in Responses, by their name. An unknown model is assumed to accept everything.

Source: OpenAI's guides on reasoning (copies of 2026), and what `openai_efforts` in `core/tokens.py` names; looked up
in November 2026."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from toolwire.core.body_changes import drop_members
from toolwire.core.codec import Quirk
from toolwire.core.json_values import Object
from toolwire.core.losses import Ledger
from toolwire.core.refusals import match_refusal
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
JUDGED_MEMBERS = frozenset({"tools", "reasoning", *SAMPLING_MEMBERS})
_WITHOUT_SAMPLING = re.compile(r"gpt-6")


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


def _drop_reasoning(body: Object, model: str, ledger: Ledger) -> Object:
    """For models that do not reason, behind a name that does not say so (a deployment at Azure)."""
    out = drop_members({"reasoning": {}})(body, model, ledger)
    include = body.get("include")
    if isinstance(include, list) and names.INCLUDE_ENCRYPTED_REASONING in include:
        out = out | {"include": [one for one in include if one != names.INCLUDE_ENCRYPTED_REASONING]}
    return out


QUIRKS: Mapping[str, Quirk] = {
    "no-sampling": Quirk(
        about="`temperature` and `top_p` are refused",
        rewrite_body=drop_members(dict.fromkeys(SAMPLING_MEMBERS, 1)),
        refusal=match_refusal(SAMPLING_MEMBERS),
    ),
    "no-reasoning": Quirk(
        about="`reasoning` is refused, and encrypted reasoning in `include`",
        rewrite_body=_drop_reasoning,
        refusal=match_refusal(
            ["reasoning", "reasoning.effort", "reasoning_effort"], r"\bEncrypted content is not supported\b"
        ),
    ),
    "no-hosted-tools": Quirk(
        about="the server runs no tools itself: no web search, no code", constraints={"server_runs_tools": False}
    ),
    "at-most-128-tools": Quirk(
        about="a request may declare at most 128 tools; the others are left out",
        constraints={"max_tools": lambda _model: OPENAI_MAX_TOOLS},
    ),
}
