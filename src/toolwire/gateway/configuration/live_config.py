"""The configuration that is in force: the file is read again when it changes, and a bad one is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.configuration.load import ConfigFile, FileStamp, file_stamp, read_config, read_file
from toolwire.gateway.settings.address import is_loopback
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.problems import ConfigError, Problem, ReportLine, report_problems
from toolwire.gateway.settings.trust import find_new_powers, lies_in_folder

_TABLE_OR_END = re.compile(r"(?:[ \t\r\n]|#[^\n]*(?:\n|\Z))*(?:\[|\Z)")
"""A text that begins with a table, after blank lines and comments."""


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
        file: Config | str | Path | ConfigFile | None,
        environ: Mapping[str, str],
        report: Callable[[Sequence[ReportLine]], None],
        server: Mapping[str, object] = EMPTY_MAPPING,
        routes: Mapping[str, str] = EMPTY_MAPPING,
    ) -> None:
        """Raises ConfigError. `server` and `routes` are from the command line. A `ConfigFile` may be older: what was in
        force in the process that this one replaces stays in force if the file has become unusable since. A `Config` is
        in force as it is: there is no file."""
        self._environ, self._report, self._overrides = environ, report, (server, routes)
        given, file = (file, None) if isinstance(file, Config) else (None, file)
        opened = read_file(Path(file)) if isinstance(file, str | Path) else file
        self._path = opened.path if opened is not None else None
        self._stamp = self._accepted_stamp = opened.stamp if opened is not None else None
        self._text = opened.text if opened is not None else ""
        self.current: Config = given or read_config(self._text, self._path, environ, server, routes)
        self._report_problems(self.current.warnings)
        self.reload_if_changed()

    @property
    def accepted_file(self) -> ConfigFile | None:
        """What is in force; None without a file."""
        return ConfigFile(str(self._path), self._accepted_stamp, self._text) if self._path is not None else None

    def file_stamp(self) -> FileStamp:
        """Changes whenever the file changes; None without a file."""
        return file_stamp(self._path) if self._path is not None else None

    def reload_if_changed(self, force: bool = False) -> bool:
        """Read the file again if it has changed; True if there is a new configuration."""
        reload = self.read_if_changed(force)
        return reload is not None and self.apply(reload)

    def read_if_changed(self, force: bool = False) -> Reload | None:
        """None also for a file that changes while it is read: it is another one soon."""
        stamp = self.file_stamp()
        if self._path is None or (stamp == self._stamp and not force):
            return None
        try:
            text = read_file(self._path).text
            if self.file_stamp() != stamp:
                return None  # it is being written
            config = read_config(text, self._path, self._environ, *self._overrides)
        except ConfigError as error:
            return Reload(stamp, problems=error.problems)
        problem = self._find_danger(text, config) or self._find_new_power(self._path, config)
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

    def _find_new_power(self, path: Path, fresh: Config) -> Problem | None:
        """Why a file of the working folder must not replace the current one: an agent that may write only in that
        folder must not start commands outside of it, or get keys, by writing this file."""
        if not lies_in_folder(path, Path.cwd(), self._environ):
            return None
        added = [power for power in find_new_powers(fresh, self.current) if power.is_ready]
        tables = ", ".join(dict.fromkeys(power.table for power in added))
        what = f"{tables} would start a command, or send a key to an address, that is new"
        hint = (
            "restart the gateway to use it: its file is in its working folder, which agents may be allowed to change."
            " A file elsewhere (--config) is read again at any time"
        )
        return Problem(location=str(path), message=what, hint=hint) if added else None

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
