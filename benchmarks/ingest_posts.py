"""``python -m benchmarks.ingest_posts``: from POSTs of results to settled rows, beside another commit.

Run it on the services, with a PostgreSQL that syncs its commits::

    git worktree add /tmp/before COMMIT
    python -m provision run --durable --need postgres,rabbitmq,nats -- \\
        python -m benchmarks.ingest_posts --before /tmp/before

Both commits run alternately, each in a process of its own: it posts results to the API's view, sends the calls that
are rows as a worker's dispatcher does, gets the messages from RabbitMQ, and begins, runs and ends their tasks, one
after the other. Without ``--before`` there is only the processor time of 640 results a minute, as in incident 15. The
time of the database and of the broker is in the results per second, not in the processor time, which is this
process's.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TARGET = 0.95
WINDOW = 128
BURST_PER_MINUTE, BURST_TARGET = 640, 6.0
PER_POST = 8
QUEUE = "antenna-ingest"
RESULTS = ("ami.jobs.tasks.process_nats_pipeline_result", "ami.jobs.tasks.process_nats_pipeline_results")
CROPS = "ami.ml.tasks.create_detection_images"


class Clock:
    """Seconds and processor seconds of the parts of a run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.processor: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add what the block takes to a part."""
        began, busy = time.perf_counter(), time.process_time()
        yield
        self.seconds[name] = self.seconds.get(name, 0) + time.perf_counter() - began
        self.processor[name] = self.processor.get(name, 0) + time.process_time() - busy


def run_here(results: int, *, crops: bool) -> dict[str, Any]:
    """Post and handle results in this process, with the code in its path; return what each part takes."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")
    import django

    django.setup()
    import logging

    from django.db import connection

    logging.disable(logging.WARNING)
    connection.creation.create_test_db(verbosity=0)
    try:
        return _run_in_database(results, crops=crops)
    finally:
        connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)


def _run_in_database(results: int, *, crops: bool) -> dict[str, Any]:
    from ami.jobs.models import JobImage
    from ami.main.services import tokens
    from ami.ml.tasks import create_detection_images
    from config.celery_app import app
    from tests.support.product.job_setup import new_world

    if not crops:
        create_detection_images.apply_async = lambda **_: None
    world = new_world("posts")
    captures = world.captures(PER_POST + results)
    token = tokens.issue(world.user)[1]
    declare_topology(app)
    post_and_handle(app, world, captures[:PER_POST], token, Clock())
    clock = Clock()
    job = post_and_handle(app, world, captures[PER_POST:], token, clock)
    settled = JobImage.objects.filter(job=job, state="processed").count()
    assert settled == results, f"{settled} of {results} settled"
    return {"results": results, "seconds": clock.seconds, "processor": clock.processor}


def declare_topology(app: Any) -> None:
    """Declare the queues, and empty the one of results."""
    from ami.celery.declaration import declare

    with app.connection_for_write() as broker:
        declare(app.topology, broker)
        broker.default_channel.queue_purge(QUEUE)


def post_and_handle(app: Any, world: Any, captures: list[Any], token: str, clock: Clock) -> Any:
    """Post the results of all captures to a new job, then run the tasks of all messages; return the job."""
    from rest_framework.test import APIClient

    job = world.running(captures)
    client = APIClient()
    headers = {"HTTP_AUTHORIZATION": f"Token {token}"}
    bodies = [body_of(world, job, captures[first : first + PER_POST]) for first in range(0, len(captures), PER_POST)]
    for body in bodies:
        with clock.part("web"):
            answer = client.generic("POST", f"/api/v2/jobs/{job.pk}/result/", body, "application/json", **headers)
        assert answer.status_code == 200, answer.content
    with app.connection_for_read() as broker:
        while dispatch(app, clock) or broker.default_channel.queue_declare(QUEUE, passive=True).message_count:
            while message := broker.default_channel.basic_get(QUEUE):
                run_task(app, message, clock)
    return job


def dispatch(app: Any, clock: Clock) -> int:
    """Send the calls that wait as rows and fit into a window; return how many."""
    from ami.admission import leases, picks, run_publisher

    with clock.part("dispatch"):
        leases.acquire([QUEUE], "bench")
        sent = run_publisher.publish(app, picks.pick(picks.staged_tasks(app), QUEUE, "bench", WINDOW))
        if sent:
            run_publisher.confirmed(sent)
        return len(sent)


