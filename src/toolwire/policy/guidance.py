"""Changes of the instructions: guidance about removed tools, and names of tools in the text.

The same tools give the same text at the same place in every request, so that prompt caches stay valid.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile

from toolwire.core.ir import AnyTool, Part, Request, Text, Tool, ToolsAdded, replace_fields, with_fields, with_parts

SHELL_TOOLS = (
    "shell exec_command shell_command local_shell container.exec bash Bash run_shell_command run_terminal_cmd"
    " execute_command run_command terminal exec"
).split()
"""Names and kinds of tools that run shell commands, the most likely first."""
NO_SHELL_TEXT = "the tools that you have"
DROPPED_TOOL_TEXT = "another tool"
_SYSTEM_ROLES = ("system", "developer")


def find_shell_tool(tools: Iterable[tuple[str, str, str]]) -> str:
    """The model's name of the tool that runs shell commands, "" for none; from (client's name, kind, model's name)."""
    found: dict[str, str] = {}
    for name, kind, model_name in tools:
        for word in (name, kind):
            found.setdefault(word, model_name)
    return next((found[name] for name in SHELL_TOOLS if name in found), "")


def fill_guidance(template: str, tools: Sequence[str], shell: str) -> str:
    """The guidance of a rule for the tools that it removed."""
    text = template.replace("`{tool}`", _join_names([f"`{name}`" for name in tools]))
    text = text.replace("{tool}", _join_names(tools))
    text = text.replace("`{shell}`", f"`{shell}`" if shell else NO_SHELL_TEXT)
    return text.replace("{shell}", shell or NO_SHELL_TEXT).strip()


def _join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def append_instructions(request: Request, text: str) -> Request:
    """The request with one more paragraph of instructions: at the end of `system`, else in the first turn if that has
    instructions, else as the only one. So it never moves while the conversation grows."""
    if request.system:
        return replace_fields(request, system=_append_text(request.system, text))
    first = request.turns[0] if request.turns else None
    if first is not None and first.role in _SYSTEM_ROLES:
        turn = replace_fields(first, parts=_append_text(first.parts, text))
        return replace_fields(request, turns=(turn, *request.turns[1:]))
    return replace_fields(request, system=(Text(text),))


def _append_text(parts: tuple[Part, ...], text: str) -> tuple[Part, ...]:
    """The text is added to the last text part, so that a cache breakpoint after it covers both."""
    for number in range(len(parts) - 1, -1, -1):
        part = parts[number]
        if isinstance(part, Text):
            longer = replace_fields(part, text=f"{part.text.rstrip()}\n\n{text}" if part.text.strip() else text)
            return (*parts[:number], longer, *parts[number + 1 :])
    return (*parts, Text(text))


# --- mentions ---------------------------------------------------------------------------------------------------------


def _is_distinctive(name: str) -> bool:
    """Is a name no ordinary word, as `apply_patch` and `WebFetch`?"""
    return not name.isalpha() or any(map(str.isupper, name[1:]))


def find_named_tools(text: str, names: Iterable[str]) -> list[str]:
    """Those of the names that a text has for a tool: an ordinary word only before the word "tool"."""
    ends = {True: r"(?![\w/-]|\.\w)", False: r"[`\"']? tools?\b"}
    return [name for name in names if re.search(rf"(?<![\w./-]){re.escape(name)}{ends[_is_distinctive(name)]}", text)]


def list_first_instructions(request: Request) -> list[str]:
    """The texts of the instructions before the conversation, which do not change while it grows."""
    leading = takewhile(lambda turn: turn.role in _SYSTEM_ROLES, request.turns)
    parts = [*request.system, *(part for turn in leading for part in turn.parts)]
    return [part.text for part in parts if isinstance(part, Text)]


