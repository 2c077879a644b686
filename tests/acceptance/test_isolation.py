"""The split's promise: a flood on ingest, or five long exports, delays neither beat's ticks nor a person's click."""

import json
import time
from datetime import timedelta

import numpy as np
import pytest
from django.core.management import call_command
from django.utils import timezone

from ami.exports.services.requests import request_export
from ami.jobs.models import Job, JobImage
from ami.jobs.services import stored_results
from ami.jobs.services.result_batches import HANDLE_RESULT
from ami.main.models import Detection, Occurrence, SourceImage
from ami.main.services.boxes import bbox_key
from ami.ml.models import ProcessingService
from ami.topology.topology import load
from tests.support.place import Place, new_place, until
from tests.support.product.job_setup import World, new_world
from tests.support.product.large_sets import plain_captures
from tests.support.soak import soak
from tests.support.stalls import Stalls

SECONDS = soak(20, 300)
#: So often that each half of the short form has about thirty clicks.
CLICK_SECONDS = 0.3
#: What the machine's load decides, and no promise; the promises are percentiles.
DEADLINE = 240
WAITING = 2000
EXPORTED = soak(3000, 6000)
TICK = "ami.ml.tasks.check_processing_services_online"
CLICK = "ami.ml.tasks.check_processing_service"
QUEUES = load({}).queues


class Flood:
    """Real results of one real job, each of a capture of its own."""

    def __init__(self, place: Place, world: World) -> None:
        self.place, self.world = place, world
        self.job = world.running([])
        self.sent = 0

    def publish(self, count: int) -> None:
        """Store so many results, and publish a message for each."""
        found = [{"reply_subject": "", "result": self.world.found(each, boxes=0)} for each in self._captures(count)]
        rows = stored_results.store_many(self.job, [("", json.dumps(item).encode()) for item in found])
        with self.place.app.producer_pool.acquire(block=True) as producer:
            for row in rows:
                body = {"job_id": self.job.pk, "result_key": row.key, "reply_subject": ""}
                self.place.send(HANDLE_RESULT, kwargs=body, producer=producer)

    def _captures(self, count: int) -> list[SourceImage]:
        begin = timezone.now() - timedelta(days=300)
        captures = plain_captures(self.world, count, folder="flood/", first=self.sent, begin=begin)
        self.sent += count
        rows = [JobImage(job=self.job, source_image=capture, state="published") for capture in captures]
        JobImage.objects.bulk_create(rows)
        return captures


def occurrences(world: World, count: int) -> None:
    """Make something to export."""
    capture = world.captures(1)[0]
    boxes = [[number, 0, number + 10, 10] for number in range(count)]
    found = Detection.objects.bulk_create(
        Detection(source_image=capture, detection_algorithm=world.detector, bbox=box, bbox_key=bbox_key(box), path="x")
        for box in boxes
    )
    taxon = _taxon()
    Occurrence.objects.bulk_create(
        Occurrence(
            project=world.project,
            deployment=world.station,
            detection=detection,
            determination=taxon,
            determination_score=0.9,
        )
        for detection in found
    )


def _taxon():
    from ami.main.models import Taxon

    return Taxon.objects.create(name="Noctua pronuba", rank="SPECIES")


@pytest.fixture
def deployment(transactional_db):
    """A worker per queue, a beat that ticks every second, and real results on ingest before any worker starts."""
    with new_place("isolation") as place:
        place.use_test_database()
        place.environment["ANTENNA_HOUSEKEEPING_CONCURRENCY"] = "2"  # what the table says
        call_command("queues", "schedule", "--json")
        _tick_every_second()
        place.queues("declare")
        world = new_world("flood")
        occurrences(world, EXPORTED)
        flood = Flood(place, world)
        flood.publish(WAITING + 1000)
        place.workers(*QUEUES)
        place.beat()
        yield place, flood


@pytest.mark.alone
@pytest.mark.timeout(SECONDS + 4 * DEADLINE)
def test_incident_15_ticks_and_clicks_wait_behind_no_flood_and_no_exports(deployment):
    place, flood = deployment
    until(lambda: place.ran(TICK, origin="beat"), DEADLINE, "beat ticks")
    with Stalls(place, "antenna") as stalls:
        began, shallowest = _watch_and_click(place, flood)
    _judge(place, began, shallowest, stalls)


