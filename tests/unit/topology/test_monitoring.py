"""What is rendered for Prometheus and Grafana: accepted by promtool, true to the table, and about real metrics."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from ami.console.handbook import START, handbook, source
from ami.topology.__main__ import main
from ami.topology.monitoring import alerts, dashboard, metrics
from ami.topology.monitoring.metrics import METRICS
from ami.topology.topology import Topology, complete
from tests.support.monitoring.programs import promtool
from tests.support.monitoring.scenes import rule_test, scenes
from tests.support.place import ROOT

TOPOLOGY = complete()
RULES = [rule for group in alerts.groups(TOPOLOGY).values() for rule in group]
SERIES = {name for metric in METRICS for name in metric.series}
#: Of Prometheus itself.
OF_PROMETHEUS = {"up"}
BOARD = json.loads(dashboard.render())
QUERIES = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]


def named(expr: str) -> set[str]:
    """Return the names of series in an expression."""
    return set(re.findall(r"\b(?:(?:celery|antenna)_[a-z_]+|up)\b(?=[\s{[)]|$)", re.sub(r'"[^"]*"', '""', expr)))


@pytest.mark.processes
def test_promtool_accepts_the_rules_and_finds_nothing_to_say(tmp_path: Path):
    (tmp_path / "alerts.yml").write_text(alerts.render())
    assert f"{len(RULES)} rules found" in promtool(
        "check", "rules", "--lint=all", "--lint-fatal", tmp_path / "alerts.yml"
    )


@pytest.mark.processes
def test_each_rule_fires_for_what_it_is_about_and_for_nothing_else(tmp_path: Path):
    (tmp_path / "alerts.yml").write_text(alerts.render())
    by_name = {rule.alert: rule.as_dict("") for rule in RULES}
    acted = list(scenes(TOPOLOGY))
    assert {alert for scene in acted for alert, _ in scene.fires} == set(by_name)
    tests = {
        "rule_files": ["alerts.yml"],
        "evaluation_interval": "30s",
        "tests": [rule_test(scene, TOPOLOGY, by_name) for scene in acted],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests, sort_keys=False))
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "tests.yml")


@pytest.mark.processes
def test_an_alert_says_what_is_wrong_in_numbers(tmp_path: Path):
    row = TOPOLOGY.workloads[0]
    (tmp_path / "alerts.yml").write_text(alerts.render(runbook="https://antenna.example.org/handbook/"))
    (scene,) = [each for each in scenes(TOPOLOGY) if each.name == f"{row.queue}: oldest message is late"]
    by_name = {rule.alert: rule.as_dict("") for rule in RULES}
    test = rule_test(scene, TOPOLOGY, by_name)
    del test["promql_expr_test"]
    expected = {
        "exp_labels": {metrics.QUEUE: row.queue, "severity": "warning"},
        "exp_annotations": {
            "summary": f"The oldest message of {row.queue} waits for long",
            "description": f"It has waited for 21m 1s; the target of {row.queue} is 600 s.",
            "runbook_url": "https://antenna.example.org/handbook/operations/queues/#a-queue-grows",
        },
    }
    test["alert_rule_test"] = [{"eval_time": "10m", "alertname": "AntennaOldestMessageWaits", "exp_alerts": [expected]}]
    (tmp_path / "tests.yml").write_text(yaml.safe_dump({"rule_files": ["alerts.yml"], "tests": [test]}))
    promtool("test", "rules", tmp_path / "tests.yml")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.alert} {rule.queue}".strip())
def test_rule_names_metrics_that_exist_and_a_chapter_that_exists(rule):
    assert named(rule.expr)
    assert named(rule.expr) <= SERIES | OF_PROMETHEUS
    page, _, anchor = rule.chapter.partition("#")
    path = source(page.rstrip("/") or START)
    assert path is not None
    assert f'id="{anchor}"' in handbook(path, path.stat().st_mtime_ns).html


def test_every_query_of_the_dashboard_names_metrics_that_exist():
    assert len(QUERIES) > 30
    for expr in QUERIES:
        assert named(expr), expr
        assert named(expr) <= SERIES, expr


def test_every_metric_is_in_the_dashboard_and_in_the_documentation():
    shown = {name for expr in QUERIES for name in named(expr)}
    assert [metric.name for metric in METRICS if not shown & set(metric.series)] == []
    page = (ROOT / "docs/monitoring.md").read_text()
    for metric in METRICS:
        labels = ", ".join(f"`{each}`" for each in metric.labels)
        assert f"| `{metric.series[0]}` | {metric.kind} | {labels} | {metric.text} |" in page


def test_dashboard_has_a_row_per_queue_and_the_table_s_targets():
    (repeated,) = [panel for panel in BOARD["panels"] if panel.get("repeat")]
    variables = {each["name"]: each for each in BOARD["templating"]["list"]}
    assert (repeated["repeat"], repeated["title"]) == ("queue", "$queue")
    assert variables["queue"]["query"].split(",") == list(TOPOLOGY.queues)
    assert variables["datasource"]["query"] == "prometheus"
    (compared,) = [panel for panel in BOARD["panels"] if panel["title"] == "p95 wait against the target"]
    found = {
        each["matcher"]["options"]: next(one["value"]["steps"][1]["value"] for one in each["properties"][:1])
        for each in compared["fieldConfig"]["overrides"]
    }
    assert found == {row.queue: row.wait_target_seconds for row in TOPOLOGY.workloads}


def test_panels_of_the_dashboard_do_not_overlap_and_use_the_variable_source():
    places = [each["gridPos"] for each in BOARD["panels"]]
    for number, one in enumerate(places):
        assert one["x"] + one["w"] <= 24
        for other in places[:number]:
            assert one["y"] >= other["y"] + other["h"] or one["x"] >= other["x"] + other["w"], (one, other)
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    sources = {panel["datasource"]["uid"] for panel in BOARD["panels"] if panel["type"] != "row"}
    assert sources == {"${datasource}"}


def test_another_table_renders_other_rules():
    row = replace(TOPOLOGY.workloads[-1], wait_target_seconds=7.5)
    other = Topology((row,))
    text = alerts.render(other)
    assert "> 7.5 and" in text
    assert "antenna-ingest" not in text + dashboard.render(other)


def test_verbs_print_and_write_the_numbers_of_the_environment(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("ANTENNA_INGEST_WAIT_TARGET_SECONDS", "123")
    assert main(["alerts", "--runbook", "https://a.example/"]) == 0
    printed = capsys.readouterr().out
    assert "> 123 and" in printed
    assert "runbook_url: https://a.example/operations/queues/#a-queue-grows" in printed
    with pytest.raises(SystemExit):
        main(["alerts", "--runbook", "docs/operations.md"])
    assert "is no absolute address" in capsys.readouterr().err
    assert "runbook_url:" not in alerts.render()
    assert main(["dashboard", str(tmp_path / "board.json")]) == 0
    assert capsys.readouterr().out == ""
    assert '"value": 123' in (tmp_path / "board.json").read_text()
    assert main(["alerts", str(tmp_path / "none" / "alerts.yml")]) == 2
