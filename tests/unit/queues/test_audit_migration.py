"""What operations recorded in Django's history before there was an audit log is copied to it."""

import importlib

import pytest
from django.apps import apps
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import connection

from ami.queues.models import AuditEntry
from tests.support.product import factories

copy_history = importlib.import_module("ami.queues.migrations.0004_audit_history").copy_history


@pytest.mark.django_db
def test_history_of_operations_is_copied_and_that_of_edits_stays():
    user = factories.user()
    kind = ContentType.objects.get_for_model(user)
    for message in ("Retry the selected: 3 retried", '[{"changed": {"fields": ["Name"]}}]', ""):
        LogEntry.objects.create(
            user=user,
            content_type=kind,
            object_id=str(user.pk),
            object_repr="a",
            action_flag=CHANGE,
            change_message=message,
        )
    copy_history(apps, type("Editor", (), {"connection": connection}))
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.outcome, entry.user_id) == ("Retry the selected", "3 retried", user.pk)
    assert entry.at == LogEntry.objects.get(change_message__startswith="Retry").action_time
