"""The part of the configuration that belongs to a feature. It is declared in the feature's folder, and listed once, as
`SECTIONS` in `configuration/load.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from msgspec import Struct

from toolwire.gateway.settings.problems import KeyPath, ProblemCollector, TomlTable

if TYPE_CHECKING:
    from toolwire.gateway.settings.config import Config
    from toolwire.gateway.settings.trust import Power


class SectionInput(Struct, frozen=True):
    """What a section is read from, and checked with."""

    tables: TomlTable
    """All tables of the file."""
    environ: Mapping[str, str]
    collector: ProblemCollector
    folder: Path
    """Paths in the file are relative to it."""
    config: Config
    """What is read already: the gateway's own settings, and for a check the sections of all features."""


class Section(Struct, frozen=True, kw_only=True):
    """The settings of a feature: a subclass. `Config.section` finds it by its class. Every field has a default."""

    renamed_keys: ClassVar[Mapping[KeyPath, str]] = {}
    """Old keys of its tables, as in `load.RENAMED_KEYS`."""

    @classmethod
    def list_tables(cls) -> Mapping[str, type[Struct]]:
        """Its tables, as the documentation writes them (`[costs]`, `[[limits]]`, `[mcp.NAME]`), and their keys."""
        raise NotImplementedError

    @classmethod
    def read(cls, source: SectionInput) -> Self:
        """Read it from a file. This is for a section with one table, whose keys are the section's own."""
        (name,) = cls.table_names()
        return cls(**source.collector.at(name).read_fields(source.tables.get(name, {}), cls) or {})

    def check(self, source: SectionInput) -> None:
        """Check it together with the rest of the configuration."""

    @property
    def secrets(self) -> Iterable[str]:
        """Values that must not appear in logs and reports."""
        return ()

    def list_powers(self) -> Iterable[Power]:
        """The commands that it starts, and the keys that it sends to an address."""
        return ()

    @classmethod
    def table_names(cls) -> tuple[str, ...]:
        return tuple(header.strip("[]").partition(".")[0] for header in cls.list_tables())
