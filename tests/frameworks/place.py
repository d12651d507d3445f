"""Where the requests of a framework go: to a gateway, or to Toolwire inside of the program."""

from __future__ import annotations

INSIDE = "http://in-process.invalid"


def find_place(base: str) -> tuple[str, str]:
    """The address for the SDK, and the configuration of Toolwire inside, which is behind it; "" with a gateway."""
    return (INSIDE, base.removeprefix(INSIDE)) if base.startswith(INSIDE) else (base, "")
