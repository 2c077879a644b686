"""Renderings of the table: the compose file, command lines, broker entities and policies."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import yaml

from ami.topology import broker, command, compose
from ami.topology.router import TaskRouter
from ami.topology.topology import Topology, load

ALL = load({"ANTENNA_SLOW_ENABLED": "1"})
COMPOSE = yaml.load(compose.render(), yaml.CSafeLoader)


def test_each_queue_has_exactly_one_service():
    queues = [service["command"][-1] for service in COMPOSE["services"].values() if "worker" in service["command"]]
    assert sorted(queues) == sorted(ALL.queues)
    assert list(COMPOSE["services"]) == [*(row.service for row in ALL.workloads), "celerybeat"]


def test_services_share_one_image_and_follow_their_rows():
    assert len({service["image"] for service in COMPOSE["services"].values()}) == 1
    ingest = COMPOSE["services"]["celeryworker_ingest"]
    assert ingest["stop_grace_period"] == "${ANTENNA_INGEST_STOP_GRACE_PERIOD_SECONDS:-330}s"
    assert COMPOSE["services"]["celeryworker_slow"]["profiles"] == ["slow"]


@pytest.mark.processes
def test_committed_compose_file_is_what_the_table_renders():
    assert subprocess.run([sys.executable, "-m", "ami.topology", "compose", "--check"], check=False).returncode == 0


def test_new_row_renders_service_queue_dead_letter_queue_and_policy():
    row = replace(ALL.workloads[1], queue="antenna-training", key="TRAINING", service="celeryworker_training", tasks=())
    grown = Topology((*ALL.workloads, row))
    assert "celeryworker_training" in yaml.load(compose.render(grown), yaml.CSafeLoader)["services"]
    assert "antenna-training" in {queue.name for queue in broker.task_queues(grown)}
    assert "antenna-training.dlq" in {queue.name for queue in broker.dead_letter_queues(grown)}
    assert "antenna-training" in {policy["name"] for policy in broker.policies(grown)}


@pytest.mark.parametrize("queue", broker.task_queues(ALL), ids=lambda queue: queue.name)
def test_every_queue_has_dead_letters_and_a_delivery_limit(queue):
    arguments = queue.queue_arguments
    assert arguments["x-queue-type"] == "quorum"
    assert arguments["x-delivery-limit"] == 20
    assert arguments["x-dead-letter-routing-key"] == queue.name
    assert arguments["x-dead-letter-strategy"] == "at-least-once"
    assert arguments["x-overflow"] == "reject-publish"
    assert queue.exchange.type == "topic"


def test_worker_command_follows_its_row():
    argv = command.worker(load({"ANTENNA_INGEST_CONCURRENCY": "3"}), "antenna-ingest", ["--loglevel", "DEBUG"])
    options = dict(zip(argv[4::2], argv[5::2], strict=False))
    assert argv[argv.index("--queues") + 1] == "antenna-ingest"
    assert argv[argv.index("--concurrency") + 1] == "3"
    assert argv[argv.index("--prefetch-multiplier") + 1] == "1"
    assert options


@pytest.mark.processes
@pytest.mark.parametrize("argv", [["worker", "antenna-ingest"], ["beat"]], ids=" ".join)
def test_malloc_settings_are_set_unless_the_operator_sets_them(tmp_path, argv):
    (tmp_path / "celery.py").write_text("import json, os; print(json.dumps(dict(os.environ)))")
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "MALLOC_TRIM_THRESHOLD_": "7"}
    command_line = [sys.executable, "-m", "ami.topology", *argv]
    done = subprocess.run(command_line, env=given, capture_output=True, text=True, check=True, timeout=60)
    became = json.loads(done.stdout)
    assert became.items() >= {**given, "MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": "1048576"}.items()


def test_router_never_decides_from_the_queue_in_the_call():
    route = TaskRouter(ALL)
    assert route("ami.jobs.tasks.run_job", (), {}, {"queue": "antenna-ingest"}) == {"queue": "antenna-interactive"}
    assert route("ami.jobs.tasks.run_job", (), {}, {"headers": {"antenna_origin": "beat"}}) == {
        "queue": "antenna-housekeeping"
    }


@pytest.mark.processes
def test_unknown_queue_on_the_command_line_is_one_sentence():
    done = subprocess.run(
        [sys.executable, "-m", "ami.topology", "worker", "antena-ingest"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Did you mean 'antenna-ingest'?" in done.stderr
