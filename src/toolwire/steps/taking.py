"""Which of a model's calls are not for the client, and how the model goes on after them."""

from __future__ import annotations

from msgspec.structs import replace

from toolwire import schema
from toolwire.ir import Call, Request, Tool, ToolChoice, changed
from toolwire.loss import Ledger
from toolwire.options import Options
from toolwire.policy.back import Refused, Undo
from toolwire.room import Rules
from toolwire.rounds import Rounds
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
        call = self.restored(Call("", name))
        return self.adds(call) or self._undo.refuses(call)

    def adds(self, call: Call) -> bool:
        """Is it of a tool that was added, and that no rule took away again?"""
        return not call.namespace and self._undo.named(call).name in self._added and not self._undo.drops(call)

    def verdict(self, call: Call) -> str | None:
        known = self.restored(call)
        if self.adds(known):
            return ""
        found = self._undo.back(known, Ledger("", "")) if self._undo.refuses(known) else known
        if not isinstance(found, Refused) or found.fatal or known.name in self._warned:
            return None
        if not self._undo.drops(known):
            self._warned.add(known.name)
        return found.why

    def named(self, call: Call) -> Call:
        known = self.restored(call)
        found = self._undo.back(known, Ledger("", ""))
        return replace(found.call if isinstance(found, Refused) else found, origin=None)

    def restored(self, call: Call) -> Call:
        """The call under the name, and with the parameters, that the provider was not given."""
        shape, original = self._plan.shapes.get(call.name), self._plan.original(call.name)
        if shape is not None and call.arguments:
            call = replace(call, arguments=reshaped(call.arguments, shape, schema.restored))
        if original is None:
            return call
        return replace(call, name=original.name, kind=original.kind, namespace=original.namespace)


def unforced(sent: Request, plan: Plan, undo: Undo, added: frozenset[str]) -> Request:
    """A call that was demanded has been made: the model may answer now, unless one of the client's is waited for."""
    choice, judge = sent.choice, Judge(plan, undo, added)
    if choice is None or not (choice.mode in ("required", "one") or choice.required):
        return sent
    names = [Call("", tool.name, namespace=tool.namespace) for tool in choice.tools]
    names = names or [Call("", tool.name, namespace=tool.namespace) for tool in sent.tools if isinstance(tool, Tool)]
    if any(not judge.adds(judge.restored(call)) for call in names):
        return sent
    return changed(sent, choice=ToolChoice("auto"))


def continued(sent: Request, taking: Rounds, rules: Rules, options: Options, target: str) -> Request:
    """The request with what was said and done since, each thing as the provider takes it."""
    ledger = Ledger("", target)
    said = content.marked(Request(turns=taking.turns()), rules, ledger)
    said = content.housed(said, rules, options, ledger)
    said = history.ordered(said, rules, ledger)
    return changed(sent, turns=(*sent.turns, *said.turns))
