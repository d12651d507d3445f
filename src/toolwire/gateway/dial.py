"""Making a connection to a provider: straight, or by a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolwire.gateway.address import Address
from toolwire.gateway.connection import Connection
from toolwire.gateway.faults import Fault, read_connect_error


async def dial(address: Address, seconds: float, connection: Callable[[], Connection]) -> Connection | Fault:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds or None):
            _, made = await loop.create_connection(connection, address.host, address.port)
    except (OSError, UnicodeError) as error:
        return read_connect_error(error, address.peer)
    return made
