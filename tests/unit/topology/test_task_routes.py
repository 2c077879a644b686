"""A deployment's own routes: what they change of the table, and which are refused."""

import re
from dataclasses import replace
from typing import Any

import pytest

from ami.topology.errors import TopologyError
from ami.topology.router import TaskRouter
from ami.topology.task_routes import rules
from ami.topology.topology import Topology, load

TABLE = load({})
TRAIN = "ami.ml.tasks.train"

#: As it was sketched before there was a table.
SKETCH = {
    "ami.jobs.tasks.process_nats_pipeline_result": {"queue": "antenna-ingest"},
    "ami.ml.tasks.create_detection_images": {"queue": "antenna-ingest"},
    "ami.main.tasks.*_calculated_fields": {"queue": "antenna-ingest"},
    "ami.ml.tasks.check_processing_services_online": {"queue": "antenna-housekeeping"},
    "ami.main.tasks.update_*": {"queue": "antenna-housekeeping"},
    "ami.jobs.tasks.audit_*": {"queue": "antenna-housekeeping"},
    "ami.exports.tasks.*": {"queue": "antenna-interactive"},
}


def with_routes(setting: Any, table: Topology = TABLE) -> Topology:
    return replace(table, routes=rules(setting))


def test_sketched_dictionary_leaves_every_task_where_the_table_has_it():
    sketched = with_routes(SKETCH)
    for task in (task for row in TABLE.workloads for task in row.tasks):
        for origin in ("beat", "person", "task"):
            assert sketched.place(task, origin).queue == TABLE.place(task, origin).queue


@pytest.mark.parametrize(
    ("rule", "task"),
    [
        (TRAIN, TRAIN),
        ("ami.ml.tasks.*", TRAIN),
        ("other.*", "other.project.task"),
        ("ami.exports.*", "ami.exports.tasks.run_export"),
        ("ami.exports.tasks.*", "ami.exports.tasks.run_export"),
    ],
)
@pytest.mark.parametrize("form", [{"queue": "antenna-ingest"}, "antenna-ingest"])
def test_rule_of_the_deployment_beats_a_glob_of_the_table(rule: str, task: str, form: Any):
    assert with_routes({rule: form}).place(task, "task") == ("antenna-ingest", f"{rule} (CELERY_TASK_ROUTES)", True)


def test_exact_name_in_the_table_beats_a_glob_of_the_deployment():
    own = with_routes({"ami.ml.tasks.*": "antenna-housekeeping"})
    assert own.place("ami.ml.tasks.reprocess_captures", "task").queue == "antenna-interactive"


def test_exact_name_of_the_deployment_beats_its_glob():
    own = with_routes({"ami.ml.*": "antenna-ingest", TRAIN: "antenna-housekeeping"})
    assert own.place(TRAIN).queue == "antenna-housekeeping"


def test_origin_decides_as_in_the_row_of_the_queue():
    own = with_routes({TRAIN: "antenna-interactive"})
    assert own.place(TRAIN, "person").queue == "antenna-interactive"
    assert own.place(TRAIN, "beat").queue == "antenna-housekeeping"
    assert own.home(TRAIN).inherits_origin


def test_single_routing_sends_routed_tasks_to_the_fallback():
    own = with_routes({TRAIN: "antenna-ingest"}, load({"ANTENNA_ROUTING": "single"}))
    assert own.place(TRAIN) == ("antenna", f"{TRAIN} (CELERY_TASK_ROUTES) (single: antenna-ingest later)", True)


def test_routes_to_the_fallback_count_as_routed():
    assert with_routes({TRAIN: "antenna"}).place(TRAIN).routed


def test_fingerprint_depends_on_the_routes_and_not_on_their_order():
    one, other = {"a.*": "antenna-ingest"}, {"b.*": "antenna"}
    assert with_routes({**one, **other}).fingerprint == with_routes({**other, **one}).fingerprint
    assert len({with_routes(each).fingerprint for each in ({}, one, other)}) == 3


@pytest.mark.parametrize("setting", [None, {}, (), TaskRouter(TABLE), [TaskRouter(TABLE), {}]])
def test_setting_without_rules_is_the_table(setting: Any):
    assert with_routes(setting).fingerprint == TABLE.fingerprint


def test_list_joins_its_dictionaries():
    assert rules([TaskRouter(TABLE), {"a.*": "antenna"}, {"b": {"queue": "antenna"}}]) == {
        "a.*": "antenna",
        "b": "antenna",
    }


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({TRAIN: "antena-ingest"}, f"sends '{TRAIN}' to 'antena-ingest': No workload consumes the queue"),
        ({TRAIN: "antena-ingest"}, "Did you mean 'antenna-ingest'?"),
        ({TRAIN: "antenna-slow"}, "set ANTENNA_SLOW_ENABLED=1"),
        (
            {"ami.jobs.tasks.run_job": "antenna-ingest"},
            "sends 'ami.jobs.tasks.run_job' to 'antenna-ingest', and the row of 'antenna-interactive' in "
            "ami/topology/table.py names the same; remove one of the two.",
        ),
        ([{TRAIN: "antenna"}, {TRAIN: "antenna-ingest"}], "to 'antenna' and to 'antenna-ingest'; remove one"),
        (
            {TRAIN: {"queue": "antenna", "priority": 9, "exchange": "mine"}},
            f"sets exchange, priority for '{TRAIN}', which the topology decides; keep only the queue.",
        ),
        ({TRAIN: {"routing_key": "x"}}, f"sends '{TRAIN}' to no queue; write"),
        ({TRAIN: {"queue": None}}, "to no queue"),
        ({TRAIN: 3}, "to no queue"),
        ({re.compile("ami"): "antenna"}, "has a key of type Pattern, not a task name or glob"),
        ("some.module.Router", "holds an object of type str, which is not a dictionary and cannot be checked"),
        ([lambda name: None], "holds an object of type function"),
        ([[("a", "antenna")]], "holds an object of type list"),
    ],
)
def test_wrong_setting_is_refused_with_the_fact_and_the_remedy(setting: Any, sentence: str):
    with pytest.raises(TopologyError, match=f"^CELERY_TASK_ROUTES .*{re.escape(sentence)}"):
        with_routes(setting)


def test_task_that_two_globs_send_apart_is_refused_with_both():
    own = with_routes({"a.*": "antenna-ingest", "*.b": "antenna-housekeeping"})
    with pytest.raises(TopologyError) as refused:
        own.place("a.b")
    assert str(refused.value) == (
        "a.b is claimed by two globs: 'a.*' (antenna-ingest) and '*.b' (antenna-housekeeping). "
        "Name the task exactly in CELERY_TASK_ROUTES."
    )


def test_two_globs_to_one_queue_are_no_contradiction():
    assert with_routes({"a.*": "antenna-ingest", "*.b": "antenna-ingest"}).place("a.b").queue == "antenna-ingest"
