"""The built page of the console (from `console/`, by `make console`), with headers that let it load nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from toolwire.gateway.http.messages import Reply

FILES_PATH = "/console/"
INDEX = "index.html"
CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
SECURITY_HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""For everything below the console, its API included."""


@cache
def load_files() -> Mapping[str, tuple[bytes, str]]:
    """The files of the page by name, each with its ETag."""
    folder = files("toolwire.gateway.surfaces.console").joinpath("page")
    found = {one.name: one.read_bytes() for one in folder.iterdir() if one.name.rpartition(".")[2] in CONTENT_TYPES}
    return {name: (data, f'"{hashlib.sha256(data).hexdigest()[:32]}"') for name, data in found.items()}


def file_reply(name: str, headers: Mapping[str, str]) -> Reply | None:
    """A file of the page; None if there is no such file."""
    found = load_files().get(name)
    if found is None:
        return None
    data, etag = found
    sent = {**SECURITY_HEADERS, "etag": etag, "cache-control": "no-cache"}
    if headers.get("if-none-match") == etag:
        return Reply(304, sent, b"")
    return Reply(200, {**sent, "content-type": CONTENT_TYPES[name.rpartition(".")[2]]}, data)
