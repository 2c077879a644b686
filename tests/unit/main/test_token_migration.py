"""The migration hashes old tokens: they stay valid, and their clear text is removed."""

import importlib
from datetime import timedelta

import pytest
from django.apps import apps
from django.contrib.admin.models import ADDITION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from ami.main.models import ApiToken
from ami.main.services import tokens
from tests.support.product import factories

pytestmark = pytest.mark.sqlite

migration = importlib.import_module("ami.main.migrations.0003_api_tokens")
KEY = "401f7ac837da42b97f613d789819ff93537bee6a"


def migrate():
    for step in (migration.hash_old_tokens, migration.forget_old_app):
        with connection.schema_editor() as editor:
            step(apps, editor)


@pytest.fixture
def old(transactional_db):
    """A database of an earlier version with one token."""
    person = factories.user()
    with connection.schema_editor() as editor:
        editor.create_model(migration.OldToken)
    made = timezone.now() - timedelta(days=900)
    migration.OldToken._base_manager.create(key=KEY, created=made, user_id=person.pk)
    kind = ContentType.objects.create(app_label="authtoken", model="tokenproxy")
    LogEntry.objects.create(user=person, content_type=kind, object_id="1", object_repr=KEY, action_flag=ADDITION)
    MigrationRecorder(connection).record_applied("authtoken", "0001_initial")
    yield person
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS authtoken_token")


def test_old_token_stays_valid_and_its_clear_text_is_removed(old):
    migrate()
    token = tokens.find(KEY)
    assert (token.user, token.scope, token.prefix) == (old, "person", KEY[:8])
    assert (timezone.now() - token.created_at).days == 900
    assert "authtoken_token" not in connection.introspection.table_names()
    assert KEY not in "".join(f"{entry.object_repr} {entry.change_message}" for entry in LogEntry.objects.all())
    assert not ContentType.objects.filter(app_label="authtoken").exists()
    assert not MigrationRecorder(connection).migration_qs.filter(app="authtoken").exists()


def test_fresh_database_has_nothing_to_migrate(transactional_db):
    migrate()
    assert not ApiToken.objects.exists()
