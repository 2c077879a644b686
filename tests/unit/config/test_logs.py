"""Log lines as text and as JSON, with their fields, those of the running task, and no secrets."""

import json
import logging
import sys
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from celery.utils.log import get_multiprocessing_logger
from django.conf import settings

from config import logs
from config.logs import JsonFormatter, TextFormatter, TicksAreDebug, task_fields
from tests.support import forked_python

TASK = {"task": "ami.jobs.tasks.run_job", "task_id": "7f", "queue": "antenna-ingest", "worker": "ingest@host"}


class FakeTask:
    """As much of Celery's running task as the formatters read."""

    name = TASK["task"]

    def __init__(self, called_directly: bool = False) -> None:
        delivery = {"routing_key": "0.0.1.0.antenna-ingest"}
        self.request = SimpleNamespace(
            id="7f", hostname="ingest@host", delivery_info=delivery, called_directly=called_directly
        )


def line(message: str = "Message buried", *args: Any, name: str = "ami.celery.request", **extra: Any):
    return logging.getLogger(name).makeRecord(name, logging.WARNING, "", 0, message, args, None, extra=extra)


def as_json(record: logging.LogRecord) -> dict[str, Any]:
    text = JsonFormatter().format(record)
    assert "\n" not in text
    return dict(json.loads(text))


def test_json_line_has_time_level_logger_message_and_fields():
    record = line("Message buried: %s", "no such task", queue="antenna", job=17)
    found = as_json(record)
    moment = datetime.fromisoformat(found.pop("time"))
    assert moment.tzname() == "UTC"
    assert moment.timestamp() == pytest.approx(record.created, abs=0.001)
    assert found == {
        "level": "WARNING",
        "logger": "ami.celery.request",
        "process": record.process,
        "message": "Message buried: no such task",
        "queue": "antenna",
        "job": 17,
    }


def test_json_line_has_the_exception():
    try:
        raise ValueError("broken\nin two")
    except ValueError:
        record = logging.getLogger("ami").makeRecord("ami.x", logging.ERROR, "", 0, "Failed", (), sys.exc_info())
    assert as_json(record)["exception"].endswith("ValueError: broken\nin two")


def test_text_line_ends_with_the_fields():
    text = TextFormatter().format(line(queue="antenna", error='no "such" task', job=17))
    assert text.endswith(r'ami.celery.request: Message buried queue=antenna error="no \"such\" task" job=17')


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_field_makes_no_second_line_and_shows_no_secret(formatter: logging.Formatter):
    record = line(reason="a\nb", api_token="s3cret-a", url="amqp://antenna:s3cret-b@rabbitmq")
    text = formatter.format(record)
    assert "\n" not in text
    assert "s3cret" not in text
    assert "amqp://antenna:********@rabbitmq" in text


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_fields_of_libraries_stay_out(formatter: logging.Formatter):
    record = line(name="celery.app.trace", data={"kwargs": "{'password': 'hidden'}"})
    assert "hidden" not in formatter.format(record)


def test_field_replaces_nothing_of_the_line():
    assert as_json(line(level="none", logger="other"))["level"] == "WARNING"


def test_lines_of_a_task_name_it_its_queue_and_its_worker(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logs, "current_task", FakeTask())
    assert task_fields() == TASK
    assert as_json(line()).items() >= TASK.items()
    assert as_json(line(name="celery.app.trace")).items() >= TASK.items()
    fields = "task=ami.jobs.tasks.run_job task_id=7f queue=antenna-ingest worker=ingest@host"
    assert TextFormatter().format(line()).endswith(f"Message buried {fields}")
    # Celery's own lines of text name the task already.
    assert TextFormatter().format(line(name="celery.app.trace")).endswith("Message buried")


@pytest.mark.parametrize("task", [None, FakeTask(called_directly=True)])
def test_lines_outside_a_message_have_no_task(monkeypatch: pytest.MonkeyPatch, task: Any):
    monkeypatch.setattr(logs, "current_task", task)
    assert task_fields() == {}


def test_every_json_line_of_a_worker_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logs, "_process", {})
    logs._remember_worker(sender="ingest@host")
    assert as_json(line())["worker"] == "ingest@host"


def test_celerys_own_handlers_get_the_format(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(settings, "LOG_FORMAT", "json")
    handlers = []
    for logger in (get_multiprocessing_logger(), logging.getLogger("celery.task")):
        handlers.append(logging.StreamHandler())
        monkeypatch.setattr(logger, "handlers", [handlers[-1]])
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logs._format_celerys_handlers()
    assert all(isinstance(handler.formatter, JsonFormatter) for handler in handlers)


@pytest.mark.processes
@pytest.mark.parametrize("name", ["text", "json"])
def test_setting_chooses_the_format_of_a_process(name: str):
    code = (
        "import logging, django; django.setup(); "
        "logging.getLogger('ami.queues').warning('Queue depth unknown', extra={'queue': 'antenna'})"
    )
    environment = {"DJANGO_SETTINGS_MODULE": "config.settings.test", "ANTENNA_LOG_FORMAT": name}
    done = forked_python.run(["-c", code], env=environment)
    (last,) = done.stderr.splitlines()
    if name == "json":
        assert json.loads(last)["queue"] == "antenna"
    else:
        assert last.endswith("ami.queues: Queue depth unknown queue=antenna")


def tick_record(name: str, message: str, *args: object, **more: object) -> logging.LogRecord:
    record = logging.LogRecord(name, logging.INFO, __file__, 1, message, args, None)
    vars(record).update(more)
    return record


TICK = "ami.main.tasks.purge_old_rows"


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_lines_about_ticks_are_debug_and_others_keep_their_level(level):
    ticks = [
        tick_record("celery.beat", "Scheduler: Sending due task %s (%s)", TICK, TICK),
        tick_record("celery.worker.strategy", "Task %(name)s received", data={"name": TICK}),
        tick_record("celery.app.trace", "Task succeeded", data={"name": TICK}),
        tick_record("ami.celery.staged_runs", "finished job", task=TICK),
        tick_record("ami.admission.dispatcher", "Added job '%s' to queue", TICK),
    ]
    others = [
        tick_record("celery.app.trace", "Task succeeded", data={"name": "ami.jobs.tasks.run_job"}),
        tick_record("ami.admission.dispatcher", "Added job '%s' to queue", "ami.jobs.tasks.run_job"),
        tick_record("ami.main.tasks", "3 counts mended", task=TICK),
        tick_record("celery.beat", "beat: Starting..."),
    ]
    shown = TicksAreDebug(level)
    assert [shown.filter(record) for record in ticks] == [level == "DEBUG"] * 5
    assert {record.levelname for record in ticks} == {"DEBUG"}
    assert all(shown.filter(record) and record.levelname == "INFO" for record in others)
    failed = tick_record("celery.app.trace", "Task raised", data={"name": TICK})
    failed.levelno = logging.ERROR
    assert shown.filter(failed)
