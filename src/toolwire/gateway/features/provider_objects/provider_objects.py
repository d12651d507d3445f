"""Objects that providers store for their accounts (files, batches, vector stores …), and which key has created them.

All client keys share a provider's account, so the provider cannot tell their objects apart. The gateway notes in its
store who created an object, and lets nobody else reach or use it. If a provider has several accounts, it also notes
which of them has the object."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Malformed, Object, decode, parse_object
from toolwire.core.request_members import ObjectMembers, RequestMembers, letters_of
from toolwire.gateway.exchange.gateway_request import GatewayRequest, PassthroughMatch, Runtime, Upstream
from toolwire.gateway.exchange.inner_members import walk_objects
from toolwire.gateway.exchange.named_model import NOT_A_FORM, UPLOAD_PREFIX, read_form_names
from toolwire.gateway.exchange.stages import ForwardedRequest
from toolwire.gateway.features.provider_objects.answer_objects import WatchedResponse
from toolwire.gateway.http.large_work import run_by_size
from toolwire.gateway.http.messages import UpstreamResponse
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.settings.router import Target
from toolwire.gateway.store.repository import OBJECT, StateRepository, owner_of, store_unavailable_failure
from toolwire.gateway.store.store import Entry, StoreDown

SHARING_HINT = "the operator can share all objects among all keys with `shared_objects = true` in [server]"


class References(Struct, frozen=True):
    """Objects that a request names. A container may have been made by another provider of the conversation."""

    objects: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    """Answers that the provider holds, to continue from."""


class ProviderObjects:
    """Who has created which object. Names are those that the provider gives: `file-abc`, or `files/abc` (Gemini)."""

    def __init__(self, repository: StateRepository, runtime: Runtime) -> None:
        self._repository = repository
        server = runtime.config.server
        self._has_guard = server.needs_keys and not server.shared_objects

    def guards(self, provider: Provider) -> bool:
        """Do keys share this provider's account? With `forward_auth` each client uses its own."""
        return self._has_guard and not provider.forward_auth and not provider.embedded

    def notes(self, provider: Provider) -> bool:
        """Is it noted who has created the objects of this provider, and in which account?"""
        return self.guards(provider) or (bool(provider.account) and self._repository.is_enabled)

    async def refuse_endpoint(self, gateway_request: GatewayRequest, request: ForwardedRequest) -> Failure | None:
        """Why a key may not use an endpoint for objects; None if it may."""
        match, provider = request.match, request.target.provider
        endpoint = match.endpoint
        if not endpoint.objects or not self.guards(provider):
            return None
        what = "" if self._repository.is_enabled else "the gateway has no store to note who created what ([store])"
        if endpoint.objects == "list":
            what = "the list shows what all keys of this gateway have stored in the provider's account"
        elif endpoint.reads_files:
            what = "it runs requests from a file, and these can use objects of other keys"
        if what:
            return Failure("permission", f"{endpoint.path} is closed: {what}; {SHARING_HINT}", 403)
        if endpoint.objects == "use":
            names = object_names(gateway_request, match)
            owners = await self._find_owners(provider, names)
            if isinstance(owners, Failure):
                return owners
            if owner_of(gateway_request.caller.key) not in owners.values():
                what = f"this key has not created `{names[0][:200]}` through this gateway; {SHARING_HINT}"
                return Failure("not_found", what, 404)
        down = await self._repository.check_reachable()
        return store_unavailable_failure(down) if isinstance(down, StoreDown) else None

    async def check_references(self, request: GatewayRequest, targets: tuple[Target, ...]) -> GatewayRequest | Failure:
        """Why a request may not use the objects that it names. If it may: the request, bound to the accounts that have
        them."""
        guarded = [target.provider for target in targets if self.guards(target.provider)]
        pools = [target.provider for target in targets if target.provider.accounts]
        if not guarded and not pools:
            return request
        http, body = request.client_codec.http, request.body

        def search() -> tuple[bool, bool]:
            may_create = body.may_have(http.creation_markers)
            return may_create, body.may_have(http.object_markers) or _has_escaped_letter(body.data)

        may_create, may_name = await run_by_size(len(body.data), search)
        if may_create:
            request = replace(request, watch_objects=partial(self._watch_response, request))
        if not may_name:
            return request
        members = request.client_codec.request_members
        # Who only chooses an account judges nothing: the client's bytes may pass.
        read = body.judge if guarded else body.decode
        found = await run_by_size(len(body.data), lambda: read_references(members, read))
        if isinstance(found, Failure):
            return found if guarded else request
        for provider in dict.fromkeys(guarded):
            refused = await self._refuse_names(request, provider, found, is_first=provider is targets[0].provider)
            if refused is not None:
                return refused
        for provider in dict.fromkeys(pools):
            account = await self._find_account(provider, found.objects + found.containers + found.turns)
            if account is not None:
                pinned = {**request.pinned_accounts, provider.name: account.account}
                request = replace(request, pinned_accounts=pinned)
        return request

    async def refuse_translated(self, request: GatewayRequest, upstream: Upstream, body: bytes) -> Failure | None:
        """The same for a body that was written for the provider: a URL of the client can be the name of an object
        there, where objects have names."""
        http = upstream.codec.http
        if not http.objects_have_names or not self.guards(upstream.provider):
            return None
        find = body.find
        if not await run_by_size(len(body), lambda: any(find(marker) >= 0 for marker in http.object_markers)):
            return None
        members = upstream.codec.request_members
        read = partial(decode, body, max_bytes=len(body))
        found = await run_by_size(len(body), lambda: read_references(members, read))
        if isinstance(found, Failure):
            return found
        return await self._refuse_names(request, upstream.provider, found, is_first=True)

    async def refuse_body(self, gateway_request: GatewayRequest, request: ForwardedRequest) -> Failure | None:
        """The same for the body of a forwarded request."""
        match, provider, body = request.match, request.target.provider, request.body
        if not body.data or not self.guards(provider):
            return None
        if request.content_type.lower().startswith("multipart/form-data"):
            objects = gateway_request.client_codec.request_members.objects
            return await run_by_size(len(body.data), lambda: _refuse_form(objects, request.content_type, body.data))
        if match.path.startswith(UPLOAD_PREFIX):
            return None  # the bytes of a file
        members = gateway_request.client_codec.request_members
        found = await run_by_size(len(body.data), lambda: read_references(members, body.judge, is_forwarded=True))
        if isinstance(found, Failure):
            return found
        return await self._refuse_names(gateway_request, provider, found, is_first=True)

    async def _refuse_names(
        self, request: GatewayRequest, provider: Provider, found: References, is_first: bool
    ) -> Failure | None:
        names = found.objects + found.containers + found.turns
        if not names:
            return None
        owners: Mapping[str, str] | Failure = {}
        if self._repository.is_enabled:
            owners = await self._find_owners(provider, names)
            if found.containers and not isinstance(owners, Failure):
                owners = await self._add_container_owners(request, found.containers, owners)
        if isinstance(owners, Failure):
            return owners
        owner = owner_of(request.caller.key)
        # Ids mean nothing to other providers, so at fallbacks an unknown one is not refused.
        unknown = set(names) - owners.keys() if is_first else set()
        foreign = [name for name in names if name in unknown or owners.get(name, owner) != owner]
        if not foreign:
            return None
        if foreign[0] in found.turns:
            what = f"`{foreign[0][:200]}` is not an answer that this key got through this gateway"
            hint = "send the whole conversation"
            return Failure("invalid", f"{what}; {hint}", 400, "previous_response_not_found")
        what = f"this key has not created `{foreign[0][:200]}` through this gateway"
        return Failure("permission", f"{what}; {SHARING_HINT}", 403)

    async def _add_container_owners(
        self, request: GatewayRequest, names: tuple[str, ...], owners: Mapping[str, str]
    ) -> Mapping[str, str] | Failure:
        """Owners at all providers: a conversation that has changed its provider still names the container."""
        for provider in request.runtime.config.providers.values():
            more = await self._find_owners(provider, names)
            if isinstance(more, Failure):
                return more
            owners = {**more, **owners}
        return owners

    async def _find_owners(self, provider: Provider, names: tuple[str, ...]) -> Mapping[str, str] | Failure:
        entries = await self._repository.get("", OBJECT, [_entry_id(provider, name) for name in names])
        if isinstance(entries, StoreDown):
            return store_unavailable_failure(entries)
        await self._repository.extend_expiring("", OBJECT, [(entry.id, entry.expires) for entry in entries])
        owners = {entry.id: _read_note(entry)[0] for entry in entries}
        return {name: owners[id] for name in names if (id := _entry_id(provider, name)) in owners}

    # --- accounts ---

    async def choose_account(self, gateway_request: GatewayRequest, request: ForwardedRequest) -> Provider:
        """The account for a forwarded request: the one that has the objects which it names. For other objects all
        requests of one client go to the same account; what needs no objects is spread over all."""
        accounts, match, provider, body = (
            gateway_request.runtime.accounts,
            request.match,
            request.target.provider,
            request.body,
        )
        if not provider.accounts or accounts is None:
            return provider
        names = object_names(gateway_request, match)
        if body.data and "json" in request.content_type:
            members = gateway_request.client_codec.request_members
            found = await run_by_size(len(body.data), lambda: read_references(members, body.decode, is_forwarded=True))
            names += () if isinstance(found, Failure) else found.objects + found.containers + found.turns
        account = await self._find_account(provider, names) if names else None
        if account is not None:
            return account
        if match.endpoint.objects or names:
            return accounts.find_home(provider, owner_of(gateway_request.caller.key))
        return accounts.choose_account(
            provider, gateway_request.record.request_id, gateway_request.record.upstream.model, gateway_request.clock()
        )

    async def _find_account(self, provider: Provider, names: tuple[str, ...]) -> Provider | None:
        """The account that has one of these objects, as far as that was noted."""
        entries = await self._repository.get("", OBJECT, [_entry_id(provider, name) for name in names])
        noted = [_read_note(entry)[1] for entry in entries] if not isinstance(entries, StoreDown) else []
        accounts = (provider.find_account(name) for name in noted if name)
        return next((account for account in accounts if account is not None), None)

    async def note_created(
        self, request: GatewayRequest, match: PassthroughMatch, provider: Provider, data: bytes
    ) -> Failure | None:
        """Note who created the objects that a response names."""
        return await self._note_owner(request, provider, created_names(request, match, data))

    def _watch_response(
        self, request: GatewayRequest, upstream: Upstream, response: UpstreamResponse
    ) -> UpstreamResponse:
        """The answer of a provider, with a look at the objects that it creates. Clients of other protocols cannot see
        their ids."""
        provider = upstream.provider
        is_seen = upstream.codec.name == request.client_codec.name and self.notes(provider)
        if not is_seen or not self._repository.is_enabled:
            return response

        async def note_names(names: tuple[str, ...]) -> None:
            # The answer is paid for: if the store is down, the client gets it, and the objects belong to nobody.
            await self._note_owner(request, provider, names)

        return WatchedResponse(response, upstream.codec.http, note_names)

    async def _note_owner(self, request: GatewayRequest, provider: Provider, names: tuple[str, ...]) -> Failure | None:
        owners = await self._find_owners(provider, names)
        if isinstance(owners, Failure):
            return owners
        note = _write_note(owner_of(request.caller.key), provider.account)
        new = [name for name in names if name not in owners]  # what has an owner keeps it
        entries = [Entry(owner="", kind=OBJECT, id=_entry_id(provider, name), body=note) for name in new]
        result = await self._repository.put(*entries) if entries else True
        return store_unavailable_failure(result) if isinstance(result, StoreDown) else None

    async def note_deleted(self, request: GatewayRequest, match: PassthroughMatch, provider: Provider) -> None:
        if len(match.ids) == 1 and match.path.endswith(match.ids[0]):
            names = object_names(request, match)
            await self._repository.delete("", OBJECT, *(_entry_id(provider, name) for name in names))


