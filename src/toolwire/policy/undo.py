"""How calls in an answer are changed back to the client's tools, and which of them are refused."""

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
"""The most problems of a call that are listed."""


class RefusedCall(Struct, frozen=True):
    """A call that must not reach the client."""

    call: Call
    reason: str
    """The result that the model gets instead, so that it tries again."""
    fatal: bool = False
    """The whole answer is refused."""


class ToolUndo(Struct, frozen=True):
    """How calls of one tool are changed back."""

    client_name: str
    """The client's name of the tool."""
    shape: ParameterShape | None = None
    """How its parameters were changed."""
    schema: Json = None
    """The client's schema, where arguments are checked against it."""
    validate: str = "off"
    """As `Rule.validate`."""
    rule: str = ""
    """The rule that says so, for losses."""

    @property
    def can_retry(self) -> bool:
        return self.validate == "retry" and self.schema is not None

    @property
    def needs_whole_call(self) -> bool:
        return self.shape is not None or self.schema is not None


class PolicyUndo(Struct, frozen=True):
    """How calls are changed back, by the namespace and name that the model uses."""

    tools: Mapping[ToolKey, ToolUndo] = EMPTY_MAPPING  # type: ignore[assignment]
    dropped: Mapping[ToolKey, str] = EMPTY_MAPPING  # type: ignore[assignment]
    """Removed tools, each with the result of a call of it."""

    def __bool__(self) -> bool:
        return bool(self.tools or self.dropped)

    def needs_whole_call(self, call: Call) -> bool:
        """Must a call of this tool be held back until it is complete?"""
        key = (call.namespace, call.name)
        found = self.tools.get(key)
        return key in self.dropped if found is None else found.needs_whole_call

    @property
    def can_refuse(self) -> bool:
        """Can a call be refused so that the model must be asked again?"""
        return bool(self.dropped) or self._can_retry

    @property
    def _can_retry(self) -> bool:
        return bool(self.tools) and any(tool.can_retry for tool in self.tools.values())

    def is_dropped(self, call: Call) -> bool:
        key = (call.namespace, call.name)
        return key not in self.tools and key in self.dropped

    def can_refuse_tool(self, call: Call) -> bool:
        """Can a call of this tool be refused?"""
        found = self.tools.get((call.namespace, call.name))
        return self.is_dropped(call) if found is None else found.can_retry

    @property
    def without_retries(self) -> PolicyUndo:
        """The same for an answer after a retry: invalid arguments are only reported."""
        if not self._can_retry:
            return self
        tools = {key: replace(tool, validate="report") if tool.can_retry else tool for key, tool in self.tools.items()}
        return PolicyUndo(tools, self.dropped)

    def restore_name(self, call: Call) -> Call:
        """The call with the client's name of the tool."""
        found = self.tools.get((call.namespace, call.name))
        return call if found is None or found.client_name == call.name else replace_fields(call, name=found.client_name)

    def restore_call(self, call: Call, ledger: Ledger, incomplete: bool = False) -> Call | RefusedCall:
        """A complete call as the client gets it, or why it does not get it. Arguments that were cut off (`incomplete`)
        are not changed."""
        key = (call.namespace, call.name)
        found = self.tools.get(key)
        if found is None:
            reason = self.dropped.get(key)
            if reason is None:
                return call
            ledger.note("policy-call-refused", source_path(call), f"a call of `{call.name}` did not reach the client")
            return RefusedCall(call, reason)
        named = self.restore_name(call)
        if not found.needs_whole_call or incomplete:
            return named
        arguments = decode_object_or_none(call.arguments)
        if arguments is None:
            return self._report_problems(named, found, ["the arguments are not a JSON object"], ledger)
        restored: Object = arguments if found.shape is None else found.shape.to_client(arguments)
        problems: list[str] = []
        if found.schema is not None:
            restored, fixed = fix_whole_numbers(restored, found.schema)
            if fixed:
                what = f"whole numbers of a call of `{named.name}` were written without a fraction"
                ledger.note("policy-arguments-fixed", source_path(call), what, found.rule)
            problems = value_problems(restored, found.schema)
        if restored is not arguments:
            named = replace_fields(named, arguments=encode_text(restored))
        return self._report_problems(named, found, problems, ledger) if problems else named

    @staticmethod
    def _report_problems(call: Call, tool_undo: ToolUndo, problems: list[str], ledger: Ledger) -> Call | RefusedCall:
        if tool_undo.schema is None or tool_undo.validate == "off":
            return call
        listed = "; ".join(problems[:MAX_PROBLEMS])
        what = f"the arguments of `{call.name}`: {listed}"
        ledger.note("policy-arguments-invalid", source_path(call), what, tool_undo.rule)
        if tool_undo.validate == "report":
            return call
        reason = f"The arguments do not match the tool's parameters: {listed}. Call it again with arguments that do."
        return RefusedCall(call, reason, tool_undo.validate == "refuse")


NOTHING_TO_UNDO = PolicyUndo()
