"""Holds back the end of a stream until its response and signatures are stored and the gateway's own tools have run."""

from __future__ import annotations

from toolwire.gateway.pipeline.attempt import run_leftover_calls
from toolwire.gateway.pipeline.call import AnswerStream, GatewayCall


class EndGate:
    """Stands between a stream and the client. While `has_work_due` is true, nothing goes out."""

    def __init__(self, call: GatewayCall, stream: AnswerStream) -> None:
        self._call = call
        self._stream = stream
        self._tap = call.recorder.open_tap() if call.recorder is not None else None
        self.needs_all_data = self._tap is not None
        """Must it see all data? Else only what comes after an answer has ended."""
        self._has_end_work = call.signature_store is not None or call.gateway_tools is not None
        """May there be signatures to store or tools to run when an answer ends?"""
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
        """Are there calls of the gateway's own tools to run before the client goes on?"""
        rounds = self._stream.rounds
        return rounds is not None and bool(rounds.intercepted) and not rounds.is_paused

    def end_stream(self) -> bytes:
        """The stream has ended: what the tap can still release."""
        if self._tap is None or self._held:
            return b""
        data = self._tap.close()
        self.has_work_due = self._tap.response is not None
        return data

    async def finish_due_work(self) -> bytes:
        """Do the work that is due; returns what was held back."""
        self.has_work_due = False
        out = b""
        if self._held:
            await self._settle_calls()
            held, self._held = self._held, []
            out = self._feed_tap(b"".join(held))
        recorder = self._call.recorder
        if self._tap is not None and self._tap.response is not None and recorder is not None:
            changes = await recorder.save_response(self._tap.response)
            out += self._tap.release(changes or {})
            self._tap, self.has_work_due = None, False
        return out

    async def _settle_calls(self) -> None:
        rounds = self._stream.rounds
        if rounds is not None and self._has_pending_calls:
            self._stream.keep_pending_results(await run_leftover_calls(self._call, rounds))
        if self._call.signature_store is not None:
            await self._call.signature_store.save_signatures(self._stream.memory_records)
