"""A worker's limits: from its row, but for what its command line names."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from celery.bin.base import CLIContext
from celery.bin.worker import worker as celery_worker
from django.test import override_settings
from kombu import Queue

from ami.celery import worker, worker_limits
from ami.celery.worker_limits import WorkerLimits
from ami.governor.container_capacity import children_held
from ami.topology.errors import TopologyError
from ami.topology.table import FALLBACK, HOUSEKEEPING, INGEST, INTERACTIVE
from ami.topology.topology import Topology, load
from tests.support.governor.proc_trees import MIB, host

ROWS = load({})

#: Options by Celery's name and what the row of ingest says.
OF_ROW = {
    "concurrency": 16,
    "prefetch_multiplier": 1,
    "soft_time_limit": 240,
    "time_limit": 300,
    "max_tasks_per_child": 500,
    "max_memory_per_child": 512 * 1024,
    "pool": "prefork",
}


def _words(value: Any) -> str | None:
    return " ".join(value) if isinstance(value, list) else None


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The table without overrides, on a machine of 64 GiB."""
    host(tmp_path, total=64 * 1024 * MIB)
    monkeypatch.setattr(worker_limits, "children_held", partial(children_held, root=tmp_path))
    with override_settings(ANTENNA_TOPOLOGY=ROWS):
        yield


def limits(app: Any, *argv: str) -> WorkerLimits | None:
    """Parse ``celery worker ARGV`` as Celery does and return the limits of that worker."""
    obj = CLIContext(app=app, no_color=True, workdir=None)
    assert app.conf.worker_concurrency is None  # Reads the settings, if nothing has yet.
    kept = dict(app.conf.changes)
    with celery_worker.make_context("worker", list(argv), obj=obj, auto_envvar_prefix="CELERY_WORKER") as context:
        try:
            app.config_from_cmdline(context.args, namespace="worker")  # As Celery's own callback begins.
            return worker.limits_of(app, context.params)
        finally:
            app.conf.changes.clear()
            app.conf.changes.update(kept)


def shown(app: Any, *argv: str) -> dict[str, Any]:
    decided = limits(app, *argv)
    assert decided is not None
    return decided.info()


def refusal(app: Any, *argv: str) -> str:
    with pytest.raises(click.UsageError) as refused:
        limits(app, *argv)
    assert refused.value.exit_code == 2
    return refused.value.message


def test_row_decides_what_the_command_line_does_not_name(app: Any):
    assert shown(app, "-Q", INGEST) == OF_ROW


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["-c", "4"], {"concurrency": 4}),
        (["--concurrency=4", "--prefetch-multiplier", "1"], {"concurrency": 4}),
        (["--prefetch-multiplier", "3"], {"prefetch_multiplier": 3}),
        (["--max-tasks-per-child", "7"], {"max_tasks_per_child": 7}),
        (["--max-memory-per-child", "65536"], {"max_memory_per_child": 65536}),
        (["--time-limit", "280"], {"time_limit": 280}),
        (["--time-limit", "60"], {"time_limit": 60, "soft_time_limit": 48}),
        (["--soft-time-limit", "480"], {"time_limit": 600, "soft_time_limit": 480}),
        (["--time-limit", "0"], {"time_limit": 0}),
        (["-c", "0"], {}),
        (["--pool", "solo"], {"concurrency": 1, "pool": "solo"}),
        (["--pool", "threads", "-c", "40"], {"concurrency": 40, "pool": "thread"}),
        (["worker.concurrency=3", "worker.prefetch_multiplier=2"], {"concurrency": 3, "prefetch_multiplier": 2}),
        (["task.time_limit=900", "task_soft_time_limit=800"], {"time_limit": 900, "soft_time_limit": 800}),
        (["worker.pool=solo"], {"concurrency": 1, "pool": "solo"}),
        (["-c", "2", "worker.concurrency=3"], {"concurrency": 2}),
        (["-n", "debug@%h", "-l", "DEBUG", "-E"], {}),
        (["--autoscale", "16,2"], {}),
    ],
    ids=_words,
)
def test_command_line_decides_what_it_names(app: Any, argv: list[str], named: dict[str, Any]):
    assert shown(app, "-Q", INGEST, *argv) == OF_ROW | named


