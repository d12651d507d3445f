"""A stream of chunks, read into events: from the service itself and from servers that speak it with an accent.

The end is a finish reason for every choice, or `[DONE]`. Endings wait for one of the two, because some servers send a
second finish reason, or content beside and after the first.

A frame goes back to clients of this protocol as it came, but for what their SDKs cannot add up, which is mended in it:
ids and names that are repeated, indices that are missing, shared or not in line, arguments that are sent again.
"""

from __future__ import annotations

from toolwire import events as ev
from toolwire import sse
from toolwire.failures import TRUNCATED
from toolwire.ir import Call, Failure, Finish, Media, Origin, Part, Reasoning, Refusal, Stray, Text
from toolwire.protocols.openai_chat.details.calls import argument_text, read_seal
from toolwire.protocols.openai_chat.details.growing import Answer, Growing
from toolwire.protocols.openai_chat.details.pattern import MAX_TRIES, Pattern, pattern_of
from toolwire.protocols.openai_chat.details.strays import Strays
from toolwire.protocols.openai_chat.errors import read_failure
from toolwire.protocols.openai_chat.names import DONE, NAME
from toolwire.protocols.openai_chat.parts import is_cut, read_citations, read_content, read_detail
from toolwire.protocols.openai_chat.response import finish_of, made_at, read_usage
from toolwire.reading import Reading
from toolwire.wire import Json, Malformed, Object, Path, as_object, decode, take_int, take_list, take_object, take_text

_SILENT = ev.Frame(NAME, None, None, silent=True)
_DONE = ev.Frame(NAME, None, None)
_OLD = "function_call"
_SHORT = 64
"""No chunk is shorter; only such data can be the sentinel or nothing."""


