"""The way back: a model's call as the client knows it, or why it must not reach the client."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from toolwire.ir import NOTHING, Call, changed, place
from toolwire.loss import Ledger
from toolwire.policy.effects import Shape
from toolwire.schema.fits import faults, righted
from toolwire.wire import Json, Object, encode_text, object_or_none

Key = tuple[str, str]
"""Namespace and name."""
PROBLEMS = 5
"""How many faults of a call are told."""


class Refused(Struct, frozen=True):
    """A call that must not reach the client. The model gets `why` as the result, and tries again; or the whole answer
    is refused."""

    call: Call
    why: str
    fatal: bool = False


class Undone(Struct, frozen=True):
    """What becomes of calls of one tool."""

    name: str
    """The client's name."""
    shape: Shape | None = None
    schema: Json = None
    """What the client declared, where calls are checked against it."""
    validate: str = "off"
    rule: str = ""

    @property
    def retries(self) -> bool:
        return self.validate == "retry" and self.schema is not None

    @property
    def holds(self) -> bool:
        return self.shape is not None or self.schema is not None


class Undo(Struct, frozen=True):
    """By the names that the model sees."""

    tools: Mapping[Key, Undone] = NOTHING  # type: ignore[assignment]
    dropped: Mapping[Key, str] = NOTHING  # type: ignore[assignment]
    """Tools that were taken away, and what a model that calls one of them is told."""

    def __bool__(self) -> bool:
        return bool(self.tools or self.dropped)

    def holds(self, call: Call) -> bool:
        """Must the call be whole before anything of it goes on?"""
        key = (call.namespace, call.name)
        found = self.tools.get(key)
        return key in self.dropped if found is None else found.holds

    @property
    def refusing(self) -> bool:
        """Can it be that a call must not reach the client, and the model be told why?"""
        if not self.tools:
            return bool(self.dropped)
        return bool(self.dropped) or any(undone.retries for undone in self.tools.values())

    def drops(self, call: Call) -> bool:
        key = (call.namespace, call.name)
        return key not in self.tools and key in self.dropped

    def refuses(self, call: Call) -> bool:
        """May a call of this tool be refused?"""
        found = self.tools.get((call.namespace, call.name))
        return self.drops(call) if found is None else found.retries

    @property
    def settled(self) -> Undo:
        """The same where calls that could be tried again have been: what comes now is only reported."""
        if not self.tools or not any(undone.retries for undone in self.tools.values()):
            return self
        tools = {key: replace(one, validate="report") if one.retries else one for key, one in self.tools.items()}
        return Undo(tools, self.dropped)

    def named(self, call: Call) -> Call:
        """The call under the client's name for the tool; nothing else differs where nothing is held."""
        found = self.tools.get((call.namespace, call.name))
        return call if found is None or found.name == call.name else changed(call, name=found.name)

    def back(self, call: Call, ledger: Ledger, cut: bool = False) -> Call | Refused:
        """A whole call as the client shall have it; `cut`: its arguments were cut off."""
        key = (call.namespace, call.name)
        found = self.tools.get(key)
        if found is None:
            why = self.dropped.get(key)
            if why is None:
                return call
            ledger.note("policy-call-refused", place(call), f"a call of `{call.name}` did not reach the client")
            return Refused(call, why)
        named = self.named(call)
        if not found.holds or cut:
            return named
        arguments = object_or_none(call.arguments)
        if arguments is None:
            return self._judged(named, found, ["the arguments are no JSON object"], ledger)
        given: Object = arguments
        if found.shape is not None:
            given = found.shape.back(given)
        wrong: list[str] = []
        if found.schema is not None:
            given, fixed = righted(given, found.schema)
            if fixed:
                what = f"whole numbers of a call of `{named.name}` were written without a fraction"
                ledger.note("policy-arguments-fixed", place(call), what, found.rule)
            wrong = faults(given, found.schema)
        if given is not arguments:
            named = changed(named, arguments=encode_text(given))
        return self._judged(named, found, wrong, ledger) if wrong else named

    @staticmethod
    def _judged(call: Call, found: Undone, wrong: list[str], ledger: Ledger) -> Call | Refused:
        if found.schema is None or found.validate == "off":
            return call
        told = "; ".join(wrong[:PROBLEMS])
        ledger.note("policy-arguments-invalid", place(call), f"the arguments of `{call.name}`: {told}", found.rule)
        if found.validate == "report":
            return call
        why = f"The arguments do not match the tool's parameters: {told}. Call it again with arguments that do."
        return Refused(call, why, found.validate == "refuse")


UNDONE = Undo()
