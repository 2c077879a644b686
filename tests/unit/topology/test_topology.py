"""The whole table: where a task goes, and which overrides are refused."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ami.topology.command import worker
from ami.topology.errors import TopologyError
from ami.topology.table import ROWS
from ami.topology.topology import Topology, load

SPLIT = load({})


@pytest.mark.parametrize(
    ("task", "origin", "queue"),
    [
        ("ami.jobs.tasks.process_nats_pipeline_result", None, "antenna-ingest"),
        ("ami.jobs.tasks.process_nats_pipeline_results", None, "antenna-ingest"),
        ("ami.ml.tasks.create_detection_images", "task", "antenna-ingest"),
        ("ami.main.tasks.refresh_event_calculated_fields", "task", "antenna-ingest"),
        ("ami.main.tasks.refresh_event_calculated_fields", "person", "antenna-interactive"),
        ("ami.ml.tasks.check_processing_services_online", "beat", "antenna-housekeeping"),
        ("ami.ml.tasks.check_processing_services_online", "person", "antenna-interactive"),
        ("ami.jobs.tasks.audit_anything", "beat", "antenna-housekeeping"),
        ("ami.main.tasks.update_public_urls", "task", "antenna-housekeeping"),
        ("ami.exports.tasks.run_export", "person", "antenna-interactive"),
        ("ami.exports.tasks.run_export", "beat", "antenna-housekeeping"),
        ("ami.exports.tasks.run_scheduled_exports", "beat", "antenna-housekeeping"),
        ("ami.jobs.tasks.run_job", "person", "antenna-interactive"),
        ("ami.jobs.tasks.run_job", "task", "antenna-interactive"),
        ("other.project.task", "person", "antenna"),
        ("other.project.task", "beat", "antenna"),
    ],
)
def test_task_is_routed_by_its_name_and_origin(task, origin, queue):
    assert SPLIT.place(task, origin).queue == queue


def test_single_routing_sends_everything_to_the_fallback():
    single = load({"ANTENNA_ROUTING": "single"})
    assert {single.place(task, origin).queue for row in ROWS for task in row.tasks for origin in (None, "person")} == {
        "antenna"
    }


def test_two_globs_that_claim_one_task_are_refused_with_both_named():
    with pytest.raises(TopologyError, match=r"_calculated_fields' \(antenna-ingest\) and 'ami.main.tasks.update_\*'"):
        SPLIT.place("ami.main.tasks.update_event_calculated_fields")


def test_exact_name_beats_a_glob():
    assert SPLIT.place("ami.exports.tasks.run_scheduled_exports").rule == "ami.exports.tasks.run_scheduled_exports"


@given(st.text(alphabet="abz._*-", max_size=40), st.sampled_from([None, "beat", "person", "task", "other"]))
def test_every_name_has_exactly_one_queue(task, origin):
    assert SPLIT.place(task, origin).queue in SPLIT.queues


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("ANTENNA_INGEST_CONCURRENCY", "0", "ANTENNA_INGEST_CONCURRENCY is '0'; it must be a whole number from 1"),
        ("ANTENNA_INGEST_CONCURRENCY", "many", "from 1 to 512 or 'auto' (default 16)"),
        ("ANTENNA_INGEST_CONCURRENCY", "-3", "from 1 to 512"),
        ("ANTENNA_INGST_CONCURRENCY", "3", "Did you mean 'ANTENNA_INGEST_CONCURRENCY'"),
        ("ANTENNA_HOUSEKEEPING_HARD_TIME_LIMIT_SECONDS", "60", "Set through ANTENNA_HOUSEKEEPING_HARD_TIME_LIMIT"),
        ("ANTENNA_INGEST_CONTAINER_MEMORY_KIB", "1048576", "raise it or lower concurrency"),
        ("ANTENNA_INGEST_POOL", "greenlets", "ANTENNA_INGEST_POOL is 'greenlets'; use one of prefork"),
        ("ANTENNA_ROUTING", "splt", "ANTENNA_ROUTING is 'splt'"),
        ("ANTENNA_SLOW_ENABLED", "maybe", "ANTENNA_SLOW_ENABLED is 'maybe'"),
    ],
)
def test_wrong_override_is_refused_with_its_name_and_the_remedy(name, value, sentence):
    with pytest.raises(TopologyError, match=re.escape(sentence)):
        load({name: value})


def test_every_number_can_be_overridden():
    loaded = load({"ANTENNA_INGEST_CONCURRENCY": "32", "ANTENNA_INTERACTIVE_WAIT_TARGET_SECONDS": "2.5"})
    assert loaded.workload("antenna-ingest").concurrency == 32
    assert loaded.workload("antenna-interactive").wait_target_seconds == 2.5


def test_auto_concurrency_keeps_the_memory_that_the_row_is_made_for():
    row, auto = load({}).workload("antenna-ingest"), load({"ANTENNA_INGEST_CONCURRENCY": "Auto"})
    assert auto.workload("antenna-ingest") == replace(row, auto_concurrency=True)
    small = {"ANTENNA_INGEST_CONCURRENCY": "auto", "ANTENNA_INGEST_CONTAINER_MEMORY_KIB": "1048576"}
    assert load(small).workload("antenna-ingest").memory_limit_kib == 1048576
    words = worker(auto, "antenna-ingest")
    assert words[words.index("--concurrency") + 1] == "auto"


def test_slow_queue_is_off_until_switched_on():
    assert "antenna-slow" not in load({}).queues
    assert "antenna-slow" in load({"ANTENNA_SLOW_ENABLED": "1"}).queues


def test_adding_a_queue_is_one_row():
    row = replace(
        ROWS[1],
        queue="antenna-training",
        key="TRAINING",
        service="celeryworker_training",
        tasks=("ami.ml.tasks.train",),
    )
    grown = Topology((*SPLIT.workloads, row))
    assert grown.place("ami.ml.tasks.train").queue == "antenna-training"


def test_unknown_queue_is_refused_with_the_nearest_name():
    with pytest.raises(TopologyError, match="Did you mean 'antenna-ingest'"):
        SPLIT.workload("antena-ingest")


def test_fingerprint_depends_on_routing_and_not_on_sizes():
    assert load({}).fingerprint != load({"ANTENNA_ROUTING": "single"}).fingerprint
    assert load({}).fingerprint == load({"ANTENNA_INGEST_CONCURRENCY": "3"}).fingerprint


@pytest.mark.parametrize("row", [row for row in ROWS if row.enabled_by], ids=lambda row: row.queue)
def test_queue_that_is_off_is_refused_with_how_to_switch_it_on(row):
    with pytest.raises(TopologyError) as refused:
        SPLIT.workload(row.queue)
    assert f"'{row.queue}' is off; set {row.enabled_by}=1" in str(refused.value)
    assert f"COMPOSE_PROFILES={row.key.lower()} for its container {row.service}" in str(refused.value)
    assert load({row.enabled_by: "1"}).workload(row.queue).queue == row.queue


def test_misspelt_queue_suggests_a_queue_that_is_off():
    with pytest.raises(TopologyError, match=r"Did you mean 'antenna-slow'\?"):
        SPLIT.workload("antena-slow")


def test_rows_that_are_off_do_not_change_the_fingerprint():
    assert replace(SPLIT, disabled=()).fingerprint == SPLIT.fingerprint
