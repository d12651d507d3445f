"""Tools that the client runs but the provider defines: their schemas, for models that must be told."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolwire.wire import Json, Object


def _text(description: str, **more: Json) -> Object:
    return {"type": "string", "description": description, **more}


def _whole_numbers(description: str) -> Object:
    return {"type": "array", "items": {"type": "integer"}, "description": description}


_FILES: Object = {
    "path": _text("Absolute path of the file or directory"),
    "file_text": _text("For create: the content of the new file"),
    "old_str": _text("For str_replace: the text to be replaced; it must occur exactly once"),
    "new_str": _text("For str_replace: the text that replaces it"),
    "insert_line": {"type": "integer", "description": "For insert: the line after which the text goes, 0 for the top"},
    "insert_text": _text("For insert: the text"),
    "view_range": _whole_numbers("For view: the first and the last line, -1 for the end"),
}


def _object(required: str, properties: Object) -> Object:
    return {"type": "object", "properties": properties, "required": [required]}


def _commands(*words: str) -> Object:
    return _text("What to do", enum=list(words))


OWN_TOOLS: Mapping[str, tuple[str, Object]] = MappingProxyType(
    {
        "bash_": (
            "Runs a command in a persistent shell session.",
            {
                "type": "object",
                "properties": {
                    "command": _text("The command to run"),
                    "restart": {"type": "boolean", "description": "true starts the shell anew"},
                },
            },
        ),
        "text_editor_": (
            "Views, creates and edits text files.",
            _object(
                "command", {"command": _commands("view", "create", "str_replace", "insert", "undo_edit"), **_FILES}
            ),
        ),
        "memory_": (
            "Keeps notes in files below /memories.",
            _object(
                "command",
                {
                    "command": _commands("view", "create", "str_replace", "insert", "delete", "rename"),
                    **_FILES,
                    "old_path": _text("For rename: the present path"),
                    "new_path": _text("For rename: the new path"),
                },
            ),
        ),
        "computer_": (
            "Controls the screen, mouse and keyboard of a computer.",
            _object(
                "action",
                {
                    "action": _text("What to do: screenshot, left_click, type, key, mouse_move, scroll, wait, …"),
                    "coordinate": _whole_numbers("x and y on the screen, in pixels"),
                    "start_coordinate": _whole_numbers("x and y where a drag begins"),
                    "text": _text("The text to type, or the keys to press"),
                    "scroll_direction": _text("Where to scroll", enum=["up", "down", "left", "right"]),
                    "scroll_amount": {"type": "integer", "description": "How far to scroll"},
                    "duration": {"type": "number", "description": "Seconds to wait or to hold a key"},
                    "region": _whole_numbers("The corners x0, y0, x1, y1 to zoom into"),
                },
            ),
        ),
    }
)
"""Tools that the client runs but the provider defines, by the prefix of their type: what they do and what they take, so
that other models can be offered them as functions."""


def own_tool(kind: str) -> tuple[str, Object] | None:
    if kind.startswith("computer_toolset_"):
        return None
    return next((row for prefix, row in OWN_TOOLS.items() if kind.startswith(prefix)), None)
