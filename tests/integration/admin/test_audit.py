"""Every admin action, our own or a library's, leaves an entry in the history of its rows."""

import json

import pytest
from celery import current_app
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import model_format_dict
from django.contrib.contenttypes.models import ContentType
from django.test import Client
from django.urls import reverse

from ami.celery.declaration import declare
from ami.jobs.models import Job
from ami.queues import disabling
from ami.queues.models import AuditEntry, DesiredState, Letter, Replay
from ami.queues.wishes import Operator
from tests.support.brokers import celery_at
from tests.support.product import admin_rows, factories


@pytest.fixture
def person(db):
    return factories.user(is_staff=True, is_superuser=True)


@pytest.fixture
def browser(person, monkeypatch):
    """A superuser's browser; no message leaves the process."""
    from celery.app.task import Task

    monkeypatch.setattr(Task, "apply_async", lambda task, **options: None)
    client = Client()
    client.force_login(person)
    with celery_at("objectstore+memory://admin-audit"), current_app.connection_for_write() as broker:
        declare(settings.ANTENNA_TOPOLOGY, broker)
        yield client


def changelist(model):
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def entries(row_type, pk, person):
    kind = ContentType.objects.get_for_model(row_type, for_concrete_model=False)
    return LogEntry.objects.filter(content_type=kind, object_id=str(pk), user=person)


def offered(person, rf):
    request = rf.get("/admin/")
    request.user = person
    for model, shown in sorted(admin.site._registry.items(), key=lambda pair: pair[0]._meta.label):
        for name, (_, _, description) in shown.get_actions(request).items():
            yield model, name, str(description) % model_format_dict(model._meta)


#: What the operations ask for before they run.
ANSWERS = {
    "confirmed": "yes",
    "why": "a test",
    "count": "0",
    "to": "antenna-housekeeping",
    "limit": "",
    "task": "",
    "rate": "",
}


def name_of(row):
    """Return what an operation names the row by."""
    if isinstance(row, (Letter, Replay, Job)):
        return str(row.pk)
    return next(getattr(row, name) for name in ("task_id", "node", "name") if hasattr(row, name))


def test_every_action_of_the_site_leaves_an_entry(browser, person, rf, caplog):
    caplog.set_level("INFO", "ami.audit")
    admin_rows.everything()
    silent, run = [], 0
    # Delete last, or the other actions have no rows.
    for model, name, description in sorted(offered(person, rf), key=lambda action: action[1] == "delete_selected"):
        row = model._default_manager.exclude(pk=person.pk).first() if model is type(person) else None
        row = row or model._default_manager.first() or fresh(model)
        Letter.objects.update(state="dead")  # A letter is replayed or discarded once.
        if (model, name) == (DesiredState, "enable"):
            disabling.disable(admin_rows.TASK, Operator("tester"))
            row = DesiredState.objects.get(name=admin_rows.TASK)
        caplog.clear()
        data = {"action": name, "_selected_action": [row.pk], "post": "yes", **ANSWERS}
        status = browser.post(changelist(model), data).status_code
        # 403: dependent rows may not be deleted by users; that leaves an entry, too.
        assert status in (302, 403) if name == "delete_selected" else status == 302 or name == "peek", (model, name)
        lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "ami.audit"]
        if getattr(admin.site._registry[model], "records_itself", False) or name in ("disable", "enable"):
            written, what, key = AuditEntry.objects.filter(verb=name, user=person).exists(), name, name_of(row)
        else:
            written, what, key = entries(model, row.pk, person).exists(), description, str(row.pk)
        looks = name == "peek"
        if not looks and (not written or [line["what"] for line in lines] != [what] or key not in lines[0]["which"]):
            silent.append((model.__name__, name, lines))
        run += 1
    assert not silent
    assert run > 40


def fresh(model):
    """Recreate rows if an earlier deletion cascaded to this model."""
    admin_rows.everything()
    return model._default_manager.first()


def test_deletion_that_was_not_confirmed_is_not_recorded(browser, person, caplog):
    caplog.set_level("INFO", "ami.audit")
    site = factories.project()
    answer = browser.post(changelist(type(site)), {"action": "delete_selected", "_selected_action": [site.pk]})
    assert answer.status_code == 200
    assert not [record for record in caplog.records if record.name == "ami.audit"]


def test_action_that_fails_is_recorded_as_failed(browser, person, monkeypatch):
    def refuse(job):
        raise RuntimeError("no amqp://antenna:hunter2@rabbitmq//")

    monkeypatch.setattr("ami.jobs.services.operations.cancel", refuse)
    job = admin_rows.job()
    with pytest.raises(RuntimeError):
        browser.post(changelist(Job), {"action": "cancel", "_selected_action": [job.pk]})
    message = entries(Job, job.pk, person).get().change_message
    assert message == "Cancel selected jobs: failed: RuntimeError: no amqp://antenna:********@rabbitmq//"


def test_history_page_of_a_row_shows_the_action(browser, person):
    job = admin_rows.job()
    browser.post(changelist(Job), {"action": "cancel", "_selected_action": [job.pk]})
    page = browser.get(reverse("admin:jobs_job_history", args=[job.pk])).content.decode()
    assert f"Cancel selected jobs: success: Job {job.pk} is REVOKED." in page


def test_job_of_unknown_type_is_reported_and_others_run(browser, person):
    unknown, known = admin_rows.job(), admin_rows.job()
    Job.objects.filter(pk=unknown.pk).update(job_type_key="unknown")
    for action in ("run", "retry"):
        Job.objects.update(status="FAILURE")
        answer = browser.post(changelist(Job), {"action": action, "_selected_action": [unknown.pk, known.pk]})
        assert answer.status_code == 302
        page = browser.get(changelist(Job)).content.decode()
        assert f"Job {unknown.pk} was not started: No code is registered for jobs of type" in page
        assert [Job.objects.get(pk=job.pk).status for job in (unknown, known)] == ["FAILURE", "PENDING"]
        entry = entries(Job, unknown.pk, person).first()
        assert "1 warning" in entry.change_message
        assert "1 success" in entry.change_message


def test_new_job_form_offers_known_types_without_a_default(browser, person):
    page = browser.get(reverse("admin:jobs_job_add"))
    field = page.context["adminform"].form["job_type_key"]
    assert field.value() == ""
    assert "unknown" not in dict(field.field.choices)
    assert {"ml", "regroup_events", "data_export"} <= set(dict(field.field.choices))
    job = admin_rows.job()
    Job.objects.filter(pk=job.pk).update(job_type_key="unknown")
    page = browser.get(reverse("admin:jobs_job_change", args=[job.pk]))
    assert page.context["adminform"].form["job_type_key"].value() == "unknown"
    body = {"name": "new", "project": job.project_id, "dispatch_mode": "internal", "delay": 0, "params": "{}"}
    made = browser.post(reverse("admin:jobs_job_add"), {**body, "job_type_key": "unknown"})
    assert made.status_code == 200
    assert not Job.objects.filter(name="new").exists()
    assert browser.post(reverse("admin:jobs_job_add"), {**body, "job_type_key": "ml"}).status_code == 302
    assert Job.objects.get(name="new").job_type_key == "ml"
