"""Losses: what a translation could not carry over unchanged. The codes, and the ledger of one translation.

Add a code to `_REASONS`, with its usual reason, before a writer or a step uses it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw

from toolwire.core.events import ResponseEnd
from toolwire.core.ir import (
    Finish,
    Logprobs,
    Media,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    Request,
    Response,
    Settings,
    Turn,
    UnknownField,
    source_path,
)
from toolwire.core.json_values import Path, Paths, json_pointer, raw_object_or_none

OFF = "off"
"""The value of a setting that is switched off: leaving it out is not a loss."""

MAX_QUOTED = 300
"""How many characters of the input a loss quotes."""

Severity: TypeAlias = Literal["lost", "changed", "added", "repaired"]


class Loss(msgspec.Struct, frozen=True):
    """One thing that the target could not express as it was."""

    code: str
    """A key of LOSS_CODES, such as `seal-dropped`."""
    path: str
    """A JSON Pointer into the input (`/messages/0/content/1`); in a stream it begins with `event/N`."""
    severity: Severity
    """`lost` is gone; `changed` was renamed, moved or rewritten; `added` was made up because the target requires it;
    `repaired` was a fault of the model or its server, or looked like one."""
    what: str
    """What happened, as a sentence without its full stop."""
    why: str


_REASONS: Mapping[Severity, Mapping[str, str]] = {
    "lost": {
        "unknown-field": "only {source} has this field",
        "no-counterpart": "{target} has no field for it",
        "opaque-dropped": "only {source} has it; {target} would not understand it",
        "seal-dropped": "only its maker can read it, and {target} is not its maker or has no field for it",
        "envelope-refused": "it was not made here for this client, or it has been changed",
        "reasoning-dropped": "{target} accepts here only thinking that it has signed itself",
        "media-dropped": "{target} does not accept media of this kind here",
        "citation-dropped": "{target} has no citation of this kind",
        "tool-dropped": "{target} does not run this tool, and no function was configured as a substitute",
        "cache-dropped": "{target} has no cache breakpoint here",
        "part-dropped": "{target} does not accept such a part here",
        "description-cut": "this server limits the length of descriptions",
        "finish-dropped": "{target} has no such finish reason",
        "arguments-dropped": "the arguments were cut off and are not valid JSON",
        "request-missing": "the client's request was not given, so its tool names and kinds cannot be restored",
        "event-dropped": "only {source} has this event",
        "usage-dropped": "it is no number of tokens that an answer can have used",
        "call-forgotten": "the client did not see it, and without a store it cannot be repeated in the next request",
    },
    "changed": {
        "id-rewritten": "{target} requires other characters, a shorter id, or a unique one",
        "name-rewritten": "{target} allows only certain characters or a shorter name",
        "schema-rewritten": "{target} accepts another dialect of JSON Schema",
        "tool-wrapped": "{target} has function tools only",
        "tool-mapped": "{target} has its own tool for this, with other options",
        "tool-substituted": "{target} does not run this tool, so the configured function is used instead",
        "namespace-flattened": "{target} has no namespaces",
        "tool-deferred": "there are more tools than are declared at once, so the gateway searches for them",
        "tools-prompted": "{target} is asked here without tools, so they are part of the prompt",
        "tools-merged": "{target} takes all tools in one list, each name once",
        "turns-joined": "{target} requires consecutive turns of one role to be one turn",
        "turn-moved": "{target} requires results directly after their calls",
        "system-moved": "{target} has another place for instructions",
        "media-described": "the operator has another model describe images for models that cannot see",
        "media-moved": "{target} has another place for media",
        "media-as-text": "{target} takes such a file only as text",
        "media-summarised": "media in results are replaced by a line of text, as the operator wishes",
        "error-marked": "{target} marks a failed result in another way",
        "value-wrapped": "{target} requires an object here",
        "arguments-wrapped": "{target} requires the arguments to be a JSON object",
        "choice-weakened": "{target} has no such tool choice",
        "choice-mapped": "{target} expresses this tool choice in another way",
        "thinking-mapped": "{target} measures thinking in another way",
        "reasoning-as-text": "{target} has no part for thinking",
        "refusal-as-text": "{target} has no part for refusals",
        "setting-mapped": "{target} expresses this setting in another way",
        "setting-clamped": "{target} allows another range",
        "result-as-text": "{target} refuses a result without its call",
        "empty-omitted": "{target} refuses empty text",
        "role-mapped": "{target} does not have this role here",
        "format-mapped": "{target} expresses the format in another way",
        "finish-mapped": "{target} has a less exact finish reason for this",
        "text-repaired": "half of a surrogate pair is not a character: U+FFFD replaces it",
        "usage-mapped": "{target} counts tokens in another way",
        "seal-wrapped": "it travels through the client in an envelope and goes back to its maker only",
        "seal-kept": "{target} has no field for it; it is stored by the id of a call and goes back to its maker",
        "citation-mapped": "{target} has citations of another kind",
        "order-changed": "{target} keeps text, thinking and calls apart",
        "summary-as-text": "{target} cannot read a summary of this maker",
        "hosted-as-text": "{target} has no part for what another provider's tool did",
        "policy-dropped": "a policy rule removes the tool",
        "policy-renamed": "a policy rule renames the tool",
        "policy-described": "a policy rule changes the tool's description",
        "policy-reshaped": "a policy rule changes the tool's parameters",
        "policy-setting": "a policy rule sets it",
        "policy-choice": "a policy rule makes this tool choice impossible",
        "policy-cleaned": "a policy rule changes what the instructions say about tools",
        "policy-skipped": "a policy rule could not be applied here",
        "policy-call-refused": "a policy rule removed the tool; the model is told, not the client",
        "policy-arguments-fixed": "the schema requires whole numbers",
        "policy-arguments-invalid": "the arguments do not match the schema that the client declared",
    },
    "added": {
        "result-added": "{target} refuses a call without a result",
        "turn-added": "{target} requires a turn here",
        "id-added": "{target} requires an id",
        "name-added": "{target} requires a name",
        "tools-added": "{target} refuses earlier calls of tools that are not declared",
        "max-tokens-added": "{target} requires a limit",
        "description-added": "{target} requires a description",
        "schema-added": "{target} requires a schema",
        "signature-added": "{target} requires a signature on calls that it did not make",
        "breakpoint-added": "{target} caches only what is marked",
        "default-added": "{target} has another default",
        "reasoning-added": "the client expects it",
        "policy-guidance": "a policy rule says what to use instead of a removed tool",
    },
    "repaired": {
        "shape-repaired": "{source} has another shape for it, and it can mean only this",
        "call-in-text": "the model wrote the call as text, and its server did not recognise it",
        "call-mentioned": "the text is about it, or shows it, so it stays text and is not made",
        "reasoning-in-text": "the model wrote its thinking as text, and its server did not separate it",
        "marks-dropped": "they belong to the format in which the model writes, and say nothing to a user",
        "name-repaired": "no tool of this name was offered, and only one can be meant",
        "arguments-repaired": "the arguments were not JSON, or did not fit the tool's schema",
    },
}
LOSS_CODES: Mapping[str, tuple[Severity, str]] = MappingProxyType(
    {code: (severity, why) for severity, reasons in _REASONS.items() for code, why in reasons.items()}
)
"""Every code with its severity and its usual reason."""


ADDED_ORIGIN = Origin("toolwire", (None, "added"), None, intact=False)
"""The origin of what the gateway adds to a request, such as the tools of MCP servers. Its losses are not reported."""


def _is_added(path: Path) -> bool:
    while path:
        if path is ADDED_ORIGIN.path:
            return True
        path = path[0]
    return False


CONTENT_CODES = frozenset({"opaque-dropped", "unknown-field"})
"""The codes of what is lost of a turn that was written for another protocol."""

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
    has_logprobs_note: bool = False
    may_lack_content: bool = False
    """Was something left out that may be the content of a turn (`CONTENT_CODES`)?"""

    @property
    def is_same_protocol(self) -> bool:
        return self.source == self.target

    def note(self, code: str, path: Path, what: str, why: str = "") -> None:
        """Note a loss. `what` is a sentence without its full stop, `why` overrides the usual reason of the code."""
        if path is not None and _is_added(path):
            return  # the client has lost nothing of what it did not send
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
        return tuple([code for code, _, _ in self.notes]) if self.notes else ()

    def note_unknown_fields(self, unknown_fields: Iterable[UnknownField]) -> None:
        """Note keys that only a writer of the source protocol could write back."""
        for field in unknown_fields:
            self.may_lack_content = True
            self.note(field.code, (field.path, field.key), field.what or f"`{field.key}` was left out")

    def note_repairs(self, places: list[Path]) -> None:
        """Note texts in which U+FFFD replaced half of a surrogate pair, and empty the list."""
        for place in places:
            self.note("text-repaired", place, "half of a character was replaced by U+FFFD")
        places.clear()

    def embed_object(self, text: str, place: Path) -> Raw | None:
        """The JSON object in a text (see `raw_object_or_none`), with its repairs noted."""
        repairs: list[Path] = []
        found = raw_object_or_none(text, place, repairs)
        if repairs:
            self.note_repairs(repairs)
        return found

    def note_finish_detail(self, finish: Finish) -> None:
        """Note the message about the end of an answer, where the target has no field for it."""
        if finish.detail:
            what = f"the message about the end was left out: {finish.detail[:MAX_QUOTED]}"
            self.note("no-counterpart", source_path(finish), what)

    def note_turn_fields(self, turn: Turn) -> None:
        """Note the name of the speaker and the phase, where the target has no fields for them."""
        for field, value in (("name", turn.name), ("phase", turn.phase)):
            if value:
                self.note("no-counterpart", source_path(turn), f"the {field} `{value}` of a turn was left out")

    def drop_media(self, turn: Turn) -> tuple[Part, ...]:
        """The parts of an assistant's turn without images and documents, which some targets take of the user only."""
        for part in turn.parts:
            if isinstance(part, Media):
                what = f"{part.mime or part.kind} in an assistant turn was left out"
                self.note("media-dropped", source_path(part) or source_path(turn), what)
        return tuple([part for part in turn.parts if not isinstance(part, Media)])

    def note_other_choices(self, response: Response, why: str = "") -> None:
        """Note the answers after the first, where the target has one only."""
        for other in response.choices[1:]:
            self.note("no-counterpart", source_path(other), f"answer {other.index} was left out", why)

    def note_media_name(self, part: Media) -> None:
        """Note the name of an image or a recording, where the target has no field for it."""
        if part.name:
            self.note("no-counterpart", source_path(part), f"the name `{part.name[:MAX_QUOTED]}` was left out")

    def note_stop_sequence(self, finish: Finish) -> None:
        """Note the stop sequence that was met, where the target has no field for it."""
        if finish.sequence:
            self.note("no-counterpart", source_path(finish), f"the stop sequence `{finish.sequence}` was left out")

    def note_logprobs(self, logprobs: Logprobs) -> None:
        """Note log probabilities that have no place in the target: once, because every delta may have some."""
        if logprobs and not self.has_logprobs_note:
            self.has_logprobs_note = True
            self.note("no-counterpart", source_path(logprobs[0]), "the log probabilities of the tokens were left out")

    def note_provider_part(self, part: ProviderCall | ProviderResult) -> None:
        """Note what the provider's own tool did, where the target has no part for it."""
        what = f"a call of the provider's own tool `{part.tool}` was left out"
        details = part.arguments if isinstance(part, ProviderCall) else ""
        if isinstance(part, ProviderResult):
            what = f"a result of the provider's own tool `{part.tool}` was left out"
            sources = [f"{source.url} {source.title} {source.quote}".strip() for source in part.sources]
            details = "; ".join(filter(None, (part.error, part.text, *sources)))
        self.note("part-dropped", source_path(part), f"{what}: {details[:MAX_QUOTED]}" if details else what)

    def note_opaque(self, part: Opaque) -> None:
        self.may_lack_content = True
        self.note("opaque-dropped", source_path(part), f"`{part.kind}` was left out")

    def note_unwritten_settings(self, settings: Settings, present: Collection[str], written: frozenset[str]) -> None:
        """Note the settings that are present and that the target's writer does not write."""
        if written.issuperset(present):
            return
        for field in sorted([name for name in present if name not in written], key=settings.__struct_fields__.index):
            value = getattr(settings, field)
            if value != OFF and (value is not False or field != "store"):  # a target without a store does not store
                self.note("no-counterpart", settings.where.get(field), f"the setting `{field}` was left out")

    def note_foreign_fields(self, read: Request | Response | ResponseEnd) -> None:
        """Note all unknown fields of a request or answer; for the same protocol only what was written in an odd way."""
        if read.unknown_fields:
            self.note_unknown_fields(
                [field for field in read.unknown_fields if field.what] if self.is_same_protocol else read.unknown_fields
            )


LossSummary: TypeAlias = tuple[str, str, str]
"""A loss without its reason: code, JSON Pointer, and what happened."""


MAX_SUMMARISED = 100


def summarise_losses(ledgers: Iterable[Ledger | None]) -> list[LossSummary]:
    """The first losses of several translations, in order, each once per ledger. There can be as many as values in a
    body."""
    return [
        summary
        for ledger in ledgers
        if ledger is not None
        for summary in dict.fromkeys(
            [(code, json_pointer(place), what) for code, place, what in islice(ledger.notes, MAX_SUMMARISED)]
        )
    ]
