"""What rewriters of bodies share (`codec.Quirk`). A rewriter returns the same body when nothing has to change. It never
changes a body in place, because parts of it may belong to the client's request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import is_

from toolwire.core.json_values import Json, Object, Path, without_keys
from toolwire.core.losses import Ledger

NOT_ACCEPTED = "this server does not accept it"


def client_path(ledger: Ledger, *keys: str | int) -> Path:
    """A place in the client's request, where that was a request of this protocol too."""
    path: Path = None
    for key in keys if ledger.is_same_protocol else ():
        path = (path, key)
    return path


def change_items(node: Object, key: str, change: Callable[[int, Object], Object | None]) -> Object:
    """The node with the objects of a list changed; those that become None are left out."""
    items = node.get(key)
    if type(items) is not list:
        return node
    out = [change(number, one) if isinstance(one, dict) else one for number, one in enumerate(items)]
    return node if all(map(is_, out, items)) else node | {key: [one for one in out if one is not None]}


def drop_members(defaults: Mapping[str, Json]) -> Callable[[Object, str, Ledger], Object]:
    """A rewriter that leaves these members out; those with the default given here, without a note."""

    def rewrite_body(body: Object, _model: str, ledger: Ledger) -> Object:
        found = [key for key in defaults if key in body]
        for key in found:
            if body[key] is not None and body[key] != defaults[key]:
                ledger.note("no-counterpart", client_path(ledger, key), f"`{key}` was left out", NOT_ACCEPTED)
        return without_keys(body, found) if found else body

    return rewrite_body