def _entry_id(provider: Provider, name: str) -> str:
    return f"{provider.name}/{name}"


def _write_note(owner: str, account: str) -> bytes:
    """What is stored about an object: who has created it, and in which account if there are several."""
    return f"{owner}\n{account}".encode() if account else owner.encode()


def _read_note(entry: Entry) -> tuple[str, str]:
    """The owner of an object, and its account."""
    owner, _, account = entry.body.decode().partition("\n")
    return owner, account


# --- names in paths and responses ---

_RESOURCE = re.compile(r"(?:/upload|/download)?/v[0-9][a-z0-9]*/(.+?)(?::[A-Za-z]+)?")


def object_names(request: GatewayRequest, match: PassthroughMatch) -> tuple[str, ...]:
    """The object that a path is about and, with names, the one that it belongs to."""
    if not request.client_codec.http.objects_have_names:
        return match.ids[:1]
    resource = _RESOURCE.fullmatch(match.path)
    name = resource[1] if resource is not None else match.path
    return tuple(dict.fromkeys((name, "/".join(name.split("/")[:2]))))


def created_names(request: GatewayRequest, match: PassthroughMatch, data: bytes) -> tuple[str, ...]:
    """The objects that the response to a request has created. Only keys that the provider fills in are read."""
    try:
        body = parse_object(data)
    except Malformed:
        return ()
    file = body.get("file")
    if not request.client_codec.http.objects_have_names:
        found = [body.get(key) for key in request.client_codec.request_members.objects.created]
        found += [file.get("id")] if isinstance(file, dict) else []
        return tuple(name for name in found if isinstance(name, str) and name)
    collection = match.path.rpartition("/")[2]
    id = body.get("id")
    found = [body.get("name"), file.get("name") if isinstance(file, dict) else None]
    found += [f"{collection}/{id}"] if isinstance(id, str) and "name" not in body else []
    return tuple(name for name in found if isinstance(name, str) and name)


