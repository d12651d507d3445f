"""The gateway: any client's protocol in, any provider's out. The only package with sockets, files and a clock."""

from __future__ import annotations

from toolwire.gateway.app import Gateway, app

__all__ = ["Gateway", "app"]
