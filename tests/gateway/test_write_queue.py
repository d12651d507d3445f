"""What goes out at the end of the loop's round: in its order, and whole."""

from __future__ import annotations

import asyncio
from typing import Any

from toolwire.gateway.http.write_queue import WriteQueue


def loop_with_faults(faults: list[Any]) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: faults.append(context["exception"]))
    return loop


def rounds(loop: asyncio.AbstractEventLoop, count: int) -> None:
    for _ in range(count):
        loop.call_soon(loop.stop)
        loop.run_forever()


def test_all_of_a_round_leaves_at_its_end_in_order() -> None:
    loop = asyncio.new_event_loop()
    outbox, said = WriteQueue(loop), list[bytes]()
    outbox.add(said.append, b"a")
    outbox.add(said.append, b"b")
    assert said == []
    rounds(loop, 1)
    assert said == [b"a", b"b"]
    outbox.add(said.append, b"c")
    rounds(loop, 1)
    assert said == [b"a", b"b", b"c"]
    loop.close()


def test_one_that_fails_takes_nothing_from_the_others() -> None:
    faults: list[Any] = []
    loop = loop_with_faults(faults)
    outbox, said = WriteQueue(loop), list[bytes]()

    def fails(data: bytes) -> None:
        outbox.add(said.append, b"later")
        raise ValueError(data)

    for write, data in ((said.append, b"a"), (fails, b"x"), (fails, b"y"), (said.append, b"b")):
        outbox.add(write, data)
    rounds(loop, 5)
    assert said == [b"a", b"b", b"later", b"later"]
    assert [error.args for error in faults] == [(b"x",), (b"y",)]
    loop.close()


def test_what_waits_for_one_that_left_is_dropped() -> None:
    loop = asyncio.new_event_loop()
    outbox, left, stays = WriteQueue(loop), list[bytes](), list[bytes]()
    for write, data in ((left.append, b"a"), (stays.append, b"b"), (left.append, b"c"), (stays.append, b"d")):
        outbox.add(write, data)
    outbox.discard(left.append)
    rounds(loop, 1)
    assert (left, stays) == ([], [b"b", b"d"])
    outbox.add(left.append, b"e")
    outbox.discard(left.append)
    outbox.add(stays.append, b"f")
    rounds(loop, 2)
    assert (left, stays) == ([], [b"b", b"d", b"f"])
    loop.close()
