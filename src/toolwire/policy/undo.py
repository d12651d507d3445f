"""The way back: a model's call as the client knows it, or why it must not reach the client."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.ir import EMPTY_MAPPING, Call, replace_fields, source_path
from toolwire.core.json_values import Json, Object, decode_object_or_none, encode_text
from toolwire.core.losses import Ledger
from toolwire.policy.effects import ParameterShape
from toolwire.schema.validate_value import fix_whole_numbers, value_problems

ToolKey = tuple[str, str]
"""Namespace and name."""
MAX_PROBLEMS = 5
"""How many faults of a call are told."""


class RefusedCall(Struct, frozen=True):
    """A call that must not reach the client. The model gets `why` as the result, and tries again; or the whole answer
    is refused."""

    call: Call
    reason: str
    fatal: bool = False


class ToolUndo(Struct, frozen=True):
    """What becomes of calls of one tool."""

    client_name: str
    """The client's name."""
    shape: ParameterShape | None = None
    schema: Json = None
    """What the client declared, where calls are checked against it."""
    validate: str = "off"
    rule: str = ""

    @property
    def can_retry(self) -> bool:
        return self.validate == "retry" and self.schema is not None

    @property
    def needs_whole_call(self) -> bool:
        return self.shape is not None or self.schema is not None


class PolicyUndo(Struct, frozen=True):
    """By the names that the model sees."""

    tools: Mapping[ToolKey, ToolUndo] = EMPTY_MAPPING  # type: ignore[assignment]
    dropped: Mapping[ToolKey, str] = EMPTY_MAPPING  # type: ignore[assignment]
    """Tools that were taken away, and what a model that calls one of them is told."""

    def __bool__(self) -> bool:
        return bool(self.tools or self.dropped)

    def needs_whole_call(self, call: Call) -> bool:
        """Must the call be whole before anything of it goes on?"""
        key = (call.namespace, call.name)
        found = self.tools.get(key)
        return key in self.dropped if found is None else found.needs_whole_call

    @property
    def can_refuse(self) -> bool:
        """Can it be that a call must not reach the client, and the model be told why?"""
        if not self.tools:
            return bool(self.dropped)
        return bool(self.dropped) or any(undone.can_retry for undone in self.tools.values())

    def is_dropped(self, call: Call) -> bool:
        key = (call.namespace, call.name)
        return key not in self.tools and key in self.dropped

    def can_refuse_tool(self, call: Call) -> bool:
        """May a call of this tool be refused?"""
        found = self.tools.get((call.namespace, call.name))
        return self.is_dropped(call) if found is None else found.can_retry

    @property
    def without_retries(self) -> PolicyUndo:
        """The same where calls that could be tried again have been: what comes now is only reported."""
        if not self.tools or not any(undone.can_retry for undone in self.tools.values()):
            return self
        tools = {key: replace(one, validate="report") if one.can_retry else one for key, one in self.tools.items()}
        return PolicyUndo(tools, self.dropped)

    def restore_name(self, call: Call) -> Call:
        """The call under the client's name for the tool; nothing else differs where nothing is held."""
        found = self.tools.get((call.namespace, call.name))
        return call if found is None or found.client_name == call.name else replace_fields(call, name=found.client_name)

    def restore_call(self, call: Call, ledger: Ledger, incomplete: bool = False) -> Call | RefusedCall:
        """A whole call as the client shall have it; `cut`: its arguments were cut off."""
        key = (call.namespace, call.name)
        found = self.tools.get(key)
        if found is None:
            why = self.dropped.get(key)
            if why is None:
                return call
            ledger.note("policy-call-refused", source_path(call), f"a call of `{call.name}` did not reach the client")
            return RefusedCall(call, why)
        named = self.restore_name(call)
        if not found.needs_whole_call or incomplete:
            return named
        arguments = decode_object_or_none(call.arguments)
        if arguments is None:
            return self._report_faults(named, found, ["the arguments are no JSON object"], ledger)
        given: Object = arguments
        if found.shape is not None:
            given = found.shape.to_client(given)
        wrong: list[str] = []
        if found.schema is not None:
            given, fixed = fix_whole_numbers(given, found.schema)
            if fixed:
                what = f"whole numbers of a call of `{named.name}` were written without a fraction"
                ledger.note("policy-arguments-fixed", source_path(call), what, found.rule)
            wrong = value_problems(given, found.schema)
        if given is not arguments:
            named = replace_fields(named, arguments=encode_text(given))
        return self._report_faults(named, found, wrong, ledger) if wrong else named

    @staticmethod
    def _report_faults(call: Call, tool_undo: ToolUndo, problems: list[str], ledger: Ledger) -> Call | RefusedCall:
        if tool_undo.schema is None or tool_undo.validate == "off":
            return call
        told = "; ".join(problems[:MAX_PROBLEMS])
        ledger.note(
            "policy-arguments-invalid", source_path(call), f"the arguments of `{call.name}`: {told}", tool_undo.rule
        )
        if tool_undo.validate == "report":
            return call
        why = f"The arguments do not match the tool's parameters: {told}. Call it again with arguments that do."
        return RefusedCall(call, why, tool_undo.validate == "refuse")


NOTHING_TO_UNDO = PolicyUndo()
