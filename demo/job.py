"""The demo's main job, from its captures to its checks. Import it after `django.setup()`."""

from __future__ import annotations

import argparse
import os
import time
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django.db import connection
from django.utils import timezone
from rich.console import Console
from rich.table import Table

from ami.admission import waiting_calls
from ami.main.models import Detection
from ami.main.services.stale_marks import REGROUP, UPDATE_COUNTS
from ami.queues.dead_letters import counts
from ami.queues.queue import queue_states
from ami.telemetry.task_log import read
from config import celery_app
from demo import checks, figures, keeping, project, report
from demo.captures import gather
from demo.client import Client
from demo.environment import Environment
from demo.processes import Processes
from demo.progress import Progress
from demo.steps import Steps


def run(
    options: argparse.Namespace, console: Console, environment: Environment, processes: Processes, began: float
) -> int:
    """Run the main job, print its results, and return 0 only if every check passes.

    Without a deployment this also starts the web server, the workers, beat and the push service.
    """
    folders, manifest = gather(options, environment.media, console)
    queues = celery_app.topology.queues
    progress = Progress(console, processes, _depths)
    progress.say("preparing the database, the queues and the schedule")
    project.migrate()
    demo = project.create(folders, environment.media)
    is_kept = bool(getattr(options, "keep", False))
    steps = Steps(environment, processes, progress, demo, Client(environment.web), has_styles=is_kept)
    if not environment.is_deployed:
        progress.say("starting the web server, a worker per queue, and beat")
        steps.start_antenna(queues)
    steps.await_antenna(queues)
    progress.say("starting the processing service, push and pull")
    steps.start_processing()
    captures = steps.sync()
    progress.say(f"{captures} captures synchronised from {len(folders)} stations and grouped into events")
    job_id = steps.main_job()
    progress.say(f"job {job_id} runs; meanwhile people click and beat ticks")
    side_work = steps.start_side_work()
    job = steps.finish(job_id, "the main job")
    progress.say(f"job {job_id}: {job['status']}")
    _settle(steps, side_work, progress, environment)
    dead = _dead_letters()
    table = figures.by_queue(environment.journal, queues)
    results = list(checks.run(demo.project, job, dead, manifest))
    ran = _what_ran(job, captures, len(folders), time.monotonic() - began)
    page = report.write(environment.folder, demo.project, job, results, table, manifest, environment.media, ran)
    _print(console, table, job, results)
    # The page of a deployment is in a volume, which no browser opens.
    where = "" if environment.is_deployed else f"Report: {page}\n"
    console.print(f"\n{where}{time.monotonic() - began:.0f} s in all", highlight=False, soft_wrap=True)
    if is_kept:
        keeping.until_interrupted(console, environment, demo, page, processes)
    return 0 if all(check.passed for check in results) else 1


def _what_ran(job: dict[str, Any], captures: int, stations: int, seconds: float) -> list[tuple[str, str]]:
    now = timezone.now()
    database = connection.vendor
    return [
        ("when", f"{now - timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S} to {now:%H:%M:%S} UTC, {seconds:.0f} s"),
        ("job", f"{job['name']} (job {job['id']}): {project.PIPELINE} over {captures} captures, stations: {stations}"),
        ("meanwhile", "a capture reprocessed, an export, a service checked, a task that no rule claims, beat's ticks"),
        ("on", f"{urlsplit(celery_app.conf.broker_url).scheme}, {database}, {os.cpu_count()} cores"),
    ]


def _settle(steps: Any, side_work: dict[str, Any], progress: Progress, environment: Environment) -> None:
    """Wait for the side work, for beat's tasks, and until the queues are empty."""
    steps.finish(side_work["export"]["job"]["id"], "the export")
    steps.finish(side_work["reprocess"]["job_id"], "the reprocessed capture")
    tick = "check_processing_services_online"
    progress.until("a tick of beat's service check", lambda: _ran(read(environment.journal), tick))
    forgotten = "forgotten_by_the_table"
    progress.until("the task that no rule claims", lambda: _ran(read(environment.journal), forgotten))
    progress.until(
        "empty queues, all crops and fresh counts", lambda: not any(_depths().values()) and _counts_are_fresh()
    )


def _ran(records: Any, task: str) -> bool:
    return any(record["task"].endswith(task) for record in records)


def _counts_are_fresh() -> bool:
    crops = Detection.objects.filter(bbox__isnull=False, path="")
    stale = waiting_calls.are_left(UPDATE_COUNTS, REGROUP)
    return not stale and not crops.exists()


def _depths() -> dict[str, int]:
    with celery_app.connection_for_read() as opened:
        return {state.queue: state.messages or 0 for state in queue_states(celery_app.topology, opened)}


def _dead_letters() -> dict[str, int]:
    with celery_app.connection_for_read() as opened:
        return counts(celery_app.topology, opened)


def _print(console: Console, table: Any, job: dict[str, Any], results: Any) -> None:
    queues = Table(title="Queues", title_justify="left", box=None, pad_edge=False)
    for column in ("queue", "done", "failed", "retried", "wait p50 ms", "p95 ms", "max ms", "worker", "peak MiB"):
        queues.add_column(column, justify="left" if column in ("queue", "worker") else "right")
    for row in table:
        waits = (f"{value:.0f}" for value in (row.wait_p50_ms, row.wait_p95_ms, row.wait_max_ms))
        counts = (str(row.done), str(row.failed), str(row.retried))
        queues.add_row(row.queue, *counts, *waits, row.workers, f"{row.peak_memory_mib:.0f}")
    stages = Table(title="Stages of the job", title_justify="left", box=None, pad_edge=False, show_header=False)
    for stage in job["progress"]["stages"]:
        params = ", ".join(f"{one['key']} {one['value']}" for one in stage["params"])
        stages.add_row(stage["name"], stage["status"], f"{stage['progress']:.0%}", params)
    outcome = Table(title="Checks", title_justify="left", box=None, pad_edge=False, show_header=False)
    for check in results:
        outcome.add_row("[green]pass[/green]" if check.passed else "[red]fail[/red]", check.name, check.found)
    for part in (queues, stages, outcome):
        console.print()
        console.print(part)
