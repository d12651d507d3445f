"""Losses: what a translation could not carry over unchanged. The codes, and the ledger of one translation.

Add a code to `_REASONS`, with its usual reason, before a writer or a step uses it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec

from toolwire.core.ir import Opaque, Request, Response, Settings, UnknownField, source_path
from toolwire.core.json_values import Path, Paths, json_pointer

OFF = "off"
"""The value of a setting that is switched off: leaving it out is not a loss."""

Severity: TypeAlias = Literal["lost", "changed", "added"]


class Loss(msgspec.Struct, frozen=True):
    """One thing that the target could not express as it was."""

    code: str
    """A key of LOSS_CODES, such as `seal-dropped`."""
    path: str
    """A JSON Pointer into the input (`/messages/0/content/1`); in a stream it begins with `event/N`."""
    severity: Severity
    """`lost` is gone; `changed` was renamed, moved or rewritten; `added` was made up because the target requires it."""
    what: str
    """What happened, as a sentence without its full stop."""
    why: str


_REASONS: Mapping[Severity, Mapping[str, str]] = {
    "lost": {
        "unknown-field": "only {source} knows this field, or nobody here does",
        "no-counterpart": "{target} has no place for it",
        "opaque-dropped": "it belongs to {source} and means nothing to {target}",
        "seal-dropped": "only its maker can read it, and {target} is not its maker or has no slot for it",
        "reasoning-dropped": "{target} takes no thinking here that it did not sign itself",
        "media-dropped": "{target} takes no media of this kind here",
        "citation-dropped": "{target} has no such citation",
        "tool-dropped": "{target} has no such tool of its own, and nobody else could run it",
        "cache-dropped": "{target} has no cache breakpoint here",
        "part-dropped": "{target} takes no such part here",
        "description-cut": "this server takes shorter descriptions only",
        "finish-dropped": "{target} has no such ending",
        "arguments-dropped": "the arguments were cut off and are no JSON",
        "request-missing": "without the client's request the names and shapes it used cannot be given back",
        "event-dropped": "only {source} sends this event",
        "call-forgotten": "the client did not see it, and nobody keeps it until its next request",
    },
    "changed": {
        "id-rewritten": "{target} demands other characters, a shorter id, or a unique one",
        "name-rewritten": "{target} allows other characters or a shorter name",
        "schema-rewritten": "{target} takes another dialect of JSON Schema",
        "tool-wrapped": "{target} knows function tools only",
        "tool-mapped": "{target} has a tool of its own for this, with other options",
        "tool-substituted": "{target} has no such tool of its own, and a function was named to stand in for it",
        "namespace-flattened": "{target} has no namespaces",
        "tools-merged": "{target} takes tools in one list only",
        "turns-joined": "{target} wants neighbouring turns of one role as one",
        "turn-moved": "{target} wants the results of calls directly after them",
        "system-moved": "{target} takes instructions at another place",
        "media-moved": "{target} takes media at another place",
        "media-summarised": "media in results are summarised",
        "error-marked": "{target} has no error flag on results",
        "value-wrapped": "{target} demands an object here",
        "arguments-wrapped": "{target} demands a JSON object as arguments",
        "choice-weakened": "{target} cannot be told so",
        "choice-mapped": "{target} says it another way",
        "thinking-mapped": "{target} measures thinking another way",
        "reasoning-as-text": "{target} has no part for thinking",
        "refusal-as-text": "{target} has no part for refusals",
        "setting-mapped": "{target} says it another way",
        "setting-clamped": "{target} allows another range",
        "result-as-text": "{target} takes no result without its call",
        "empty-omitted": "{target} refuses empty text",
        "role-mapped": "{target} has no such role here",
        "format-mapped": "{target} says the format another way",
        "finish-mapped": "{target} has a coarser word for this ending",
        "usage-mapped": "{target} counts otherwise",
        "seal-wrapped": "it travels in an envelope, for its maker alone",
        "seal-kept": "{target} has no slot for it; it is kept by the id of a call, and put back for its maker",
        "citation-mapped": "{target} cites another way",
        "order-changed": "{target} keeps text, thinking and calls apart",
        "summary-as-text": "{target} has no part for a summary of this maker",
        "hosted-as-text": "{target} has no part for what a provider's own tool did",
        "policy-dropped": "a rule of the operator takes the tool away",
        "policy-renamed": "a rule of the operator gives the tool another name",
        "policy-described": "a rule of the operator describes the tool otherwise",
        "policy-reshaped": "a rule of the operator gives the tool other parameters",
        "policy-setting": "a rule of the operator sets it so",
        "policy-choice": "a rule of the operator leaves no such choice",
        "policy-cleaned": "a rule of the operator changes what the instructions say of tools",
        "policy-skipped": "a rule of the operator could not be followed here",
        "policy-call-refused": "the tool was taken away; the model is told so, not the client",
        "policy-arguments-fixed": "the schema asks for whole numbers",
        "policy-arguments-invalid": "the arguments do not fit the schema that the client declared",
    },
    "added": {
        "result-added": "{target} refuses a call without a result",
        "turn-added": "{target} demands a turn here",
        "id-added": "{target} demands an id",
        "name-added": "{target} demands a name",
        "max-tokens-added": "{target} demands a limit",
        "description-added": "{target} demands a description",
        "schema-added": "{target} demands a schema",
        "signature-added": "{target} demands a signature on calls that it did not make",
        "breakpoint-added": "{target} caches only what is marked",
        "default-added": "{target} would assume another default",
        "reasoning-added": "the client waits for it",
        "policy-guidance": "a rule of the operator says what to use instead of a tool",
    },
}
LOSS_CODES: Mapping[str, tuple[Severity, str]] = MappingProxyType(
    {code: (severity, why) for severity, reasons in _REASONS.items() for code, why in reasons.items()}
)
"""Every code with its severity and its usual reason."""


LossNote: TypeAlias = tuple[str, Path, str]
"""A loss before it is turned into text: code, place and what happened."""


class Ledger(msgspec.Struct, eq=False):
    """The losses of one translation, in order, each once. A note is cheap; its text is made when `losses` is read."""

    source: str
    """The protocol of the input."""
    target: str
    """The protocol of the output."""
    notes: dict[LossNote, str] = {}
    """Each note with its reason, "" for the usual reason of its code."""

    @property
    def is_same_protocol(self) -> bool:
        return self.source == self.target

    def note(self, code: str, path: Path, what: str, why: str = "") -> None:
        """Note a loss at a place of the input. `what` is a sentence without its full stop, `why` overrides the usual
        reason of the code."""
        if type(path) is Paths:
            for place in path:
                self.notes.setdefault((code, place, what), why)
        else:
            self.notes.setdefault((code, path, what), why)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The losses with their paths and reasons as text."""
        losses: dict[tuple[str, str, str], Loss] = {}
        for (code, place, what), why in self.notes.items():
            severity, reason = LOSS_CODES[code]
            path = json_pointer(place)
            if (code, path, what) not in losses:
                why = why or reason.format(source=self.source, target=self.target)
                losses[code, path, what] = Loss(code, path, severity, what, why)
        return tuple(losses.values())

    @property
    def codes(self) -> tuple[str, ...]:
        """The code of every loss, in order."""
        return tuple([code for code, _, _ in self.notes])

    def note_unknown_fields(self, unknown_fields: Iterable[UnknownField]) -> None:
        """Note keys that only a writer of the source protocol could write back."""
        for field in unknown_fields:
            self.note(field.code, (field.path, field.key), f"`{field.key}` was left out")

    def note_opaque(self, part: Opaque) -> None:
        self.note("opaque-dropped", source_path(part), f"`{part.kind}` was left out")

    def note_unwritten_settings(self, settings: Settings, present: Collection[str], written: frozenset[str]) -> None:
        """Note the settings that are present and that the target's writer does not write."""
        for field in sorted([name for name in present if name not in written], key=settings.__struct_fields__.index):
            value = getattr(settings, field)
            if value != OFF and (value is not False or field != "store"):  # a target without a store does not store
                self.note("no-counterpart", settings.where.get(field), f"the setting `{field}` was left out")

    def note_foreign_fields(self, read: Request | Response) -> None:
        """Note all unknown fields of a request or answer, unless the target is the same protocol."""
        if read.unknown_fields and not self.is_same_protocol:
            self.note_unknown_fields(read.unknown_fields)


LossSummary: TypeAlias = tuple[str, str, str]
"""A loss without its reason: code, JSON Pointer, and what happened."""


def summarise_losses(ledgers: Iterable[Ledger | None]) -> list[LossSummary]:
    """All losses of several translations, in order, each once per ledger."""
    summaries: list[LossSummary] = []
    for ledger in ledgers:
        if ledger is not None:
            summaries += dict.fromkeys([(code, json_pointer(place), what) for code, place, what in ledger.notes])
    return summaries
