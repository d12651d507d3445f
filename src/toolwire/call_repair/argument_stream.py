"""Repairs the arguments of a structured call in a stream: what is certain flows, the rest is held and mended."""

from __future__ import annotations

from toolwire.call_repair.arguments import ArgumentRepair
from toolwire.call_repair.calls import RepairedArguments, repair_arguments
from toolwire.call_repair.member_scan import MemberScanner
from toolwire.core.json_values import Object, decode, encode_text


class ArgumentMender:
    """The arguments of one call, delta by delta. What `feed` and `close` give is together the repaired object."""

    def __init__(self, schema: Object) -> None:
        self.problem = ""
        """After `close`: what is still wrong, as a sentence for the model."""
        self._schema = schema
        self._pieces: list[str] = []
        self._scanner = MemberScanner(ArgumentRepair(schema))

    def feed(self, text: str) -> str:
        """What can be sent now."""
        self._pieces.append(text)
        return self._scanner.feed(text)

    def close(self, is_cut: bool) -> tuple[str, tuple[str, ...]]:
        """What is sent last, and what was mended. Arguments that cannot be mended go on as they came."""
        text = "".join(self._pieces)
        repaired = repair_arguments(text, self._schema, is_cut=is_cut)
        self.problem = repaired.problem
        sent, rest = text[: self._scanner.sent_length], text[self._scanner.sent_length :]
        if not repaired.repairs:
            return rest, ()
        return self._write_rest(sent, repaired), repaired.repairs

    def _write_rest(self, sent: str, repaired: RepairedArguments) -> str:
        """The members that were not sent, behind those that were."""
        value = repaired.value
        if not sent or value is None:
            return repaired.text
        out = ""
        if self._scanner.open_text_start:
            begun = decode(f'"{sent[self._scanner.open_text_start :]}"')
            out = encode_text(value[self._scanner.sent_keys[-1]][len(begun) :])[1:]
        others = [
            f",{encode_text(key)}:{encode_text(item)}"
            for key, item in value.items()
            if key not in self._scanner.sent_keys
        ]
        return "".join([out, *others, "}"])
