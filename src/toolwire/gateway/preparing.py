"""A call as one provider gets it: the client's own bytes where nothing needs changing, else a translation."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from toolwire import seals
from toolwire.exchange import Exchange
from toolwire.gateway import refusals
from toolwire.gateway.agents import recognised
from toolwire.gateway.bodies import ambiguous, with_model
from toolwire.gateway.call import Call, Passed, Prepared, Ready, Refusal, Tooling
from toolwire.gateway.lines import Line
from toolwire.ids import digest
from toolwire.ir import NOTHING, Failure
from toolwire.options import Options
from toolwire.policy.rules import Rule, Subject
from toolwire.wire import Malformed

SHOW = "x-toolwire-calls"
"""The header by which a client asks to see the calls that are run here (`show`)."""
_ENVELOPE = seals.PREFIX.encode()


class Missing(Struct, frozen=True):
    """A request that is not whole without what is kept under these ids."""

    exchange: Exchange
    ids: tuple[str, ...]
    passes: bool


def prepared(call: Call, line: Line) -> Ready | Refusal | Missing:
    """The request as it goes out, or what must be looked up first: then `completed` makes it."""
    if line.guarded and (barred := _barred(call, line)) is not None:
        return barred
    passes = line.passes and line.room is call.client and _passes(call)
    if passes and _is_plain(call, line):
        return Passed(line, renamed(call, line), call, _exchange)
    exchange = _exchange(call, line)
    if exchange.keeps:
        try:
            ids = exchange.wanted(call.body)
        except Malformed as bad:
            return refusals.told(call, Failure("invalid", str(bad), 400, param=bad.path))
        if ids:
            return Missing(exchange, ids, passes)
    return completed(call, line, exchange, NOTHING, passes)


def completed(call: Call, line: Line, exchange: Exchange, kept: Mapping[str, bytes], passes: bool) -> Ready | Refusal:
    """The request as it goes out, with what was kept for it put back."""
    try:
        translation = exchange.request(call.body, kept)
    except Malformed as bad:
        return refusals.told(call, Failure("invalid", str(bad), 400, param=bad.path))
    if exchange.crossing and exchange.continues:
        return refusals.undisclosed(call, line) if exchange.unread else refusals.forgotten(call, line)
    ledger, codes = translation.ledger, translation.ledger.codes
    if passes and not codes and not kept:
        # It can be taken as it is, so the client's own bytes are better than ours.
        if line.stamps or exchange.undoes:
            return Prepared(line, renamed(call, line), exchange, None, ())
        return Passed(line, renamed(call, line), call, _exchange)
    if call.state.config.translate.on_loss == "refuse":
        lost = [loss for loss in ledger.losses if loss.severity == "lost"]
        if lost:
            return refusals.unsayable(call, line, lost)
    return Prepared(line, translation.body, exchange, ledger, codes)


def _barred(call: Call, line: Line) -> Refusal | None:
    if line.provider.key_missing:
        return refusals.keyless(call, line)
    return None if call.visitor.own else refusals.anonymous(call, line)


def _exchange(call: Call, line: Line) -> Exchange:
    """With the options of the line, and what is this call's own."""
    options = line.options if call.sealing is None else line.keeping
    if call.most_tokens is not None or call.without_seals or call.unseen:
        options = replace(options, most_tokens=call.most_tokens, without_seals=call.without_seals, unseen=call.unseen)
    if call.state.policy.rules or line.guarded:
        maker, marked = maker_of(call, line)
        options = replace(options, maker=maker, stamps=line.stamps or marked, policy=rules_for(call, line))
    tooling = call.tooling
    if tooling is not None:
        shown = _shown(call, tooling)
        options = replace(options, tools=tooling.tools, substitutes=tooling.substitutes, shown=shown)
    exchange = Exchange(call.client, line.room, options)
    exchange.now, exchange.seed = int(call.now), call.seed or call.record.request_id
    return exchange


def maker_of(call: Call, line: Line) -> tuple[str, bool]:
    """Who makes seals here, and whether that depends on rules: seals are bound to the tools that their maker saw, so
    that one who works under other rules is another."""
    maker = line.maker
    if line.provider.forward_auth:
        maker = f"{line.room.name}/{line.provider.name}/{digest(call.visitor.own, 8)}"
    policy = call.state.policy
    mark = policy.mark(_subject(call, line)) if policy.rules else ""
    return (f"{maker}~{mark}", True) if mark else (maker, False)


def rules_for(call: Call, line: Line) -> tuple[Rule, ...]:
    """What the operator does to the tools of this exchange."""
    policy = call.state.policy
    return policy.active(_subject(call, line)) if policy.rules else ()


def _subject(call: Call, line: Line) -> Subject:
    agent, product = recognised(call.headers.get("user-agent", ""))
    return Subject(call.client.name, agent, line.provider.name, line.model, call.model, product)


def _shown(call: Call, tooling: Tooling) -> frozenset[str]:
    """The tools whose calls the client sees: those that the operator shows, or all, where the client asks for it."""
    all_of_them = call.headers.get(SHOW, "").lower() == "show"
    return frozenset(tool.name for tool in tooling.tools if all_of_them or tooling.shows(tool.name) != "hidden")


def _passes(call: Call) -> bool:
    """Does nothing need changing but the model's name? An envelope of ours must be opened before it goes anywhere."""
    return call.tooling is None and not call.without_seals and call.body.find(_ENVELOPE) < 0


def _is_plain(call: Call, line: Line) -> bool:
    """Need its body not even be read? Earlier turns may be another model's."""
    if line.stamps or not (call.model == line.model or call.model.endswith(f"/{line.model}")):
        return False
    if call.state.policy.rules and rules_for(call, line):
        return False
    find = call.body.find  # `in` costs ten times as much: it makes an error first, and drops it
    for word in call.client.http.history:  # noqa: SIM110 — a generator would cost more than the search
        if find(word) >= 0:
            return False
    return True


def renamed(call: Call, line: Line) -> bytes:
    """The client's own bytes with the model's name as the provider knows it."""
    if not line.room.http.model_in_body:
        return call.body
    key = call.visitor.key
    # A key that may use some models only must not smuggle in a second name that another parser would take.
    if call.model == line.model and (key is None or key.models == ("*",) or not ambiguous(call.body)):
        return call.body
    return with_model(call.body, line.model)


def retold(call: Call, line: Line) -> bytes:
    """The client's own bytes for another path of a provider of its protocol, with calls as the rules want them."""
    rules = rules_for(call, line)
    if not rules:
        return renamed(call, line)
    exchange = Exchange(call.client, line.room, Options(model=line.model, maker=maker_of(call, line)[0], policy=rules))
    try:
        said = exchange.request(call.body)
    except Malformed:
        return renamed(call, line)  # the provider says what is wrong with it
    return said.body if said.ledger.codes else renamed(call, line)
