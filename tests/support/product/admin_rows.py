"""Rows of every model of the admin."""

from datetime import timedelta
from itertools import count

from django.contrib.auth.models import Group
from django.utils import timezone
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule
from django_celery_results.models import GroupResult, TaskResult

from ami.exports.models import DataExport, ScheduledExport
from ami.jobs.models import Job, JobImage, StoredResult
from ami.jobs.models.states import JobStatus
from ami.jobs.services import operations
from ami.main.models import (
    BulkDeletion,
    Classification,
    Deployment,
    Device,
    Event,
    Identification,
    S3StorageSource,
    Site,
    SourceImageCollection,
    TaxaList,
)
from ami.main.services import login_attempts, tokens
from ami.ml.models import AlgorithmCategoryMap, Pipeline, ProcessingService, ProjectPipelineConfig
from ami.queues.models import (
    AuditEntry,
    DesiredState,
    Lease,
    Letter,
    RefusedRequests,
    Replay,
    TaskFailure,
    TaskRun,
    Worker,
)
from tests.support.product import factories

_numbers = count(1)


def source() -> S3StorageSource:
    return S3StorageSource.objects.create(name="Folder", public_base_url="https://pictures.example/")


def synced_station() -> Deployment:
    return factories.station(data_source=source())


def event() -> Event:
    station = factories.station()
    return Event.objects.create(project=station.project, deployment=station, group_by=factories.NIGHT.date())


def collection() -> SourceImageCollection:
    return SourceImageCollection.objects.create(name="Set", project=factories.project())


def export() -> DataExport:
    return DataExport.objects.create(project=factories.project(), format="occurrences_simple_csv")


def service() -> ProcessingService:
    return ProcessingService.objects.create(name=f"Service {next(_numbers)}", endpoint_url="http://127.0.0.1:9")


def job(status: str = JobStatus.CREATED) -> Job:
    station = factories.station()
    made = operations.create("regroup_events", station.project, name="Group", deployment=station)
    if status != JobStatus.CREATED:
        Job.objects.filter(pk=made.pk).update(status=status)
    return made


def failed_job() -> Job:
    return job(JobStatus.FAILURE)


def entry(task: str = "ami.ml.tasks.check_processing_services_online", **fields) -> PeriodicTask:
    every, _ = IntervalSchedule.objects.get_or_create(every=1, period="minutes")
    return PeriodicTask.objects.create(name=f"entry {next(_numbers)}", task=task, interval=every, **fields)


def pipeline() -> Pipeline:
    number = next(_numbers)
    made = Pipeline.objects.create(name=f"Pipeline {number}", slug=f"pipeline-{number}")
    made.algorithms.add(factories.detector(), factories.classifier())
    ProjectPipelineConfig.objects.create(pipeline=made, project=factories.project())
    return made


#: A task that is registered.
TASK = "ami.main.tasks.purge_old_rows"


def failure_of(task: str) -> TaskFailure:
    """Add a try of a task that failed."""
    given = {"task_id": "a", "retries": 0, "delivery": 0, "kind": "error", "exception": "ValueError", "cause": "c"}
    return TaskFailure.objects.create(task=task, failed_at=timezone.now(), **given)


def everything() -> None:
    """Add at least one row to each table of the admin."""
    person = factories.user(name="Ada")
    station = synced_station()
    capture = factories.capture(station)
    capture.event = Event.objects.create(
        project=station.project, deployment=station, group_by=factories.NIGHT.date(), start=factories.NIGHT
    )
    capture.save()
    found = factories.occurrence(capture, factories.taxon(parent=factories.taxon(rank="GENUS")))
    Identification.objects.create(occurrence=found, user=person, taxon=found.determination)
    assert Classification.objects.exists()
    Site.objects.create(name="Site", project=station.project)
    Device.objects.create(name="Device", project=station.project)
    TaxaList.objects.create(name=f"List {next(_numbers)}")
    SourceImageCollection.objects.create(name="Set", project=station.project).images.add(capture)
    Lease.objects.create(name=f"lease {next(_numbers)}", until=timezone.now())
    login_attempts.count_address("192.0.2.1")
    BulkDeletion.objects.create(target="captures", pks=[capture.pk], requested_by=person)
    AlgorithmCategoryMap.objects.create(labels=["a"], data=[{"index": 0, "label": "a"}], version=str(next(_numbers)))
    service().pipelines.add(pipeline())
    running = operations.create("ml", station.project, name="ml", pipeline=pipeline(), params={"source_image_ids": []})
    running.log("A line.")
    JobImage.objects.create(job=running, source_image=capture)
    StoredResult.objects.create(job=running, key=f"job/{next(_numbers)}", name="x", size_bytes=1)
    last = export()
    ScheduledExport.objects.create(name="Weekly", project=station.project, format=last.format, last_export=last)
    entry()
    CrontabSchedule.objects.create(minute="5", timezone="UTC")
    SolarSchedule.objects.create(event="sunset", latitude=next(_numbers), longitude=1)
    ClockedSchedule.objects.create(clocked_time=timezone.now() + timedelta(hours=next(_numbers)))
    TaskResult.objects.create(task_id=f"task {next(_numbers)}", status="SUCCESS", result="1")
    GroupResult.objects.create(group_id=f"group {next(_numbers)}", result="[]")
    Group.objects.create(name=f"Group {next(_numbers)}")
    tokens.issue(person, name="laptop")
    now = timezone.now()
    node = f"ingest@host{next(_numbers)}"
    Worker.objects.create(node=node, host="host", queues=["antenna-ingest"], pid=1, started_at=now, seen_at=now)
    TaskRun.objects.create(
        task_id=f"run {next(_numbers)}".replace(" ", "-"), task="a", node=node, started_at=now, seen_at=now
    )
    DesiredState.objects.get_or_create(
        kind="queue", name="antenna-ingest", aspect="paused", defaults={"value": 0, "by": "nobody", "since": now}
    )
    failure_of(TASK)
    number = next(_numbers)
    letter = {"queue": "antenna-ingest.dlq", "task": TASK, "reason": "rejected"}
    kept = {"headers": "{}", "properties": "{}", "body": b"[[], {}, {}]", "content_type": "application/json"}
    Letter.objects.create(
        identity=f"letter {number}",
        task_id=f"letter-{number}",
        collected_at=now,
        first_collected_at=now,
        **letter,
        **kept,
    )
    begun = {"began_at": now, "until": now, "by": "command:ada"}
    Replay.objects.create(selection={"cause": "c"}, total=1, most_pk=1, **begun)
    AuditEntry.objects.create(who="command:ada", verb="pause", target="queue antenna-ingest")
    RefusedRequests.objects.create(user=factories.user(), status=404, hour=timezone.now(), last="API Job run pk 9")
