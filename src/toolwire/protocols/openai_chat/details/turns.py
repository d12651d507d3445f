"""Messages of every shape, both ways: what the short ways leave."""

from __future__ import annotations

from toolwire.hosted import retold
from toolwire.ir import HostedResult, Media, Opaque, Origin, Part, Reasoning, Result, Text, Turn, changed, place
from toolwire.loss import Ledger
from toolwire.protocols.openai_chat import names
from toolwire.protocols.openai_chat.details.calls import write_call
from toolwire.protocols.openai_chat.details.message import Spoken, note_part, read_message
from toolwire.protocols.openai_chat.details.plain import read_plain, write_plain
from toolwire.protocols.openai_chat.models import Family
from toolwire.protocols.openai_chat.names import NAME, kept, own, own_seal
from toolwire.protocols.openai_chat.parts import read_content, write_media, write_text
from toolwire.reading import Reading, finished
from toolwire.wire import Json, Malformed, Object, Path, as_list, as_object, need_text, take_text

# --- reading --------------------------------------------------------------------------------------------------------


def read_turns(messages: Json, path: Path, reading: Reading) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    for number, node in enumerate(messages if messages.__class__ is list else as_list(messages, path)):
        at = (path, number)
        turns.append(read_plain(node, at, reading) or _read_turn(as_object(node, at), at, reading))
    return tuple(turns)


def _read_turn(node: Object, path: Path, reading: Reading) -> Turn:
    spoken = need_text(node, "role", path)
    role = names.ROLES.get(spoken)
    if role is None:
        raise Malformed((path, "role"), f"unknown role {spoken!r}; known are {', '.join(names.ROLES)}")
    if role == "tool":
        origin = reading.origin(node, path, names.KNOWN_TOOL_MESSAGE)
        return Turn("tool", (_read_result(node, path, reading, origin),), origin=origin)
    name = take_text(node, "name", path) or ""
    if role == "assistant":
        origin = reading.origin(node, path, names.KNOWN_ASSISTANT)
        return Turn(role, read_message(node, path, reading), name, origin=origin)
    origin = reading.origin(node, path, names.KNOWN_MESSAGE)
    return Turn(role, tuple(read_content(node.get("content"), (path, "content"), reading)), name, origin=origin)


def _read_result(node: Object, path: Path, reading: Reading, origin: Origin) -> Result:
    """A tool's message, or the old `function` message, which names the function in place of the call."""
    id = "" if node["role"] == "function" else take_text(node, "tool_call_id", path) or ""
    content = tuple(read_content(node.get("content"), (path, "content"), reading))
    return Result(id, content, name=take_text(node, "name", path) or "", origin=origin)


# --- writing --------------------------------------------------------------------------------------------------------


def write_turns(turns: tuple[Turn, ...], foreign: bool, known: Family, ledger: Ledger) -> list[Object]:
    """All turns; `foreign` ones are another protocol's throughout."""
    messages: list[Object] = []
    for turn in turns:
        message = write_plain(turn) if foreign else kept(turn.origin)
        if message is not None:
            messages.append(message)
        else:
            messages += _write_turn(turn, known, ledger)
    return messages


def _write_turn(turn: Turn, known: Family, ledger: Ledger) -> list[Object]:
    if turn.phase:
        ledger.note("no-counterpart", place(turn), f"the phase `{turn.phase}` was left out")
    if turn.role == "assistant":
        return [_write_assistant(turn, known, ledger)]
    results = [part for part in turn.parts if isinstance(part, Result)]
    messages = [_write_result(part, known, ledger) for part in results]
    if len(results) < len(turn.parts) or not results:
        rest = tuple(part for part in turn.parts if not isinstance(part, Result)) if results else turn.parts
        out: Object = {"role": _role(turn, known, ledger), "content": write_content(rest, known, ledger)}
        if turn.name:
            out["name"] = turn.name
        messages.append(finished(out, turn.origin, NAME))
    return messages


def _role(turn: Turn, known: Family, ledger: Ledger) -> str:
    if turn.role == "developer" and not known.developer:
        ledger.note(
            "role-mapped", place(turn), "the role `developer` became `system`", "not every server knows `developer`"
        )
        return "system"
    return "user" if turn.role == "tool" else turn.role


