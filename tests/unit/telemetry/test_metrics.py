"""/metrics: behind its token, whole, bounded in its labels and cheap, with and without the broker."""

from dataclasses import replace

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from ami.celery.task_times import BOUNDS, LENGTH
from ami.jobs.models import Job
from ami.telemetry.models import SharedValue, TaskTotal
from ami.telemetry.snapshots import shared
from ami.telemetry.snapshots.shape import as_json
from ami.topology.monitoring.metrics import METRICS, OTHER
from tests.support import console
from tests.support.product import factories

pytestmark = pytest.mark.django_db
TOKEN = "a-token-of-32-characters-or-more-x"
RUN_JOB = "ami.jobs.tasks.run_job"


@pytest.fixture
def scraper(settings):
    settings.ANTENNA_METRICS_TOKEN = TOKEN
    return Client(headers={"Authorization": f"Bearer {TOKEN}"})


@pytest.fixture
def figures(monkeypatch):
    """Let web answer with this snapshot."""

    def show(**changed):
        console.show(monkeypatch, found := console.snapshot(**changed))
        return found

    return show


def total(queue: str, task: str, waits: dict[int, int], **outcomes: int):
    counts = [0.0] * LENGTH
    counts[:6] = [*(outcomes.get(each, 0) for each in ("started", "succeeded", "failed", "retried")), 7.5, 2.25]
    for place, count in waits.items():
        counts[6 + place] = count
    TaskTotal.objects.create(queue=queue, task=task, counts=counts)


def job(status: str, kind: str = "ml"):
    Job.objects.create(project=factories.project(), name="a", status=status, job_type_key=kind)


