"""What the stream reader knows of a Chat stream so far: its choices, their calls, and unknown fields."""

from __future__ import annotations

from toolwire.core import json_values
from toolwire.core.ir import Finish, UnknownField
from toolwire.core.json_values import Json, Malformed, Object, Path
from toolwire.core.provenance import is_nonempty
from toolwire.protocols.openai_chat.names import CALL_KEYS, CHUNK_KEYS, DELTA_KEYS, IGNORABLE_CHUNK_CHOICE_KEYS

_MAX_UNKNOWN_KEYS = 1024
"""Limits the memory that a stream with ever new keys can take."""
_CHOICE_KEYS = IGNORABLE_CHUNK_CHOICE_KEYS - {"logprobs"}


class UnknownFields:
    """The unknown fields of a stream. Each key is reported once for each kind of node."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], UnknownField] = {}
        self._known_keys = {"chunk": CHUNK_KEYS, "choice": _CHOICE_KEYS, "delta": DELTA_KEYS, "call": CALL_KEYS}

    def add_unknown_keys(self, kind: str, node: Object, path: Path) -> None:
        known = self._known_keys[kind]
        if known.issuperset(node):
            return
        for key, value in node.items():
            if key not in known and is_nonempty(value) and len(known) < _MAX_UNKNOWN_KEYS:
                known = self._known_keys[kind] = known | {key}
                self._found[kind, key] = UnknownField(path, key)

    def add_once(self, kind: str, field: UnknownField, key: str | None = None) -> None:
        """An unknown field that a reader found; the first of its kind and key is kept."""
        self._found.setdefault((kind, field.key if key is None else key), field)

    def as_tuple(self) -> tuple[UnknownField, ...]:
        return tuple(self._found.values())


class OpenCall:
    """A call whose arguments may still grow."""

    __slots__ = (
        "_pieces",
        "call_index",
        "held_back",
        "id",
        "is_closed",
        "kind",
        "length",
        "name",
        "part_index",
        "sends_whole_text",
    )

    def __init__(self, id: str, name: str, kind: str, call_index: int) -> None:
        self._pieces: list[str] = []
        self.call_index = call_index
        """Its position among the calls of the choice."""
        self.id = id
        self.name = name
        self.kind = kind
        self.part_index = -1
        self.length = 0
        """The length of its arguments so far."""
        self.held_back: str | None = None
        """Argument text that is held until it is clear whether it repeats earlier text (see `find_new_text`)."""
        self.sends_whole_text = False
        """Does every delta hold all arguments so far?"""
        self.is_closed = False

    @property
    def text(self) -> str:
        """The arguments so far, joined when needed."""
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def add_delta(self, text: str) -> None:
        self._pieces.append(text)
        self.length += len(text)

    def drop_repeated_names(self, delta: Object, inner: Object) -> None:
        """A later delta must not name the call again: clients would append it."""
        if self.id and delta.get("id"):
            del delta["id"]
        if self.name and inner.get("name"):
            del inner["name"]

    def read_arguments_delta(self, inner: Object, key: str, added: str) -> str:
        """What a delta adds to the arguments. Its frame (`inner[key]`) is changed to the same."""
        if not added:
            return ""
        fresh = len(added) < self.length or (not self.length and added != "{}")
        if fresh and self.held_back is None and not self.sends_whole_text and type(inner[key]) is str:
            # Shorter than the arguments so far, or the first piece: it cannot repeat them.
            self.add_delta(added)
            return added
        shown = self.holds_placeholder
        text = self.find_new_text(added)
        if text is not added and not shown and not self.holds_placeholder:
            inner[key] = text
        elif not isinstance(inner[key], str):
            inner[key] = added
        return text

    def find_new_text(self, text: str) -> str:
        """What a delta adds to the arguments.

        Some servers send all arguments so far in every delta. Such a delta starts with the arguments so far; rarely, so
        does a normal one (`{"a":` followed by `{"a":1}}`). It is held back until the next delta extends it again, which
        is proof, or until the end, where only one of the two readings is valid JSON.
        `{}` as the first text is held back too: it may be a placeholder for arguments that follow.
        """
        if self.kind == "custom":
            self.add_delta(text)
            return text
        if self.held_back is not None:
            return self._resolve_held_back(text)
        held = self.length
        if self.sends_whole_text:
            if text.startswith(self.text):
                text = text[held:]
            elif self.text.startswith(text):
                return ""
        elif held and text == self.text and self.is_complete():
            return ""
        elif (held and len(text) > held and text.startswith(self.text)) or (not held and text == "{}"):
            self.held_back = text
            return ""
        self.add_delta(text)
        return text

    def _resolve_held_back(self, text: str) -> str:
        pending, self.held_back = self.held_back or "", None
        if not self.length:
            new = text if text.lstrip().startswith("{") else pending + text
        elif text.startswith(pending):
            self.sends_whole_text = True
            new = text[self.length :]
        else:
            new = pending + text
        self.add_delta(new)
        return new

    @property
    def holds_placeholder(self) -> bool:
        """Is the empty object held back? Clients already got its frame."""
        return self.held_back is not None and not self.length

    def release_held_back(self) -> str:
        """What is still held back at the end: all arguments again, unless appending gives valid JSON."""
        pending, self.held_back = self.held_back, None
        if pending is None:
            return ""
        if self.length and not json_values.is_object_text(self.text + pending):
            pending = pending[self.length :]
        self.add_delta(pending)
        return pending

    def is_complete(self) -> bool:
        """Are the arguments a complete JSON object? Then no more can follow."""
        return (
            self.kind != "custom"
            and self.text.endswith("}")
            and self.held_back is None
            and json_values.is_object_text(self.text)
        )


class OpenChoice:
    """One choice: its open text part, and its calls."""

    __slots__ = (
        "calls",
        "calls_by_index",
        "channel",
        "channel_key",
        "finish",
        "index",
        "open_part",
        "part_offset",
        "text_length",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.channel = ""
        self.channel_key: Json = None
        self.open_part = -1
        self.calls: list[OpenCall] = []
        self.calls_by_index: dict[int | str, OpenCall] = {}
        self.finish: Finish | None = None
        self.part_offset = 0
        self.text_length = 0

    def count_text(self, text: str) -> None:
        """Citations count positions in the answer's text, without reasoning and refusals."""
        if self.channel == "text":
            self.text_length += len(text)

    def add_call(self, call: OpenCall, index: int | str | None) -> OpenCall:
        self.calls.append(call)
        self.calls_by_index[-len(self.calls) if index is None else index] = call
        return call

    def write_arguments_choice(self, call: OpenCall, text: str) -> Object:
        """The choice of a chunk for arguments that were held back until the end."""
        delta = {"tool_calls": [{"index": call.call_index, "function": {"arguments": text}}]}
        return {"index": self.index, "delta": delta, "logprobs": None, "finish_reason": None}

    def find_call(self, index: int | str | None, id: str, name: str) -> OpenCall | None:
        """The call that a delta belongs to; None for a new one. Raises Malformed where it would be a guess."""
        if index is not None:
            call = self.calls_by_index.get(index)
            if call is None or (name and id and call.id and id != call.id):
                return None
            # Some servers send whole calls without ids at one index: a name after complete arguments is a new call.
            return None if name and not id and call.is_complete() else call
        if id:
            return next((call for call in self.calls if call.id == id), None)
        if name:
            call = self.calls[-1] if len(self.calls) == 1 else None
            return call if call is not None and call.name == name and not call.is_complete() else None
        if len(self.calls) == 1:
            return self.calls[0]
        raise Malformed(None, "a piece of a call has neither index, id nor name")
