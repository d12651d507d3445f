"""The scenarios of seeds/004 in every protocol, as golden files; `toolwire demo matrix` prints the same data.

After a wanted change: `python tests/golden/test_matrix.py` writes them anew; read the difference before you commit it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolwire.cli.translation.matrix import Scenario, load_scenarios, write_pieces
from toolwire.protocols import CODECS

FILES = Path(__file__).parent / "matrix"
ALL = [(scenario, name) for scenario in load_scenarios() for name in CODECS]


def write_scenario(scenario: Scenario, name: str) -> Any:
    return write_pieces(scenario, CODECS[name])


@pytest.mark.parametrize(("scenario", "name"), ALL, ids=[f"{scenario.scenario}-{name}" for scenario, name in ALL])
def test_scenario(scenario: Scenario, name: str) -> None:
    golden = json.loads((FILES / scenario.scenario / f"{name}.json").read_text())
    assert write_scenario(scenario, name) == golden


def test_every_scenario_of_the_seed_is_there() -> None:
    seed = "run_shell_command read_file read_many_files write_file replace search_file_content web_fetch web_search"
    assert [scenario.scenario for scenario in load_scenarios()] == seed.split()


if __name__ == "__main__":
    for scenario, name in ALL:
        file = FILES / scenario.scenario / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(write_scenario(scenario, name), indent=2, ensure_ascii=False) + "\n")
