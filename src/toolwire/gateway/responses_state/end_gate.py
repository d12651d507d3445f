"""Holds the end of a stream back until what must be kept of it is kept, and what must be run is run."""

from __future__ import annotations

from toolwire.gateway.pipeline.attempt import run_leftover_calls
from toolwire.gateway.pipeline.call import AnswerStream, GatewayCall


class EndGate:
    """Between a stream and the client: what it lets through goes out at once, and nothing while something is `due`."""

    def __init__(self, call: GatewayCall, stream: AnswerStream) -> None:
        self._call = call
        self._stream = stream
        self._tap = call.recorder.open_tap() if call.recorder is not None else None
        self.needs_all_data = self._tap is not None
        """Must it see all that goes by? Else only what comes once an answer has ended."""
        self._has_end_work = call.signature_store is not None or call.gateway_tools is not None
        """May there be something to do when an answer ends?"""
        self._ends_seen = 0
        self._held: list[bytes] = []
        self.has_work_due = False

    def pass_data(self, data: bytes) -> bytes:
        ends = len(self._stream.finishes) if self._has_end_work else 0
        if not ends and self._tap is None:
            return data
        if ends > self._ends_seen:
            self._ends_seen = ends
            if self._has_pending_calls or (self._call.signature_store is not None and self._stream.memory_records):
                self.has_work_due = True
                self._held.append(data)
                return b""
        if self._held:
            self._held.append(data)
            return b""
        return self._feed_tap(data)

    def _feed_tap(self, data: bytes) -> bytes:
        if self._tap is None:
            return data
        data = self._tap.feed(data)
        self.has_work_due = self._tap.response is not None
        return data

    @property
    def _has_pending_calls(self) -> bool:
        """Has the last round calls that somebody here must run before the client goes on?"""
        rounds = self._stream.rounds
        return rounds is not None and bool(rounds.intercepted) and not rounds.is_paused

    def end_stream(self) -> bytes:
        """The stream has ended: what its tap still holds without need."""
        if self._tap is None or self._held:
            return b""
        data = self._tap.close()
        self.has_work_due = self._tap.response is not None
        return data

    async def finish_due_work(self) -> bytes:
        """Do what is due; gives what was held back."""
        self.has_work_due = False
        out = b""
        if self._held:
            await self._settle_calls()
            held, self._held = self._held, []
            out = self._feed_tap(b"".join(held))
        keeper = self._call.recorder
        if self._tap is not None and self._tap.response is not None and keeper is not None:
            missed = await keeper.save_response(self._tap.response)
            out += self._tap.release(missed or {})
            self._tap, self.has_work_due = None, False
        return out

    async def _settle_calls(self) -> None:
        rounds = self._stream.rounds
        if rounds is not None and self._has_pending_calls:
            self._stream.keep_pending_results(await run_leftover_calls(self._call, rounds))
        if self._call.signature_store is not None:
            await self._call.signature_store.save_signatures(self._stream.memory_records)
