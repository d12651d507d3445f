"""The configuration that is in force: the file is read again when it changes, and a bad one is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.config.config import Config
from toolwire.gateway.config.load import find_config_file, read_config, read_config_file
from toolwire.gateway.config.problems import ConfigError, Problem, ReportLine, report_problems
from toolwire.gateway.upstream.address import is_loopback

FileStamp = tuple[int, int, int] | None
"""Changes whenever the file changes; None without a file."""
_TABLE_OR_END = re.compile(r"(?:[ \t\r\n]|#[^\n]*(?:\n|\Z))*(?:\[|\Z)")
"""A text that begins with a table, after blank lines and comments."""


class AcceptedFile(Struct, frozen=True):
    """A configuration file that is in force, as it was read. A worker that is replaced leaves it to the next one."""

    file: str
    stamp: FileStamp
    text: str

    def __repr__(self) -> str:  # the text may contain keys
        return f"AcceptedFile({self.file!r})"


class Reload(Struct, frozen=True):
    """A changed file, as a new configuration or with the reasons why it is refused."""

    stamp: FileStamp
    text: str = ""
    config: Config | None = None
    problems: tuple[Problem, ...] = ()

    def __repr__(self) -> str:
        return f"Reload({'accepted' if self.config is not None else 'refused'})"


class LiveConfig:
    """The current configuration. The server calls `reload_if_changed` from time to time; or `read_if_changed`, which a
    thread can run because it changes nothing, and then `apply`."""

    def __init__(
        self,
        file: str | Path | None,
        environ: Mapping[str, str],
        report: Callable[[Sequence[ReportLine]], None],
        server: Mapping[str, object] = EMPTY_MAPPING,
        routes: Mapping[str, str] = EMPTY_MAPPING,
        accepted: AcceptedFile | None = None,
    ) -> None:
        """Raises ConfigError. `server` and `routes` are from the command line. `accepted` was in force in the process
        that this one replaces: it stays in force if the file has become unusable since."""
        self._environ, self._report, self._overrides = environ, report, (server, routes)
        self._path = Path(accepted.file) if accepted else Path(file) if file else find_config_file(environ)
        self._stamp = self._accepted_stamp = accepted.stamp if accepted is not None else self.file_stamp()
        self._text = accepted.text if accepted else read_config_file(self._path) if self._path is not None else ""
        self.current: Config = read_config(self._text, self._path, environ, server, routes)
        self._report_problems(self.current.warnings)
        if accepted is not None:
            self.reload_if_changed()

    @property
    def accepted_file(self) -> AcceptedFile | None:
        """What is in force; None without a file."""
        return AcceptedFile(str(self._path), self._accepted_stamp, self._text) if self._path is not None else None

    def file_stamp(self) -> FileStamp:
        """Changes whenever the file changes; None without a file."""
        try:
            found = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino) if found is not None else None

    def reload_if_changed(self, force: bool = False) -> bool:
        """Read the file again if it has changed; True if there is a new configuration."""
        reload = self.read_if_changed(force)
        return reload is not None and self.apply(reload)

    def read_if_changed(self, force: bool = False) -> Reload | None:
        stamp = self.file_stamp()
        if self._path is None or (stamp == self._stamp and not force):
            return None
        try:
            text = read_config_file(self._path)
            config = read_config(text, self._path, self._environ, *self._overrides)
        except ConfigError as error:
            return Reload(stamp, problems=error.problems)
        problem = self._find_danger(text, config)
        return Reload(stamp, text, config) if problem is None else Reload(stamp, problems=(problem,))

    def apply(self, reload: Reload) -> bool:
        """Use the new configuration; a refused file leaves the old one in force."""
        self._stamp = reload.stamp
        if reload.config is None:
            self._report_problems(reload.problems)
            return False
        self.current, self._text, self._accepted_stamp = reload.config, reload.text, reload.stamp
        self._report_problems(self.current.warnings)
        return True

    def _report_problems(self, problems: Sequence[Problem]) -> None:
        if problems:
            self._report(report_problems(problems, str(self._path or "")))

    def _find_danger(self, text: str, fresh: Config) -> Problem | None:
        """Why a valid file must not replace the current one: it seems to be damaged, or it would let everybody in. That
        takes a restart, or words that nobody writes by accident."""
        what = hint = ""
        if not self.current.server.needs_keys:
            return None
        if not text.strip():
            what, hint = "the file is empty", "restore it"
        elif not fresh.server.needs_keys and not (fresh.has_key_list and is_loopback(self.current.server.host)):
            what = "all client keys are gone"
            hint = (
                "restore [[server.keys]] or store_keys."
                " To serve without keys, write `keys = []` in [server] with a local host"
            )
        elif self._text.startswith(text) and not _TABLE_OR_END.match(self._text, len(text)):
            what = "the file has been cut off in the middle of a table"
            hint = "restore it; if this is what you want, add a comment at its end"
        return Problem(location=str(self._path), message=what, hint=hint) if what else None
