"""Findings about calls that wait as rows for a task that no worker has: the release that had it is gone."""

from collections.abc import Iterable, Iterator
from typing import Any

from ami.admission.waiting_tasks import waiting_tasks
from ami.celery.thread_database import database_block
from ami.queues.diagnostics.finding import Finding
from ami.queues.governors import INSPECT_SECONDS


def findings(app: Any, workers: Iterable[str]) -> list[Finding]:
    """Return what none of ``workers``, who have just answered, can run; nothing where one of them does not say.

    Raises:
        django.db.Error: the database did not answer.
    """
    with database_block():
        return list(_findings(app, set(workers)))


def _findings(app: Any, workers: set[str]) -> Iterator[Finding]:
    waiting = waiting_tasks()
    if not waiting or not workers:
        return
    answers = app.control.inspect(timeout=INSPECT_SECONDS, limit=len(workers)).registered() or {}
    if not workers <= answers.keys():
        return
    known = {name.partition(" [")[0] for names in answers.values() for name in names}  # "name [rate_limit=1/s]"
    for each in waiting:
        if each.task not in known:
            queues = ", ".join(each.queues)
            sentence = (
                f"{each.calls} calls of {each.task} wait in {queues}, and no living worker knows the task. Start a "
                f"worker of a version that has it, or delete them: 'manage.py queues peek {each.queues[0]}' shows "
                "their ids, and 'queues release ID --drop' deletes one."
            )
            yield Finding("error", "stranded-calls", sentence, each.task)
