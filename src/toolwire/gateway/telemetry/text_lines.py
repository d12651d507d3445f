"""Log lines for people: one line for each request, which fits the width of the terminal, and lines for events.

Everything here is pure: values in, text out. A line has the same parts in the same order; where the terminal is too
narrow for all of them, parts are said more briefly, the least important first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import TypeAlias

from toolwire.core.ir import Usage
from toolwire.core.json_values import encode_text
from toolwire.core.losses import LOSS_CODES
from toolwire.gateway.http.redact import printable_text, redact_start, safe_name
from toolwire.gateway.models.amounts import format_dollars
from toolwire.gateway.telemetry.agents import recognise_agent
from toolwire.gateway.telemetry.record import NOT_ASKED_OUTCOMES, ExchangeRecord
from toolwire.terminal.text import add_colour, shorten_text, text_width

UNLIMITED = 1_000_000
"""The width where the log is not on a terminal: nothing is shortened."""
MIN_WIDTH = 40
"""A terminal that says that it is narrower gets lines of this width."""
LEVEL_COLOURS: Mapping[str, str] = {"error": "lost", "warn": "changed", "info": "ok", "debug": "dim"}
MAX_SENTENCE = 600
"""Characters of the sentence about a failure."""
_SEVERITY_ORDER = {"lost": 0, "repaired": 1, "changed": 2, "added": 3}
_SEVERITY_COLOURS = {"lost": "lost", "repaired": "repaired", "changed": "changed", "added": "dim"}
_UNQUOTED_VALUE = re.compile(r"[\w./:@+,%~\[\]…-]+")
_INDENT = " " * 9
"""Below the time stands what does not fit into the line."""

Span: TypeAlias = tuple[str, str]
"""A text, and its colour or ""."""
Part: TypeAlias = tuple[Span, ...]


def log_level(record: ExchangeRecord) -> str:
    if record.status >= 500 or (record.failure and record.status < 400):
        return "error"
    return "warn" if record.status >= 400 or record.answer.losses or record.client_disconnected else "info"


def quote_value(value: object) -> str:
    """A value in a line, in quotes if it could be mistaken for something else."""
    text = value if isinstance(value, str) else encode_text(value)
    return text if _UNQUOTED_VALUE.fullmatch(text) else encode_text(text)


def write_pairs(fields: Iterable[tuple[str, object]]) -> str:
    return "".join([f"  {name}={quote_value(value)}" for name, value in fields if value])


# --- one request ----------------------------------------------------------------------------------------------------


def exchange_line(record: ExchangeRecord, stamp: str, width: int, colour: bool) -> str:
    """The line of one request. The sentence of a failure follows in the line, or below it if it does not fit."""
    width = max(width, MIN_WIDTH)
    level = log_level(record)
    fixed: Part = ((f"{stamp} ", "dim"), (f"{record.status or '---':>3}", LEVEL_COLOURS[level]))
    parts = [
        _route_forms(record),
        _model_forms(record),
        _tool_forms(record),
        _loss_forms(record),
        _disconnect_forms(record),
        _token_forms(record.answer.usage, record.answer.is_estimated),
        _cost_forms(record),
        _duration_forms(record),
        _detail_forms(record, width == UNLIMITED),
    ]
    line = _fit_parts(fixed, parts, width)
    text = "".join([add_colour(text, name) if colour else text for text, name in line])
    if not record.message:
        return f"{text}\n"
    return text + write_sentence(_clean_sentence(record.message), sum(text_width(one) for one, _ in line), width,
                                 LEVEL_COLOURS[level] if colour else "")  # fmt: skip


def write_sentence(sentence: str, used: int, width: int, colour: str) -> str:
    """A sentence at the end of a line of which `used` cells are taken; below it, indented, if it does not fit there."""
    if used + 2 + text_width(sentence) <= width:
        return f"  {add_colour(sentence, colour)}\n"
    rows = wrap(sentence, width - len(_INDENT), break_on_hyphens=False)
    return "\n" + "".join([f"{_INDENT}{add_colour(row, colour)}\n" for row in rows])


def _clean_sentence(text: str) -> str:
    return " ".join(printable_text(redact_start(text).replace("\n", " "), MAX_SENTENCE).split())


Forms: TypeAlias = Sequence[Part]
"""One part of a line, from its longest form to its shortest. An empty form leaves the part out."""

_LEAST_IMPORTANT_FIRST = (8, 0, 5, 6, 1, 2, 3, 7)
"""The places of the parts in a line, in the order in which they are said more briefly."""


def _fit_parts(fixed: Part, parts: Sequence[Forms], width: int) -> Part:
    """The longest forms of the parts that fit together. First all are shortened in turns, then what there is room for
    is restored, the most important first."""
    chosen = [0] * len(parts)
    shrinkable = True
    while shrinkable and _line_width(fixed, parts, chosen) > width:
        shrinkable = False
        for place in _LEAST_IMPORTANT_FIRST:
            if _line_width(fixed, parts, chosen) > width and chosen[place] < len(parts[place]) - 1:
                chosen[place] += 1
                shrinkable = True
    for place in reversed(_LEAST_IMPORTANT_FIRST):
        for form in range(chosen[place]):
            longer = [*chosen[:place], form, *chosen[place + 1 :]]
            if _line_width(fixed, parts, longer) <= width:
                chosen = longer
                break
    line = _join_parts(fixed, parts, chosen)
    return line if _line_width(fixed, parts, chosen) <= width else _cut_spans(line, width)


def _join_parts(fixed: Part, parts: Sequence[Forms], chosen: Sequence[int]) -> Part:
    spans = [*fixed]
    for forms, form in zip(parts, chosen, strict=True):
        if forms and forms[form]:
            spans += [(" " if len(spans) == len(fixed) else "  ", ""), *forms[form]]
    return tuple(spans)


def _line_width(fixed: Part, parts: Sequence[Forms], chosen: Sequence[int]) -> int:
    return sum(text_width(text) for text, _ in _join_parts(fixed, parts, chosen))


def _cut_spans(line: Part, width: int) -> Part:
    cut: list[Span] = []
    for text, colour in line:
        short = shorten_text(text, width)
        cut.append((short, colour))
        width -= text_width(short)
        if short != text or width <= 0:
            break
    return tuple(cut)


def _name(text: str, limit: int = UNLIMITED) -> str:
    return quote_value(shorten_text(safe_name(text), limit)) if text else ""


def _route_forms(record: ExchangeRecord) -> Forms:
    """Who asked whom: the agent, or the client's protocol, and the providers; those that failed with their outcome."""
    agent, product = recognise_agent(record.client.user_agent)
    client = record.client.protocol or "-"
    short = _name(agent or product, 16) or client
    failed = [(name, outcome) for name, outcome, _ in record.attempts if outcome != "ok"]
    upstream = record.upstream
    provider = f"{upstream.provider}/{upstream.account}" if upstream.account else upstream.provider
    if failed and record.status >= 400 and failed[-1][0] == provider:
        failed.pop()  # the status of the line says it
    chain = [
        f"{name} (not asked)" if outcome in NOT_ASKED_OUTCOMES else f"{name}:{printable_text(outcome)}"
        for name, outcome in failed
    ]
    chain += [provider] if provider else []
    if not chain:
        where = f"{printable_text(record.client.method, 16)} {_name(record.client.path.partition('?')[0])}"
        return [_plain(f"{short}  {where}"), _plain(where)]
    full = short if short == client else f"{short} ({client})"
    target = chain[-1] + (f" ({upstream.protocol})" if upstream.protocol not in ("", client) else "")
    forms = [
        " → ".join([full, *chain[:-1], target]),
        " → ".join([short, *chain]),
        "→".join([short, *chain]),
        "→".join([short, *([f"{len(chain) - 1} failed"] if len(chain) > 1 else []), chain[-1]]),
        "→".join([shorten_text(short, 8), shorten_text(chain[-1], 10)]),
    ]
    return [_plain(form) for form in dict.fromkeys(forms)]