class ToolMentions:
    """Replaces names of tools in text by another name, or by "another tool" (None).

    A name that could be an ordinary word (`edit`, `Read`) counts only in quotes or before the word "tool"; any other
    (`apply_patch`, `WebFetch`) counts everywhere. A JSON object that names a removed tool is an example of its use, and
    would be wrong with another name: it is left out.
    """

    def __init__(self, replacements: Mapping[str, str | None], removed: Collection[str]) -> None:
        self._replacements = replacements
        self.found_names: set[str] = set()
        distinctive = [name for name in replacements if _is_distinctive(name)]
        every = "|".join(map(re.escape, sorted(replacements, key=len, reverse=True)))
        alone = "|".join(map(re.escape, sorted(distinctive, key=len, reverse=True)))
        quoted = rf"(?P<open>[`\"'])(?P<quoted>{every})(?P=open)(?P<plural>e?s\b)?"
        beside = rf"(?<![\w./-])(?P<beside>{every})(?= tools?\b)"
        patterns = [quoted, beside] + ([rf"(?<![\w./-])(?P<alone>{alone})(?![\w/-]|\.\w)"] if alone else [])
        self._pattern = re.compile("|".join(patterns))
        names = "|".join(map(re.escape, removed))
        inside = r"(?:[^{}\n]|\{[^{}\n]*\})*"
        self._example = re.compile(rf'[ :]*\{{{inside}?"(?P<name>{names})"{inside}\}}') if removed else None

    def replace_names(self, text: str) -> str:
        if self._example is not None:
            text = self._example.sub(self._leave_out_example, text)
        return self._pattern.sub(self._replace_match, text)

    def _leave_out_example(self, found: re.Match[str]) -> str:
        self.found_names.add(found["name"])
        return ""

    def _replace_match(self, found: re.Match[str]) -> str:
        name = found["quoted"] or found["beside"] or found.groupdict().get("alone") or ""
        new = self._replacements[name]
        self.found_names.add(name)
        if found["quoted"]:
            plural = found["plural"] or ""
            if new is None and found.string.startswith(" tool", found.end()):
                return "other"
            if new is None:
                return "other tools" if plural else DROPPED_TOOL_TEXT
            return f"{found['open']}{new}{found['open']}{plural}"
        if new is None:
            return "other" if found["beside"] else DROPPED_TOOL_TEXT
        return new


def clean_mentions(request: Request, mentions: ToolMentions) -> Request:
    """The request with the names of tools replaced in its instructions and in descriptions of tools."""
    turns = tuple(
        with_parts(turn, _clean_parts(turn.parts, mentions)) if turn.role in _SYSTEM_ROLES else turn
        for turn in request.turns
    )
    system, tools = _clean_parts(request.system, mentions), _clean_tools(request.tools, mentions)
    return with_fields(request, system=system, tools=tools, turns=turns)


def _clean_parts(parts: tuple[Part, ...], mentions: ToolMentions) -> tuple[Part, ...]:
    out: list[Part] = []
    for part in parts:
        if isinstance(part, Text) and (text := mentions.replace_names(part.text)) != part.text:
            part = replace_fields(part, text=text)
        elif isinstance(part, ToolsAdded):
            part = with_fields(part, tools=_clean_tools(part.tools, mentions))
        out.append(part)
    return tuple(out)


def _clean_tools(tools: tuple[AnyTool, ...], mentions: ToolMentions) -> tuple[AnyTool, ...]:
    out: list[AnyTool] = []
    for tool in tools:
        old = tool.description if isinstance(tool, Tool) else None
        new = mentions.replace_names(old) if old else old
        out.append(tool if new == old else replace_fields(tool, description=new))
    return tuple(out)


def shorten_description(text: str, limit: int) -> str:
    """A description cut at the end of a sentence, or else between words."""
    text = text.strip()
    if len(text) <= limit:
        return text
    head = text[: limit + 1]
    ends = [found.end() for found in re.finditer(r"[.!?](?=\s)|(?=\n\s*\n)", head) if 0 < found.end() <= limit]
    if ends:
        return head[: ends[-1]].rstrip()
    words = re.sub(r"\s+\S*$", "", head[:limit])
    return words[: limit - 1].rstrip() + "…"