def body_of(world: Any, job: Any, captures: list[Any]) -> bytes:
    """Return a POST of one result per capture, each with one box and three classes."""
    items = []
    for capture in captures:
        subject = f"$JS.ACK.job_{job.pk}.job-{job.pk}-consumer.1.{capture.pk}.{capture.pk}.0.0"
        items.append({"reply_subject": subject, "result": world.found(capture)})
    return json.dumps({"results": items}).encode()


def run_task(app: Any, message: Any, clock: Clock) -> None:
    """Run the task of a raw message, begin and end its run if it is a call's, and acknowledge it."""
    from ami.admission import runs
    from ami.celery.staged_calls import RUN_HEADER

    name, run = message.headers["task"], message.headers.get(RUN_HEADER)
    part = "ingest" if name in RESULTS else "crops" if name == CROPS else "other"
    with clock.part(part):
        args, kwargs, _ = json.loads(message.body)
        begun = runs.begin(app.tasks[name], run, "bench") if run else None
        app.tasks[name].apply(args=args, kwargs=kwargs, throw=True)
        if begun:
            runs.end(app.tasks[name], begun, None)
        message.channel.basic_ack(message.delivery_tag)


def run_with(tree: Path, results: int, *, crops: bool) -> dict[str, Any]:
    """Run in a process of its own with the code of a tree."""
    argv = [sys.executable, str(Path(__file__).resolve()), "--child", str(results), *(["--crops"] if crops else [])]
    done = subprocess.run(
        argv, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, text=True, timeout=900
    )
    if done.returncode:
        raise SystemExit(f"{tree} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(before: Path, here: Path, results: int, rounds: int) -> dict[str, float]:
    """Return results per second of both trees, from POST to settled rows, as medians of alternate rounds."""
    rates: dict[str, list[float]] = {"before": [], "now": []}
    for _ in range(rounds):
        for name, tree in (("before", before), ("now", here)):
            found = run_with(tree, results, crops=False)
            seconds = found["seconds"]
            rates[name].append(results / (seconds["web"] + seconds["ingest"] + seconds.get("dispatch", 0.0)))
    return {name: statistics.median(each) for name, each in rates.items()}


def burst(found: dict[str, Any]) -> dict[str, float]:
    """Return the per cent of one core that each part takes for the burst."""
    per_second = BURST_PER_MINUTE / 60
    return {part: 100 * per_second * busy / found["results"] for part, busy in found["processor"].items()}


def tables(rates: dict[str, float] | None, shares: dict[str, float]) -> list[Any]:
    """Return the tables to print."""
    from rich.table import Table

    made = []
    if rates:
        table = Table("from POST to settled rows", "results/s", "of before", "at least")
        table.add_row("before", f"{rates['before']:,.0f}", "", "")
        table.add_row("now", f"{rates['now']:,.0f}", f"{rates['now'] / rates['before']:.2f}", f"{TARGET:g}")
        made.append(table)
    table = Table(f"{BURST_PER_MINUTE} results a minute", "% of a core", "under")
    for part, share in sorted(shares.items()):
        table.add_row(part, f"{share:.1f}", f"{BURST_TARGET:g}" if part == "ingest" else "")
    return [*made, table]


def main() -> int:
    """Measure, print the tables, and return 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="worktree of the commit to compare with")
    parser.add_argument("--quick", action="store_true", help="measure fewer results in fewer rounds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--crops", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run_here(options.child, crops=options.crops)))
        return 0
    here = Path(__file__).resolve().parent.parent
    results, rounds = (160, 2) if options.quick else (640, 5)
    rates = compare(options.before.resolve(), here, results, rounds) if options.before else None
    shares = burst(run_with(here, results, crops=True))
    if options.json:
        print(json.dumps({"results_per_second": rates, "percent_of_a_core": shares}, indent=2))
    else:
        from rich.console import Console

        show: Callable[..., None] = Console(width=100).print
        show(*tables(rates, shares), sep="\n")
    return int(shares["ingest"] >= BURST_TARGET or bool(rates and rates["now"] < TARGET * rates["before"]))


if __name__ == "__main__":
    sys.exit(main())