class StreamReader:
    def __init__(self) -> None:
        self._splitter = sse.Splitter()
        self._count = 0
        self._parts = 0
        self._answers: dict[int, Answer] = {}
        self._started = False
        self._first: Object = {}
        """The chunk that began the answer."""
        self._done = False
        self._strays = Strays()
        self._out: list[ev.Event] = []
        self._frame = _SILENT
        self._pattern: Pattern | None = None
        """What the chunk before was, if the next may be the same but for its piece."""
        self._tries = 0
        """Patterns that were looked for since one was met again."""
        self._mended = False
        """Was anything changed in the last chunk, so that its bytes do not tell what it says?"""
        self.again: sse.Again | None = None

    def feed(self, data: bytes) -> list[ev.Event]:
        if self._done:
            return []
        pattern = self._pattern
        if pattern is not None:
            self._settle(pattern)
        out = self._out = []
        try:
            frames = self._splitter.feed(data)
        except sse.FrameTooLong as error:
            self._frame = _SILENT
            self._fail(str(error), "frame_too_long")
            return out
        for frame in frames:
            event = None if pattern is None else pattern.again(frame)
            if event is None:
                pattern = self._pattern = self._take(frame)
            else:
                self._count += 1
                self._tries = 0
                out.append(event)
        if pattern is not None and self._splitter.between:
            self.again = pattern.known
        return out

    def _settle(self, pattern: Pattern) -> None:
        """Count in what was known by its bytes."""
        self.again = None
        alike = pattern.alike
        if alike is not None and alike.met:
            pattern.count(alike.size)
            self._count += alike.met
            self._tries = alike.met = alike.size = 0

    def close(self) -> list[ev.Event]:
        if self._done:
            return []
        if self._pattern is not None:
            self._settle(self._pattern)
        out = self._out = []
        for frame in self._splitter.close():
            self._take(frame)
        if not self._done:
            self._frame = _SILENT
            if self._answers and all(answer.finish for answer in self._answers.values()):
                self._finish()
            else:
                self._fail(f"{TRUNCATED}: no finish reason or [DONE] came", "stream_truncated")
        return out

    # --- frames ---

    def _take(self, raw: sse.Frame) -> Pattern | None:
        """Read a frame; what may come again is given back as a pattern."""
        if self._done:
            return None
        path: Path = (_EVENT, self._count)
        self._count += 1
        out, data = self._out, raw.data
        before = len(out)
        if len(data) < _SHORT and data.strip() in (DONE, b""):
            self._sentinel(raw, path)
            return None
        try:
            chunk = decode(data, path)
            self._frame = ev.Frame(NAME, raw.event, chunk)
            self._mended = False
            self._chunk(chunk if type(chunk) is dict else as_object(chunk, path), path)
        except Malformed as error:
            # Half of a frame says nothing: the failure stands in its place.
            del out[before:]
            self._fail(f"the provider's stream cannot be read: {error}", "invalid_stream")
            return None
        if len(out) == before:
            out.append(ev.Carried("chunk", Origin(NAME, path, chunk), True, self._frame))
            return None
        last = out[-1]
        if self._mended or not isinstance(last, _GROWING) or raw.event is not None or self._tries >= MAX_TRIES:
            return None
        for event in out[before:-1]:
            if type(event) not in _OPENING:
                return None
        self._tries += 1
        return pattern_of(raw, chunk, last, self._answers)

    def _sentinel(self, raw: sse.Frame, path: Path) -> None:
        """Data that is no chunk: `[DONE]`, or nothing at all."""
        if raw.data.strip():
            self._frame = _DONE
            self._finish()
            return
        self._frame = ev.Frame(NAME, raw.event, None, silent=True)
        self._out.append(ev.Carried(raw.event or "empty", Origin(NAME, path, None), True, self._frame))

    def _fail(self, message: str, code: str) -> None:
        self._done = True
        self._out.append(ev.ResponseFailed(Failure("upstream", message, 502, code), _SILENT))

    def _chunk(self, chunk: Object, path: Path) -> None:
        if chunk.get("error") or chunk.get("object") == "error" or self._frame.event == "error":
            self._fails(chunk)
            return
        if not self._strays.chunk.issuperset(chunk):
            self._strays.note("chunk", chunk, path)
        choices, usage = chunk.get("choices"), chunk.get("usage")
        if type(choices) is not list:
            choices = take_list(chunk, "choices", path) or []
        if usage is not None:
            usage = as_object(usage, (path, "usage"))
        if not self._started and not self._begins(chunk, path, bool(choices or usage)):
            return
        for number, choice in enumerate(choices):
            at = ((path, "choices"), number)
            if type(choice) is not dict:
                as_object(choice, at)
            if "error" in choice and isinstance(choice["error"], dict):
                self._fails(choice)
                return
            self._choice(choice, at)
        if usage:
            self._used(usage, (path, "usage"))

    def _fails(self, node: Object) -> None:
        self._done = True
        self._out.append(ev.ResponseFailed(read_failure(node, 0), self._frame))

    def _begins(self, chunk: Object, path: Path, says: bool) -> bool:
        """Does the answer begin here? A first chunk that only tells of the prompt (filters) has no id yet."""
        if not says and not chunk.get("id"):
            return False
        self._started, self._first = True, chunk
        id, model = take_text(chunk, "id", path) or "", take_text(chunk, "model", path) or ""
        self._out.append(ev.ResponseStart(id, model, made_at(chunk, path), None, None, self._frame))
        return True

    def _used(self, usage: Object, path: Path) -> None:
        reading = Reading(NAME)
        self._out.append(ev.UsageUpdate(read_usage(usage, path, reading), self._frame))
        for stray in reading.strays:
            self._strays.once("usage", stray)

    def _choice(self, choice: Object, path: Path) -> None:
        if not self._strays.choice.issuperset(choice):
            self._strays.note("choice", choice, path)
        index = choice.get("index")
        if type(index) is not int:
            index = take_int(choice, "index", path) or 0
        answer = self._answers.get(index)
        if answer is None:
            if not 0 <= index < ev.MAX_CHOICES:
                raise Malformed((path, "index"), f"no answer has {index} choices")
            answer = self._answers[index] = Answer(index)
        delta = choice.get("delta")
        if delta:
            at = (path, "delta")
            self._delta(answer, delta if type(delta) is dict else as_object(delta, at), at)
        raw = choice.get("finish_reason")
        if raw:
            finish = finish_of(str(raw), bool(answer.slots), choice.get("stop_reason"), (path, "finish_reason"))
            # A second word counts only where the first said least.
            if answer.finish is None or (answer.finish.kind == "stop" and finish.kind != "stop"):
                answer.finish = finish
            elif answer.finish.kind != finish.kind:
                choice["finish_reason"] = None
                self._mended = True

    # --- deltas ---

    def _delta(self, answer: Answer, delta: Object, path: Path) -> None:
        plain = _PLAIN.issuperset(delta)
        if not plain:
            self._strays.note("delta", delta, path)
            self._reasoning(answer, delta, path)
        content = delta.get("content")
        if content:
            if isinstance(content, str):
                self._text(answer, "text", content)
            else:
                self._listed(answer, content, (path, "content"))
        if delta.get("refusal"):
            self._text(answer, "refusal", take_text(delta, "refusal", path) or "")
        if not plain and delta.get("annotations"):
            self._cite(answer, delta, path)
        if not plain and delta.get("images"):
            self._listed(answer, delta["images"], (path, "images"))
        if delta.get("tool_calls") or (not plain and delta.get(_OLD)):
            self._calls(answer, delta, path)

    def _text(self, answer: Answer, channel: str, text: str, key: Json = None) -> None:
        self._open(answer, channel, key)
        if channel == "text":
            answer.text_at += len(text)
        self._out.append(ev.TextDelta(answer.open, text, self._frame))

    def _open(self, answer: Answer, channel: str, key: Json = None, part: Part | None = None) -> None:
        """Make this channel's part the one that grows; a change of channel ends the part before."""
        if answer.channel == channel and answer.key == key and part is None:
            return
        self._shut(answer)
        for slot in answer.slots:
            if not slot.closed and slot.part >= 0 and slot.whole():
                self._end_call(slot, False)
        answer.channel, answer.key, answer.open = channel, key, self._start(answer, part or _EMPTY[channel])
        answer.shift = answer.text_at

    def _shut(self, answer: Answer) -> None:
        if answer.channel:
            self._out.append(ev.PartEnd(answer.open, frame=self._frame))
            answer.channel, answer.key = "", None

    def _start(self, answer: Answer, part: Part) -> int:
        index = self._parts
        self._parts += 1
        self._out.append(ev.PartStart(index, part, answer.index, self._frame))
        return index

    def _listed(self, answer: Answer, value: Json, path: Path) -> None:
        """Content as a list of parts, as some servers stream it."""
        for part in read_content(value, path, Reading(NAME)):
            if isinstance(part, (Text, Reasoning)):
                if part.text:
                    self._text(answer, "text" if isinstance(part, Text) else "reasoning", part.text)
            elif isinstance(part, Media):
                self._shut(answer)
                self._out.append(ev.PartEnd(self._start(answer, part), frame=self._frame))
            else:
                self._strays.once("content", Stray(path, "type"), type(part).__name__)

    def _cite(self, answer: Answer, delta: Object, path: Path) -> None:
        self._open(answer, "text")
        reading = Reading(NAME)
        for citation in read_citations(delta, path, reading, answer.shift):
            self._out.append(ev.CitationDelta(answer.open, citation, self._frame))
        for stray in reading.strays:
            self._strays.once("annotation", stray)

    def _reasoning(self, answer: Answer, delta: Object, path: Path) -> None:
        """Reasoning text, or details of which the text is a copy."""
        told = False
        for number, item in enumerate(take_list(delta, "reasoning_details", path) or ()):
            at = ((path, "reasoning_details"), number)
            part = read_detail(item, at, Reading(NAME)) if isinstance(item, dict) else None
            if part is None:
                self._strays.once("detail", Stray((path, "reasoning_details"), str(number)), "")
                continue
            told = told or bool(part.text)
            self._detail(answer, part, item.get("index"))
        if told:
            return
        text = delta.get("reasoning_content") or delta.get("reasoning")
        if text and isinstance(text, str):
            self._text(answer, "reasoning", text, answer.key if answer.channel == "reasoning" else None)

    def _detail(self, answer: Answer, part: Reasoning, number: Json) -> None:
        key = (part.form, number)
        if part.hidden or answer.channel != "reasoning" or (answer.key is not None and answer.key != key):
            self._open(answer, "reasoning", key, Reasoning("", part.form, part.hidden, id=part.id))
        answer.key = key
        if part.text:
            self._out.append(ev.TextDelta(answer.open, part.text, self._frame))
        if part.seal is not None:
            self._out.append(ev.SealDelta(answer.open, part.seal, self._frame))
        if part.hidden:
            self._shut(answer)

    # --- calls ---

    def _calls(self, answer: Answer, delta: Object, path: Path) -> None:
        for number, item in enumerate(take_list(delta, "tool_calls", path) or ()):
            at = ((path, "tool_calls"), number)
            node = as_object(item, at)
            self._call(answer, node, at, take_int(node, "index", at))
        old = take_object(delta, _OLD, path)
        if old and (old.get("name") or answer.by_index.get(_OLD)):
            self._call(answer, {"function": old}, path, _OLD)

    def _call(self, answer: Answer, delta: Object, path: Path, index: int | str | None) -> None:
        self._strays.note("call", delta, path)
        custom = delta.get("custom") or delta.get("type") == "custom"
        kind, key = ("custom", "input") if custom else ("function", "arguments")
        inner = take_object(delta, kind, path) or {}
        id, name = take_text(delta, "id", path) or "", take_text(inner, "name", (path, kind)) or ""
        slot = answer.slot_for(index, id, name)
        if slot is None:
            slot = answer.added(Growing(id, name, kind, len(answer.slots)), index)
        elif id or name:
            slot.mend(delta, inner)
            slot.id, slot.name = slot.id or id, slot.name or name
            self._mended = True
        if index != _OLD and delta.get("index") is not slot.number:
            delta["index"] = slot.number
            self._mended = True
        given = inner.get(key)
        added = argument_text(given)
        if slot.closed:
            if added.strip() and not slot.text.startswith(added):
                raise Malformed(path, f"more arguments for the call of `{slot.name}`, whose arguments are complete")
            inner[key] = ""
            self._mended = True
            return
        text = slot.take(inner, key, added)
        self._mended = self._mended or text is not given
        if slot.part >= 0:
            if text:
                self._out.append(ev.ArgumentsDelta(slot.part, text, self._frame))
        elif slot.name:
            self._begin(answer, slot)
        seal = read_seal(delta, path, Reading(NAME)) if "extra_content" in delta and slot.part >= 0 else None
        if seal is not None:
            self._out.append(ev.SealDelta(slot.part, seal, self._frame))

    def _begin(self, answer: Answer, slot: Growing) -> None:
        """Announce a call once its name is known; those before it that are complete end here."""
        self._shut(answer)
        for other in answer.slots:
            if other is not slot and not other.closed and other.part >= 0 and other.whole():
                self._end_call(other, False)
        slot.part = self._start(answer, Call(slot.id, slot.name, "", slot.kind))
        if slot.text:
            self._out.append(ev.ArgumentsDelta(slot.part, slot.text, self._frame))

    def _end_call(self, slot: Growing, incomplete: bool) -> None:
        slot.closed = True
        self._out.append(ev.PartEnd(slot.part, incomplete, self._frame))

    # --- the end ---

    def _finish(self) -> None:
        if not self._answers:
            self._fail(TRUNCATED, "stream_truncated")
            return
        for index in sorted(self._answers):
            answer = self._answers[index]
            for slot in answer.slots:
                if slot.part < 0:
                    self._fail(f"the provider's stream never named the call {slot.id!r}", "invalid_stream")
                    return
            self._shut(answer)
            self._end_choice(answer)
        self._done = True
        self._out.append(ev.ResponseEnd(self._strays.all(), self._frame))

    def _end_choice(self, answer: Answer) -> None:
        finish = answer.finish
        broken = False
        for slot in answer.slots:
            if slot.pending is not None:
                self._settled(answer, slot)
            if slot.closed:
                continue
            open_ended = bool(slot.text.strip()) if finish is None else finish.kind in ("length", "filter")
            incomplete = open_ended and is_cut(slot.kind, slot.text)
            broken = broken or incomplete
            self._end_call(slot, incomplete)
        if finish is None:
            # [DONE] without a reason: the content tells it, and cut arguments tell that it was cut.
            finish = Finish("length" if broken else "calls" if answer.slots else "stop")
        self._out.append(ev.ChoiceEnd(finish, answer.index, self._frame))

    def _settled(self, answer: Answer, slot: Growing) -> None:
        """Arguments that were held until it is clear what they are."""
        shown, text = slot.placeholder, slot.settled()
        if text:
            head: Object = {key: self._first[key] for key in _HEAD if key in self._first}
            late: Object = head | {"choices": [answer.late(slot, text)]}
            frame = self._frame if shown else ev.Frame(NAME, None, late)
            self._out.append(ev.ArgumentsDelta(slot.part, text, frame))


_EVENT: Path = (None, "event")
_GROWING = (ev.TextDelta, ev.ArgumentsDelta)
_OPENING = (ev.ResponseStart, ev.PartStart, ev.PartEnd)
"""What may stand before a delta in its chunk: the beginning of what it belongs to does not come again."""
_EMPTY: dict[str, Part] = {"text": Text(""), "refusal": Refusal(""), "reasoning": Reasoning("", "raw")}
_HEAD = ("id", "object", "created", "model")
_PLAIN = frozenset({"role", "content", "refusal", "tool_calls"})
"""All that most deltas have."""