def _watch_and_click(place: Place, flood: Flood) -> tuple[float, int]:
    service = ProcessingService.objects.create(name="a puller")
    began, clicks, shallowest, exporting = time.time(), [], WAITING * 2, False
    while (elapsed := time.time() - began) < SECONDS:
        depth = place.depth("antenna-ingest")
        shallowest = min(shallowest, depth)
        if depth < WAITING + 500:
            flood.publish(250)
        if elapsed > SECONDS / 2 and not exporting:
            exporting = True
            for _ in range(5):
                request_export(flood.world.project, flood.world.user, "occurrences_api_json", {})
        # Two checks of one service for the same projects would be one.
        check = {"service_id": service.pk, "project_ids": [len(clicks)]}
        clicks.append(place.send(CLICK, origin="person", kwargs=check))
        time.sleep(CLICK_SECONDS)
    until(lambda: len(place.ran(CLICK)) >= len(clicks), DEADLINE, "every click ran")
    # They share the slots for long work: on a slow machine the last may begin after the clicks.
    waiting = Job.objects.filter(job_type_key="data_export", status="PENDING")
    until(lambda: not waiting.exists(), DEADLINE, "every export has begun")
    until(lambda: len(_slices(place)) > 5, DEADLINE, "an export goes on in its next slice")
    return began, shallowest


def _judge(place: Place, began: float, shallowest: int, stalls: Stalls) -> None:
    ticked = [record for record in place.ran(TICK, origin="beat") if record["started_at"] >= began]
    clicked = place.ran(CLICK)
    ticks = _waits(ticked, stalls)
    before = _waits([record for record in clicked if record["started_at"] < began + SECONDS / 2], stalls)
    after = _waits([record for record in clicked if record["started_at"] >= began + SECONDS / 2], stalls)
    stalled = len(ticked) + len(clicked) - len(ticks) - len(before) - len(after)
    exports = _slices(place)
    jobs = Job.objects.filter(job_type_key="data_export")
    ingested = len([record for record in place.ran("process_nats_pipeline_result") if record["started_at"] >= began])
    report = (
        f"at least {shallowest} waited on ingest, which did {ingested / SECONDS:.0f}/s; "
        f"{len(ticks)} ticks late by p50 {_ms(ticks, 50)} p99 {_ms(ticks, 99)}; "
        f"{len(before)} clicks p50 {_ms(before, 50)} p95 {_ms(before, 95)}; "
        f"{len(after)} clicks beside 5 exports ({len(exports)} slices) p50 {_ms(after, 50)} p95 {_ms(after, 95)}; "
        f"{stalled} left out because broker or database themselves took over 250 ms ({len(stalls.stalls)} times of "
        f"{stalls.looks})"
    )
    print(report)
    assert shallowest >= WAITING, report
    assert stalls.looks > SECONDS, report
    assert stalled < 0.5 * (len(ticked) + len(clicked)), report
    assert len(ticks) > SECONDS / 2, report
    assert np.percentile(ticks, 99) < 1, report
    assert {record["consumed_from"] for record in clicked} == {"antenna-interactive"}, report
    assert np.percentile(before, 95) < 1, report
    assert np.percentile(after, 95) < 1, report
    assert len(exports) > 5, report
    assert {job.status for job in jobs} <= {"STARTED", "SUCCESS"}, report
    assert max(job.done for job in jobs) > 0, report


def _slices(place: Place) -> list[dict]:
    return place.ran("run_job", queue="antenna-interactive")


def _waits(records: list[dict], stalls: Stalls) -> list[float]:
    return [r["waited_seconds"] for r in records if stalls.spared(r["started_at"], r["waited_seconds"])]


def _ms(seconds: list[float], percentile: int) -> str:
    return f"{np.percentile(seconds, percentile) * 1000:.0f} ms"


def _tick_every_second() -> None:
    from django_celery_beat.models import IntervalSchedule, PeriodicTask

    second, _ = IntervalSchedule.objects.get_or_create(every=1, period="seconds")
    PeriodicTask.objects.filter(task=TICK).update(interval=second, expire_seconds=None)
