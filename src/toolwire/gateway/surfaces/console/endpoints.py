"""The console's page and its API: answers requests below `/console/`, and `/` itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec

from toolwire.core.ir import Failure
from toolwire.core.version import VERSION
from toolwire.gateway.exchange.gateway_request import Runtime
from toolwire.gateway.features.costs import report
from toolwire.gateway.features.costs.ledger import LedgerTables
from toolwire.gateway.features.keys.access import AccessControl
from toolwire.gateway.features.limits.report import LimitUse
from toolwire.gateway.http.client_request import ClientRequest
from toolwire.gateway.http.large_work import run_aside
from toolwire.gateway.http.messages import Reply
from toolwire.gateway.http.redact import SecretFilter, hide_secrets, redact
from toolwire.gateway.models.listing import ModelLists
from toolwire.gateway.settings.config import Config
from toolwire.gateway.store.store import StoreDown
from toolwire.gateway.surfaces.console import api, detail, live, providers, request_report, search, sessions, translate
from toolwire.gateway.surfaces.console.access import ConsoleAccess, EndedSessions, FailedTries, make_secret
from toolwire.gateway.surfaces.console.case_file import write_case
from toolwire.gateway.surfaces.console.conversation import describe_conversation, read_words
from toolwire.gateway.surfaces.console.page_files import (
    FILES_PATH,
    INDEX,
    SECURITY_HEADERS,
    closed_page_reply,
    file_reply,
)
from toolwire.gateway.surfaces.console.peers import Peers, Question, load_secret
from toolwire.gateway.surfaces.console.rows import exchange_id, exchange_row, exchange_state, parse_exchange_id
from toolwire.gateway.surfaces.console.settings import ConsoleSettings
from toolwire.gateway.telemetry.recent import RecentExchanges
from toolwire.gateway.telemetry.record import ExchangeRecord
from toolwire.gateway.telemetry.request_counts import CountQuery, CountSums
from toolwire.protocols import CODECS
from toolwire.terminal import CommandError

JSON_HEADERS: Mapping[str, str] = {
    **SECURITY_HEADERS,
    "content-type": "application/json",
    "cache-control": "no-store",
}
EVENT_HEADERS: Mapping[str, str] = {
    **SECURITY_HEADERS,
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # nginx would hold the events back
}
MAX_BODY = 2 * 1024 * 1024
NO_BODY = ((0, "", 0), "")
MAX_KEPT = 16 * 1024 * 1024
"""Bytes of answers about exchanges that are kept."""
MAX_WATCHERS = 32
"""Connections to `events` at a time, for each worker."""
MODEL_MARK = "toolwire-model"
"""Stands for the name of a model in a path."""

Value = TypeVar("Value")
Endpoint = Callable[["Console", ClientRequest, str], Awaitable[Reply]]
ListUses = Callable[[Config], Awaitable[list[LimitUse] | StoreDown]]
"""What is used of the limits of a configuration."""


class Console:
    """The console of one process. `configure` is called with every new configuration; it is off before."""

    def __init__(
        self, recent: RecentExchanges, model_lists: ModelLists, gateway_id: str, is_stopping: Callable[[], bool]
    ) -> None:
        self._recent, self._model_lists, self._gateway_id = recent, model_lists, gateway_id
        self._is_stopping = is_stopping
        self._worker = 0
        self._peers = Peers()
        self._secret = make_secret()
        self._ended_sessions = EndedSessions()
        self._failed_tries = FailedTries()
        self._watchers = 0
        self._words: dict[int, tuple[str, str]] = {}
        self._facts: dict[int, sessions.ExchangeFacts] = {}
        """Of finished exchanges, by number: reading a body takes a while."""
        self._last_body: tuple[tuple[int, str, int], str] = NO_BODY
        """The exchange, the place and the size of the body whose page was asked for last, and its cleaned text."""
        self._searcher = search.Searcher(self.clean_text_of)
        self._details: dict[int, bytes] = {}
        """Of finished exchanges that were looked at last."""
        self._runtime: Runtime | None = None
        self._access: ConsoleAccess | None = None
        self._has_replicas = False
        self._ledger: LedgerTables | None = None
        self._list_uses: ListUses | None = None
        self._lacks_key = False
        """Would the console be on if it had a key of its own?"""
        self._client_access: AccessControl | None = None
        self._secret_filter = SecretFilter()

    def takes(self, request: ClientRequest) -> bool:
        """Is this a path of the console, and is the console on? While it lacks a key, a browser at `/` is told so."""
        path = request.path
        if self._access is not None:
            return path == "/" or path.startswith(FILES_PATH)
        is_page = path == "/" and self._lacks_key and request.method in ("GET", "HEAD")
        return is_page and "text/html" in request.headers.get("accept", "")

    def configure(
        self,
        config: Config,
        runtime: Runtime,
        access: AccessControl,
        secrets: list[str],
        has_replicas: bool = False,
    ) -> None:
        self._runtime, self._client_access, self._has_replicas = runtime, access, has_replicas
        self._secret_filter = SecretFilter(secrets)
        self._words, self._facts, self._details, self._last_body = {}, {}, {}, NO_BODY  # cleaned of other secrets
        settings = config.section(ConsoleSettings)
        is_on = settings.is_on(config.server)
        self._access = self._make_access(runtime, access) if is_on else None
        self._lacks_key = settings.enabled and not is_on

    def use_features(self, ledger: LedgerTables | None, list_uses: ListUses) -> None:
        """Where the figures of costs and of limits come from."""
        self._ledger, self._list_uses = ledger, list_uses

    def _make_access(self, runtime: Runtime, access: AccessControl) -> ConsoleAccess:
        return ConsoleAccess(runtime.config, access, self._secret, self._ended_sessions)

    async def join_workers(self, directory: Path, worker: int) -> None:
        """Share the exchanges with the other workers. Called before the first request."""
        self._worker, self._peers = worker, Peers(directory, worker)
        self._secret, self._ended_sessions = load_secret(directory), EndedSessions(directory)
        if self._runtime is not None and self._client_access is not None and self._access is not None:
            self._access = self._make_access(self._runtime, self._client_access)
        await self._peers.open(self._answer_question)

    def close(self) -> None:
        self._peers.close()

    # --- requests of the page ---

    async def serve_request(self, request: ClientRequest) -> None:
        """Answer a request that it takes."""
        access, path = self._access, request.path
        if access is None:
            await request.send_reply(closed_page_reply())
            return
        if not path.startswith(api.API_PATH):
            await request.send_reply(self._page_reply(access, request))
            return
        name, _, argument = path.removeprefix(api.API_PATH).partition("/")
        is_login = name == "login" and request.method == "POST"
        check = access.check_origin if is_login else partial(access.check, now=time.time())
        refused = check(request.method, request.headers, request.peer)
        if refused is None and name == "events" and request.method == "GET":
            await self._serve_events(request)
            return
        endpoint = ENDPOINTS.get((request.method, name))
        if refused is not None:
            reply = error_reply(refused)
        elif endpoint is None:
            reply = error_reply(Failure("not_found", f"the console has no `{request.method} {name[:40]}`", 404))
        else:
            reply = await endpoint(self, request, argument)
        await request.send_reply(reply)

    def _page_reply(self, access: ConsoleAccess, request: ClientRequest) -> Reply:
        refused = access.check_origin("GET", request.headers, request.peer) if not access.needs_key else None
        if refused is not None:
            return error_reply(refused)
        if request.method not in ("GET", "HEAD"):
            return error_reply(Failure("invalid", f"{request.path} takes GET", 405))
        name = INDEX if request.path == "/" else request.path.removeprefix(FILES_PATH)
        return file_reply(name, request.headers) or error_reply(Failure("not_found", "there is no such page", 404))

    async def _serve_events(self, request: ClientRequest) -> None:
        if self._watchers >= MAX_WATCHERS:
            await request.send_reply(error_reply(Failure("overloaded", "too many pages watch this gateway", 503)))
            return
        self._watchers += 1
        tasks: list[asyncio.Task[None]] = []
        try:
            request.watch_disconnect(True)
            await request.start_response(200, EVENT_HEADERS)
            await request.send_body(live.write_event("hello", api.Hello(gateway_id=self._gateway_id)), more=True)
            question = Question("events")
            sources = [self._watch(), *(self._peers.stream(worker, question) for worker in self._peers.others())]
            tasks = [asyncio.create_task(self._send_events(request, source)) for source in sources]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # A worker has ended: the page connects again, to those that are there then. Or the session has.
            await request.send_body(b"", more=False)
        finally:
            self._watchers -= 1
            for task in tasks:
                task.cancel()

    async def _send_events(self, request: ClientRequest, source: AsyncIterator[bytes]) -> None:
        """Send events as long as the page may see them: its session can end, and the configuration change."""
        async for data in source:
            access = self._access
            if access is None or access.check(request.method, request.headers, request.peer, time.time()) is not None:
                return
            await request.send_body(data, more=True)

    def _watch(self) -> AsyncIterator[bytes]:
        watch = live.Watch(self._recent, self._worker, self.clean_text_of, self._words_of)
        return live.watch_exchanges(watch, self._is_stopping)

    async def show_state(self, request: ClientRequest, argument: str) -> Reply:
        runtime, access = self._running()
        config = runtime.config
        return json_reply(
            api.ConsoleState(
                version=VERSION,
                gateway_id=self._gateway_id,
                needs_client_key=config.server.needs_keys,
                can_log_out=access.needs_key,
                workers=config.server.workers,
                has_replicas=self._has_replicas,
                max_exchanges=self._recent.max_exchanges,
                max_bytes=config.section(ConsoleSettings).max_bytes,
                protocols=list_protocols(),
            )
        )

    async def log_in(self, request: ClientRequest, argument: str) -> Reply:
        _, access = self._running()
        login = await self._read_body(request, api.Login)
        if isinstance(login, Failure):
            return error_reply(login)
        now = time.time()
        if not access.needs_key or access.is_key(login.key):
            return Reply(204, {**JSON_HEADERS, "set-cookie": access.write_cookie(request.headers, now)}, b"")
        wait = self._failed_tries.add(request.peer, now)
        if not wait:
            return error_reply(Failure("authentication", "this is not the key of the console", 401))
        reply = error_reply(Failure("rate", f"too many wrong keys; try again in {wait} seconds", 429))
        return Reply(429, {**reply.headers, "retry-after": str(wait)}, reply.body)

    async def log_out(self, request: ClientRequest, argument: str) -> Reply:
        _, access = self._running()
        try:
            cookie = access.end_session(request.headers, time.time())
        except OSError as error:
            what = f"the other workers could not be told that the session has ended: {error.strerror or error}"
            return error_reply(Failure("server", what, 500))
        return Reply(204, {**JSON_HEADERS, "set-cookie": cookie}, b"")

    async def list_exchanges(self, request: ClientRequest, argument: str) -> Reply:
        if argument:
            return await self._show_exchange(argument)
        answers = await self._peers.ask_all(Question("list"))

        def write_list() -> Reply:
            lists = [self._own_list(), *(msgspec.json.decode(data, type=api.ExchangeList) for data in answers)]
            rows = sorted((row for one in lists for row in one.exchanges), key=lambda row: -row.started_at)
            return json_reply(api.ExchangeList(exchanges=rows, removed=sum(one.removed for one in lists)))

        return await run_aside(write_list)

    def _own_list(self) -> api.ExchangeList:
        records = list(self._recent.newest_first())
        rows = [exchange_row(record, self._worker, self._words_of(record)) for record in records]
        shown = {record.number for record in records}
        self._words = {number: words for number, words in self._words.items() if number in shown}
        return api.ExchangeList(exchanges=rows, removed=self._recent.removed)

    def _words_of(self, record: ExchangeRecord) -> tuple[str, str]:
        """The first words of what was asked and answered: each exchange is read once, when it has ended."""
        found = self._words.get(record.number)
        if found is None:
            if not record.ended:
                return "", ""
            found = self._words[record.number] = read_words(record, self.clean_text_of(record))
        return found

    async def _show_exchange(self, argument: str) -> Reply:
        id, _, part = argument.partition("/")
        name = part.partition("/")[0]
        question = Question({"": "exchange", "bodies": "page"}.get(name, name), argument)
        data = await self._ask_owner(id, question) if question.name in SHOWN_QUESTIONS else None
        if not data:
            what = "this exchange is not here any more: only the last ones are kept"
            return error_reply(Failure("not_found", what, 404))
        if part == "case":
            name = f'attachment; filename="toolwire-case-{id}.json"'
            return Reply(200, {**JSON_HEADERS, "content-disposition": name}, data)
        return Reply(200, JSON_HEADERS, data)

    async def search_exchanges(self, request: ClientRequest, argument: str) -> Reply:
        """`search?q=`: exchanges with all of these words in what was sent and got."""
        query = dict(parse_qsl(request.query)).get("q", "")
        if not search.read_words(query) or argument:
            return error_reply(Failure("invalid", "what to search for is missing: `search?q=words`", 400))
        question = Question("search", query)
        own, others = await asyncio.gather(self._answer_once(question), self._peers.ask_all(question))
        found = [msgspec.json.decode(data, type=api.SearchResult) for data in (own, *others)]
        is_complete = all(one.is_complete for one in found) and len(others) == len(self._peers.others())
        return json_reply(api.SearchResult(hits=[hit for one in found for hit in one.hits], is_complete=is_complete))

    async def show_usage(self, request: ClientRequest, argument: str) -> Reply:
        """`usage?by=day,model&since=7d`: what `toolwire costs --json` says, of all gateways that share the store."""
        asked = parse_qsl(request.query)
        words = dict(asked)
        only = [value for name, value in asked if name == "only"]
        since, until = words.get("since", report.DEFAULT_SINCE), words.get("until", "")
        try:
            query = report.read_query(words.get("by", ""), since, until, only, time.time())
        except CommandError as error:
            return command_error_reply(error)
        if self._ledger is None:
            return error_reply(Failure("not_found", "there is no ledger: `url` in [store] is `none`", 404))
        sums = await self._ledger.read_sums(query)
        if isinstance(sums, StoreDown):
            return error_reply(Failure("overloaded", f"the ledger cannot be read: {sums.reason}", 503))
        rows = report.arrange_sums(query, sums)
        return await run_aside(
            lambda: Reply(200, JSON_HEADERS, msgspec.json.encode(report.write_document(query, rows)))
        )

    async def show_requests(self, request: ClientRequest, argument: str) -> Reply:
        """`requests?by=model&step=minute&since=6h`: how many, how many failed, how long they took, of all workers."""
        asked = parse_qsl(request.query, keep_blank_values=True)
        words, now = dict(asked), time.time()
        since = words.get("since", request_report.DEFAULT_SINCE)
        only = [value for name, value in asked if name == "only"]
        try:
            query = request_report.read_query(words.get("by", "model"), words.get("step", "minute"), since, only, now)
        except CommandError as error:
            return command_error_reply(error)
        question = Question("counts", msgspec.json.encode(query).decode())
        own, others = await asyncio.gather(self._answer_once(question), self._peers.ask_all(question))

        def write_report() -> Reply:
            parts = [msgspec.json.decode(data, type=CountSums) for data in (own, *others)]
            return json_reply(request_report.write_report(query, parts, now, self.clean_text))

        return await run_aside(write_report)

    async def list_limits(self, request: ClientRequest, argument: str) -> Reply:
        runtime, _ = self._running()
        uses = await self._list_uses(runtime.config) if self._list_uses is not None else []
        if isinstance(uses, StoreDown):
            return error_reply(Failure("overloaded", f"the counters cannot be read: {uses.reason}", 503))
        return json_reply(request_report.write_limits(uses, self.clean_text))

    async def list_sessions(self, request: ClientRequest, argument: str) -> Reply:
        answers = await self._peers.ask_all(Question("facts"))
        groups = await run_aside(lambda: sessions.group_sessions(self._load_facts(answers)))
        if not argument:
            return await run_aside(
                lambda: json_reply(api.SessionList(sessions=[sessions.session_row(group) for group in groups]))
            )
        group = next((group for group in groups if group.has_id(argument)), None)
        if group is None:
            return error_reply(Failure("not_found", "this session is not here any more", 404))
        bodies = [await self._ask_owner(one.row.id, Question("body", one.row.id)) or b"" for one in group.members]

        def write_session() -> Reply:
            turns = sessions.describe_turns(group, bodies, self.clean_text)
            return json_reply(api.SessionDetail(session=sessions.session_row(group), turns=turns))

        return await run_aside(write_session)

    async def translate_text(self, request: ClientRequest, argument: str) -> Reply:
        question = await self._read_body(request, api.TranslateQuestion)
        if isinstance(question, Failure):
            return error_reply(question)
        return await run_aside(lambda: json_reply(translate.translate_to_all(question, int(time.time()))))

    async def list_providers(self, request: ClientRequest, argument: str) -> Reply:
        return json_reply(api.ProviderList(providers=await self._merge_providers(self._own_providers())))

    async def check_provider(self, request: ClientRequest, argument: str) -> Reply:
        runtime, _ = self._running()
        name, _, action = argument.rpartition("/")
        provider = next((one for one in providers.list_accounts(runtime) if one.label == name), None)
        if provider is None or action != "check":
            return error_reply(Failure("not_found", f"there is no provider `{name[:80]}`", 404))
        row = await providers.ask_provider(provider, runtime, self._recent, request.clock)
        return json_reply((await self._merge_providers([row]))[0])

    async def list_models(self, request: ClientRequest, argument: str) -> Reply:
        runtime, _ = self._running()
        return json_reply(await providers.list_models(runtime, self._model_lists, request.clock))

    # --- what this worker knows ---

    def _running(self) -> tuple[Runtime, ConsoleAccess]:
        if self._runtime is None or self._access is None:
            raise ValueError("the console is off")
        return self._runtime, self._access

    def clean_text(self, text: str) -> str:
        """A text of a client, a model or a provider, without credentials."""
        return self._secret_filter.clean(redact(text))

    def clean_text_of(self, record: ExchangeRecord) -> Callable[[str], str]:
        """The same for texts of one exchange, without the keys of its client."""
        return lambda text: self._secret_filter.clean(redact(text), record.client.secrets)

    async def _read_body(self, request: ClientRequest, kind: type[Value]) -> Value | Failure:
        body = await request.read_body(MAX_BODY)
        if isinstance(body, Failure):
            return body
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            return Failure("invalid", f"the body is not what this endpoint takes: {error}", 400)

    async def _ask_owner(self, id: str, question: Question) -> bytes | None:
        """Ask the worker that has an exchange; None if it is not there any more."""
        place = parse_exchange_id(id)
        if place is None:
            return None
        is_own = place[0] == self._worker
        return await self._answer_once(question) if is_own else await self._peers.ask(place[0], question)

    def _own_providers(self) -> list[api.ProviderRow]:
        runtime, _ = self._running()
        now = asyncio.get_running_loop().time()
        shown = providers.list_accounts(runtime)
        return [providers.provider_row(account, runtime, self._recent, now) for account in shown]

    async def _merge_providers(self, rows: list[api.ProviderRow]) -> list[api.ProviderRow]:
        """These rows, with what the other workers know of the same providers."""
        answers = await self._peers.ask_all(Question("providers"))
        others = [row for data in answers for row in msgspec.json.decode(data, type=list[api.ProviderRow])]
        return [providers.merge_rows([row, *(one for one in others if one.name == row.name)]) for row in rows]

    def _load_facts(self, answers: Sequence[bytes]) -> list[sessions.ExchangeFacts]:
        """What is known for grouping exchanges to sessions, of this worker and in the answers of the others."""
        facts = self._own_facts()
        for data in answers:
            facts += msgspec.json.decode(data, type=list[sessions.ExchangeFacts])
        return facts

    def _own_facts(self) -> list[sessions.ExchangeFacts]:
        """In a thread: each exchange is read once, when it is first asked for, and there may be a thousand."""
        known, kept = self._facts, {}
        facts: list[sessions.ExchangeFacts] = []
        for record in self._recent.newest_first():
            found = known.get(record.number)
            if found is None and record.traffic.capture is not None:
                found = sessions.read_facts(record, self._worker, self.clean_text_of(record))
            if found is not None:
                if record.ended and found.row.state != "running":
                    kept[record.number] = found
                facts.append(found)
        self._facts = kept
        return facts

    def _search(self, query: str) -> api.SearchResult:
        return self._searcher.search(self._recent.newest_first(), self._worker, query)

    async def _answer_question(self, question: Question) -> AsyncIterator[bytes]:
        """What this worker answers another one, or itself; nothing if it does not have it."""
        if question.name == "events":
            return self._watch()
        return _one_message(await self._answer_once(question))

    async def _answer_once(self, question: Question) -> bytes:
        if question.name == "list":
            return await run_aside(lambda: api.encode_message(self._own_list()))
        if question.name == "search":
            return await run_aside(lambda: api.encode_message(self._search(question.argument)))
        if question.name == "providers":
            return api.encode_message(self._own_providers())
        if question.name == "counts":
            query = msgspec.json.decode(question.argument, type=CountQuery)
            return msgspec.json.encode(await self._recent.counts.read_sums(query))
        if question.name == "facts":
            return await run_aside(lambda: api.encode_message(self._own_facts()))
        id, _, part = question.argument.partition("/")
        place = parse_exchange_id(id)
        record = self._recent.find(place[1]) if place is not None else None
        if record is None:
            return b""
        return await run_aside(partial(RECORD_QUESTIONS[question.name], self, record, part))

    def write_detail(self, record: ExchangeRecord, part: str) -> bytes:
        found = self._details.get(record.number)
        if found is not None:
            return found
        clean, words = self.clean_text_of(record), self._words_of(record)
        data = api.encode_message(detail.describe_exchange(record, self._worker, clean, words))
        if exchange_state(record) != "running":
            self._details[record.number] = data
            while len(self._details) > 1 and sum(map(len, self._details.values())) > MAX_KEPT:
                del self._details[next(iter(self._details))]
        return data

    def write_page(self, record: ExchangeRecord, part: str) -> bytes:
        """More of a body: `bodies/`, its place, and a number of characters. b"" if that is no path of a page."""
        _, place, start, *more = (*part.split("/"), "", "")
        if any(more) or not (start.isascii() and start.isdecimal() and len(start) < 16):
            return b""
        data, _ = detail.find_body(record, place)
        key = (record.number, place, len(data))  # a body only grows
        found, text = self._last_body
        if found != key:
            text = detail.clean_body(data, self.clean_text_of(record))
            self._last_body = (key, text)
        return api.encode_message(detail.cut_page(text, exchange_id(self._worker, record.number), place, int(start)))

    def write_conversation(self, record: ExchangeRecord, part: str) -> bytes:
        return api.encode_message(describe_conversation(record, self.clean_text_of(record)))

    def write_case(self, record: ExchangeRecord, part: str) -> bytes:
        return write_case(record, self.clean_text_of(record))

    def write_upstream_body(self, record: ExchangeRecord, part: str) -> bytes:
        """The last request to a provider. Only for workers: only the client's keys, which they do not know, are
        removed."""
        calls = detail.list_upstream_calls(record)
        body = calls[-1].body if calls else b""
        text = body.decode("utf-8", "surrogateescape")
        return hide_secrets(text, record.client.secrets).encode("utf-8", "surrogateescape")


ENDPOINTS: Mapping[tuple[str, str], Endpoint] = {
    ("GET", "state"): Console.show_state,
    ("POST", "login"): Console.log_in,
    ("POST", "logout"): Console.log_out,
    ("GET", "exchanges"): Console.list_exchanges,
    ("GET", "search"): Console.search_exchanges,
    ("GET", "usage"): Console.show_usage,
    ("GET", "requests"): Console.show_requests,
    ("GET", "limits"): Console.list_limits,
    ("GET", "sessions"): Console.list_sessions,
    ("POST", "translate"): Console.translate_text,
    ("GET", "providers"): Console.list_providers,
    ("POST", "providers"): Console.check_provider,
    ("GET", "models"): Console.list_models,
}
RECORD_QUESTIONS: Mapping[str, Callable[[Console, ExchangeRecord, str], bytes]] = {
    "exchange": Console.write_detail,
    "conversation": Console.write_conversation,
    "page": Console.write_page,
    "case": Console.write_case,
    "body": Console.write_upstream_body,
}
"""Questions about one exchange."""
SHOWN_QUESTIONS = RECORD_QUESTIONS.keys() - {"body"}
"""Those that the page may ask."""


def json_reply(value: msgspec.Struct) -> Reply:
    return Reply(200, JSON_HEADERS, api.encode_message(value))


def command_error_reply(error: CommandError) -> Reply:
    """A question that is not understood, where the command line asks the same."""
    return Reply(400, JSON_HEADERS, api.encode_message(api.ApiError(str(error).replace("--", ""), error.hint)))


def error_reply(failure: Failure) -> Reply:
    return Reply(failure.status or 500, JSON_HEADERS, api.encode_message(api.ApiError(failure.message)))


def list_protocols() -> list[api.ProtocolInfo]:
    """The protocols, and where their clients send requests."""
    found: list[api.ProtocolInfo] = []
    for codec in CODECS.values():
        paths = [codec.http.request_path(MODEL_MARK, stream).replace(MODEL_MARK, "{model}") for stream in (False, True)]
        found.append(
            api.ProtocolInfo(
                name=codec.name,
                path=paths[0],
                stream_path=paths[1],
                has_model_in_body="{model}" not in paths[0],
            )
        )
    return found


async def _one_message(data: bytes) -> AsyncIterator[bytes]:
    yield data
