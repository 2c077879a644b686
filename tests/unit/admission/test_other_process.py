"""What a process shows of calls that has imported no task by itself, as a command does."""

import json
import sys

import pytest

from ami.admission.models import Call
from tests.support.admission import QUEUE, TASKS, admission_place, task
from tests.support.place import FOLDER, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sqlite, pytest.mark.processes]

SECRET = "tests.support.worker_tasks.secret"
ROWS = f"""
import django
django.setup()
from ami.queues import waiting_rows
print([each.arguments for each in waiting_rows.oldest("{QUEUE}", 9)])
"""


def test_commands_know_the_tasks_whose_calls_they_show():
    fixed = {"queue": QUEUE, "options": "{}", "fair_key": "other"}
    Call.objects.create(task_id="b", task=f"{SECRET}.use_token", arguments='[[1, "a-secret-token"], {}]', **fixed)
    with admission_place(FOLDER, ANTENNA_EXTRA_TASKS=f"{TASKS},{SECRET}") as place:
        task("limited").delay(key="a", number=1)
        staged = place.start([sys.executable, "manage.py", "queues", "staged", "--json"])
        rows = place.start([sys.executable, "-c", ROWS])
        until(lambda: staged.popen.poll() is not None and rows.popen.poll() is not None, 60)
        assert staged.popen.returncode == rows.popen.returncode == 0, staged.text + rows.text
        assert {lane["why"] for lane in json.loads(staged.text)} == {"for room"}
        assert "a-secret-token" not in rows.text
        assert "'number': 1" in rows.text