def test_variable_of_celery_for_all_workers_names_nothing(app: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CELERY_WORKER_CONCURRENCY", "5")
    assert shown(app, "-Q", INGEST) == OF_ROW


def test_argument_of_a_program_counts_as_named(app: Any):
    decided = worker.limits_of(app, {"queues": INGEST, "concurrency": 2, "time_limit": None})
    assert decided is not None
    assert decided.info() == OF_ROW | {"concurrency": 2}
    with pytest.raises(TopologyError, match="names no queue"):
        worker.limits_of(app, {})


@pytest.mark.parametrize("argv", [[], ["-c", "2"], ["-P", "solo"], ["-X", INGEST]], ids=_words)
def test_worker_of_no_named_queue_is_refused_with_both_commands(app: Any, argv: list[str]):
    sentence = refusal(app, *argv)
    assert "'celery -A config worker -Q QUEUE'" in sentence
    assert "'python -m ami.topology all'" in sentence
    assert HOUSEKEEPING in sentence


@pytest.mark.parametrize("argv", [["-Q", INGEST, "-X", INGEST], ["-X", ",".join(ROWS.queues)]], ids=_words)
def test_worker_whose_queues_are_all_excluded_is_refused(app: Any, argv: list[str]):
    assert "would consume no queue" in refusal(app, *argv)


def test_concurrency_that_is_no_number_is_refused(app: Any):
    assert "'some'; give a whole number" in refusal(app, "-Q", INGEST, "worker.concurrency=some")


def test_excluded_queues_may_leave_one(app: Any):
    assert shown(app, "-X", f"{HOUSEKEEPING},{INTERACTIVE},{FALLBACK}") == OF_ROW


def test_misspelt_queue_is_refused_with_the_nearest_name(app: Any):
    assert "Did you mean 'antenna-ingest'?" in refusal(app, "-Q", "antena-ingest")
    assert "Did you mean 'antenna-ingest'?" in refusal(app, "-Q", INGEST, "-X", "antena-ingest")


@pytest.mark.parametrize(
    ("argv", "holds"),
    [
        (["-c", "17"], 16),
        (["--autoscale", "40,2"], 16),
        (["worker.concurrency=17"], 16),
        # Each child may use twice the memory of the row's.
        (["--max-memory-per-child", str(1024 * 1024)], 8),
        (["--max-memory-per-child", str(1024 * 1024), "-c", "9"], 8),
    ],
    ids=_words,
)
def test_more_children_than_the_container_holds_are_refused(app: Any, argv: list[str], holds: int):
    sentence = refusal(app, "-Q", INGEST, *argv)
    assert f"this container holds {holds} by the row" in sentence
    assert "ANTENNA_INGEST_CONCURRENCY" in sentence


def test_larger_children_run_where_they_fit(app: Any):
    argv = ["--max-memory-per-child", str(1024 * 1024), "-c", "8"]
    assert shown(app, "-Q", INGEST, *argv) == OF_ROW | {"max_memory_per_child": 1024 * 1024, "concurrency": 8}


def test_row_larger_than_its_machine_starts_with_a_warning(app: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker_limits, "children_held", lambda _: 6)
    for argv in ([], ["-c", "16"]):
        decided = limits(app, "-Q", INGEST, *argv)
        assert decided is not None
        assert decided.info() == OF_ROW
        (warning,) = decided.warnings
        assert "holds 6" in warning
    assert "Name at most 6" in refusal(app, "-Q", INGEST, "-c", "7")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--prefetch-multiplier", "-1"], "prefetch multiplier is -1"),
        (["worker.prefetch_multiplier=-3"], "prefetch multiplier is -3"),
        (["--autoscale", "0,0"], "allows no children"),
    ],
)
def test_numbers_that_no_worker_can_run_with_are_refused(app: Any, argv: list[str], says: str):
    assert says in refusal(app, "-Q", INGEST, *argv)


def test_beat_in_a_worker_is_refused(app: Any):
    assert "python -m ami.topology beat" in refusal(app, "-Q", INGEST, "-B")


@pytest.mark.parametrize("argv", [[], ["worker.pool=gevent"]], ids=["row", "setting"])
def test_gevent_pool_that_no_option_names_is_refused_with_the_command(app: Any, argv: list[str]):
    of_row = {} if argv else {"ANTENNA_INGEST_POOL": "gevent"}
    with override_settings(ANTENNA_TOPOLOGY=load(of_row)):
        sentence = refusal(app, "-Q", INGEST, *argv)
    assert "'celery -A config worker -Q antenna-ingest -P gevent'" in sentence
    assert "'python -m ami.topology worker antenna-ingest'" in sentence


def test_threads_row_is_taken_from_the_table(app: Any):
    with override_settings(ANTENNA_TOPOLOGY=load({"ANTENNA_INGEST_POOL": "threads"})):
        assert shown(app, "-Q", INGEST) == OF_ROW | {"pool": "thread"}
        assert shown(app, "-Q", INGEST, "-P", "solo") == OF_ROW | {"pool": "solo", "concurrency": 1}


def test_worker_of_several_queues_stops_no_task_early_and_is_no_larger_than_the_smallest(app: Any):
    decided = limits(app, "-Q", f"{INGEST},{INTERACTIVE}")
    assert decided is not None
    assert decided.info() == OF_ROW | {
        "concurrency": 4,
        "max_tasks_per_child": 200,
        "max_memory_per_child": 1024 * 1024,
        "soft_time_limit": 300,
        "time_limit": 360,
    }
    (warning,) = decided.warnings
    assert "consumes 2 queues" in warning
    with override_settings(ANTENNA_TOPOLOGY=load({"ANTENNA_INGEST_POOL": "threads"})):
        assert "different pools" in refusal(app, "-Q", f"{INGEST},{INTERACTIVE}")
        assert shown(app, "-Q", f"{INGEST},{INTERACTIVE}", "-P", "prefork")["concurrency"] == 4


def test_only_row_needs_no_queue(app: Any):
    with override_settings(ANTENNA_TOPOLOGY=Topology((replace(ROWS.workload(FALLBACK), redirects={}),))):
        app.amqp.queues, kept = app.amqp.Queues([Queue(FALLBACK)]), app.amqp.queues
        try:
            assert shown(app)["soft_time_limit"] == 240
        finally:
            app.amqp.queues = kept


def test_application_without_rows_refuses_and_sets_nothing(app: Any):
    with override_settings():
        from django.conf import settings

        del settings.ANTENNA_TOPOLOGY
        assert limits(app, "-c", "500", "-B") is None


def test_queue_that_is_celerys_but_no_rows_sets_nothing(app: Any):
    app.amqp.queues.add("elsewhere")
    try:
        assert limits(app, "-Q", "elsewhere", "-c", "500") is None
    finally:
        del app.amqp.queues["elsewhere"]
