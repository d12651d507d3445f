"""Calls and texts of a stream while they grow, and which of them a piece belongs to."""

from __future__ import annotations

from toolwire import wire
from toolwire.ir import Finish
from toolwire.wire import Json, Malformed, Object


class Growing:
    """A call while it grows. `pending` holds argument text of which it is not yet clear what it is."""

    __slots__ = ("_pieces", "closed", "id", "keep", "kind", "name", "number", "part", "pending", "resent", "size")

    def __init__(self, id: str, name: str, kind: str, number: int) -> None:
        self._pieces: list[str] = []
        self.keep = self._pieces.append
        """Takes more of the arguments, whose length is still to be added to `size`."""
        self.number = number
        """Its place among the calls of the choice."""
        self.id = id
        self.name = name
        self.kind = kind
        self.part = -1
        self.size = 0
        """How many characters of arguments there are."""
        self.pending: str | None = None
        self.resent = False
        self.closed = False

    @property
    def text(self) -> str:
        """The arguments so far; put together only when somebody asks."""
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def grow(self, text: str) -> None:
        self.keep(text)
        self.size += len(text)

    def mend(self, delta: Object, inner: Object) -> None:
        """A later delta must not name the call again: clients would append it."""
        if self.id and delta.get("id"):
            del delta["id"]
        if self.name and inner.get("name"):
            del inner["name"]

    def take(self, inner: Object, key: str, added: str) -> str:
        """What a delta adds to the arguments; its frame is made to say the same."""
        if not added:
            return ""
        fresh = len(added) < self.size or (not self.size and added != "{}")
        if fresh and self.pending is None and not self.resent and type(inner[key]) is str:
            # Shorter than what there is, or the first of it: it cannot be that again.
            self.grow(added)
            return added
        shown = self.placeholder
        text = self.fresh(added)
        if text is not added and not shown and not self.placeholder:
            inner[key] = text
        elif not isinstance(inner[key], str):
            inner[key] = added
        return text

    def fresh(self, text: str) -> str:
        """What a delta adds to the arguments.

        Some servers send, in every delta, the whole of the arguments so far. Such a delta begins with the whole buffer;
        so does, once in a long while, a lawful one (`{"a":` followed by `{"a":1}}`). It is held until the next delta
        extends it again, which is proof, or until the end, where only one of both readings is JSON.
        `{}` as the first text is held too: it may be a placeholder for arguments that are still to come.
        """
        if self.kind == "custom":
            self.grow(text)
            return text
        if self.pending is not None:
            return self._resolved(text)
        held = self.size
        if self.resent:
            if text.startswith(self.text):
                text = text[held:]
            elif self.text.startswith(text):
                return ""
        elif held and text == self.text and self.whole():
            return ""
        elif (held and len(text) > held and text.startswith(self.text)) or (not held and text == "{}"):
            self.pending = text
            return ""
        self.grow(text)
        return text

    def _resolved(self, text: str) -> str:
        pending, self.pending = self.pending or "", None
        if not self.size:
            new = text if text.lstrip().startswith("{") else pending + text
        elif text.startswith(pending):
            self.resent = True
            new = text[self.size :]
        else:
            new = pending + text
        self.grow(new)
        return new

    @property
    def placeholder(self) -> bool:
        """Is what is held the empty object, which was shown to clients as it came?"""
        return self.pending is not None and not self.size

    def settled(self) -> str:
        """What is still held at the end: an extension of the buffer, unless appending is what gives JSON."""
        pending, self.pending = self.pending, None
        if pending is None:
            return ""
        if self.size and not wire.is_object_text(self.text + pending):
            pending = pending[self.size :]
        self.grow(pending)
        return pending

    def whole(self) -> bool:
        """Are the arguments complete? Then nothing can follow them."""
        return (
            self.kind != "custom"
            and self.text.endswith("}")
            and self.pending is None
            and wire.is_object_text(self.text)
        )


class Answer:
    """One choice: the part that grows by text, and the calls."""

    __slots__ = ("by_index", "channel", "finish", "index", "key", "open", "shift", "slots", "text_at")

    def __init__(self, index: int) -> None:
        self.index = index
        self.channel = ""
        self.key: Json = None
        self.open = -1
        self.slots: list[Growing] = []
        self.by_index: dict[int | str, Growing] = {}
        self.finish: Finish | None = None
        self.shift = 0
        self.text_at = 0

    def added(self, slot: Growing, index: int | str | None) -> Growing:
        self.slots.append(slot)
        self.by_index[-len(self.slots) if index is None else index] = slot
        return slot

    def late(self, slot: Growing, text: str) -> Object:
        """The choice of a chunk for arguments that were held to the end."""
        delta = {"tool_calls": [{"index": slot.number, "function": {"arguments": text}}]}
        return {"index": self.index, "delta": delta, "logprobs": None, "finish_reason": None}

    def slot_for(self, index: int | str | None, id: str, name: str) -> Growing | None:
        """The call that a delta belongs to; None for a new one. Never guessed: Malformed when nothing tells it."""
        if index is not None:
            slot = self.by_index.get(index)
            if slot is None or (name and id and slot.id and id != slot.id):
                return None
            # Whole calls without ids, all at one index: a name after complete arguments begins another call.
            return None if name and not id and slot.whole() else slot
        if id:
            return next((slot for slot in self.slots if slot.id == id), None)
        if name:
            slot = self.slots[-1] if len(self.slots) == 1 else None
            return slot if slot is not None and slot.name == name and not slot.whole() else None
        if len(self.slots) == 1:
            return self.slots[0]
        raise Malformed(None, "a piece of a call has neither index, id nor name")
