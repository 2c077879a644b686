"""Rows with a secret in every field of the admin's models that can hold one."""

import json

from django_celery_beat.models import PeriodicTask
from django_celery_results.models import GroupResult, TaskResult

from ami.exports.models import ScheduledExport
from ami.jobs.models import Job, JobImage, StoredResult
from ami.main.models import ApiToken, Deployment, Project, S3StorageSource, SourceImage, User
from ami.main.services import tokens
from ami.ml.models import Algorithm, AlgorithmCategoryMap, Pipeline, ProcessingService, ProjectPipelineConfig
from ami.queues import audit_log
from ami.queues.models import Lease
from tests.support.product import admin_rows

SECRET = "hunter2Wert"
URL = f"https://antenna:{SECRET}@service.example/x"
OPTIONS = {"password": SECRET, "deep": [{"hf_token": SECRET, "url": URL}], "batch": 8}
TEXT = f"ConnectError at {URL} with password={SECRET}"


def seed() -> list[str]:
    """Put a secret into every such field; return all secrets."""
    admin_rows.everything()
    S3StorageSource.objects.update(
        secret_key=SECRET, access_key=SECRET, endpoint_url=URL, public_base_url=URL, project=Project.objects.first()
    )
    ProcessingService.objects.update(endpoint_url=URL, description=TEXT)
    Pipeline.objects.update(default_config=OPTIONS, stages=[{"params": [OPTIONS]}], description=TEXT)
    ProjectPipelineConfig.objects.update(config=OPTIONS)
    Algorithm.objects.update(uri=URL)
    AlgorithmCategoryMap.objects.update(uri=URL, description=TEXT)
    Job.objects.update(params=OPTIONS, result=OPTIONS)
    for job in Job.objects.all():
        job.log(TEXT, password=SECRET)
        job.log_entries.update(message=TEXT, context=OPTIONS)
    JobImage.objects.update(error=TEXT)
    StoredResult.objects.update(error=TEXT)
    ScheduledExport.objects.update(filters=OPTIONS)
    Lease.objects.update(state=OPTIONS)
    SourceImage.objects.update(public_base_url=URL)
    Deployment.objects.update(description=TEXT)
    PeriodicTask.objects.update(
        args=json.dumps([URL]), kwargs=json.dumps(OPTIONS), headers=json.dumps(OPTIONS), description=TEXT
    )
    quoted = json.dumps(repr(OPTIONS))
    TaskResult.objects.update(
        task_args=json.dumps(repr((URL,))), task_kwargs=quoted, result=quoted, traceback=TEXT, meta=json.dumps(OPTIONS)
    )
    GroupResult.objects.update(result=json.dumps(OPTIONS))
    person = User.objects.first()
    _, key = tokens.issue(person, name="laptop")
    audit_log.record(f"note {TEXT}", who=person, rows=list(Job.objects.all()), outcome=TEXT)
    digests = list(ApiToken.objects.values_list("digest", flat=True))
    return [SECRET, key, *digests, *User.objects.values_list("password", flat=True)]
