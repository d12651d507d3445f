"""The built page of the console (from `console/`, by `make console`), with headers that let it load nothing else."""

from __future__ import annotations

import base64
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


STYLE = (
    "body{max-width:44rem;margin:4rem auto;padding:0 1rem;font:1rem/1.6 system-ui,sans-serif}"
    "pre{overflow:auto;padding:.6rem .8rem;border:1px solid GrayText;border-radius:.4rem}"
)
CLOSED_PAGE = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Toolwire</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>This is a Toolwire gateway</h1>
<p>Its console shows what clients and models have sent, on both sides. Others can reach this gateway, too, so the
console needs a key of its own, and it has none yet. Client keys do not open it.</p>
<p>Whoever runs the gateway makes the key:</p>
<pre tabindex="0" aria-label="Command">toolwire keys new NAME --console --write</pre>
<p>This adds its hash to the configuration file, which a running gateway reads at once. Without <code>--write</code> the
lines for the file are printed. Then load this page again, and log in with the key.</p>
<p>For a gateway without a console: <code>enabled = false</code> in <code>[console]</code>.</p>
</main>
</body>
</html>
"""
"""For a browser at `/`, where the console has no key and needs one."""


def closed_page_reply() -> Reply:
    style_hash = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{style_hash}'; base-uri 'none'; frame-ancestors 'none'"
    headers = {**SECURITY_HEADERS, "content-security-policy": policy, "cache-control": "no-store"}
    return Reply(200, {**headers, "content-type": CONTENT_TYPES["html"]}, CLOSED_PAGE.encode())
