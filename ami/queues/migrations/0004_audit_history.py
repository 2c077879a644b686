from typing import Any

from django.conf import settings
from django.db import migrations

BATCH = 1000


def copy_history(apps: Any, schema_editor: Any) -> None:
    """Copy what admin actions and operations recorded in Django's history; that of edits is JSON and stays there."""
    entry, history = apps.get_model("queues", "AuditEntry"), apps.get_model("admin", "LogEntry")
    rows = history.objects.using(schema_editor.connection.alias).exclude(change_message="")
    rows = rows.exclude(change_message__startswith="[").order_by("pk").select_related("user", "content_type")
    made: list[Any] = []
    for row in rows.iterator(BATCH):
        verb, _, outcome = row.change_message.partition(": ")
        label = f"{row.content_type.app_label}.{row.content_type.model}" if row.content_type else ""
        made.append(
            entry(
                who=f"user {row.user_id} {row.user.email}"[:255],
                user_id=row.user_id,
                verb=verb[:255],
                target=f"{label} {row.object_id or ''} {row.object_repr}".strip(),
                outcome=(outcome or "done")[:1000],
                source="admin",
            )
        )
        made[-1].moved_at = row.action_time
        if len(made) == BATCH:
            _save(entry, made)
            made = []
    _save(entry, made)


def _save(entry: Any, made: list[Any]) -> None:
    saved = entry.objects.bulk_create(made)
    for row in saved:
        row.at = row.moved_at
    entry.objects.bulk_update(saved, ["at"])


class Migration(migrations.Migration):
    dependencies = [
        ("queues", "0003_desired_state"),
        ("admin", "0003_logentry_add_action_flag_choices"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [migrations.RunPython(copy_history, migrations.RunPython.noop, elidable=True)]
