"""The user's prompt as the embedded model reads it, and the sentences that it answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from toolwire.core.ir import (
    Call,
    Media,
    Part,
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

_ECHO_LENGTH = 300
"""Longer texts and results are repeated up to this length."""
_TAGGED_BLOCK = re.compile(r"^<([\w-]+)[^>]*>.*?</\1>\s*", re.DOTALL | re.MULTILINE)
"""Agents such as Claude Code and Codex put instructions and context in such blocks into the user's message."""
_BLOCK_SEARCH_LIMIT = 50_000
"""Longer texts are not searched for blocks, because it takes quadratic time."""


class Prompt(Struct, frozen=True):
    """What the model has to answer."""

    text: str = ""
    """The user's text since the model's last turn, or else the last one before."""
    media: tuple[Media, ...] = ()
    results: tuple[Result, ...] = ()
    """The results since the model's last turn."""
    tools: tuple[Tool, ...] = ()
    called_tools: frozenset[str] = frozenset()
    """Names of the tools that were already called for this text."""
    result_tool_names: tuple[str, ...] = ()
    """The tool of each result."""
    has_only_loaded_tools: bool = False
    """Whether the results only load tools, so that there is nothing to tell yet."""
    needs_answer: bool = True
    """False if the conversation ends with a turn of the model."""

    @property
    def known_text(self) -> str:
        """The user's text and the start of each result."""
        return "\n".join([self.text, *(plain_text(result.content)[:1000] for result in self.results)])


def read_prompt(request: Request) -> Prompt:
    turns = request.turns
    last = max((number for number, turn in enumerate(turns) if turn.role == "assistant"), default=-1)
    new = turns[last + 1 :]
    results = tuple(part for turn in new for part in turn.parts if isinstance(part, Result))
    start = max((number for number, turn in enumerate(turns) if _has_user_input(turn)), default=0)
    user_turns = [
        turn for turn in (new if any(map(_has_user_input, new)) else turns[start : start + 1]) if turn.role == "user"
    ]
    text = "\n".join(text for turn in user_turns if (text := _user_text(turn)))
    calls = {part.id: part.name for turn in turns for part in turn.parts if isinstance(part, Call)}
    loaded = [part for result in results for part in result.content if isinstance(part, (ToolsAdded, ToolReference))]
    return Prompt(
        text or "\n".join(plain_text(turn.parts) for turn in user_turns).strip(),
        tuple(part for turn in new if turn.role == "user" for part in turn.parts if isinstance(part, Media)),
        results,
        tuple(_callable_tools(request, loaded)),
        frozenset(part.name for turn in turns[start:] for part in turn.parts if isinstance(part, Call)),
        tuple(result.name or calls.get(result.id, "") or "a tool" for result in results),
        bool(loaded) and all(any(part in loaded for part in result.content) for result in results),
        bool(new),
    )


def _has_user_input(turn: Turn) -> bool:
    return turn.role == "user" and bool(_user_text(turn) or any(isinstance(part, Media) for part in turn.parts))


def _user_text(turn: Turn) -> str:
    """The user's own text, without the blocks that agents add."""
    texts = (part.text for part in turn.parts if isinstance(part, Text))
    return "\n".join(own for text in texts if (own := _strip_blocks(text).strip()))


def _strip_blocks(text: str) -> str:
    return text if len(text) > _BLOCK_SEARCH_LIMIT or "</" not in text else _TAGGED_BLOCK.sub("", text)


def _callable_tools(request: Request, loaded_parts: Sequence[Part]) -> Iterator[Tool]:
    """The tools that the new results loaded, or else all tools except deferred ones that were never loaded."""
    parts = [part for turn in request.turns for part in turn.parts]
    parts += [inner for part in parts if isinstance(part, Result) for inner in part.content]
    added = [tool for part in parts if isinstance(part, ToolsAdded) for tool in part.tools]
    known = [tool for tool in (*request.tools, *added) if isinstance(tool, Tool)]
    loaded = {part.name for part in parts if isinstance(part, ToolReference)}
    loaded |= {tool.name for tool in added if isinstance(tool, Tool)}
    if loaded_parts:
        names = {part.name for part in loaded_parts if isinstance(part, ToolReference)}
        new = [tool for part in loaded_parts if isinstance(part, ToolsAdded) for tool in part.tools]
        known = [tool for tool in known if tool in new or tool.name in names]
    return (tool for tool in known if not tool.defer or tool.name in loaded)


# --- sentences ---


def reasoning_text(prompt: Prompt, tools: Sequence[Tool]) -> str:
    if tools:
        return f"The text resembles {' and '.join(dict.fromkeys(tool.name for tool in tools))}, so I call it."
    if prompt.results:
        return "The results are there, so I tell what they say."
    return "No tool is asked for, so I answer in words."


def reply_text(prompt: Prompt, tools: Sequence[str]) -> str:
    """The results of the tools, or else the user's text and a hint."""
    media = [f"I see {', '.join(map(_describe_media, prompt.media))}."] if prompt.media else []
    if prompt.results:
        names = prompt.result_tool_names
        return "\n".join([*map(_result_text, names, prompt.results), *media])
    lines = [f"You said: {_shorten_text(prompt.text)}" if prompt.text else "You said nothing.", *media]
    lines.append("This is loopback, the model built into Toolwire: it calls your tools and repeats what it hears.")
    if tools:
        more = f" and {len(tools) - 8} more" if len(tools) > 8 else ""
        lines.append(f"Name a tool to have it called: {', '.join(tools[:8])}{more}.")
    lines.append("For a real model, set a provider's key or name one in toolwire.toml.")
    return "\n".join(lines)


def _result_text(name: str, result: Result) -> str:
    verb = "failed" if result.error else "said"
    if isinstance(result.value, (dict, list)):
        text = short_json(result.value, _ECHO_LENGTH)
    else:
        text = _shorten_text(plain_text(result.content))
    media = [_describe_media(part) for part in result.content if isinstance(part, Media)]
    return f"{name} {verb}: {' and '.join([*([text] if text else []), *media]) or 'nothing'}"


def _describe_media(media: Media) -> str:
    size = f"{len(media.data) * 3 // 4 - media.data[-2:].count('=')} bytes" if media.data else ""
    details = ", ".join(word for word in (media.name, media.mime, size) if word)
    return f"1 {media.kind} ({details})" if details else f"1 {media.kind}"


def _shorten_text(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _ECHO_LENGTH else f"{text[: _ECHO_LENGTH - 1]}…"
