"""The operations as actions of the admin: each asks for the reason first."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from celery import current_app
from django.conf import settings
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from ami.queues import broker_errors, cancellations, disabling, worker_operations
from ami.queues import messages as queue_messages
from ami.queues.admin_site.user_messages import selected_rows
from ami.queues.confirmations import Confirmed
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator, moment

#: A page does not wait for the workers; the list shows who has confirmed.
NO_WAIT = {"seconds": 0}
#: Of one request; the command moves any number.
MOST_MOVED = 1000

#: Runs an operation on the row of this name, with the values of the asked fields; returns a sentence.
Operation = Callable[[str, Operator, str, dict[str, str]], str]


@dataclass(frozen=True)
class Field:
    """What an action asks for besides the reason.

    ``kind`` is the HTML input's, ``queue`` for a list of them, or ``choice`` for one of ``choices``.
    """

    name: str
    label: str
    kind: str = "text"
    is_required: bool = False
    choices: tuple[str, ...] = ()


COUNT = Field("count", "How many are deleted: type their number", "number", is_required=True)
PROCESSES = Field("count", "Processes (0: what it was started with)", "number", is_required=True)
UNTIL = Field("until", "Until (it then undoes itself)", "datetime-local")


def expected() -> tuple[type[BaseException], ...]:
    """Return the errors that the user reads as a message."""
    return Refused, *broker_errors.kinds()


def page(model_admin: Any, request: HttpRequest, template: str, title: str, **context: Any) -> HttpResponse:
    """Return a page of the admin's with what stands around it."""
    around = {**model_admin.admin_site.each_context(request), "title": title, "opts": model_admin.model._meta}
    return TemplateResponse(request, f"admin/queues/{template}.html", {**around, **context})


def ask(
    model_admin: Any,
    request: HttpRequest,
    verb: str,
    rows: Iterable[Any],
    fields: tuple[Field, ...],
    names: Callable[[Any], str] = str,
    fact: Callable[[str], str] = lambda _: "",
) -> HttpResponse:
    """Return the page that asks for the reason and ``fields``; its form comes back with ``confirmed``.

    ``fact`` returns what a user should know of a row before.
    """
    listed = list(rows)
    context = {
        "verb": verb,
        "rows": listed,
        "facts": [known for row in listed if (known := fact_of(names(row), fact))],
        "fields": fields,
        "queues": [row.queue for row in settings.ANTENNA_TOPOLOGY.workloads],
        "action": request.POST.get("action", ""),
    }
    title = f"{verb.capitalize()} {', '.join(names(row) for row in listed)[:200]}?"
    return page(model_admin, request, "ask_why", title, **context)


def fact_of(name: str, fact: Callable[[str], str]) -> str:
    """Return what ``fact`` says of a target, or why it cannot."""
    try:
        return fact(name)
    except Refused as error:
        return str(error)
    except expected() as error:
        return broker_errors.sentence(error)


def operation_action(
    verb: str,
    operation: Operation,
    names: Callable[[Any], str],
    permission: str,
    fields: tuple[Field, ...] = (),
    fact: Callable[[str], str] = lambda _: "",
) -> Any:
    """Return an action that asks for the reason and ``fields``, then runs the operation on each selected row."""

    def act(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        rows = list(selected_rows(request, queryset))
        if "confirmed" not in request.POST:
            return ask(model_admin, request, verb, rows, fields, names, fact)
        given = {field.name: str(request.POST.get(field.name, "")).strip() for field in fields}
        operator, why = Operator(request.user, "admin"), str(request.POST.get("why", ""))
        for row in rows:
            try:
                sentence = operation(names(row), operator, why, given)
            except expected() as error:
                messages.error(request, f"{names(row)}: {error}")
            else:
                messages.success(request, f"{verb.capitalize()}: {names(row)}. {sentence}")
        return None

    act.__name__ = verb
    act.records_itself = True  # type: ignore[attr-defined]
    return admin.action(description=f"{verb.capitalize()} the selected", permissions=[permission])(act)


def wish(operation: Callable[..., Any], **options: Any) -> Operation:
    def run(name: str, operator: Operator, why: str, given: dict[str, str]) -> str:
        until = {"until": moment(given["until"])} if given.get("until") else {}
        found = operation(settings.ANTENNA_TOPOLOGY, name, operator, why=why, **options, **until)
        return f"The workers confirm within seconds. {found.warning}".strip()

    return run


def scale(name: str, operator: Operator, why: str, given: dict[str, str]) -> str:
    count = _number(given["count"], 10_000)
    worker_operations.scale(settings.ANTENNA_TOPOLOGY, name, count, operator, why=why, **NO_WAIT)
    return "The workers confirm within seconds."


def cancel(name: str, operator: Operator, why: str, _: dict[str, str]) -> str:
    node = cancellations.cancel(name, operator, why=why).node
    return f"{node} ends it within 30 s." if node else "It is dropped when a worker receives it."


def purge(name: str, operator: Operator, why: str, given: dict[str, str]) -> str:
    count = _number(given["count"], 10**9)
    with current_app.connection_for_write() as connection:
        purged = queue_messages.purge(settings.ANTENNA_TOPOLOGY, connection, name, operator, why=why, expected=count)
    return f"{purged} messages."


def waiting(name: str) -> str:
    """Say how many messages a purge would delete.

    Raises:
        Refused: no such queue.
    """
    queue_messages.refuse_unknown(settings.ANTENNA_TOPOLOGY, name)
    with current_app.connection_for_read() as connection:
        return f"{queue_messages.purgeable(connection, name)} wait in {name} now."


def last_worker(name: str) -> str:
    """Say which queues are left without a worker once this one is parked; empty without one."""
    return Confirmed(left=worker_operations.last_of(settings.ANTENNA_TOPOLOGY, name)).warning


def move(name: str, operator: Operator, why: str, given: dict[str, str]) -> str:
    limit = _number(given["limit"] or str(MOST_MOVED), MOST_MOVED)
    with current_app.connection_for_write() as connection:
        moved = queue_messages.move(
            settings.ANTENNA_TOPOLOGY,
            connection,
            name,
            given["to"],
            operator,
            why=why,
            task=given["task"],
            limit=limit,
        )
    calls = f" and {moved.calls} calls" if moved.calls else ""
    return f"{moved.moved} messages{calls} to {given['to']}; {moved.passed} others are at the end of their queue."


def disable(name: str, operator: Operator, why: str, given: dict[str, str]) -> str:
    until = moment(given["until"]) if given.get("until") else None
    disabling.disable(name, operator, why=why, until=until)
    return "What begins from now on is set aside; what runs goes on."


def enable(name: str, operator: Operator, why: str, _: dict[str, str]) -> str:
    disabling.enable(name, operator, why=why)
    return "What was set aside goes to the tail of its queue within seconds."


def number(text: str) -> float:
    """Return a number that a user has written.

    Raises:
        Refused: it is none.
    """
    try:
        return float(text[:40])
    except ValueError:
        raise Refused(f"'{text[:40]}' is not a number.") from None


def _number(text: str, most: int) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text[:10]) > most:
        raise Refused(f"'{text[:40]}' is not a number from 0 to {most}.")
    return int(text)
