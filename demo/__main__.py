"""``python -m demo``: the main job, end to end, with real worker processes, on files alone or on real services."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from demo import ground
from demo.client import ApiRefused, Client
from demo.processes import ProcessEnded, Processes
from demo.showing import Show, TooLong
from demo.surroundings import Surroundings, prepare
from provision.kind import NothingFound

FRAMES_PER_NIGHT = 60


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 only if every rule holds."""
    options = _parser().parse_args(argv)
    # Piped, there is no width to keep to; the table per queue needs this much.
    console = Console(width=None if sys.stdout.isatty() else 140)
    # Also where a shell started this with interrupts ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return _run(options, console)
    except (TooLong, ProcessEnded, ApiRefused, NothingFound, NotADirectoryError, ground.BrokerRefused) as error:
        console.print(f"[red]The demo failed:[/red] {error}", highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("Interrupted; everything that was started is stopped.")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument(
        "--broker",
        type=ground.broker,
        default=ground.EMBEDDED,
        metavar="BROKER",
        help=f"{ground.CHOICES}; {ground.EMBEDDED} unless set: a folder, and no service beside it",
    )
    parser.add_argument("--captures", type=Path, metavar="FOLDER", help="photographs instead of drawn captures")
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="where everything is written (.demo)")
    parser.add_argument("--frames", type=int, default=FRAMES_PER_NIGHT, help="drawn captures per night, two nights")
    parser.add_argument("--seed", type=int, default=7, help="of the drawing")
    return parser


def _run(options: argparse.Namespace, console: Console) -> int:
    def say(line: str) -> None:
        console.print(f"  {line}", highlight=False, soft_wrap=True)

    began = time.monotonic()
    surroundings = prepare(options.folder.resolve())
    with ExitStack() as stack:
        console.print("[bold]Services[/bold]")
        environment = surroundings.environment(ground.obtain(options.broker, surroundings.folder, stack, say))
        os.environ.update(environment)
        processes = Processes(environment, surroundings.folder / "logs")
        stack.callback(processes.stop)
        return _main_job(options, console, surroundings, processes, began)


def _main_job(
    options: argparse.Namespace, console: Console, place: Surroundings, processes: Processes, began: float
) -> int:
    import django

    django.setup()
    from demo import figures, project, report, verdict
    from demo.captures import gather
    from demo.steps import Steps

    folders, manifest = gather(options, place.media, console)
    from config import celery_app

    queues = celery_app.topology.queues
    show = Show(console, processes, _depths)
    project.migrate()
    demo = project.create(folders, place.media, place.web)
    steps = Steps(place, processes, show, demo, Client(place.web))
    show.say("starting the web server, a worker per queue, and beat")
    steps.start_antenna(queues)
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


def _settle(steps: Any, asked: dict[str, Any], show: Show, place: Surroundings) -> None:
    """Wait for what was asked for beside the job, for beat's ticks, and for the queues to be empty."""
    from ami.telemetry.journal import read

    steps.finish(asked["export"]["job"]["id"], "the export", 120)
    steps.finish(asked["reprocess"]["job_id"], "the reprocessed capture", 120)
    show.until("beat's checks", lambda: _ran(read(place.journal), "check_processing_services_online"), 60)
    show.until("the unrouted task", lambda: _ran(read(place.journal), "forgotten_by_the_table"), 60)
    show.until("crops and counts", lambda: not any(_depths().values()) and _counts_are_fresh(), 120)


def _ran(records: Any, task: str) -> bool:
    return any(record["task"].endswith(task) for record in records)


def _counts_are_fresh() -> bool:
    from ami.main.models import Detection, StaleCount

    crops = Detection.objects.filter(bbox__isnull=False, path="")
    return not StaleCount.objects.exists() and not crops.exists()


def _depths() -> dict[str, int]:
    from ami.queues.live import queue_states
    from config import celery_app

    with celery_app.connection_for_read() as connection:
        return {state.queue: state.messages or 0 for state in queue_states(celery_app.topology, connection)}


def _dead_letters() -> dict[str, int]:
    from ami.queues.dead_letters import counts
    from config import celery_app

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


if __name__ == "__main__":
    sys.exit(main())