def _plain(text: str) -> Part:
    return ((text, ""),)


def _model_forms(record: ExchangeRecord) -> Forms:
    """The model; both names if the client asked for it by another one."""
    asked, model = record.asked.model, record.upstream.model or record.asked.model
    if not model:
        return [_plain(record.asked.operation)] if record.asked.operation != "chat" else []
    is_prefix = asked.endswith(f"/{model}") or asked == f"models/{model}"
    names = [model] if not asked or asked == model or is_prefix else [asked, model]
    forms = [" → ".join([_name(name, limit) for name in names]) for limit in (UNLIMITED, 32, 24)]
    forms += ["→".join([_name(name, limit) for name in names]) for limit in (24, 20, 16, 12, 8)]
    operation = f"{record.asked.operation} " if record.asked.operation not in ("chat", "passthrough") else ""
    return [((f"{operation}{form}", "head"),) for form in dict.fromkeys(forms)]


def _tool_forms(record: ExchangeRecord) -> Forms:
    """The tools that the answer calls, with the provider's name where it is another one; and those that the gateway ran
    itself, with a mark where that failed."""
    called = Counter(record.answer.tool_calls)
    ran = Counter(record.answer.tool_runs)

    def write(limit: int, shown: int, both_names: bool = True) -> str:
        names = [
            _name(client, limit)
            + (f" (as {_name(provider, limit)})" if both_names and client != provider else "")
            + _times(count)
            for (client, provider), count in called.items()
        ]
        names += [
            f"{_name(name, limit)} ({'run here' if outcome == 'ok' else 'failed here'})" + _times(count)
            for (name, outcome), count in ran.items()
        ]
        more = f" +{len(names) - shown}" if len(names) > shown else ""
        return f"calls {', '.join(names[:shown])}{more}" if names else ""

    count = called.total() + ran.total()
    sizes = ((UNLIMITED, 100), (32, 8), (24, 4), (20, 3), (16, 2), (16, 1), (24, 1, False), (16, 1, False))
    forms = [*(write(*size) for size in sizes), f"{count} call{'s' if count > 1 else ''}" if count else ""]
    return [((form, "added"),) for form in dict.fromkeys(forms) if form]


