"""Prometheus' alerts and Grafana's dashboard in deploy/: each expression is parsed, and names only what the gateway exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from toolwire.gateway.telemetry.metrics import METRICS

DEPLOY = Path(__file__).parents[1] / "deploy"
ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
DASHBOARD = json.loads((DEPLOY / "grafana" / "toolwire.json").read_text())
ADDED_BY_PROMETHEUS = {"instance", "job", "le"}


def rules() -> list[Any]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """What each is for, and its text."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield (
                f"{panel['title']} {target['refId']}",
                target["expr"].replace("$__rate_interval", "5m").replace("$provider", ".*"),
            )


EXPRESSIONS = list(expressions())


def parts_of(node: Any) -> Iterator[Any]:
    """A parsed expression and everything in it."""
    yield node
    for name in ("lhs", "rhs", "expr", "vector_selector", "param"):
        part = getattr(node, name, None)
        if part is not None and not isinstance(part, (str, int, float)):
            yield from parts_of(part)
    for part in getattr(node, "args", ()) or ():
        yield from parts_of(part)


def labels_of(metric: str) -> set[str]:
    """The labels of an exported name; of a histogram also `_bucket`, `_sum` and `_count`."""
    if metric == "up":
        return ADDED_BY_PROMETHEUS
    found = METRICS.get(metric) or METRICS.get(re.sub("_(bucket|sum|count)$", "", metric))
    assert found, f"`{metric}` is not exported"
    assert (found.kind == "histogram") == (found.name != metric), metric
    return {*found.labels} | ADDED_BY_PROMETHEUS


@pytest.mark.parametrize(("name", "text"), EXPRESSIONS, ids=[name for name, _ in EXPRESSIONS])
def test_an_expression_names_what_is_exported(name: str, text: str) -> None:
    known: set[str] = set()
    grouped: set[str] = set()
    for part in parts_of(promql_parser.parse(text)):
        match type(part).__name__:
            case "VectorSelector":
                labels = labels_of(part.name)
                assert {matcher.name for matcher in part.matchers.matchers} <= labels, name
                known |= labels
            case "AggregateExpr" if part.modifier:
                grouped |= {*part.modifier.labels}
    assert known, name
    assert grouped <= known, name


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong(rule: Any) -> None:
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    summary = rule["annotations"]["summary"]
    for label in re.findall(r"\$labels\.(\w+)", summary):
        grouped = re.search(r"by \((.*?)\)", rule["expr"])
        assert label in (grouped[1] if grouped else f"{rule['expr']} instance limit amount group"), summary


def test_each_panel_and_alert_has_a_name_of_its_own() -> None:
    for names in ([rule["alert"] for rule in rules()], [panel["title"] for panel in DASHBOARD["panels"]]):
        assert len({*names}) == len(names)


def test_panels_do_not_cover_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