# --- names in requests ---

_is_escaped_letter = re.compile(rb"\\u00[4-7]").search
_FORM_WORD = re.compile(r"[^\[\].]+")


def _has_escaped_letter(body: bytes) -> bool:
    """Can a key be written with escapes?"""
    return body.find(b"\\u00") >= 0 and _is_escaped_letter(body) is not None


def _refuse_form(members: ObjectMembers, content_type: str, body: bytes) -> Failure | None:
    names = read_form_names(content_type, body)
    if names is None:
        return Failure("invalid", NOT_A_FORM, 400)
    naming = members.forwarded_names | members.files
    found = next((name for name in names if any(letters_of(word) in naming for word in _FORM_WORD.findall(name))), "")
    what = f"`{found[:80]}` in a form cannot be checked; send it in a JSON body"
    return Failure("invalid", what, 400, "", found[:80]) if found else None


def read_references(
    members: RequestMembers, read: Callable[[], Json], is_forwarded: bool = False
) -> References | Failure:
    """The objects that a request names, in its messages and in the tools that the provider runs."""
    try:
        whole = read()
    except Malformed as bad:
        return Failure("invalid", str(bad), 400, param=bad.path)
    naming = members.objects
    objects: dict[str, None] = {}
    containers: dict[str, None] = {}
    turns: dict[str, None] = {}
    for _, node in walk_objects(members, whole):
        for key, value in node.items():
            letters = letters_of(key)
            if letters in naming.containers:
                container = value.get("id") if isinstance(value, dict) else value
                if isinstance(container, str) and container not in ("", "auto"):
                    containers[container] = None
            elif letters in naming.turns and isinstance(value, str):
                turns[value] = None
            elif is_forwarded and key in naming.forwarded_files and isinstance(value, str):
                objects |= dict.fromkeys(filter(None, [_name_in_uri(naming, value) or value]))
            else:
                objects |= dict.fromkeys(_names_in_member(naming, letters, value, node, is_forwarded))
    return References(tuple(objects), tuple(containers), tuple(turns))


