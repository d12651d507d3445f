"""Seals under policy rules: who their maker is, and how sets of rules are told apart."""

from __future__ import annotations

from typing import Any

import pytest

from toolwire.core.envelopes import EnvelopeEntry, write_envelope
from toolwire.core.ir import Call, Reasoning, Request, Seal, Text, Tool, Turn
from toolwire.core.losses import Ledger
from toolwire.policy.apply_rules import apply_rules
from toolwire.policy.rules import Policy, Reshape, Rule, RuleSubject, rules_digest
from toolwire.protocols import find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire.translation.seals import is_made_by

RENAME = Rule(name="r", tool=("f",), rename="g")
MAKER = "telex/acme/12345678~abcdef01"


@pytest.mark.parametrize(
    "rule",
    [
        Rule(),
        Rule(validate="retry"),
        Rule(choice="weaken"),
        Rule(parallel=False),
        Rule(defaults={"a": 1}),
        Rule(keep=()),
    ],
)
def test_what_the_model_does_not_see_leaves_no_mark(rule: Rule) -> None:
    assert rules_digest((rule,)) == ""
    assert rules_digest((RENAME, rule)) == rules_digest((RENAME,)) != ""


@pytest.mark.parametrize(
    "rule",
    [
        Rule(tool=("f",), rename="h"),
        Rule(tool=("e",), rename="g"),
        Rule(tool=("f",), rename="g", description="Other."),
        Rule(tool=("f",), drop=True),
        Rule(tool=("f",), reshape={"a": Reshape(conversion="csv")}),
        Rule(tool=("f",), schema={"type": "object"}),
        Rule(max_tools=2),
        Rule(strict=True),
    ],
)
def test_what_it_sees_leaves_another(rule: Rule) -> None:
    assert rules_digest((rule,)) not in ("", rules_digest((RENAME,)))
    assert rules_digest((RENAME, rule)) != rules_digest((RENAME,))


def test_the_mark_is_of_the_rules_in_force() -> None:
    policy = Policy(
        [Rule(model=("a",), tool=("f",), rename="g", name="one"), Rule(model=("b",), tool=("f",), rename="g")]
    )
    marks = [policy.active_digest(RuleSubject(model=model)) for model in "abc"]
    assert marks == [rules_digest((RENAME,)), rules_digest((RENAME,)), ""]  # neither names nor whom they are for matter
    assert Policy(()).active_digest(RuleSubject(model="a")) == ""


SEALED = [
    Reasoning("Hm.", seal=Seal("telex", "s1")),
    Text("So.", seal=Seal("telex", "s2")),
    Call("1", "f", "{}", seal=Seal("telex", "s3")),
]


def apply_to_turn(*rules: Rule, parts: Any = SEALED, tool: str = "f") -> tuple[Any, ...]:
    request = Request("m", turns=(Turn("assistant", tuple(parts)),), tools=(Tool(tool, "", {"type": "object"}),))
    return apply_rules(request, rules, Ledger("telex", "telex"))[0].turns[0].parts


def test_seals_that_name_no_maker_were_made_without_rules() -> None:
    parts = apply_to_turn(RENAME)
    assert [part.seal.value for part in parts] == ["s1", "s2", "s3"]
    assert not any(is_made_by(part.seal, MAKER) for part in parts)
    assert all(is_made_by(part.seal, "telex") for part in parts)


def test_where_a_rule_does_nothing_they_are_whose_they_were() -> None:
    parts = apply_to_turn(RENAME, tool="e", parts=SEALED[:2])
    assert all(part is old for part, old in zip(parts, SEALED[:2], strict=True))


@pytest.mark.parametrize(
    "seal",
    [
        Seal(MAKER, "s"),
        Seal("morse@telex", "s"),
        Seal("telex", write_envelope([EnvelopeEntry("next", MAKER, "s")])),
        Seal("telex", ""),
    ],
)
def test_seals_of_known_makers_stay_theirs(seal: Seal) -> None:
    (part,) = apply_to_turn(RENAME, parts=[Call("1", "f", "{}", seal=seal)])
    assert (part.name, part.seal) == ("g", seal)


def test_without_a_gateway_clients_carry_their_seals_themselves() -> None:
    """Nobody puts them into envelopes then, so they are believed."""
    place = find_codec("anthropic")
    body = {
        "model": "claude-opus-5-5",
        "max_tokens": 100,
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2VhbA=="},
                    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "1"}]},
        ],
    }
    sent = Exchange(place, place, Options(policy=(RENAME,))).translate_request(body).json()
    thought, call = sent["messages"][1]["content"]
    assert (thought["signature"], call["name"]) == ("c2VhbA==", "g")
