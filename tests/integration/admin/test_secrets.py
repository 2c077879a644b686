"""No admin page shows a secret; masked values cannot be searched, and survive an edit."""

import json
import re

import pytest
from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.test import Client
from django_celery_beat.models import PeriodicTask

from ami.exports.models import DataExport
from ami.main.models import ApiToken, Deployment, S3StorageSource
from ami.main.services import tokens
from ami.ml.models import Pipeline, ProcessingService
from ami.queues.redaction import MASK
from tests.support.product import factories
from tests.support.product.admin_pages import MODELS, address
from tests.support.product.secret_rows import OPTIONS, SECRET, URL, seed


def superuser(db):
    return factories.user(is_staff=True, is_superuser=True)


def reader(db):
    person = factories.user(is_staff=True)
    person.user_permissions.add(*Permission.objects.filter(codename__startswith="view_"))
    return person


def test_invalid_form_shows_no_secret(db):
    client = Client()
    client.force_login(superuser(db))
    seed()
    for model in (ProcessingService, S3StorageSource, Pipeline, PeriodicTask, DataExport):
        row = model._default_manager.first()
        answer = client.post(address(model, "change", row.pk), {})
        assert answer.status_code == 200
        assert SECRET not in answer.content.decode(), model


def secret_fields():
    """Every field of the admin's models that may hold a secret, by its type or name."""
    named = {"endpoint_url", "public_base_url", "secret_key", "access_key", "args", "kwargs", "task_kwargs"}
    for model in MODELS:
        for field in model._meta.concrete_fields:
            if field.name in named or isinstance(field, models.JSONField):
                yield model, field.name


def test_secret_cannot_be_guessed_letter_by_letter(db):
    client = Client()
    client.force_login(reader(db))
    searchable = []
    for model, name in secret_fields():
        shown = admin.site._registry[model]
        for lookup in ("startswith", "regex", "gt"):
            answer = client.get(address(model, "changelist"), {f"{name}__{lookup}": "h"})
            searchable += [(model, name, lookup)] if answer.status_code not in (302, 400) else []
        searchable += [(model, name, "search")] if name in shown.get_search_fields(None) else []
    assert not searchable
    answer = client.get(address(Deployment, "changelist"), {"data_source__secret_key__startswith": "h"})
    assert answer.status_code in (302, 400)


def test_no_list_filter_names_a_field_that_may_hold_a_secret():
    hidden = set(secret_fields())
    offered = {(model, name) for model, shown in admin.site._registry.items() for name in shown.list_filter}
    assert not hidden & offered


def form_of(client, page):
    """Return the form data of an unchanged page."""
    form = client.get(page).context["adminform"].form
    values = {}
    for field in form:
        value = field.value()
        if value in (None, False):
            continue
        values[field.html_name] = value
    return values


@pytest.fixture
def browser_with_secrets(db):
    client = Client()
    client.force_login(superuser(db))
    seed()
    return client


def test_saving_a_form_without_a_change_keeps_every_secret(browser_with_secrets):
    for model, fields in {
        S3StorageSource: ("secret_key", "access_key", "endpoint_url", "public_base_url"),
        ProcessingService: ("endpoint_url",),
    }.items():
        row = model.objects.first()
        before = model.objects.values(*fields).get(pk=row.pk)
        page = address(model, "change", row.pk)
        answer = browser_with_secrets.post(page, {**form_of(browser_with_secrets, page), "name": "Renamed"})
        assert answer.status_code == 302, answer.context["adminform"].form.errors
        assert model.objects.values(*fields).get(pk=row.pk) == before
        row.refresh_from_db()
        assert row.name == "Renamed"
        entry = LogEntry.objects.filter(object_id=str(row.pk), content_type__model=model._meta.model_name).first()
        assert json.loads(entry.change_message) == [{"changed": {"fields": ["Name"]}}]


def test_one_option_can_be_changed_beside_masked_ones(browser_with_secrets):
    pipeline = Pipeline.objects.first()
    page = address(Pipeline, "change", pipeline.pk)
    values = form_of(browser_with_secrets, page)
    assert json.loads(values["default_config"])["password"] == MASK
    edited = {**json.loads(values["default_config"]), "batch": 16}
    inlines = {"project_configs-TOTAL_FORMS": 0, "project_configs-INITIAL_FORMS": 0}
    answer = browser_with_secrets.post(page, {**values, **inlines, "default_config": json.dumps(edited)})
    assert answer.status_code == 302, answer.context["errors"]
    pipeline.refresh_from_db()
    assert pipeline.default_config == {**OPTIONS, "batch": 16}


def test_mask_in_a_new_url_is_refused_with_the_reason(browser_with_secrets):
    service = ProcessingService.objects.first()
    page = address(ProcessingService, "change", service.pk)
    values = {**form_of(browser_with_secrets, page), "endpoint_url": f"https://antenna:{MASK}@elsewhere.example"}
    answer = browser_with_secrets.post(page, values)
    assert "Type the whole value again" in answer.content.decode()
    service.refresh_from_db()
    assert service.endpoint_url == URL


def test_new_secret_replaces_the_old_one(browser_with_secrets):
    source = S3StorageSource.objects.first()
    page = address(S3StorageSource, "change", source.pk)
    answer = browser_with_secrets.post(page, {**form_of(browser_with_secrets, page), "secret_key": "another"})
    assert answer.status_code == 302
    source.refresh_from_db()
    assert (source.secret_key, source.access_key) == ("another", SECRET)


def test_token_page_shows_owner_and_scope_and_revokes(db):
    person = factories.user()
    token, key = tokens.issue(person, name="GPU box")
    client = Client()
    client.force_login(reader(db))
    page = client.get(address(ApiToken, "changelist")).content.decode()
    assert all(text in page for text in (key[:8], "GPU box", person.email))
    assert "Revoke selected tokens" not in page
    client.post(address(ApiToken, "changelist"), {"action": "revoke", "_selected_action": [token.pk]})
    assert tokens.find(key)
    assert client.get(address(ApiToken, "add")).status_code == 403
    assert client.post(address(ApiToken, "change", token.pk), {"name": "x"}).status_code == 403
    revoker = reader(db)
    revoker.user_permissions.add(Permission.objects.get(codename="revoke_apitoken"))
    client.force_login(revoker)
    client.post(address(ApiToken, "changelist"), {"action": "revoke", "_selected_action": [token.pk]})
    assert tokens.find(key) is None
    kind = ContentType.objects.get_for_model(ApiToken)
    entry = LogEntry.objects.get(content_type=kind, object_id=str(token.pk), action_flag=CHANGE)
    assert entry.user == revoker
    assert re.match("Revoke selected tokens: .*1 of 1 tokens revoked", entry.change_message)