def scraped(client: Client, **headers) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the values by series and labels, these in the order of their names."""
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200
    read = openmetrics if "openmetrics" in answer["Content-Type"] else plain
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in read(answer.content.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


def test_without_a_token_there_is_no_such_page(settings):
    assert Client().get("/metrics").status_code == 404
    settings.ANTENNA_METRICS_TOKEN = ""
    assert Client().get("/metrics", headers={"Authorization": "Bearer "}).status_code == 404


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer wrong", f"Token {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer \u00e9"]
)
def test_wrong_token_is_refused_and_reads_nothing(scraper, authorization, monkeypatch):
    monkeypatch.setattr(shared, "current", lambda *_: pytest.fail("figures were read"))
    answer = Client().get("/metrics", headers={"Authorization": authorization})
    assert (answer.status_code, answer["WWW-Authenticate"]) == (401, 'Bearer realm="metrics"')
    assert TOKEN.encode() not in answer.content


def test_a_session_is_no_token_and_other_methods_are_refused(scraper):
    assert console.client_of(is_superuser=True).get("/metrics").status_code == 401
    assert scraper.post("/metrics").status_code == 405
    assert scraper.get("/metrics/").status_code in (301, 404)


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"])
def test_every_declared_metric_is_exposed_in_both_formats(scraper, figures, accept):
    rows = figures(delayed=3)
    oldest = [replace(each, oldest_seconds=12.0, oldest_is_bound=True) for each in rows.queues]
    held = [replace(each, held_seconds=5.0, state="held") for each in rows.workers]
    figures(delayed=3, queues=tuple(oldest), workers=tuple(held))
    total("antenna", RUN_JOB, {0: 2}, started=2, succeeded=1, failed=1)
    job("STARTED")
    found = scraped(scraper, Accept=accept)
    declared = {series for metric in METRICS for series in metric.series}
    assert declared == {each for each in found if not each.endswith("_created")}


def test_figures_are_those_of_the_snapshot(scraper, figures):
    snapshot = figures()
    found = scraped(scraper)
    flooded, paused = snapshot.queues[:2]
    assert found["celery_queue_length"][flooded.queue,] == 200_000
    assert found["antenna_queue_promise_kept"][flooded.queue,] == 0
    assert found["antenna_queue_paused"] == {(each.queue,): float(each == paused) for each in snapshot.queues}
    assert found["antenna_queue_dead_letters"][flooded.queue,] == 3
    assert found["celery_active_worker_count"][flooded.queue,] == 1
    worker = snapshot.workers[0]
    assert found["celery_worker_up"][worker.node,] == found["celery_worker_tasks_active"][worker.node,] == 1
    assert found["antenna_worker_memory_hold_ratio"][worker.node, worker.service] == 0.85
    assert found["antenna_worker_held"][worker.node, worker.service] == 0
    assert found["antenna_beats_up"] == {(): 1}
    assert found["antenna_findings"] == {("no-consumer", "error"): 1, ("paused", "warning"): 1}
    assert found["antenna_snapshot_unseen"] == {(): 0}


def test_worker_that_is_gone_and_one_that_was_parked_are_told_apart(scraper, figures):
    workers = console.snapshot().workers
    gone = replace(workers[0], state="stale", parked=console.Stop("a", "b", 1.0))
    figures(workers=(gone, workers[1]))
    found = scraped(scraper)
    assert found["celery_worker_up"] == {(gone.node,): 0, (workers[1].node,): 1}
    assert found["antenna_worker_parked"][gone.node, gone.service] == 1
    assert found["celery_active_worker_count"][gone.queues[0],] == 0


def test_histograms_are_cumulative_and_names_nobody_registered_are_other(scraper, figures):
    figures()
    total("antenna", RUN_JOB, {0: 2, 2: 1, len(BOUNDS): 1}, started=4, succeeded=3, failed=1)
    total("antenna", "from.anywhere", {1: 1}, started=1, succeeded=1)
    total("antenna", "from.elsewhere", {1: 2}, started=2, retried=2)
    total("a queue of others", RUN_JOB, {0: 1}, started=1)
    found = scraped(scraper)
    waits = found["antenna_task_wait_seconds_bucket"]
    bounds = ("0.01", "0.025", "0.05", "7200.0", "+Inf")
    assert [waits[bound, RUN_JOB, "antenna"] for bound in bounds] == [2, 2, 3, 3, 4]
    assert found["antenna_task_wait_seconds_count"][RUN_JOB, "antenna"] == 4
    assert found["antenna_task_wait_seconds_sum"][RUN_JOB, "antenna"] == 7.5
    assert found["celery_task_runtime_sum"][RUN_JOB, "antenna"] == 2.25
    assert found["celery_task_started_total"] == {
        (RUN_JOB, "antenna"): 4,
        (OTHER, "antenna"): 3,
        (RUN_JOB, OTHER): 1,
    }
    assert (waits["0.01", OTHER, "antenna"], waits["0.025", OTHER, "antenna"]) == (0, 3)
    assert found["celery_task_retried_total"][OTHER, "antenna"] == 2


def test_broker_that_is_away_leaves_its_own_figures_out(scraper, figures):
    queues = [
        replace(each, waiting=None, consumers=None, dead_letters=None, promise="unknown")
        for each in console.snapshot().queues
    ]
    figures(queues=tuple(queues), unseen=("The broker does not answer.",), delayed=None)
    found = scraped(scraper)
    assert found["antenna_snapshot_unseen"] == {(): 1}
    absent = {"celery_queue_length", "celery_active_consumer_count", "antenna_queue_dead_letters"}
    assert not {*absent, "antenna_queue_promise_kept", "antenna_delayed_messages"} & set(found)
    assert {"celery_worker_up", "antenna_queue_running", "antenna_beats_up"} <= set(found)


def test_scrape_is_three_statements_on_a_warm_snapshot(scraper):
    SharedValue.objects.create(name="snapshot", version=1, value=as_json(console.snapshot()), made_at=timezone.now())
    shared.forget()
    scraper.get("/metrics")
    for most in (3, 2):  # Within half a second the process does not ask for the snapshot again.
        with CaptureQueriesContext(connection) as queries:
            assert scraper.get("/metrics").status_code == 200
        assert len(queries) <= most, [each["sql"] for each in queries]
    shared.forget()


def test_database_that_is_away_is_a_503(scraper, monkeypatch):
    def fail(*_):
        raise OperationalError("password=secret")

    monkeypatch.setattr(shared, "current", fail)
    answer = scraper.get("/metrics")
    assert (answer.status_code, answer.content) == (503, b"The database did not answer.\n")


def test_jobs_are_counted_by_kind_and_status(scraper, figures):
    figures()
    jobs = [("STARTED", "ml"), ("STARTED", "ml"), ("PENDING", "a kind of another version"), ("SUCCESS", "ml")]
    for status, kind in jobs:
        job(status, kind)
    assert Job.objects.count() == 4
    assert scraped(scraper)["antenna_jobs"] == {("ml", "STARTED"): 2, (OTHER, "PENDING"): 1}
