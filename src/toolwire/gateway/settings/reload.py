"""The configuration in force. It is read anew when its file has changed; one with mistakes leaves the old in force."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.configfile import load
from toolwire.gateway.settings.problems import Problem, Problems
from toolwire.ir import NOTHING

Stamp = tuple[int, int, int] | None


class Live:
    """Holds the current configuration. No thread: whoever serves asks it to refresh now and then."""

    def __init__(
        self,
        file: str | Path | None,
        environ: Mapping[str, str],
        report: Callable[[Sequence[Problem]], None],
        server: Mapping[str, object] = NOTHING,
        routes: Mapping[str, str] = NOTHING,
    ) -> None:
        """The first reading raises `Problems`; `server` and `routes` are what the command line says over the file."""
        self._asked, self._environ, self._report, self._over = file, environ, report, (server, routes)
        self.current: Config = load(file, environ, server, routes)
        self._stamp = self._look()
        if self.current.warnings:
            report(self.current.warnings)

    def refresh(self, force: bool = False) -> bool:
        """Read the file again if it has changed; True when a new configuration is in force."""
        stamp = self._look()
        if stamp == self._stamp and not force:
            return False
        self._stamp = stamp
        try:
            fresh = load(self._asked or self.current.file, self._environ, *self._over)
        except Problems as problems:
            self._report(problems.found)
            return False
        self.current = fresh
        if fresh.warnings:
            self._report(fresh.warnings)
        return True

    def _look(self) -> Stamp:
        """What tells one state of the file from another; nothing when there is none."""
        if self.current.file is None:
            return None
        try:
            found = self.current.file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