def _times(count: int) -> str:
    return f"×{count}" if count > 1 else ""


def _loss_forms(record: ExchangeRecord) -> Forms:
    """The losses by code, those first where something is gone."""
    counts = Counter(record.answer.losses)
    if not counts:
        return []
    severities = {code: LOSS_CODES[code][0] if code in LOSS_CODES else "changed" for code in counts}
    codes = sorted(counts, key=lambda code: _SEVERITY_ORDER[severities[code]])
    lost = [code for code in codes if severities[code] == "lost"]

    def write(shown: Sequence[str]) -> Part:
        spans: list[Span] = []
        for code in shown:
            colour = _SEVERITY_COLOURS[severities[code]]
            spans += [(", " if spans else "", ""), (f"{code}{_times(counts[code])}", colour)]
        rest = sum(counts[code] for code in codes if code not in shown)
        if rest:
            spans.append((f" +{rest}" if spans else f"{rest} changed", "dim"))
        return tuple(spans)

    kept = [codes[:size] for size in (len(codes), 4, 3, 2) if size >= len(lost) and size <= len(codes)]
    return list(dict.fromkeys([write(shown) for shown in (*kept, lost, lost[:2], lost[:1])]))


def _disconnect_forms(record: ExchangeRecord) -> Forms:
    return [(("client left", "changed"),)] if record.client_disconnected else []


def _token_forms(usage: Usage | None, is_estimated: bool) -> Forms:
    if usage is None:
        return []
    mark = "~" if is_estimated else ""
    sent, made, cached = (_short_number(number) for number in (usage.input, usage.output, usage.cache_read))
    full = f"{mark}{usage.input} in{f' ({usage.cache_read} cached)' if usage.cache_read else ''}, {usage.output} out"
    brief = f"{mark}{sent} in{f' ({cached} cached)' if usage.cache_read else ''}, {made} out"
    least = f"{mark}{sent}/{made}{f'/{cached}' if usage.cache_read else ''} tok"
    return [*map(_plain, dict.fromkeys((full, brief, least))), ()]


def _cost_forms(record: ExchangeRecord) -> Forms:
    """What the exchange costs. Nothing if it is free."""
    if not record.costs.is_priced:
        return []
    costs = record.costs.add_up()
    if costs.total is None:
        return [_plain("no price"), ()]
    is_shown = costs.total or costs.unpriced
    return [_plain(("over " if costs.unpriced else "") + format_dollars(costs.total)), ()] if is_shown else []


def _short_number(number: int | None) -> str:
    number = number or 0
    if number < 10_000:
        return str(number)
    return f"{number / 1000:.0f}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"


def _duration_forms(record: ExchangeRecord) -> Forms:
    seconds = record.ended - record.started
    return [((f"{int(seconds * 1e3)} ms", "dim"),), ((f"{seconds:.1f}s", "dim"),), ()]


def _detail_forms(record: ExchangeRecord, is_whole: bool) -> Forms:
    """The client's key, if there is room; and where the width is not limited, what to search for."""
    pairs: list[tuple[str, object]] = [("key", printable_text(record.client.key_name))]
    if is_whole:
        pairs += [
            ("failure", record.failure),
            ("passthrough", record.is_passthrough),
            ("request_id", printable_text(record.request_id)),
            ("upstream_request_id", printable_text(record.answer.request_id)),
        ]
    text = write_pairs(pairs).removeprefix("  ")
    return [((text, "dim"),), ()] if text else []


# --- events ---------------------------------------------------------------------------------------------------------


def event_line(kind: str, fields: Mapping[str, object], stamp: str, level: str, width: int, colour: bool) -> str:
    """Something that is not a request: its name and its fields, and what happened and what to do as a sentence."""
    rest = dict(fields)
    texts = [str(rest.pop(name, "") or "") for name in ("message", "hint")]
    start = f"{stamp} {kind}{write_pairs(rest.items())}"
    painted = f"{stamp} {add_colour(kind, LEVEL_COLOURS[level])}{write_pairs(rest.items())}" if colour else start
    sentence = "; ".join(filter(None, texts))
    return painted + (write_sentence(sentence, text_width(start), max(width, MIN_WIDTH), "") if sentence else "\n")
