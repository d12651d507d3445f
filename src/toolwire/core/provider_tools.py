"""Arguments and results of tools that a provider runs (web search, web fetch, code execution), in a common form.

The arguments of a search are `{"query": …}` or `{"queries": […]}`, those of a fetch `{"url": …}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolwire.core.ir import Call, Citation, Origin, ProviderCall, ProviderResult, Result, Text, plain_text, source_path
from toolwire.core.json_values import Json, Malformed, decode, decode_object_or_none, encode_text
from toolwire.core.losses import Ledger

_QUERY_KEYS = ("query", "queries", "q", "search_query", "search_term", "text", "input", "prompt")
_URL_KEYS = ("url", "uri", "link", "urls", "href")
_TITLE_KEYS = ("title", "name", "heading")
MAX_SOURCES = 50
"""The most sources of one result."""
_NO_ORIGIN = Origin("", None, None, intact=False)
"""For parts that Toolwire made."""
_MARKDOWN_LINK = re.compile(r"\[([^\]\n]{1,300})\]\((https?://[^\s)]+)\)")
_LABELLED_LINE = re.compile(r"[^\w\n]{0,6}(title|url|link)\b[^\w\n]{1,6}(\S.*)", re.IGNORECASE)
_BARE_URL = re.compile(r"https?://[^\s<>\"'\])}]+")
_TRAILING_PUNCTUATION = ".,;:!?*`"


def search_queries(arguments: str) -> list[str]:
    given = decode_object_or_none(arguments) or {}
    found = [_text_list(given[key]) for key in _QUERY_KEYS if key in given]
    # A model may send both `query` and `queries`: the longer list has all of them.
    return max(found, key=len, default=[])


def fetched_url(arguments: str) -> str:
    given = decode_object_or_none(arguments) or {}
    return next((text for key in _URL_KEYS for text in _text_list(given.get(key))), "")


def _text_list(value: Json) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    return [item for item in value if isinstance(item, str) and item] if isinstance(value, list) else []


def provider_arguments(tool: str, arguments: str) -> str:
    """The arguments of a substitute function as those of the provider's tool."""
    if tool == "web_fetch":
        url = fetched_url(arguments)
        return encode_text({"url": url}) if url else arguments
    queries = search_queries(arguments) if tool == "web_search" else []
    return encode_text({"query": queries[0]} if len(queries) == 1 else {"queries": queries}) if queries else arguments


def provider_result_text(result: ProviderResult) -> str:
    """A result as text: what was found, and where."""
    lines = [f"{source.title} {source.url}".strip() for source in result.sources]
    quotes = [source.quote for source in result.sources if source.quote]
    return "\n".join(filter(None, [result.text, *lines, *quotes, result.error]))


_PORTABLE_ID = re.compile(r"[A-Za-z0-9_]{1,50}")


def carry_call_id(id: str, prefix: str) -> str:
    """The id of a provider's call behind the prefix that another protocol demands, "" where it cannot be carried. It
    still says who made the call, when the client sends it back."""
    if id.startswith(prefix):
        return id
    return prefix + id if _PORTABLE_ID.fullmatch(id) else ""


def is_returned_call(part: ProviderCall | ProviderResult, own_prefix: str) -> bool:
    """Is it a call that this provider has made, and that comes back through a client of another protocol? What it found
    must not become text, which the provider would take for words of its own."""
    return own_prefix in part.id


def note_returned_result(part: ProviderResult, ledger: Ledger) -> None:
    what = f"what the tool `{part.tool}` of this very provider has found was left out"
    ledger.note("part-dropped", source_path(part), what, "the client cannot carry it as its maker takes it")


def provider_result_as_text(result: ProviderResult, ledger: Ledger) -> Text | None:
    """A result of an earlier turn, for a provider that accepts only its own."""
    found = provider_result_text(result)
    if not found.strip():
        what = f"an empty result of the provider's tool `{result.tool}` was left out"
        ledger.note("part-dropped", source_path(result), what)
        return None
    ledger.note("hosted-as-text", source_path(result), f"the result of the provider's tool `{result.tool}` became text")
    return Text(f"[{result.tool} found]\n{found}")


# --- substitute functions --------------------------------------------------------------------------------------


def as_provider_call(call: Call, result: Result, tool: str) -> tuple[ProviderCall, ProviderResult]:
    """A call of a substitute function and its result, as if the provider had run its own tool."""
    text = plain_text(result.content)
    arguments = provider_arguments(tool, call.arguments)
    made = ProviderCall(call.id, tool, arguments, _NO_ORIGIN)
    if result.error:
        return made, ProviderResult(call.id, tool, (), text, "unavailable", _NO_ORIGIN)
    if tool == "web_fetch":
        page = Citation(fetched_url(arguments))
        return made, ProviderResult(call.id, tool, (page,) if page.url else (), text, "", _NO_ORIGIN)
    sources = find_sources(text)
    return made, ProviderResult(call.id, tool, sources, "" if sources else text, "", _NO_ORIGIN)


def find_sources(text: str) -> tuple[Citation, ...]:
    """The URLs in a text, with their titles: from JSON, Markdown links, labelled lines, or bare."""
    try:
        decoded = decode(text) if text.lstrip()[:1] in ("{", "[") else None
    except Malformed:
        decoded = None
    pairs = list(_find_listed_urls(decoded, 0))
    if not pairs:
        pairs = [(url, title) for title, url in _MARKDOWN_LINK.findall(text)]
        pairs += [*_find_labelled_urls(text), *((url, "") for url in _BARE_URL.findall(text))]
    titles: dict[str, str] = {}
    for url, title in pairs:
        url = url.rstrip(_TRAILING_PUNCTUATION)
        titles[url] = titles.get(url) or title.strip()
    return tuple(Citation(url, title) for url, title in list(titles.items())[:MAX_SOURCES])


def _find_labelled_urls(text: str) -> Iterator[tuple[str, str]]:
    """Lines such as `Title: …`, followed by `URL: …`."""
    title = ""
    for line in text.splitlines():
        found = _LABELLED_LINE.match(line)
        if found is None:
            continue
        if found[1].lower() == "title":
            title = found[2]
        elif (page := _BARE_URL.match(found[2])) is not None:
            yield page[0], title
            title = ""


def _find_listed_urls(value: Json, depth: int) -> Iterator[tuple[str, str]]:
    """Objects with a URL, at any depth."""
    if depth > 6:
        return
    if isinstance(value, dict):
        url = next((value[key] for key in _URL_KEYS if isinstance(value.get(key), str)), "")
        if url.startswith(("http://", "https://")):
            yield url, next((value[key] for key in _TITLE_KEYS if isinstance(value.get(key), str)), "")
            return
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _find_listed_urls(item, depth + 1)
