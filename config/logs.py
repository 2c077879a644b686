"""The format of log lines, as text or JSON, with the fields of ``extra`` and of the running task."""

import json
import logging
import re
from datetime import UTC, datetime
from functools import cache
from typing import Any

from celery import current_task, signals

from ami.celery.outages import OutageFilter
from ami.queues.redaction import redact

#: Loggers whose ``extra`` is shown: those of libraries hold requests, arguments and SQL.
OWN = ("ami.", "config.")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PLAIN = re.compile(r"[^\s\"'=]+")

_process: dict[str, str] = {}


class TextFormatter(logging.Formatter):
    """One line of text; the fields of a line of ours are appended as ``key=value``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        fields = {**task_fields(), **own_fields(record)} if record.name.startswith(OWN) else {}
        return " ".join([super().formatMessage(record), *(f"{key}={_text(fields[key])}" for key in fields)])


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (UTC), level, logger, process, message, fields, and an exception's traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        fields = {**_process, **task_fields(), **own_fields(record)}
        line |= {key: value for key, value in fields.items() if key not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, default=str)


class TicksAreDebug(logging.Filter):
    """Makes lines that say that a task was sent, received and ended DEBUG where its entry of the schedule asked for it.

    What such a task itself logs keeps its level.
    """

    def __init__(self, level: str) -> None:
        super().__init__()
        self._level: int = logging.getLevelNamesMapping()[level]

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno == logging.INFO and _is_tick(record):
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return record.levelno >= self._level


def _is_tick(record: logging.LogRecord) -> bool:
    if record.name == "celery.beat":
        return "Sending due task" in record.msg
    if record.name == "ami.admission.dispatcher" and "fetched" in record.msg:
        return True  # A line for each of them follows.
    if record.name not in (
        "ami.admission.dispatcher",
        "ami.celery.staged_runs",
        "celery.worker.strategy",
        "celery.app.trace",
    ):
        return False
    data = getattr(record, "data", None)
    name = data.get("name") if isinstance(data, dict) else getattr(record, "task", None)
    if name is None and record.name == "ami.admission.dispatcher" and isinstance(record.args, tuple) and record.args:
        name = record.args[0]
    return name in _scheduled()


@cache
def _scheduled() -> frozenset[str]:
    from ami.queues.schedule import declared

    return frozenset(entry.task for entry in declared())


#: By the values of ``ANTENNA_LOG_FORMAT``.
FORMATTERS: dict[str, type[logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


def task_fields() -> dict[str, str]:
    """Return task, task_id, queue and worker of the task that runs in this thread, as far as they are known."""
    if not current_task or current_task.request.called_directly:
        return {}
    request = current_task.request
    # The routing key of a delayed message has the delay's bits before the queue.
    queue = str((request.delivery_info or {}).get("routing_key") or "").rsplit(".", 1)[-1]
    fields = {"task": current_task.name, "task_id": request.id, "queue": queue, "worker": request.hostname}
    return {key: value for key, value in fields.items() if value}


def own_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return what a line of ours has in ``extra``, its secrets masked."""
    if not record.name.startswith(OWN):
        return {}
    masked: dict[str, Any] = redact(
        {key: value for key, value in vars(record).items() if key not in _STANDARD and value is not None}
    )
    return masked


def _text(value: Any) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


@signals.celeryd_init.connect(dispatch_uid="antenna_log_worker")
def _remember_worker(sender: str | None = None, **_: Any) -> None:
    _process["worker"] = str(sender)


@signals.after_setup_logger.connect(dispatch_uid="antenna_log_format")
@signals.after_setup_task_logger.connect(dispatch_uid="antenna_log_format")
def _format_celerys_handlers(**_: Any) -> None:
    """Replace the formats of the handlers that Celery adds, and filter them: Django's root handler has both already."""
    from celery.utils.log import get_multiprocessing_logger
    from django.conf import settings

    for logger in (logging.getLogger(), get_multiprocessing_logger(), logging.getLogger("celery.task")):
        for handler in logger.handlers:
            handler.setFormatter(FORMATTERS[settings.LOG_FORMAT]())
            if not any(isinstance(each, OutageFilter) for each in handler.filters):
                handler.addFilter(OutageFilter())
