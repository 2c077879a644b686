"""What operators asked for holds while everything is killed, the network is cut, and the database is away."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest
from django.db.models.functions import Now

from ami.queues.models import AuditEntry, DesiredState, Worker
from provision.guard import descendants
from tests.support import pid_namespace
from tests.support.brokers import ON_FOLDER, ON_RABBITMQ
from tests.support.cut_relay import cut_relay
from tests.support.firewall import forgetful_network
from tests.support.place import BROKERS, Place, management, new_place, until
from tests.support.soak import soak

T, HELD = "tests.support.worker_tasks.basic", "tests.support.worker_tasks.held"
QUEUE, OTHER = "antenna-ingest", "antenna-interactive"
#: So many that some still wait when the pause is confirmed.
MESSAGES, MESSAGE_SECONDS = soak(300, 20_000), soak(0.05, 0.0)
AWAY_SECONDS = soak(5, 60)
#: Until workers follow a click; a machine that runs other tests beside is slower.
SEEN_SECONDS = soak(12, 3)
#: A second start after this time is too late.
RESCUED_SECONDS = 30

pytestmark = pytest.mark.django_db(transaction=True)
on_postgresql = pytest.mark.skipif(
    not os.environ.get("DATABASE_URL", "").startswith("postgres"), reason="a file has no network"
)
on_rabbitmq = pytest.mark.parametrize("place", BROKERS[:1], indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with new_place("operations-hold", request.param) as made:
        made.use_test_database()
        made.environment["ANTENNA_EXTRA_TASKS"] = f"{T},{HELD}"
        made.queues("declare")
        yield made


def rows(queue: str) -> list[Any]:
    return [row for row in Worker.objects.all() if queue in row.queues]


def has_begun(place: Place, task: str, node: str) -> bool:
    return any((place.folder / "files").glob(f"{task}.{node}@*"))


def cut_connections(place: Place) -> None:
    """Close every connection to the broker, as its restart does."""
    if place.is_rabbitmq:
        for each in management("GET", f"vhosts/{quote(place.vhost, safe='')}/connections").json():
            management("DELETE", f"connections/{quote(each['name'], safe='')}")


@pytest.mark.parametrize("place", BROKERS, indirect=True)
def test_nothing_begins_while_paused_and_nothing_is_lost(place: Place):
    # All wait before the first runs: sending takes as long as running them.
    ids = {place.send(f"{T}.hold", MESSAGE_SECONDS, queue=QUEUE) for _ in range(MESSAGES)}
    workers = [place.worker(QUEUE), place.beat()]
    until(lambda: len(place.ran("hold")) > 20, what="messages flow")
    done = place.queues("pause", QUEUE, "--why", "a test")
    paused_at = time.time()
    assert done.json["missing"] == []
    for process in workers:
        os.killpg(process.popen.pid, signal.SIGKILL)
        process.popen.wait()
    cut_connections(place)
    restarted = place.celery(*workers[0].argv[3:])
    place.beat()
    until(lambda: f"{QUEUE}" in str([row.closed_queues for row in rows(QUEUE)]), what="the restarted worker confirms")
    until(lambda: " ready." in restarted.text, what="it is ready")
    assert place.depth(QUEUE) > 0
    assert [record for record in place.ran("hold") if record["started_at"] > paused_at] == []
    place.queues("resume", QUEUE)
    until(lambda: place.depth(QUEUE) == 0, seconds=soak(60, 600), what="the queue is empty")
    until(lambda: ids <= {record["id"] for record in place.ran("hold")}, what="every task ran")
    counts = Counter(record["id"] for record in place.ran("hold"))
    again = {task for task, count in counts.items() if count > 1}
    flagged = {record["id"] for record in place.ran("hold") if record["redelivered"]}
    assert again <= flagged


@pytest.mark.parametrize("place", ON_FOLDER, indirect=True)
def test_last_of_two_operators_wins_on_both_hosts_and_both_are_recorded(place: Place):
    """Two commands at once from two processes, for workers in two process namespaces; then one that wakes nobody."""
    pid_namespace.skip_without()
    place.worker(QUEUE)
    place.worker(QUEUE, "--hostname", "elsewhere@%h", inside=pid_namespace.ELSEWHERE)
    until(lambda: len(rows(QUEUE)) == 2, what="both workers have a row")
    with ThreadPoolExecutor(2) as pool:
        line = ["manage.py", "queues"]
        asked = [
            pool.submit(place.start, [".venv/bin/python", *line, verb, QUEUE, "--why", verb, "--no-wait"])
            for verb in ("pause", "resume")
        ]
        for each in asked:
            assert each.result().popen.wait(60) == 0
    last = AuditEntry.objects.filter(verb__in=("pause", "resume")).first()
    assert last is not None
    assert AuditEntry.objects.filter(verb__in=("pause", "resume")).count() == 2
    closed = [QUEUE] if last.verb == "pause" else []
    until(lambda: closed_on_both() == [closed] * 2, seconds=SEEN_SECONDS, what="both follow the last one")

    value = int(not closed)
    DesiredState.objects.filter(name=QUEUE, aspect="paused").update(value=value, since=Now())
    until(lambda: closed_on_both() == [[QUEUE] * value] * 2, seconds=12, what="both see it without a wake-up")


def closed_on_both() -> list[list[str]]:
    return [row.closed_queues for row in rows(QUEUE)]


@on_rabbitmq
@on_postgresql
def test_task_of_a_worker_whose_network_is_cut_starts_again(place: Place):
    """The worker loses the broker and the database at once, in a network of its own; a healthy slow task goes on."""
    with forgetful_network(idle_seconds=3600) as network:
        names = ("CELERY_BROKER_URL", "DATABASE_URL")
        inside = {name: network.relay(place.environment[name]).url(place.environment[name]) for name in names}
        healthy = place.worker(OTHER)
        place.worker(QUEUE, "--hostname", "cut@%h", inside=network.enter, **inside)
        slow = place.send(f"{T}.hold", 75, queue=OTHER)
        task = place.send(f"{T}.hold", 60, queue=QUEUE)
        until(lambda: any(task in str(row.running) for row in rows(QUEUE)), seconds=20, what="the task runs")
        network.cut()
        rescuer = place.worker(QUEUE, "--hostname", "rescuer@%h")
        until(lambda: task in rescuer.text, seconds=RESCUED_SECONDS, what="the task started again")
        until(lambda: Worker.objects.filter(node__startswith="cut@", verdict="dead").exists(), what="it is flagged")
    assert healthy.text.count(f"{slow}] received") == 1


@pytest.mark.parametrize("place", ON_RABBITMQ, indirect=True)
def test_late_commit_of_a_worker_that_was_frozen_elsewhere_is_refused(place: Place):
    """Its processes are out of reach: its messages are taken back, and what it commits when it wakes is refused."""
    pid_namespace.skip_without()
    frozen = place.worker(QUEUE, "--hostname", "frozen@%h", inside=pid_namespace.ELSEWHERE)
    task = place.send(f"{HELD}.commit_after", 8, queue=QUEUE)
    until(lambda: has_begun(place, task, "frozen"), seconds=20, what="the task runs")
    parent, *children = descendants(frozen.popen.pid)
    pid_namespace.send([parent, *children], signal.SIGSTOP)
    rescuer = place.worker(QUEUE, "--hostname", "rescuer@%h")
    until(lambda: has_begun(place, task, "rescuer"), seconds=RESCUED_SECONDS, what="the task started again")
    until(lambda: "its processes are on another host" in rescuer.text, seconds=5, what="it is said")
    pid_namespace.send(children, signal.SIGCONT)
    until(lambda: "Run ended, a later one has begun" in frozen.text, seconds=20, what="the late commit is refused")
    pid_namespace.send([parent], signal.SIGCONT)
    until(lambda: committed(task), seconds=30, what="the later run commits")
    time.sleep(soak(2, 20))
    assert [node.partition("@")[0] for node in committed(task)] == ["rescuer"]


def committed(task: str) -> list[str]:
    return list(AuditEntry.objects.filter(verb="committed", target=task).values_list("who", flat=True))


@on_rabbitmq
@on_postgresql
def test_database_away_keeps_pauses_and_tasks_run_on(place: Place):
    with cut_relay(place.environment["DATABASE_URL"], 5432) as database:
        place.environment["DATABASE_URL"] = database.url(place.environment["DATABASE_URL"])
        worker, other = place.workers(QUEUE, OTHER)
        until(lambda: len(Worker.objects.all()) == 2, what="both have a row")
        place.queues("pause", QUEUE)
        database.cut()
        waiting = place.send(f"{T}.succeed", queue=QUEUE)
        until(lambda: "(DATABASE_URL) cannot be used" in worker.text + other.text, seconds=40, what="it is noticed")
        began, ran = time.monotonic(), []
        while time.monotonic() - began < AWAY_SECONDS:
            ran.append(place.send(f"{T}.succeed", queue=OTHER))
            until(lambda: place.ran("succeed", id=ran[-1]), seconds=10, what="a task ran without the database")
        restarted = place.celery(*worker.argv[3:]) if worker.stop(10) is not None else worker
        until(lambda: "Queue closed: paused by" in restarted.text, seconds=40, what="the pause holds over a restart")
        assert not place.ran("succeed", id=waiting)
        place.queues("resume", QUEUE, "--no-wait")
        database.mend()
        until(lambda: place.ran("succeed", id=waiting), seconds=15, what="the states converge")


@pytest.mark.parametrize("place", ON_FOLDER, indirect=True)
def test_worker_frozen_inside_a_transaction_is_ended(place: Place):
    """Parent and children are stopped while the task has written and not committed: nobody else waits for long."""
    place.worker(OTHER)
    dying = place.worker(QUEUE, "--hostname", "frozen@%h")
    task = place.send(f"{HELD}.write_and_hold", 60, queue=QUEUE)
    until(lambda: (place.folder / "files" / task).exists(), seconds=30, what="the task has written")
    pids = [dying.popen.pid, *(pid for row in rows(QUEUE) for pid, _ in row.children)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    rescuer = place.celery(*[part.replace("frozen@", "rescuer@") for part in dying.argv[3:]])
    until(lambda: task in rescuer.text, seconds=40, what="the task started again")
    until(lambda: dying.popen.poll() is not None, seconds=15, what="its process has ended")
    place.queues("pause", OTHER, "--no-wait")  # It can be written again.
    assert AuditEntry.objects.filter(verb="pause").exists()
