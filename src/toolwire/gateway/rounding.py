"""Calls that are not the client's: run here, so that the model can go on."""

from __future__ import annotations

from toolwire.gateway.call import Call
from toolwire.gateway.upstream.faults import Fault
from toolwire.ir import Result
from toolwire.rounds import Rounds

MAX_PAUSES = 16
BEYOND = 2
"""Rounds after the last in which calls are only refused: a model that still goes on calling is given up."""


async def results_of(call: Call, taking: Rounds) -> tuple[Result, ...] | Fault:
    """What the model is told before it goes on; a fault where it does so without end."""
    if not taking.taken:
        over = taking.resumptions >= MAX_PAUSES
        return Fault("protocol", f"the answer paused more than {MAX_PAUSES} times") if over else ()
    most = call.tooling.rounds if call.tooling is not None else MAX_PAUSES
    if taking.resumptions >= most + BEYOND:
        return Fault("protocol", f"the model called tools in more than {most} rounds, and still does")
    late = taking.resumptions >= most
    return await _run(call, taking, late)


async def left_over(call: Call, taking: Rounds) -> tuple[Result, ...]:
    """The results of calls beside which the client has calls of its own to answer. Where they cannot be kept until
    then, nobody would see them: such calls are not run."""
    if call.sealing is None:
        return ()
    return await _run(call, taking, False)


async def _run(call: Call, taking: Rounds, late: bool) -> tuple[Result, ...]:
    calls = [] if late else taking.to_run()
    results = await call.tooling.run(calls) if calls and call.tooling is not None else ()
    call.record.ran(calls, results)
    return taking.answered(results, late)
