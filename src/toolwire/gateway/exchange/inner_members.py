"""Members inside of a body that some servers read differently: `Name` beside `name`, `function_call` beside
`functionCall`. Where rules or limits are applied to a body that goes on in the same protocol, such a member is refused:
the provider could take the one that was not judged. Also the models and tools that a body names inside.

The outermost members are checked in every body (`check_names` in `client_body.py`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Malformed, Object, Path, json_pointer, path_keys
from toolwire.core.request_members import RequestMembers, Spellings, letters_of
from toolwire.gateway.exchange.client_body import ClientBody
from toolwire.gateway.settings.config import ClientKey
from toolwire.gateway.settings.router import Router, is_allowed, is_usable_name, keep_allowed


def walk_objects(members: RequestMembers, body: Json) -> Iterator[tuple[Path, Object]]:
    """All objects of a body and where they are, except those in users' own data."""
    free, free_objects, has_settings = members.free, members.free_objects, members.has_settings
    pending: list[tuple[Path, Json]] = [(None, body)]
    while pending:
        path, node = pending.pop()
        if isinstance(node, list):
            pending += [((path, at), value) for at, value in enumerate(node) if isinstance(value, (dict, list))]
        elif isinstance(node, dict):
            yield path, node
            for key, value in node.items():
                if isinstance(value, dict):
                    is_free = key in free or key in free_objects
                elif isinstance(value, list):
                    is_free = key in free
                else:
                    continue
                if not is_free or has_settings(node):
                    pending.append(((path, key), value))


# --- spellings, and places of tools ---


def check_inner_members(
    members: RequestMembers, body: Object, has_rules: bool = True, removes_tools: bool = False
) -> None:
    """Raises Malformed if the body has a member that could be read as a judged one, or, where there are rules for
    tools, tools that they do not judge. Rules that remove tools allow none that the provider keeps."""
    if removes_tools:
        _check_stored_tools(members, body)
    if has_rules:
        members.check_tool_servers(body, removes_tools)
    for path, node in walk_objects(members, body):
        odd = _find_odd_name(members.judged, node)
        if odd is not None:
            what = "some servers take this key for another one, which rules or limits of this gateway judge"
            raise Malformed((path, odd), f"{what}; leave it out")
        if has_rules and path is not None:
            _check_place_of_tools(members, path, node)


def _find_odd_name(judged: Spellings, node: Object) -> str | None:
    names, by_letters = judged.names, judged.by_letters
    for name in node:
        if name not in names and letters_of(name) in by_letters:
            return name
    others = judged.first_by_other
    if not others.keys().isdisjoint(node):
        return next((other for other, first in others.items() if other in node and first in node), None)
    return None


def _check_place_of_tools(members: RequestMembers, path: Path, node: Object) -> None:
    """Raises Malformed where a list of tools is at a place at which no rule looks for it."""
    found = next((key for key in node if key in members.declarations and isinstance(node[key], (list, dict))), None)
    kind = node.get("type")
    if found is None or (isinstance(kind, str) and kind in members.items_with_tools):
        return
    if path_keys(path)[0] not in members.tool_places:
        raise Malformed((path, found), "tools are declared at a place that the rules of this gateway do not judge")


def _check_stored_tools(members: RequestMembers, body: Object) -> None:
    for name, kind in members.stored_tools.items():
        if body.get(name) and isinstance(body[name], kind):
            what = "this gateway has rules that remove tools, and cannot see which tools the provider has stored here"
            raise Malformed((None, name), f"{what}; send them with the request")


def find_unjudged_tools(members: RequestMembers, body: Json) -> Path:
    """Where a body that is forwarded without being read declares tools, in any spelling; None if nowhere."""
    wanted = {letters_of(name) for name in members.declarations | members.tool_choices}
    for path, node in walk_objects(members, body):
        for name, value in node.items():
            if value and letters_of(name) in wanted:
                return path, name
    return None


# --- models inside of a body ---

_may_name_model = re.compile(rb'(?i)model[a-z0-9_-]*"[ \t\r\n]*:').finditer


def may_name_inner_models(body: bytes, has_outer_model: bool) -> bool:
    """Can there be another key for a model than the outermost one? If not, the body need not be decoded."""
    further = next(islice(_may_name_model(body), int(has_outer_model), None), None)
    return further is not None or body.find(b"\\u00") >= 0


def refuse_inner_models(
    router: Router, body: ClientBody, model: str, key: ClientKey, has_outer_model: bool
) -> Failure | None:
    """Why a key for certain models may not send a body that names more of them than its own; None if it may."""
    if not may_name_inner_models(body.data, has_outer_model):
        return None
    found = keep_allowed(router.expand_targets(model) if is_usable_name(model) else (), key)
    prefix = f"{found[0].provider.name}/" if found else ""
    try:
        whole = body.judge()
    except Malformed as bad:
        return Failure("invalid", str(bad), 400, param=bad.path)
    collection = body.codec.http.model_collection
    for path, name in find_inner_models(body.codec.request_members, whole):
        short = name.removeprefix(collection)
        if name != model and not is_allowed(key, short) and not (prefix and is_allowed(key, prefix + short)):
            where = json_pointer(path)
            what = f"the key `{key.name}` may not use the model `{name[:80]}`, which the body names at {where[:200]}"
            return Failure("permission", what, 403, "", where[:200])
    return None


def find_inner_models(members: RequestMembers, body: Json) -> Iterator[tuple[Path, str]]:
    """The models that a body names besides the outermost one, and where: OpenAI's image generation and Anthropic's
    advisor have their own, servers such as LiteLLM take them in other objects."""
    for path, node in walk_objects(members, body):
        for key, value in node.items():
            if "model" not in letters_of(key) or (path is None and key == "model") or _is_in_turn(members, path):
                continue
            for name in value if isinstance(value, list) else (value,):
                if isinstance(name, str):
                    yield (path, key), name


def _is_in_turn(members: RequestMembers, path: Path) -> bool:
    """Is it part of a conversation? Only the tools in it can choose a model."""
    keys = path_keys(path)
    return bool(keys) and keys[0] in members.turns and members.declarations.isdisjoint(keys)
