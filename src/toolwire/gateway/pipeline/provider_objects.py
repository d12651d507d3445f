"""Objects that providers store for their accounts (files, batches, vector stores …), and which key has created them.

All client keys share a provider's account, so the provider cannot tell their objects apart. The gateway notes in its
store who created an object, and lets nobody else reach or use it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from msgspec import Struct

from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Malformed, Object, decode
from toolwire.gateway.config.config import Provider
from toolwire.gateway.pipeline.answer_objects import WatchedResponse
from toolwire.gateway.pipeline.gateway_request import (
    GatewayRequest,
    PassthroughMatch,
    Runtime,
    Upstream,
    UpstreamResponse,
)
from toolwire.gateway.pipeline.named_model import NOT_A_FORM, read_form_names
from toolwire.gateway.pipeline.route import Target
from toolwire.gateway.pipeline.upload_sessions import UPLOAD_PREFIX, UploadSessions
from toolwire.gateway.server.large_work import run_by_size
from toolwire.gateway.server.request_body import has_repeated_key
from toolwire.gateway.store.repository import OBJECT, StateRepository, owner_of, store_unavailable_failure
from toolwire.gateway.store.store import Entry, StoreDown

SHARING_HINT = "the operator can share all objects among all keys with `shared_objects = true` in [server]"


class References(Struct, frozen=True):
    """Objects that a request names. A container may have been made by another provider of the conversation."""

    objects: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()


class ProviderObjects:
    """Who has created which object. Names are those that the provider gives: `file-abc`, or `files/abc` (Gemini)."""

    def __init__(self, repository: StateRepository, runtime: Runtime) -> None:
        self._repository = repository
        server = runtime.config.server
        self._has_guard = bool(server.keys) and not server.shared_objects
        self.uploads = UploadSessions(runtime, repository)

    def guards(self, provider: Provider) -> bool:
        """Do keys share this provider's account? With `forward_auth` each client uses its own."""
        return self._has_guard and not provider.forward_auth and not provider.embedded

    async def refuse_endpoint(
        self, call: GatewayRequest, match: PassthroughMatch, provider: Provider
    ) -> Failure | None:
        """Why a key may not use an endpoint for objects; None if it may."""
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
            names = object_names(call, match)
            owners = await self._find_owners(provider, names)
            if isinstance(owners, Failure):
                return owners
            if owner_of(call.caller.key) not in owners.values():
                what = f"this key has not created `{names[0][:200]}` through this gateway; {SHARING_HINT}"
                return Failure("not_found", what, 404)
        down = await self._repository.check_reachable()
        return store_unavailable_failure(down) if isinstance(down, StoreDown) else None

    async def refuse_references(self, call: GatewayRequest, targets: tuple[Target, ...]) -> Failure | None:
        """Why a request may not use the objects that it names; None if it may."""
        guarded = [target.provider for target in targets if self.guards(target.provider)]
        if not guarded:
            return None
        http, find = call.client_codec.http, call.body.find
        present = [marker for marker in http.object_markers if find(marker) >= 0]
        for marker in http.creation_markers:
            if marker in present or (marker not in http.object_markers and find(marker) >= 0):
                call.watch_objects = partial(self._watch_response, call)
        if not present and not _has_escaped_letter(call.body):
            return None
        found = await run_by_size(len(call.body), lambda: read_references(call.body))
        if isinstance(found, Failure):
            return found
        for provider in dict.fromkeys(guarded):
            refused = await self._refuse_names(call, provider, found, is_first=provider is targets[0].provider)
            if refused is not None:
                return refused
        return None

    async def refuse_body(
        self, call: GatewayRequest, match: PassthroughMatch, provider: Provider, content_type: str, body: bytes
    ) -> Failure | None:
        """The same for the body of a forwarded request."""
        if not body or not self.guards(provider):
            return None
        if content_type.lower().startswith("multipart/form-data"):
            return _refuse_form(content_type, body)
        if match.path.startswith(UPLOAD_PREFIX):
            return None  # the bytes of a file
        found = await run_by_size(len(body), lambda: read_references(body, is_forwarded=True))
        if isinstance(found, Failure):
            return found
        return await self._refuse_names(call, provider, found, is_first=True)

    async def _refuse_names(
        self, call: GatewayRequest, provider: Provider, found: References, is_first: bool
    ) -> Failure | None:
        names = found.objects + found.containers
        if not names:
            return None
        owners: Mapping[str, str] | Failure = {}
        if self._repository.is_enabled:
            owners = await self._find_owners(provider, names)
            if found.containers and not isinstance(owners, Failure):
                owners = await self._add_container_owners(call, found.containers, owners)
        if isinstance(owners, Failure):
            return owners
        owner = owner_of(call.caller.key)
        # Ids mean nothing to other providers, so at fallbacks an unknown one is not refused.
        unknown = set(names) - owners.keys() if is_first else set()
        foreign = [name for name in names if name in unknown or owners.get(name, owner) != owner]
        if not foreign:
            return None
        what = f"this key has not created `{foreign[0][:200]}` through this gateway"
        return Failure("permission", f"{what}; {SHARING_HINT}", 403)

    async def _add_container_owners(
        self, call: GatewayRequest, names: tuple[str, ...], owners: Mapping[str, str]
    ) -> Mapping[str, str] | Failure:
        """Owners at all providers: a conversation that has changed its provider still names the container."""
        for provider in call.runtime.config.providers.values():
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
        owners = {entry.id: entry.body.decode() for entry in entries}
        return {name: owners[id] for name in names if (id := _entry_id(provider, name)) in owners}

    async def note_created(
        self, call: GatewayRequest, match: PassthroughMatch, provider: Provider, data: bytes
    ) -> Failure | None:
        """Note who created the objects that a response names."""
        return await self._note_owner(call, provider, created_names(call, match, data))

    def _watch_response(self, call: GatewayRequest, upstream: Upstream, response: UpstreamResponse) -> UpstreamResponse:
        """The answer of a provider, with a look at the objects that it creates. Clients of other protocols cannot see
        their ids."""
        provider = upstream.provider
        is_seen = upstream.codec.name == call.client_codec.name and self.guards(provider)
        if not is_seen or not self._repository.is_enabled:
            return response

        async def note_names(names: tuple[str, ...]) -> None:
            # The answer is paid for: if the store is down, the client gets it, and the objects belong to nobody.
            await self._note_owner(call, provider, names)

        return WatchedResponse(response, upstream.codec.http, note_names)

    async def _note_owner(self, call: GatewayRequest, provider: Provider, names: tuple[str, ...]) -> Failure | None:
        owners = await self._find_owners(provider, names)
        if isinstance(owners, Failure):
            return owners
        owner = owner_of(call.caller.key).encode()
        new = [name for name in names if name not in owners]  # what has an owner keeps it
        entries = [Entry(owner="", kind=OBJECT, id=_entry_id(provider, name), body=owner) for name in new]
        result = await self._repository.put(*entries) if entries else True
        return store_unavailable_failure(result) if isinstance(result, StoreDown) else None

    async def note_deleted(self, call: GatewayRequest, match: PassthroughMatch, provider: Provider) -> None:
        if len(match.ids) == 1 and match.path.endswith(match.ids[0]):
            names = object_names(call, match)
            await self._repository.delete("", OBJECT, *(_entry_id(provider, name) for name in names))


