"""The store for commands: it is opened for one task, and the command ends if it is down."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from toolwire.gateway.settings.config import StoreSettings
from toolwire.gateway.store import open_store
from toolwire.gateway.store.store import Store, StoreDown
from toolwire.terminal import EXIT_FAILED, CommandError

Value = TypeVar("Value")


def use_store(
    settings: StoreSettings, missing: CommandError, ask: Callable[[Store], Coroutine[Any, Any, Value]]
) -> Value:
    """Ask the store that is configured; without one, `missing` is the error."""
    store = open_store(settings, os.environ)
    if store is None:
        raise missing

    async def ask_and_close() -> Value:
        try:
            return await ask(store)
        finally:
            await store.close()

    return asyncio.run(ask_and_close())


def require_up(value: Value | StoreDown) -> Value:
    if isinstance(value, StoreDown):
        hint = "`toolwire doctor` checks the store and shows which one is configured"
        raise CommandError(value.reason, hint, EXIT_FAILED)
    return value
