"""What tools that a provider runs were asked and what they found, in the words of no protocol.

A search is asked with `{"query": …}`, or `{"queries": […]}` for several at once; a fetch with `{"url": …}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolwire.ir import Call, Citation, HostedCall, HostedResult, Origin, Result, Text, place, plain_text
from toolwire.loss import Ledger
from toolwire.wire import Json, Malformed, decode, encode_text, object_or_none

_QUERY = ("query", "queries", "q", "search_query", "search_term", "text", "input", "prompt")
_URL = ("url", "uri", "link", "urls", "href")
_TITLE = ("title", "name", "heading")
MOST = 50
"""Sources that are told of one result."""
_NOWHERE = Origin("", None, None, intact=False)
"""The origin of what no provider made."""
_LINK = re.compile(r"\[([^\]\n]{1,300})\]\((https?://[^\s)]+)\)")
_LABEL = re.compile(r"[^\w\n]{0,6}(title|url|link)\b[^\w\n]{1,6}(\S.*)", re.IGNORECASE)
_BARE = re.compile(r"https?://[^\s<>\"'\])}]+")
_TAIL = ".,;:!?*`"


def queries_of(arguments: str) -> list[str]:
    """What a search looked for."""
    given = object_or_none(arguments) or {}
    found = [_texts(given[key]) for key in _QUERY if key in given]
    # The plural tells all of them where it is there.
    return max(found, key=len, default=[])


def url_of(arguments: str) -> str:
    """The page that was fetched."""
    given = object_or_none(arguments) or {}
    return next((text for key in _URL for text in _texts(given.get(key))), "")


def _texts(value: Json) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    return [one for one in value if isinstance(one, str) and one] if isinstance(value, list) else []


def asked(tool: str, arguments: str) -> str:
    """The arguments of a call of a function as those of the tool that it stands in for."""
    if tool == "web_fetch":
        url = url_of(arguments)
        return encode_text({"url": url}) if url else arguments
    queries = queries_of(arguments) if tool == "web_search" else []
    return encode_text({"query": queries[0]} if len(queries) == 1 else {"queries": queries}) if queries else arguments


def found_text(result: HostedResult) -> str:
    """A result as words: what was found, and where."""
    lines = [f"{source.title} {source.url}".strip() for source in result.sources]
    quotes = [source.quote for source in result.sources if source.quote]
    return "\n".join(filter(None, [result.text, *lines, *quotes, result.error]))


def retold(result: HostedResult, ledger: Ledger) -> Text | None:
    """A result of an earlier turn for a provider that takes none but its own."""
    found = found_text(result)
    if not found.strip():
        ledger.note(
            "part-dropped", place(result), f"an empty result of the provider's own `{result.tool}` was left out"
        )
        return None
    ledger.note("hosted-as-text", place(result), f"what `{result.tool}` found became text")
    return Text(f"[{result.tool} found]\n{found}")


# --- a function that stands in --------------------------------------------------------------------------------------


def shown(call: Call, result: Result, tool: str) -> tuple[HostedCall, HostedResult]:
    """A call of a function that stands in for a provider's own tool, and what it gave, as if it had been that tool."""
    text = plain_text(result.content)
    arguments = asked(tool, call.arguments)
    made = HostedCall(call.id, tool, arguments, _NOWHERE)
    if result.error:
        return made, HostedResult(call.id, tool, (), text, "unavailable", _NOWHERE)
    if tool == "web_fetch":
        page = Citation(url_of(arguments))
        return made, HostedResult(call.id, tool, (page,) if page.url else (), text, "", _NOWHERE)
    sources = sources_in(text)
    return made, HostedResult(call.id, tool, sources, "" if sources else text, "", _NOWHERE)


def sources_in(text: str) -> tuple[Citation, ...]:
    """The pages that a text names: out of JSON, out of links with a title, or bare."""
    pairs = list(_listed(_parsed(text), 0))
    if not pairs:
        pairs = [(url, title) for title, url in _LINK.findall(text)]
        pairs += [*_labelled(text), *((url, "") for url in _BARE.findall(text))]
    titles: dict[str, str] = {}
    for url, title in pairs:
        short = url.rstrip(_TAIL)
        titles[short] = titles.get(short) or title.strip()
    return tuple(Citation(url, title) for url, title in list(titles.items())[:MOST])


def _parsed(text: str) -> Json:
    try:
        return decode(text) if text.lstrip()[:1] in ("{", "[") else None
    except Malformed:
        return None


def _labelled(text: str) -> Iterator[tuple[str, str]]:
    """Lines such as `Title: …` with `URL: …` some lines below."""
    title = ""
    for line in text.splitlines():
        found = _LABEL.match(line)
        if found is None:
            continue
        if found[1].lower() == "title":
            title = found[2]
        elif (page := _BARE.match(found[2])) is not None:
            yield page[0], title
            title = ""


def _listed(value: Json, depth: int) -> Iterator[tuple[str, str]]:
    """Objects with an address, wherever they stand."""
    if depth > 6:
        return
    if isinstance(value, dict):
        url = next((value[key] for key in _URL if isinstance(value.get(key), str)), "")
        if url.startswith(("http://", "https://")):
            yield url, next((value[key] for key in _TITLE if isinstance(value.get(key), str)), "")
            return
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _listed(one, depth + 1)