def _entry_id(provider: Provider, name: str) -> str:
    return f"{provider.name}/{name}"


# --- names in paths and responses ---

_RESOURCE = re.compile(r"(?:/upload|/download)?/v[0-9][a-z0-9]*/(.+?)(?::[A-Za-z]+)?")


def object_names(call: GatewayRequest, match: PassthroughMatch) -> tuple[str, ...]:
    """The object that a path is about and, with names, the one that it belongs to."""
    if not call.client_codec.http.objects_have_names:
        return match.ids[:1]
    resource = _RESOURCE.fullmatch(match.path)
    name = resource[1] if resource is not None else match.path
    return tuple(dict.fromkeys((name, "/".join(name.split("/")[:2]))))


def created_names(call: GatewayRequest, match: PassthroughMatch, data: bytes) -> tuple[str, ...]:
    """The objects that the response to a request has created. Only keys that the provider fills in are read."""
    try:
        body = decode(data)
    except Malformed:
        return ()
    if not isinstance(body, dict):
        return ()
    file = body.get("file")
    if not call.client_codec.http.objects_have_names:
        found = [body.get(key) for key in ("id", "output_file_id", "error_file_id", "thread_id")]
        found += [file.get("id")] if isinstance(file, dict) else []
        return tuple(name for name in found if isinstance(name, str) and name)
    collection = match.path.rpartition("/")[2]
    id = body.get("id")
    found = [body.get("name"), file.get("name") if isinstance(file, dict) else None]
    found += [f"{collection}/{id}"] if isinstance(id, str) and "name" not in body else []
    return tuple(name for name in found if isinstance(name, str) and name)


