"""`[store]`: what the file and the environment say, what is wrong with it, and the store that comes of it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from configs import load_config
from toolwire.gateway.settings import store as places
from toolwire.gateway.settings.config import Config, StoreSettings
from toolwire.gateway.settings.problems import ConfigError, report_problems
from toolwire.gateway.store import open_store
from toolwire.gateway.store.store import Entry, StoreDown, StoreStats

PASSWORD = "sehr-geheim"
URL = f"postgresql://user:{PASSWORD}@db.example.com:5433/kept?sslmode=require"
KEY = "0123456789abcdef0123456789abcdef"


def read(tmp_path: Path, text: str, **environ: str) -> Config:
    file = tmp_path / "toolwire.toml"
    file.write_text(text)
    return load_config(file, environ)


def test_what_is_left_out_is_as_documented(tmp_path: Path) -> None:
    store = read(tmp_path, "").store
    assert (store.url, store.url_env, store.key_env) == ("", "", "")
    assert (store.ttl, store.max_bytes) == (30 * 86400, 2**30)


WHERE = [
    ({"XDG_STATE_HOME": "/state", "HOME": "/me"}, "/state/toolwire/store.db"),
    ({"HOME": "/me"}, "/me/.local/state/toolwire/store.db"),
    ({"HOME": "/me", "XDG_STATE_HOME": ""}, "/me/.local/state/toolwire/store.db"),
    ({"HOME": "/me", "XDG_STATE_HOME": "not/from/the/root"}, "/me/.local/state/toolwire/store.db"),
    ({}, "/.local/state/toolwire/store.db"),
]


@pytest.mark.parametrize(("environ", "path"), WHERE)
def test_the_usual_file(environ: dict[str, str], path: str) -> None:
    assert places.sqlite_path(places.store_url(StoreSettings(), environ)) == Path(path)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///var/lib/x.db", "/var/lib/x.db"),
        ("sqlite:////var/lib/x.db", "/var/lib/x.db"),
        ("sqlite:///with%20space/%C3%A4?.db", "/with space/ä?.db"),
        (URL, None),
    ],
)
def test_the_file_of_a_url(url: str, path: str | None) -> None:
    assert places.sqlite_path(url) == (path and Path(path))


FORMS = "choose from: sqlite:///FOLDER/FILE, postgresql://USER@HOST/DATABASE, or none"
MISTAKES = [
    ('url = "mysql://a/b"', "not a valid store URL", FORMS),
    ('url = "postgre://a/b"', "not a valid store URL", "did you mean `postgres`?"),
    ('url = "postgresqll://u:sehr-geheim@a/b"', "not a valid store URL", "did you mean `postgresql`?"),
    ('url = "sqlit:///b"', "not a valid store URL", "did you mean `sqlite`?"),
    ('url = "nothing"', "not a valid store URL", FORMS),
    ('url = "non"', "not a valid store URL", "did you mean `none`?"),
    ('url = "/var/lib/x.db"', "a path is not a URL", "write sqlite:///var/lib/x.db"),
    ('url = "sqlite://x.db"', "not an absolute path of a file", "write sqlite:///FOLDER/FILE"),
    ('url = "sqlite:///folder/"', "not an absolute path of a file", "write sqlite:///FOLDER/FILE"),
    ('url = "postgresql://u:sehr-geheim/@/b"', "not a valid database URL", "write postgresql://USER@HOST/DATABASE"),
    ('url = "postgresql://u@a:port/b"', "not a valid database URL", "write postgresql://USER@HOST/DATABASE"),
    ('url = "postgresql://[u:sehr-geheim@a/b"', "not a valid database URL", "write postgresql://USER@HOST/DATABASE"),
    ("url = 7", "`url`: expected a string, got a whole number", ""),
    ('ur = "x"', "unknown key `ur`", "did you mean `url`?"),
    ("ttl = -1", "`ttl`: expected a number >= 0.0", ""),
    ("max_bytes = -1", "`max_bytes`: expected a whole number >= 0", ""),
    ("max_bytes = 1.5", "`max_bytes`: expected a whole number, got 1.5", ""),
    ('url_env = "NOT_SET"', "the environment variable NOT_SET is not set", "set NOT_SET; otherwise data would be kept in another store"),
    ('url_env = "WRONG"', "not a valid store URL", FORMS),
    ('key_env = "NOT_SET"', "the environment variable NOT_SET is not set", "set NOT_SET; otherwise data would be stored unencrypted"),
    ('key_env = "COMMAS"', "the environment variable COMMAS is not set", "set COMMAS; otherwise data would be stored unencrypted"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "what", "hint"), MISTAKES)
def test_a_mistake_is_told_with_its_line_and_without_the_password(
    line: str, what: str, hint: str, tmp_path: Path
) -> None:
    environ = {"WRONG": f"redis://:{PASSWORD}@x", "COMMAS": " , ,"}
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f"[server]\n[store]\n{line}", **environ)
    (problem,) = caught.value.problems
    assert (problem.line, problem.message, problem.hint) == (3, what, hint)
    assert PASSWORD not in f"{caught.value!s}{caught.value!r}{problem!r}"


def test_a_url_stands_in_one_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f'[store]\nurl = "{URL}"\nurl_env = "X"', X=URL)
    assert [(one.line, one.message) for one in caught.value.problems] == [(3, "url and url_env cannot be combined")]


EXTRAS = [
    (f'url = "{URL}"', "asyncpg", "PostgreSQL needs the package asyncpg, which is not installed"),
    ('key_env = "KEY"', "cryptography", "encryption needs the package cryptography, which is not installed"),
]


@pytest.mark.parametrize(("line", "package", "what"), EXTRAS)
def test_a_package_that_is_missing_is_named_by_how_to_get_it(
    line: str, package: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f"[store]\n{line}", KEY=KEY)
    assert [(one.line, one.message, one.hint) for one in caught.value.problems] == [
        (2, what, "install it with: pip install 'toolwire[store]'")
    ]


def test_a_key_that_can_be_guessed_is_a_warning(tmp_path: Path) -> None:
    config = read(tmp_path, '[store]\nkey_env = "KEY"', KEY=f"{KEY},short")
    assert [str(line) for line in report_problems(config.warnings, "f")] == [
        "f:2: a key of fewer than 20 characters can be guessed"
    ]
    assert not read(tmp_path, '[store]\nkey_env = "KEY"', KEY=f"{KEY}, {KEY[::-1]}").warnings


SHOWN = [
    (StoreSettings(url=URL), "postgresql://db.example.com:5433/kept, for 30 days, at most 1 GiB"),
    (
        StoreSettings(url="postgresql://u:sehr-geheim@one:5432,two:5433/kept?target_session_attrs=primary"),
        "postgresql://one:5432,two:5433/kept, for 30 days, at most 1 GiB",
    ),
    (StoreSettings(url_env="U", ttl=0, max_bytes=0), "postgresql://db.example.com:5433/kept, for ever"),
    (
        StoreSettings(url="sqlite:///a/b.db", ttl=3600, key_env="K"),
        "/a/b.db, for 0.0416667 days, at most 1 GiB, encrypted",
    ),
    (
        StoreSettings(url=f"postgres:///kept?host=/run&password={PASSWORD}"),
        "postgres:///kept, for 30 days, at most 1 GiB",
    ),
    (StoreSettings(url="none"), "none: nothing is stored"),
]


@pytest.mark.parametrize(("store", "shown"), SHOWN)
def test_where_it_is_is_shown_without_the_password(store: StoreSettings, shown: str) -> None:
    assert places.describe_store(store, {"U": URL}) == shown
    assert PASSWORD not in f"{store!r}{store!s}{store.__rich_repr__()}{Config(store=store)!r}"


# --- the store that comes of it ---


def test_nothing_is_kept_where_nothing_shall_be() -> None:
    assert open_store(StoreSettings(url="none"), {}) is None
    assert open_store(StoreSettings(url_env="U"), {"U": "none"}) is None


def test_the_store_lives_by_its_settings(tmp_path: Path) -> None:
    async def run() -> None:
        settings = StoreSettings(url=f"sqlite://{tmp_path}/a%20b/kept.db", ttl=60.0, max_bytes=77_777, key_env="K")
        store = open_store(settings, {"K": f"{KEY},other"})
        assert store is not None
        assert list(tmp_path.iterdir()) == []  # nothing is touched before the first use
        assert await store.put([Entry(owner="", kind="k", id="1", body=b"secret")]) is True
        (kept,) = await store.get("", "k", ["1"])  # type: ignore[misc]
        assert kept.expires - kept.created == pytest.approx(60)
        stats = await store.stats()
        assert isinstance(stats, StoreStats)
        assert (stats.where, stats.limit, stats.encrypted) == (str(tmp_path / "a b" / "kept.db"), 77_777, True)
        await store.close()
        without = open_store(StoreSettings(url=settings.url), {})
        assert without is not None
        down = await without.get("", "k", ["1"])
        assert isinstance(down, StoreDown)
        assert down.reason.endswith("name the variable that contains it in [store] key_env")
        await without.close()

    asyncio.run(run())


def test_a_database_is_chosen_by_its_url() -> None:
    async def run() -> None:
        store = open_store(StoreSettings(url=f"postgresql://user:{PASSWORD}@127.0.0.1:1/kept"), {})
        assert store is not None
        down = await store.get("", "k", ["1"])
        assert isinstance(down, StoreDown)
        assert "PostgreSQL at 127.0.0.1:1" in down.reason
        assert PASSWORD not in down.reason
        await store.close()

    asyncio.run(run())
