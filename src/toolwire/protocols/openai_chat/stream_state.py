"""What the stream reader knows of a Chat stream so far: its choices, their calls, and unknown fields."""

from __future__ import annotations

from msgspec import Struct, field

from toolwire.core.ir import Finish, Seal, UnknownField
from toolwire.core.json_values import Json, Malformed, Object, Path, is_object_text
from toolwire.core.provenance import is_nonempty
from toolwire.protocols.openai_chat.names import CALL_KEYS, CHUNK_CHOICE_KEYS, CHUNK_KEYS, DELTA_KEYS

_MAX_UNKNOWN_KEYS = 1024
"""Limits the memory that a stream with ever new keys can take."""
_KNOWN_KEYS = {"chunk": CHUNK_KEYS, "choice": CHUNK_CHOICE_KEYS, "delta": DELTA_KEYS, "call": CALL_KEYS}


class UnknownFields(Struct, eq=False):
    """The unknown fields of a stream. Each key is reported once for each kind of node."""

    found: dict[tuple[str, str], UnknownField] = {}
    _known_keys: dict[str, frozenset[str]] = field(default_factory=_KNOWN_KEYS.copy)

    def add_unknown_keys(self, kind: str, node: Object, path: Path) -> None:
        known = self._known_keys[kind]
        if known.issuperset(node):
            return
        for key, value in node.items():
            if key not in known and is_nonempty(value) and len(known) < _MAX_UNKNOWN_KEYS:
                known = self._known_keys[kind] = known | {key}
                self.found[kind, key] = UnknownField(path, key)

    def add_once(self, kind: str, unknown: UnknownField, key: str | None = None) -> None:
        """An unknown field that a reader found; the first of its kind and key is kept."""
        self.found.setdefault((kind, unknown.key if key is None else key), unknown)


class OpenCall(Struct, eq=False):
    """A call whose arguments may still grow."""

    id: str
    name: str
    kind: str
    call_index: int
    """Its position among the calls of the choice."""
    part_index: int = -1
    length: int = 0
    """The length of its arguments so far."""
    held_back: str | None = None
    """Argument text that is held until it is clear whether it repeats earlier text (see `find_new_text`)."""
    sends_whole_text: bool = False
    """Does every delta hold all arguments so far?"""
    is_closed: bool = False
    seal: Seal | None = None
    """A seal that came before its part was started."""
    _pieces: list[str] = []

    @property
    def text(self) -> str:
        """The arguments so far, joined when needed."""
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def add_delta(self, text: str) -> None:
        self._pieces.append(text)
        self.length += len(text)

    def add_names(self, delta: Object, inner: Object, name: str, has_arguments: bool, path: Path) -> bool:
        """Take the id and the name of a later delta, which must not repeat them: clients would append them. Was this
        one more piece of the name? Some servers send a name in pieces, before the arguments."""
        if self.id and delta.get("id"):
            del delta["id"]
        self.id = self.id or delta.get("id") or ""
        if not self.name or not name:
            self.name = self.name or name
            return False
        if name == self.name:
            del inner["name"]
            return False
        if self.part_index >= 0 or self.length or has_arguments:
            raise Malformed(path, f"the call of `{self.name}` is called `{name}` later, beside or after its arguments")
        is_longer = name.startswith(self.name)
        self.name, inner["name"] = (name, name[len(self.name) :]) if is_longer else (self.name + name, name)
        return True

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
        if self.length and not is_object_text(self.text + pending):
            pending = pending[self.length :]
        self.add_delta(pending)
        return pending

    @property
    def is_unbegun(self) -> bool:
        """Have no arguments come? Then more of its name may come."""
        return not self.length and self.held_back is None

    def is_complete(self) -> bool:
        """Are the arguments a complete JSON object? Then no more can follow."""
        if self.kind == "custom" or self.held_back is not None:
            return False
        return self.text.endswith("}") and is_object_text(self.text)


class OpenChoice(Struct, eq=False):
    """One choice: its open text part, and its calls."""

    index: int
    channel: str = ""
    channel_key: Json = None
    open_part: int = -1
    calls: list[OpenCall] = []
    calls_by_index: dict[int | str, OpenCall] = {}
    changed_calls: dict[int, OpenCall] = {}
    """Calls whose arguments have grown since it was last checked which ones are complete, by their position."""
    has_moved_calls: bool = False
    """Did a call stand among the parts of the content?"""
    finish: Finish | None = None
    part_offset: int = 0
    text_length: int = 0

    @property
    def holds_call(self) -> bool:
        """Has the last call not started because `{}` may be a placeholder?"""
        return bool(self.calls) and bool(self.calls[-1].name) and self.calls[-1].holds_placeholder

    def count_text(self, text: str) -> None:
        """Citations count positions in the answer's text, without reasoning and refusals."""
        if self.channel == "text":
            self.text_length += len(text)

    def add_call(self, call: OpenCall, index: int | str | None) -> OpenCall:
        self.calls.append(call)
        self.calls_by_index[-len(self.calls) if index is None else index] = call
        return call

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
            if self.calls and self.calls[-1].is_unbegun and self.calls[-1].name != name:
                raise Malformed(None, "a name without index and id may be a new call, or the rest of a name")
            return call if call is not None and call.name == name and not call.is_complete() else None
        if len(self.calls) == 1:
            return self.calls[0]
        raise Malformed(None, "a piece of a call has neither index, id nor name")