# --- names in requests ---

_is_escaped_letter = re.compile(rb"\\u00[4-7]").search
_FILE_TYPES = frozenset("file input_file input_image container_upload image_file image document audio video".split())
_OPAQUE_KEYS = frozenset("arguments args parameters input_schema schema parametersJsonSchema response metadata".split())
"""What a user's own tools take and give: a `file_id` in it is not the provider's."""
_FORWARDED_KEYS = frozenset(
    """input_file_id training_file validation_file assistant_id thread_id fileName file_name vector_store_id upload_id
    previous_interaction_id""".split()
)
"""Keys of forwarded bodies that name an object."""
_FORM_KEYS = frozenset(key.lower() for key in (*_FORWARDED_KEYS, "file_id", "file_ids", "vector_store_ids"))
_GEMINI_FILE = re.compile(r"(?:https?://[^?#]*/)?(files/[A-Za-z0-9_-]+)(?:[:?#].*)?")


def _has_escaped_letter(body: bytes) -> bool:
    """Can a key be written with escapes?"""
    return body.find(b"\\u00") >= 0 and _is_escaped_letter(body) is not None


def _refuse_form(content_type: str, body: bytes) -> Failure | None:
    names = read_form_names(content_type, body)
    if names is None:
        return Failure("invalid", NOT_A_FORM, 400)
    found = next((name for name in names if name.strip().rstrip("[]").lower() in _FORM_KEYS), "")
    what = f"`{found}` in a form cannot be checked; send it in a JSON body"
    return Failure("invalid", what, 400, "", found) if found else None


def read_references(body: bytes, is_forwarded: bool = False) -> References | Failure:
    """The objects that a request names, in its messages and in the tools that the provider runs."""
    try:
        whole = decode(body, max_bytes=len(body))
    except Malformed as bad:
        return Failure("invalid", str(bad), 400, param=bad.path)
    if has_repeated_key(body):
        what = "an object in the body has a key twice, so it is not certain which objects of the provider it uses"
        return Failure("invalid", what, 400)
    objects: dict[str, None] = {}
    containers: dict[str, None] = {}
    for key, value, node in _members(whole):
        if key in ("container", "container_id"):
            container = value.get("id") if isinstance(value, dict) else value
            if isinstance(container, str) and container not in ("", "auto"):
                containers[container] = None
        for name in _names_in_member(key, value, node, is_forwarded):
            objects[name] = None
    return References(tuple(objects), tuple(containers))


def _members(root: Json) -> Iterator[tuple[str, Json, Object]]:
    """All members of all objects that may name an object of the provider."""
    pending: list[Json] = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            for key, value in node.items():
                yield key, value, node
                is_opaque = key in _OPAQUE_KEYS or (key == "input" and isinstance(value, dict))
                if not is_opaque and isinstance(value, (dict, list)):
                    pending.append(value)


def _names_in_member(key: str, value: Json, node: Object, is_forwarded: bool) -> Iterator[str]:
    if key in ("vector_store_ids", "file_ids") and isinstance(value, list):
        yield from (one for one in value if isinstance(one, str))
    elif key == "file" and isinstance(value, dict):
        inner = value.get("file_id")
        if isinstance(inner, str) and inner:
            yield _file_name(inner)
    elif isinstance(value, str) and value:
        is_file = key == "file_id" and (is_forwarded or node.get("type") in _FILE_TYPES)
        is_skill = key == "skill_id" and value.startswith("skill_")  # others are the vendors' own
        is_uri = key in ("fileUri", "file_uri") and ("://" not in value or _GEMINI_FILE.fullmatch(value) is not None)
        if is_file or is_uri:
            yield _file_name(value)
        elif is_skill or key in ("cachedContent", "cached_content") or (is_forwarded and key in _FORWARDED_KEYS):
            yield value


def _file_name(value: str) -> str:
    """The name of a file, which Gemini's clients may give as a URL."""
    found = _GEMINI_FILE.fullmatch(value)
    return found[1] if found is not None else value
