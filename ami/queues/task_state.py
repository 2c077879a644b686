"""Where one task is, by its id."""

from collections.abc import Iterator
from dataclasses import dataclass

from celery import current_app, states
from django_celery_results.models import TaskResult
from kombu import Connection

from ami.admission import waiting_calls
from ami.celery.shown_time import shown_time
from ami.queues import broker_errors, failures, messages
from ami.queues.letters import rows
from ami.queues.models import DesiredState, Letter, TaskFailure, TaskRun, TickClaim, Worker
from ami.queues.refusals import Refused
from ami.queues.targets import Kind
from ami.topology.topology import Topology

NO_TRACE = "no trace: waiting, ended well, or never sent"
INSPECT_SECONDS = 1.0


@dataclass(frozen=True)
class TaskState:
    """``state`` is computing, initial, pending, failed, disabled, cancelled, ended, or `NO_TRACE`.

    ``detail`` says where and why in a sentence, ``letter`` is the number of its dead letter, and ``cost`` what the
    search did to the messages it looked at.
    """

    task_id: str
    state: str
    detail: str = ""
    task: str = ""
    letter: int | None = None
    cost: str = ""


def of(task_id: str) -> TaskState:
    """Return the state of a task: from the database, then from the workers that answer within a second."""
    return on_record(task_id) or next(_at_workers(task_id), TaskState(task_id, NO_TRACE))


def on_record(task_id: str) -> TaskState | None:
    """Return the state of a task as the database has it; None where it has no trace. At most ten statements."""
    return next(_in_database(task_id), None)


def search(topology: Topology, connection: Connection, task_id: str) -> TaskState:
    """Return the state of a task; where there is no trace, look for it at the head of every queue.

    On RabbitMQ each message seen there is delivered once more, which ``cost`` says.

    Raises:
        what the broker's connection raises.
    """
    found = of(task_id)
    if found.state != NO_TRACE:
        return found
    costs = []
    for queue in topology.queues:
        try:
            peeked = messages.peek(topology, connection, queue)
        except Refused as error:
            costs.append(str(error))
            continue
        if peeked.cost:
            costs.append(f"{queue}: {peeked.cost}")
        for place, message in enumerate(peeked.messages, 1):
            if message.task_id == task_id:
                return TaskState(task_id, "pending", f"number {place} in {queue}", message.task, cost="; ".join(costs))
    detail = f"not among the first {messages.MOST_PEEKED} messages of any queue"
    return TaskState(task_id, NO_TRACE, detail, cost="; ".join(costs))


def _in_database(task_id: str) -> Iterator[TaskState]:
    """Yield what is on record, the surest first."""
    letter = Letter.objects.filter(task_id=task_id).order_by("-pk").defer("body", "original").first()
    if letter is not None and letter.state == Letter.State.SET_ASIDE:
        yield TaskState(
            task_id, "disabled", f"set aside since {shown_time(letter.collected_at)}", letter.task, letter.pk
        )
    yield from _running(task_id)
    if letter is not None:
        yield _of_letter(task_id, letter)
    yield from _asked_for(task_id)
    if row := waiting_calls.of_task(task_id):
        yield TaskState(task_id, "pending", row.detail, row.task)
    yield from _ended(task_id)


def _running(task_id: str) -> Iterator[TaskState]:
    for worker in Worker.objects.exclude(verdict="dead"):
        for task in worker.running:
            if task.get("id") == task_id:
                yield _computing(task_id, str(task.get("name", "")), worker.node, str(task.get("progress", "")))
    if run := TaskRun.objects.filter(task_id=task_id, ended_at=None).first():
        yield _computing(task_id, run.task, run.node, run.progress)


def _asked_for(task_id: str) -> Iterator[TaskState]:
    if wish := DesiredState.objects.filter(kind=Kind.TASK, name=task_id, value=1).first():
        yield TaskState(
            task_id, "cancelled", f"by {wish.by} at {shown_time(wish.since)}{f': {wish.why}' if wish.why else ''}"
        )
    if claim := TickClaim.objects.filter(task_id=task_id, ended_at=None).select_related("entry").first():
        where = "sent" if claim.is_sent else "about to be sent"
        state = "pending" if claim.is_sent else "initial"
        at = f" at {shown_time(claim.claimed_at)}" if claim.claimed_at else ""
        yield TaskState(task_id, state, f"{where} by {claim.claimed_by}{at}", claim.entry.task)


def _ended(task_id: str) -> Iterator[TaskState]:
    if result := TaskResult.objects.filter(task_id=task_id).first():
        state = "failed" if result.status == states.FAILURE else "ended"
        yield TaskState(task_id, state, f"{result.status} at {shown_time(result.date_done)}", result.task_name or "")
    if failure := TaskFailure.objects.filter(task_id=task_id).order_by("failed_at", "pk").last():
        state = "pending" if failure.kind == "retry" else "failed"
        yield TaskState(task_id, state, failures.sentence(failure), failure.task)


def _of_letter(task_id: str, letter: Letter) -> TaskState:
    if letter.state == Letter.State.DEAD:
        (shown,) = failures.explained([rows.shown(letter)])
        return TaskState(
            task_id, "failed", f"dead letter in {letter.queue}: {shown.detail or shown.reason}", letter.task, letter.pk
        )
    at = shown_time(letter.replayed_at) if letter.replayed_at else shown_time(letter.collected_at)
    if letter.state == Letter.State.DONE:
        return TaskState(task_id, "ended", f"succeeded after it was replayed at {at}", letter.task, letter.pk)
    state = "failed" if letter.state == Letter.State.DISCARDED else "pending"
    return TaskState(task_id, state, f"its dead letter was {letter.state} at {at}", letter.task, letter.pk)


def _at_workers(task_id: str) -> Iterator[TaskState]:
    try:
        answers = current_app.control.inspect(timeout=INSPECT_SECONDS).query_task(task_id) or {}
    except broker_errors.kinds():
        return
    for node, found in answers.items():
        for state, request in (found or {}).values():
            name = str(request.get("name", ""))
            if state == "active":
                yield _computing(task_id, name, node, "")
            else:
                yield TaskState(task_id, "initial", f"{node} holds it until it is due or a process is free", name)


def _computing(task_id: str, task: str, node: str, progress: str) -> TaskState:
    return TaskState(task_id, "computing", f"on {node}{f': {progress}' if progress else ''}", task)
