"""Which of a model's calls are not for the client, and how the model goes on after them."""

from __future__ import annotations

from msgspec.structs import replace

from toolwire.ir import Call, Request, changed
from toolwire.loss import Ledger
from toolwire.options import Options
from toolwire.policy.back import Refused, Undo
from toolwire.room import Rules
from toolwire.rounds import Rounds
from toolwire.schema import restored
from toolwire.steps import content, history
from toolwire.steps.naming import Plan, reshaped


class Judge:
    """Takes calls of tools that were added to the client's own, and those that the operator's rules refuse."""

    def __init__(self, plan: Plan, undo: Undo, added: frozenset[str]) -> None:
        self._plan = plan
        self._undo = undo
        self._added = added
        self._warned: set[str] = set()
        """Tools whose arguments were refused once: the second time the client gets them, and the report says so."""

    def watches(self, name: str) -> bool:
        call = self._restored(Call("", name))
        return self._undo.named(call).name in self._added or self._undo.refuses(call)

    def verdict(self, call: Call) -> str | None:
        known = self._restored(call)
        if self._undo.named(known).name in self._added:
            return ""
        found = self._undo.back(known, Ledger("", "")) if self._undo.refuses(known) else known
        if not isinstance(found, Refused) or found.fatal or known.name in self._warned:
            return None
        if not self._undo.drops(known):
            self._warned.add(known.name)
        return found.why

    def named(self, call: Call) -> Call:
        known = self._restored(call)
        found = self._undo.back(known, Ledger("", ""))
        return replace(found.call if isinstance(found, Refused) else found, origin=None)

    def _restored(self, call: Call) -> Call:
        """The call under the name, and with the parameters, that the provider was not given."""
        shape, original = self._plan.shapes.get(call.name), self._plan.original(call.name)
        if shape is not None and call.arguments:
            call = replace(call, arguments=reshaped(call.arguments, shape, restored))
        if original is None:
            return call
        return replace(call, name=original.name, kind=original.kind, namespace=original.namespace)


def started(plan: Plan, undo: Undo, options: Options, pauses: bool) -> Rounds | None:
    """The rounds of one answer; None where it can only take one."""
    added = frozenset(tool.name for tool in options.tools)
    if not added and not pauses and not undo.refusing:
        return None
    judge = Judge(plan, undo, added) if added or undo.refusing else None
    return Rounds(judge, pauses, options.shown)


def continued(sent: Request, taking: Rounds, rules: Rules, options: Options, target: str) -> Request:
    """The request with what was said and done since, each thing as the provider takes it."""
    ledger = Ledger("", target)
    said = content.marked(Request(turns=taking.turns()), rules, ledger)
    said = content.housed(said, rules, options, ledger)
    said = history.ordered(said, rules, ledger)
    return changed(sent, turns=(*sent.turns, *said.turns))
