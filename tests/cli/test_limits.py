"""`toolwire costs limits`, `doctor config` with limits, and what is wrong with them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from configs import load_config
from gateway.counter_stores import NEEDS_REDIS
from gateway.redis_server import own_server
from toolwire.cli import main
from toolwire.cli.gateway.doctor.services import check_limits
from toolwire.gateway.features.limits.counters import Charge, Settlement
from toolwire.gateway.features.limits.counters_sqlite import SqliteCounters

LIMITS = """
[[limits]]
name = "of the team"
team = "app"
dollars_per_month = 400
tokens_per_minute = 400_000

[[limits]]
per = "key"
parallel_requests = 4
soft = true
"""


def write_file(folder: Path, text: str) -> str:
    file = folder / "toolwire.toml"
    file.write_text(text)
    return str(file)


@pytest.fixture(name="counted")
def count_use(tmp_path: Path) -> str:
    """A file with limits, of which something is used."""

    async def count() -> None:
        counters = SqliteCounters(tmp_path / "store.db")
        charges = [
            Charge("of the team/dollars_per_month", "month", 1),
            Charge("each key (soft)/parallel_requests/ana", "none", 3),
        ]
        await counters.reserve("r", charges[:1], 60)
        await counters.reserve("s", charges, 60)
        await counters.settle([Settlement("r", (123_450_000_000,))])
        await counters.close()

    asyncio.run(count())
    return write_file(tmp_path, f'[store]\nurl = "sqlite://{tmp_path}/store.db"\n{LIMITS}')


def test_what_is_used_of_each_limit(counted: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["costs", "limits", "--config", counted]) == 0
    header, *rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert [cell.strip() for cell in header if cell] == ["limit", "for", "amount", "used", "reserved", "opens in"]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells[0] == ["of the team", "400,000 tokens per minute", "0", "0"]
    assert cells[1][:4] == ["of the team", "$400 per month", "$123.45", "$0.000000001"]
    assert cells[2] == ["each key (soft)", "ana", "4 parallel requests", "0", "3"]


def test_the_same_as_json(counted: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["costs", "limits", "--json", "--config", counted]) == 0
    uses = json.loads(capsys.readouterr().out)
    assert [(use["amount"], use["group"], use["used"], use["reserved"], use["soft"]) for use in uses] == [
        ("tokens_per_minute", "", 0, 0, False),
        ("dollars_per_month", "", "123.45", "0.000000001", False),
        ("parallel_requests", "ana", 0, 3, True),
    ]
    assert [use["opens_after"] is None for use in uses] == [True, False, True]


PRICED = """
[providers.local]
protocols = ["openai-chat"]
base_url = "http://127.0.0.1:9"
[providers.hosted]
kind = "openai"
api_key = "sk-test"
[models.small]
provider = "local"
model = "llama"
[models.big]
provider = "hosted"
model = "gpt-4.1"
[models.new]
provider = "hosted"
model = "gpt-unheard-of"
"""


def test_models_without_a_price_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = '[[limits]]\nname = "hard"\ndollars_per_day = 5\n[[limits]]\nname = "other"\nprovider = "hosted"\n'
    limits += 'dollars_per_day = 5\non_unknown_price = "open"\n[[limits]]\nname = "soft"\ndollars_per_day = 5\n'
    limits += 'soft = true\n[[limits]]\nname = "tokens"\ntokens_per_day = 5\n'
    file = write_file(tmp_path, f'[store]\nurl = "sqlite://{tmp_path}/store.db"\n{PRICED}{limits}')
    assert main(["doctor", "config", "--config", file]) == 0
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    cells = {row[0]: row[-1] for words in rows if (row := [cell.strip() for cell in words if cell.strip()])}
    refused, passed = "refuses local/*, hosted/gpt-unheard-of", "does not count hosted/gpt-unheard-of"
    assert (cells["hard"], cells["other"]) == (f"{refused}: no price is known", f"{passed}: no price is known")
    assert (cells["soft"], cells["tokens"]) == ("$5 per day", "5 tokens per day")
    main(["costs", "limits", "--config", file])
    out = capsys.readouterr().out
    assert f"`hard` {refused}: no price is known\n`other` {passed}: no price is known\n" in out
    assert ["$0 + unknown" in line for line in out.splitlines()[1:5]] == [False, True, False, False]
    main(["costs", "limits", "--json", "--config", file])
    uses = json.loads(capsys.readouterr().out)
    assert [use["unpriced"] for use in uses] == [[], ["hosted/gpt-unheard-of"], [], []]


def test_doctor_names_models_without_a_price(tmp_path: Path) -> None:
    file = write_file(tmp_path, f'{PRICED}[[limits]]\nname = "hard"\ndollars_per_day = 5\n')
    (found,) = asyncio.run(check_limits(load_config(file, {})))
    assert (found.state, found.subject) == ("warning", "limits hard")
    assert found.message == "refuses local/*, hosted/gpt-unheard-of: no price is known"


def test_no_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_file(tmp_path, "")
    assert main(["costs", "limits", "--config", file]) == 0
    out, err = capsys.readouterr()
    assert (out, "no limits are configured" in err) == ("", True)
    assert main(["costs", "limits", "--config", file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_counters_in_the_memory_of_the_gateway(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["costs", "limits", "--config", write_file(tmp_path, f'[store]\nurl = "none"\n{LIMITS}')]) == 2
    assert "the counters are in the memory of the gateway" in capsys.readouterr().err


@NEEDS_REDIS
def test_a_server_that_is_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with own_server() as server:
        file = write_file(tmp_path, f'[counters]\nurl = "{server.url()}"\n{LIMITS}')
        assert main(["costs", "limits", "--config", file]) == 0
        server.stop()
        assert main(["costs", "limits", "--config", file]) == 1
        assert f"redis://127.0.0.1:{server.port}/0 cannot be used" in capsys.readouterr().err
        server.start()


def test_doctor_config_lists_them(counted: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "config", "--config", counted]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "of the team 400,000 tokens per minute, $400 per month each key (soft) 4 parallel requests" in out


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("[limits]\nkey = 1", 1, "`limits` must be a list of tables"),
        ('[[limits]]\nkey = "ana"', 1, "this limit has no amount"),
        ("[[limits]]\nrequests_per_minute = 0", 2, "`requests_per_minute`: expected a whole number >= 1"),
        ("[[limits]]\ndollars_per_day = -1", 2, "`dollars_per_day`: expected a number > 0"),
        ("[[limits]]\ndollars_per_day = 1e9", 2, "`dollars_per_day`: expected a number <= 9000000"),
        ('[[limits]]\ntokens_per_day = 5\nper = "user"', 3, "`per`"),
        ("[[limits]]\ntokens_per_week = 5", 2, "unknown key `tokens_per_week`"),
        ('[[limits]]\ntokens_per_day = 5\nkey = "anna"', 3, "there is no client key `anna`"),
        ('[[limits]]\ntokens_per_day = 5\nteam = "ap"', 3, "there is no team `ap`"),
        ('[[limits]]\ntokens_per_day = 5\nprovider = "nowhere"', 3, "there is no provider `nowhere`"),
        ("[[limits]]\ntokens_per_day = 5\n[[limits]]\ntokens_per_hour = 5", 3, "there are two limits `all requests`"),
        ('[[limits]]\ntokens_per_day = 5\nsoft = true\non_store_down = "open"', 4, "a soft limit refuses nothing"),
        ('[[limits]]\ntokens_per_day = 5\non_store_down = "ask"', 3, "`on_store_down`"),
        ('[[limits]]\ntokens_per_day = 5\nname = "a\\u0007"', 3, "not a usable name"),
        ('[counters]\nurl = "reddis://x"', 2, "not a valid URL of counters"),
        ('[counters]\nurl = "redis://:secret@host:port/0"', 2, "not a valid Redis URL"),
        ('[counters]\nurl = "redis://host/name"', 2, "not a valid Redis URL"),
        ('[counters]\nurl = "postgresql:///"', 2, "not a valid database URL"),
        ('[counters]\nurl_env = "NOT_SET_AT_ALL"', 2, "the environment variable NOT_SET_AT_ALL is not set"),
        ("[counters]\nlease = 0", 2, "`lease`"),
        (
            '[server]\nworkers = 2\n[store]\nurl = "none"\n[[limits]]\ntokens_per_day = 5',
            5,
            "2 workers cannot share limits without a store",
        ),
    ],
)
def test_problems_have_their_lines(
    text: str, line: int, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = f'\n[[server.keys]]\nname = "ana"\nteam = "app"\nsha256 = "{"ab" * 32}"\n'
    main(["doctor", "config", "--config", write_file(tmp_path, text + keys)])
    shown = capsys.readouterr().err
    assert f"toolwire.toml:{line}: {problem}" in shown, shown
    assert "secret" not in shown
