"""The gateway: the only floor with sockets, files and a clock. Any client's protocol in, any provider's out."""

from __future__ import annotations

from toolwire.gateway.app import Gateway, app

__all__ = ["Gateway", "app"]
