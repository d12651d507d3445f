"""Seals as the real services make and check them: every answer is signed, and what comes back is compared with it.

An account takes its own seals only, unaltered, on the parts that it put them on. All of this needs a memory of what was
answered, which the checks of single bodies (`toolwire_conformance.peers`) do not have.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

PLACEHOLDER = "skip_thought_signature_validator"
REPLACED = "a placeholder stands where the signature was on"
THOUGHTS = ("thinking", "redacted_thinking")


@dataclass(frozen=True)
class SignedAnswer:
    """What an account has answered: its parts with their seals, and what it was asked before."""

    account: str
    protocol: str
    model: str
    parts: list[dict[str, Any]]
    prefix: Any

    @property
    def calls(self) -> bool:
        kinds = {"tool_use", "function_call", "functionCall"}
        return any(
            part.get("type") in kinds or not kinds.isdisjoint(part) or part.get("tool_calls") for part in self.parts
        )

    @property
    def seals(self) -> list[str]:
        """The seals that this account would like to see again, in the order in which it made them."""
        return [seal for part in self.parts if (seal := _seal(self.protocol, part))]


def make_seal(*of: object) -> bytes:
    return hashlib.sha512("|".join(map(str, of)).encode()).digest()


def decode_seal(text: str) -> bytes:
    """Bytes that are written in either alphabet of base64."""
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(plain + "=" * (-len(plain) % 4))


class SealChecker:
    """All that was signed in one talk."""

    def __init__(self) -> None:
        self.answers: list[SignedAnswer] = []
        self.forgives = False
        """May the client have lost seals by itself, and put placeholders in their places?"""

    def sign(self, account: str, protocol: str, model: str, asked: dict[str, Any], answer: dict[str, Any]) -> None:
        """Put seals on the parts of an answer, and remember it."""
        parts = _PARTS[protocol](answer)
        for at, part in enumerate(parts):
            _SIGN[protocol](part, make_seal(account, len(self.answers), at))
        prefix = _prefix(asked, len(asked["messages"])) if protocol == "anthropic" else None
        self.answers.append(SignedAnswer(account, protocol, model, copy.deepcopy(parts), prefix))

    def find_problems(self, account: str, protocol: str, model: str, body: dict[str, Any]) -> list[str]:
        mine = [answer for answer in self.answers if (answer.account, answer.protocol) == (account, protocol)]
        found = _CHECKS[protocol](body, [answer for answer in mine if answer.model == model])
        return [complaint for complaint in found if not (self.forgives and REPLACED in complaint)]

    def missing_seals(self, account: str, protocol: str) -> list[str]:
        """All the seals that this account has made."""
        mine = [answer for answer in self.answers if (answer.account, answer.protocol) == (account, protocol)]
        return [seal for answer in mine for seal in answer.seals]

    def seals_sent(self, account: str, protocol: str, body: dict[str, Any]) -> list[str]:
        """The seals of this account in a request, in their order and as they were made."""
        owed = {_normalize_seal(protocol, seal): seal for seal in self.missing_seals(account, protocol)}
        held = [seal for part in _HELD[protocol](body) if (seal := _seal(protocol, part))]
        return [owed[key] for seal in held if (key := _normalize_seal(protocol, seal)) in owed]

    def reasoning_sent(self, account: str, protocol: str, body: dict[str, Any]) -> set[str]:
        """What others thought and this account is told in a field that nobody seals."""
        said = {answer.parts[0].get("reasoning_content") for answer in self.answers if answer.account == account}
        return {text for part in _HELD[protocol](body) if (text := part.get("reasoning_content")) and text not in said}

    def unknown_seals(self, account: str, protocol: str, raw: str) -> list[str]:
        """Seals of others that stand somewhere in a body, however they are spelled."""
        plain = raw.replace("_", "/").replace("-", "+")
        makers = {(answer.account, answer.protocol) for answer in self.answers} - {(account, protocol)}
        return [
            seal
            for maker in makers
            for seal in self.missing_seals(*maker)
            if seal in raw or seal.replace("_", "/").replace("-", "+") in plain
        ]


def _normalize_seal(protocol: str, seal: str) -> object:
    return decode_seal(seal) if protocol == "gemini" else seal


def _seal(protocol: str, part: dict[str, Any]) -> str:
    for key in {"anthropic": ("signature", "data"), "openai-responses": ("encrypted_content",)}.get(protocol, ()):
        if part.get("type") in (*THOUGHTS, "reasoning") and part.get(key):
            return str(part[key])
    value = part.get("thoughtSignature" if protocol == "gemini" else "reasoning_content")
    return value if isinstance(value, str) and value != PLACEHOLDER else ""


# --- answers ---------------------------------------------------------------------------------------------------------


def _sign_block(block: dict[str, Any], seal: bytes) -> None:
    if block["type"] == "thinking":
        block["signature"] = base64.b64encode(seal).decode()
    elif block["type"] == "redacted_thinking":
        block["data"] = base64.b64encode(seal).decode()


def _sign_item(item: dict[str, Any], seal: bytes) -> None:
    if item["type"] == "reasoning":
        item["encrypted_content"] = "gAAAAA" + base64.urlsafe_b64encode(seal).decode()


def _sign_part(part: dict[str, Any], seal: bytes) -> None:
    if "thoughtSignature" in part:
        part["thoughtSignature"] = base64.b64encode(seal).decode()


_SIGN: dict[str, Callable[[dict[str, Any], bytes], None]] = {
    "anthropic": _sign_block,
    "openai-responses": _sign_item,
    "gemini": _sign_part,
    "openai-chat": lambda message, seal: None,
}
_PARTS: dict[str, Callable[[Any], list[dict[str, Any]]]] = {
    "anthropic": lambda answer: answer["content"],
    "openai-responses": lambda answer: answer["output"],
    "gemini": lambda answer: answer["candidates"][0]["content"]["parts"],
    "openai-chat": lambda answer: [answer["choices"][0]["message"]],
}
_HELD: dict[str, Callable[[Any], list[dict[str, Any]]]] = {
    "anthropic": lambda body: [block for message in body["messages"] for block in _blocks(message["content"])],
    "openai-responses": lambda body: body["input"],
    "gemini": lambda body: [part for content in body["contents"] for part in content["parts"]],
    "openai-chat": lambda body: body["messages"],
}


# --- thinking blocks -------------------------------------------------------------------------------------------------


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _without_cache_marks(node: Any) -> Any:
    """A node without its cache breakpoints, and with content in blocks: what the model itself sees."""
    if isinstance(node, list):
        return [_without_cache_marks(child) for child in node]
    if not isinstance(node, dict):
        return node
    plain = {key: _without_cache_marks(value) for key, value in node.items() if key != "cache_control"}
    if isinstance(plain.get("content"), str):
        plain["content"] = _blocks(plain["content"])
    return plain


def _prefix(body: dict[str, Any], count: int) -> Any:
    system = _blocks(body["system"]) if body.get("system") else []
    return _without_cache_marks([system, body.get("tools") or [], body["messages"][:count]])


def _thinking(body: dict[str, Any], mine: list[SignedAnswer]) -> Iterator[str]:
    made = {_seal("anthropic", block): answer for answer in mine for block in answer.parts}
    for index, message in enumerate(body["messages"]):
        blocks = _blocks(message["content"])
        thoughts = [block for block in blocks if block["type"] in THOUGHTS]
        if not thoughts:
            continue
        answers = [made.get(_seal("anthropic", block)) for block in thoughts]
        if None in answers:
            yield f"messages.{index}: Invalid `signature` in `thinking` block"
            continue
        answer = answers[0]
        assert answer is not None
        if not _is_said(_strip_blocks(blocks), _strip_blocks(answer.parts)):
            yield f"messages.{index}: `thinking` or `redacted_thinking` blocks cannot be modified, {_strip_blocks(blocks)}"
        elif json.dumps(_prefix(body, index)) != json.dumps(answer.prefix):
            yield (
                f"messages.{index}: Invalid `signature` in `thinking` block. The block is bound to a different"
                f" conversation: {json.dumps(_prefix(body, index))} is no longer {json.dumps(answer.prefix)}"
            )


def _strip_blocks(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in _without_cache_marks(block).items() if key != "id"} for block in blocks]


def _is_said(given: list[dict[str, Any]], made: list[dict[str, Any]]) -> bool:
    """Are these the blocks that were made? Words are not signed, but none of them may be lost: a client may put before
    them what it has of an answer that broke off, in the same text or in one of its own."""
    before, said = given[: -len(made)], given[-len(made) :]
    return (
        all(block["type"] == "text" for block in before)
        and len(said) == len(made)
        and all(
            one == other or (one["type"] == other["type"] == "text" and one["text"].endswith(other["text"]))
            for one, other in zip(said, made, strict=True)
        )
    )


# --- reasoning items -------------------------------------------------------------------------------------------------


def _reasoning(body: dict[str, Any], mine: list[SignedAnswer]) -> Iterator[str]:
    led, needs = _index_reasoning(mine)
    given = [*body["input"], {}]
    seen: set[str] = set()
    for item, behind in pairwise(given):
        if item.get("type") == "reasoning":
            yield from _check_reasoning(item, behind, led.get(item.get("encrypted_content") or ""))
            seen.add(item.get("id", ""))
        elif (wanted := needs.get(item.get("id", ""))) and wanted not in seen:
            yield f"Item '{item['id']}' was provided without its required 'reasoning' item: '{wanted}'."


def _index_reasoning(
    mine: list[SignedAnswer],
) -> tuple[dict[str, tuple[dict[str, Any], dict[str, Any]]], dict[str, str]]:
    """Every thought with what it led to, by its seal, and the thought that an item needs, by its id."""
    led: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    needs: dict[str, str] = {}
    for answer in mine:
        thought = ""
        for item, behind in pairwise([*answer.parts, {}]):
            if item["type"] == "reasoning":
                thought = item["id"]
                led[item["encrypted_content"]] = (item, behind)
            elif thought:
                needs[item["id"]] = thought
    return led, needs


def _check_reasoning(
    item: dict[str, Any], behind: dict[str, Any], made: tuple[dict[str, Any], dict[str, Any]] | None
) -> Iterator[str]:
    if made is None:
        yield f"The encrypted content for item {item.get('id')} could not be verified."
        return
    if item.get("id") not in (None, made[0]["id"]) or item.get("summary") != made[0]["summary"]:
        yield f"Item '{item.get('id')}' is not what it was: {made[0]}"
    was, is_now = _summarize_item(made[1]), _summarize_item(behind)
    if is_now != was and not (isinstance(was, str) and isinstance(is_now, str) and is_now.endswith(was)):
        yield f"Item '{item.get('id')}' was provided without its required following item: {behind}"


def _summarize_item(item: dict[str, Any]) -> Any:
    if "role" in item:
        content = item["content"]
        return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    arguments = item.get("arguments")
    return item.get("type"), item.get("name"), json.loads(arguments) if isinstance(arguments, str) else arguments


# --- thought signatures ----------------------------------------------------------------------------------------------


def _signatures(body: dict[str, Any], mine: list[SignedAnswer]) -> Iterator[str]:
    made = {
        decode_seal(seal): part for answer in mine for part in answer.parts if (seal := part.get("thoughtSignature"))
    }
    calls = [part for answer in mine for part in answer.parts if "functionCall" in part]
    called = {part["functionCall"]["id"]: _data(part) for part in calls}
    for index, content in enumerate(body["contents"]):
        first = True
        for part in content["parts"]:
            call = part.get("functionCall")
            value = part.get("thoughtSignature")
            if value == PLACEHOLDER:
                if call is None or not first:
                    yield f"contents[{index}]: no placeholder is needed on {part}"
                elif called.get(call.get("id")) == _data(part):
                    yield f"contents[{index}]: {REPLACED} {part}"
            elif value is not None:
                whole = made.get(decode_seal(value))
                if whole is None:
                    yield f"contents[{index}]: Corrupted thought signature."
                elif part.get("text") != "" and _data(whole) != _data(part):
                    # An empty text that is signed is how a stream signs the text before it.
                    yield f"contents[{index}]: the signature of {_data(whole)} stands on {_data(part)}"
            first = first and call is None


def _data(part: dict[str, Any]) -> Any:
    call = part.get("functionCall")
    return (call["name"], call["args"]) if call else (part.get("text"), bool(part.get("thought")))


# --- reasoning_content -----------------------------------------------------------------------------------------------


def _reasoning_content(body: dict[str, Any], mine: list[SignedAnswer]) -> Iterator[str]:
    """DeepSeek wants its plain thinking back, with the calls that it led to; `deepseek-reasoner`, its older model, did
    not."""
    made = {call["id"]: answer for answer in mine for call in answer.parts[0].get("tool_calls") or ()}
    for index, message in enumerate(body["messages"]):
        answers = [made[call["id"]] for call in message.get("tool_calls") or () if call["id"] in made]
        wanted = answers[0].parts[0].get("reasoning_content") if answers else None
        if wanted and answers[0].model.startswith("deepseek-v") and message.get("reasoning_content") != wanted:
            yield f"messages[{index}]: The `reasoning_content` in the thinking mode must be passed back to the API."


_CHECKS: dict[str, Callable[[dict[str, Any], list[SignedAnswer]], Iterator[str]]] = {
    "anthropic": _thinking,
    "openai-responses": _reasoning,
    "gemini": _signatures,
    "openai-chat": _reasoning_content,
}