def _names_in_member(
    naming: ObjectMembers, letters: str, value: Json, node: Object, is_forwarded: bool
) -> Iterator[str]:
    """The names in one member, by the letters of its key."""
    kind = str(node.get("type"))
    if letters in (naming.forwarded_names if is_forwarded else naming.names):
        names = value if isinstance(value, list) else [value]
        yield from (name for name in names if isinstance(name, str) and name)
    elif letters in naming.id_holders:
        holders = value if isinstance(value, list) else [value]
        ids = (holder.get("id") for holder in holders if isinstance(holder, dict))
        yield from (id for id in ids if isinstance(id, str) and id)
    elif not isinstance(value, str) or not value:
        return
    elif letters in naming.files:
        if is_forwarded or not kind.endswith(naming.answer_types):
            yield _name_in_uri(naming, value) or value
    elif letters in naming.prefixes:
        yield from (name for name in [value] if name.startswith(naming.prefixes[letters]))
    elif letters in naming.uris or (is_forwarded and letters.endswith("uri")):
        yield from filter(None, [_name_in_uri(naming, value)])
    elif letters == "id" and kind in naming.stored_items and not node.get(naming.stored_items[kind]):
        yield value


def _name_in_uri(naming: ObjectMembers, uri: str) -> str:
    return naming.name_in_uri(unquote(uri.strip()))
