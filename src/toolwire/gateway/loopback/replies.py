"""What was said to the embedded model, and the sentences that it says back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from toolwire.core.ir import (
    Call,
    Media,
    Part,
    ProviderResult,
    Request,
    Result,
    Text,
    Tool,
    ToolReference,
    ToolsAdded,
    Turn,
    plain_text,
)
from toolwire.schema.keywords import short_json

ECHO_LENGTH = 300
"""How much of a text or a result is repeated."""
_TAGGED_BLOCK = re.compile(r"^<([\w-]+)[^>]*>.*?</\1>\s*", re.DOTALL | re.MULTILINE)
"""What agents put beside the user's words: instructions and surroundings in a tag."""
_BLOCK_SEARCH_LIMIT = 50_000
"""In longer texts no blocks are looked for."""


class Prompt(Struct, frozen=True):
    """What there is to answer."""

    text: str = ""
    """The user's words since the model last spoke, or the last ones before."""
    media: tuple[Media, ...] = ()
    results: tuple[Result, ...] = ()
    """The last batch of results, when nothing was said to them yet."""
    tools: tuple[Tool, ...] = ()
    called_tools: frozenset[str] = frozenset()
    """Tools that were called for these words already."""
    result_tool_names: tuple[str, ...] = ()
    """Which tool each of the results is from."""
    has_only_loaded_tools: bool = False
    """Did the results bring nothing but tools?"""
    needs_answer: bool = True
    """Does the conversation end with something to be answered?"""

    @property
    def known_text(self) -> str:
        """The words, and what the results added to them."""
        return "\n".join([self.text, *(plain_text(result.content)[:1000] for result in self.results)])


def read_prompt(request: Request) -> Prompt:
    turns = request.turns
    last = max((number for number, turn in enumerate(turns) if turn.role == "assistant"), default=-1)
    fresh = turns[last + 1 :]
    results = tuple(part for turn in fresh for part in turn.parts if isinstance(part, Result))
    begin = max((number for number, turn in enumerate(turns) if _has_user_input(turn)), default=0)
    spoken = [
        turn
        for turn in (fresh if any(map(_has_user_input, fresh)) else turns[begin : begin + 1])
        if turn.role == "user"
    ]
    text = "\n".join(words for turn in spoken if (words := _user_text(turn)))
    calls = {part.id: part.name for turn in turns for part in turn.parts if isinstance(part, Call)}
    brought = [part for result in results for part in result.content if isinstance(part, (ToolsAdded, ToolReference))]
    return Prompt(
        text or "\n".join(plain_text(turn.parts) for turn in spoken).strip(),
        tuple(part for turn in fresh if turn.role == "user" for part in turn.parts if isinstance(part, Media)),
        results,
        tuple(_callable_tools(request, brought)),
        frozenset(part.name for turn in turns[begin:] for part in turn.parts if isinstance(part, Call)),
        tuple(result.name or calls.get(result.id, "") or "a tool" for result in results),
        bool(brought) and all(any(part in brought for part in result.content) for result in results),
        bool(fresh),
    )


def _has_user_input(turn: Turn) -> bool:
    return turn.role == "user" and bool(_user_text(turn) or any(isinstance(part, Media) for part in turn.parts))


def _user_text(turn: Turn) -> str:
    """The user's own words, without the blocks that agents put beside them."""
    texts = (part.text for part in turn.parts if isinstance(part, Text))
    return "\n".join(own for text in texts if (own := _strip_blocks(text).strip()))


def _strip_blocks(text: str) -> str:
    return text if len(text) > _BLOCK_SEARCH_LIMIT or "</" not in text else _TAGGED_BLOCK.sub("", text)