def write_content(parts: tuple[Part, ...], known: Family, ledger: Ledger) -> Json:
    """Text alone as a string, everything else as a list of parts."""
    if len(parts) == 1:
        only = parts[0]
        if isinstance(only, Text) and only.cache is None and not (only.origin and kept(only.origin)):
            _note_text(only, ledger)
            return only.text
    out: list[Object] = []
    for part in parts:
        if isinstance(part, Text):
            _note_text(part, ledger)
            out.append(write_text(part, known, ledger))
        elif isinstance(part, Media):
            media = write_media(part, known, ledger)
            if media is not None:
                out.append(media)
        elif isinstance(part, Opaque) and own(part.origin):
            out.append(part.origin.wire)
        else:
            note_part(part, ledger)
    return out or ""


def _note_text(part: Text, ledger: Ledger) -> None:
    if part.citations:
        ledger.note("citation-dropped", place(part), "the citations of a text in the history were left out")
    if part.seal is not None:
        ledger.note("seal-dropped", place(part), "the seal of a text was left out")


def _write_result(result: Result, known: Family, ledger: Ledger) -> Object:
    wire = kept(result.origin)
    if wire is not None:
        return wire
    content = result.content
    if result.cache is not None and content and isinstance(content[-1], Text) and content[-1].cache is None:
        content = (*content[:-1], changed(content[-1], cache=result.cache))
    elif result.cache is not None:
        ledger.note("cache-dropped", place(result), "a cache breakpoint on a result was left out")
    texts = tuple(part for part in content if isinstance(part, Text))
    for part in content:
        if isinstance(part, Media):
            ledger.note("media-dropped", place(part) or place(result), "media in a result were left out")
        elif not isinstance(part, Text):
            note_part(part, ledger)
    said = write_content(texts, known, ledger)
    if not result.id and result.name:
        return {"role": "function", "name": result.name, "content": said}
    out: Object = {"role": "tool", "tool_call_id": result.id, "content": said}
    if result.name and known.native:
        # No key of the schema: only a client that sends it gets it through.
        out["name"] = result.name
    return finished(out, result.origin, NAME)


def _write_assistant(turn: Turn, known: Family, ledger: Ledger) -> Object:
    spoken = Spoken(_retold(turn.parts, ledger), place(turn), ledger)
    content: Json = None
    if spoken.content:
        content = _write_assistant_content(spoken, known, ledger)
    elif turn.parts and not spoken.calls and not spoken.refusals:
        content = ""
    out: Object = {"role": "assistant", "content": content}
    if turn.name:
        out["name"] = turn.name
    if spoken.refusals:
        out["refusal"] = "".join(spoken.refusals)
    _write_thoughts(spoken, out, known, ledger)
    for part in spoken.media:
        image = kept(part.origin)
        if image is not None:
            out.setdefault("images", []).append(image)
        else:
            ledger.note("media-dropped", place(part), "media in an assistant's turn were left out")
    if len(spoken.calls) == 1 and not spoken.calls[0].id and spoken.calls[0].kind == "function":
        out["function_call"] = write_call(spoken.calls[0], ledger, legacy=True)
    elif spoken.calls:
        out["tool_calls"] = [write_call(call, ledger) for call in spoken.calls]
    return finished(out, turn.origin, NAME)


def _retold(parts: tuple[Part, ...], ledger: Ledger) -> tuple[Part, ...]:
    """What a provider's own tools found, as text: there is no other place for it."""
    if not any(isinstance(part, HostedResult) for part in parts):
        return parts
    told = [retold(part, ledger) if isinstance(part, HostedResult) else part for part in parts]
    return tuple([part for part in told if part is not None])


def _write_assistant_content(spoken: Spoken, known: Family, ledger: Ledger) -> Json:
    if all(isinstance(part, Text) for part in spoken.content):
        return write_content(tuple(spoken.content), known, ledger)
    out: list[Object] = []
    for part in spoken.content:
        out.append(write_text(part, known, ledger) if isinstance(part, Text) else part.origin.wire)  # type: ignore[union-attr]
    return out


def _write_thoughts(spoken: Spoken, out: Object, known: Family, ledger: Ledger) -> None:
    """Reasoning goes back to those who want it, to those who made it, and to nobody else."""
    wanted: list[Reasoning] = []
    for part in spoken.reasoning:
        if known.reasoning_back or own(part.origin) or own_seal(part.seal):
            wanted.append(part)
        else:
            ledger.note("reasoning-dropped", place(part), "a piece of reasoning was left out")
    spoken.reasoning = wanted
    spoken.write_reasoning(out, ledger)
