"""Several accounts of one provider: which of them a session is sent to.

A session stays on one account, because prompt caches and signatures are bound to it. The account is found by weighted
rendezvous hashing of the session, so that gateways which know nothing of each other choose the same one, and an account
that is added takes over its share of the sessions and moves no others. An account that rests is left out; a session
that had to move stays where it went.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b

from toolwire.gateway.exchange.provider_health import ProviderHealth
from toolwire.gateway.settings.config import Provider


def score_account(session: str, account: Provider) -> float:
    """How much a session belongs to an account. Its share of the highest scores is its share of the weights."""
    digest = blake2b(f"{account.label}\0{session}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    fraction = (int.from_bytes(digest) + 0.5) / 2**64  # never 0 and never 1
    return -account.weight / math.log(fraction)


def rank_accounts(accounts: Sequence[Provider], session: str) -> list[Provider]:
    """The accounts of a provider in the order in which a session is sent to them. Those without a key are left out,
    unless there are no others."""
    usable = [account for account in accounts if not account.is_key_missing] or list(accounts)
    return sorted(usable, key=lambda account: -score_account(session, account))


def list_awake_accounts(
    provider: Provider, session: str, model: str, health: ProviderHealth, now: float
) -> list[Provider]:
    """The accounts that a session can be sent to now, the best one first; none if all rest. A session that had to move
    stays where it went."""
    awake = [
        account
        for account in rank_accounts(provider.accounts, session)
        if not health.is_resting(account.label, model, now)
    ]
    moved_to = health.moved_sessions.get((provider.name, session))
    if moved_to is not None:
        awake.sort(key=lambda account: account.account != moved_to)  # the others keep their order
    return awake


def find_first_to_wake(provider: Provider, session: str, model: str, health: ProviderHealth) -> Provider:
    """If all accounts rest: the one that rests for the shortest time."""
    ranked = rank_accounts(provider.accounts, session)
    return min(ranked, key=lambda account: health.rests_until(account.label, model))
