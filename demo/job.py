"""The main job of the demo, from its captures to its verdict. Django is set up before this is imported."""

from __future__ import annotations

import argparse
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from ami.main.models import Detection, StaleCount
from ami.queues.dead_letters import counts
from ami.queues.diagnostics import queue_states
from ami.telemetry.task_log import read
from config import celery_app
from demo import figures, project, report, verdict
from demo.captures import gather
from demo.client import Client
from demo.processes import Processes
from demo.showing import Show
from demo.steps import Steps
from demo.surroundings import Place


def run(options: argparse.Namespace, console: Console, place: Place, processes: Processes, began: float) -> int:
    """Do the main job, print what came of it, and return 0 only if every rule holds.

    A place that is deployed has its web server, workers and push service; elsewhere they are started here.
    """
    folders, manifest = gather(options, place.media, console)
    queues = celery_app.topology.queues
    show = Show(console, processes, _depths)
    project.migrate()
    demo = project.create(folders, place.media)
    steps = Steps(place, processes, show, demo, Client(place.web))
    if not place.is_deployed:
        show.say("starting the web server, a worker per queue, and beat")
        steps.start_antenna(queues)
    steps.await_antenna(queues)
    show.say("starting the processing service, push and pull")
    steps.start_processing()
    show.say(f"{steps.sync()} captures synchronised from {len(folders)} stations and grouped into events")
    job_id = steps.main_job()
    show.say(f"job {job_id} runs; meanwhile people click and beat ticks")
    asked = steps.act_meanwhile()
    job = steps.finish(job_id, "the main job", 600)
    show.say(f"job {job_id}: {job['status']}")
    _settle(steps, asked, show, place)
    dead = _dead_letters()
    table = figures.by_queue(place.journal, queues)
    held = list(verdict.rules(demo.project, job, dead, manifest))
    page = report.write(place.folder, demo.project, job, held, table, manifest, place.media)
    _print(console, table, job, held)
    console.print(f"\nReport: {page}\n{time.monotonic() - began:.0f} s in all", highlight=False, soft_wrap=True)
    return 0 if all(rule.holds for rule in held) else 1


def _settle(steps: Any, asked: dict[str, Any], show: Show, place: Place) -> None:
    """Wait for what was asked for beside the job, for beat's ticks, and for the queues to be empty."""
    steps.finish(asked["export"]["job"]["id"], "the export", 120)
    steps.finish(asked["reprocess"]["job_id"], "the reprocessed capture", 120)
    show.until("beat's checks", lambda: _ran(read(place.journal), "check_processing_services_online"), 60)
    show.until("the unrouted task", lambda: _ran(read(place.journal), "forgotten_by_the_table"), 60)
    show.until("crops and counts", lambda: not any(_depths().values()) and _counts_are_fresh(), 120)


def _ran(records: Any, task: str) -> bool:
    return any(record["task"].endswith(task) for record in records)


def _counts_are_fresh() -> bool:
    crops = Detection.objects.filter(bbox__isnull=False, path="")
    return not StaleCount.objects.exists() and not crops.exists()


def _depths() -> dict[str, int]:
    with celery_app.connection_for_read() as connection:
        return {state.queue: state.messages or 0 for state in queue_states(celery_app.topology, connection)}


def _dead_letters() -> dict[str, int]:
    with celery_app.connection_for_read() as connection:
        return counts(celery_app.topology, connection)


def _print(console: Console, table: Any, job: dict[str, Any], rules: Any) -> None:
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
    verdict = Table(title="Must hold", title_justify="left", box=None, pad_edge=False, show_header=False)
    for rule in rules:
        verdict.add_row("[green]holds[/green]" if rule.holds else "[red]broken[/red]", rule.name, rule.found)
    for part in (queues, stages, verdict):
        console.print()
        console.print(part)
