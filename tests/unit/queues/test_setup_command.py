"""``manage.py setup``: what a new version needs before it starts."""

import pytest
from django.core.management import CommandError, call_command
from django_celery_beat.models import PeriodicTask

from tests.support.brokers import celery_at

pytestmark = pytest.mark.django_db


def test_setup_migrates_declares_and_schedules_and_may_run_again(capsys: pytest.CaptureFixture[str]):
    for rows in ("created", "updated"):
        with celery_at("memory://"):
            call_command("setup")
        said = capsys.readouterr().out
        steps = ("No migrations to apply.", "declared  antenna-ingest", rows)
        assert sorted(steps, key=said.index) == list(steps)
    assert PeriodicTask.objects.filter(task="ami.main.tasks.purge_old_rows").count() == 1


def test_setup_stops_at_the_first_step_that_fails():
    with celery_at("amqp://127.0.0.1:1/x"), pytest.raises(CommandError, match=r"127\.0\.0\.1:1"):
        call_command("setup")
    assert not PeriodicTask.objects.filter(task="ami.main.tasks.purge_old_rows").exists()