def _callable_tools(request: Request, loaded_parts: Sequence[Part]) -> Iterator[Tool]:
    """The tools that can be called: those that results just brought, else all that are loaded."""
    inner = (part for turn in request.turns for part in turn.parts)
    every = [part for one in inner for part in (one, *(one.content if isinstance(one, Result) else ()))]
    known = [*request.tools, *(tool for part in every if isinstance(part, ToolsAdded) for tool in part.tools)]
    loaded = {part.name for part in every if isinstance(part, ToolReference)}
    loaded |= {
        tool.name for part in every if isinstance(part, ToolsAdded) for tool in part.tools if isinstance(tool, Tool)
    }
    if loaded_parts:
        names = {part.name for part in loaded_parts if isinstance(part, ToolReference)}
        added = [tool for part in loaded_parts if isinstance(part, ToolsAdded) for tool in part.tools]
        known = [tool for tool in known if tool in added or (isinstance(tool, Tool) and tool.name in names)]
    for tool in known:
        if isinstance(tool, Tool) and (not tool.defer or tool.name in loaded):
            yield tool


# --- sentences ------------------------------------------------------------------------------------------------------


def reasoning_text(prompt: Prompt, tools: Sequence[Tool]) -> str:
    if tools:
        return f"The text resembles {' and '.join(dict.fromkeys(tool.name for tool in tools))}, so I call it."
    if prompt.results:
        return "The results are there, so I tell what they say."
    return "No tool is asked for, so I answer in words."


def reply_text(prompt: Prompt, tools: Sequence[str]) -> str:
    """The answer in words: what the tools said, or what the user said and what can be done about it."""
    if prompt.results:
        told = [
            result_text(name, result) for name, result in zip(prompt.result_tool_names, prompt.results, strict=True)
        ]
        return "\n".join([*told, *_media_sentences(prompt.media)])
    lines = [
        f"You said: {shorten_text(prompt.text)}" if prompt.text else "You said nothing.",
        *_media_sentences(prompt.media),
    ]
    lines.append("This is loopback, the model built into Toolwire: it calls your tools and repeats what it hears.")
    if tools:
        more = f" and {len(tools) - 8} more" if len(tools) > 8 else ""
        lines.append(f"Name a tool to have it called: {', '.join(tools[:8])}{more}.")
    lines.append("For a real model, set a provider's key or name one in toolwire.toml.")
    return "\n".join(lines)


def result_text(name: str, result: Result) -> str:
    verb = "failed" if result.error else "said"
    text = (
        short_json(result.value, ECHO_LENGTH)
        if isinstance(result.value, (dict, list))
        else shorten_text(plain_text(result.content))
    )
    things = [_describe_part(part) for part in result.content if not isinstance(part, Text)]
    told = " and ".join([*([text] if text else []), *(thing for thing in things if thing)])
    return f"{name} {verb}: {told or 'nothing'}"


def _describe_part(part: Part) -> str:
    if isinstance(part, Media):
        return describe_media(part)
    if isinstance(part, ToolsAdded):
        return f"{len(part.tools)} tools"
    if isinstance(part, ToolReference):
        return f"the tool {part.name}"
    return part.text if isinstance(part, ProviderResult) else ""


def describe_media(media: Media) -> str:
    """A thing that cannot be repeated: its kind, its type and its size."""
    size = f"{len(media.data) * 3 // 4 - media.data[-2:].count('=')} bytes" if media.data else ""
    about = ", ".join(word for word in (media.name, media.mime, size) if word)
    article = "an" if media.kind[0] in "aeiou" else "a"
    return f"{article} {media.kind} ({about})" if about else f"{article} {media.kind}"


def _media_sentences(media: Sequence[Media]) -> list[str]:
    if not media:
        return []
    kinds = dict.fromkeys(one.kind for one in media)
    counts = [f"{number} {kind}{'s' if number > 1 else ''}" for kind in kinds if (number := _count_kind(media, kind))]
    return [f"I see {' and '.join(counts)}: {', '.join(map(describe_media, media))}."]


def _count_kind(media: Sequence[Media], kind: str) -> int:
    return sum(one.kind == kind for one in media)


def shorten_text(text: str) -> str:
    text = text.strip()
    return text if len(text) <= ECHO_LENGTH else f"{text[: ECHO_LENGTH - 1]}…"
