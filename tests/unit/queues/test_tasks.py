"""The list of tasks that operators read: `manage.py queues tasks`."""

from typing import Any

from ami.queues.tasks import rows


def test_every_routed_task_says_what_triggers_it(settings: Any):
    silent = [row.task for row in rows(settings.ANTENNA_TOPOLOGY) if row.routed and not row.triggered_by]
    assert [task for task in silent if not task.startswith("tests.")] == []
