"""Each bad end of a task leads to the letter or the state that the table in docs/operations/failures.md names."""

import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from ami.queues import task_state
from ami.queues.models import Letter, TaskFailure, TaskRun
from ami.topology import broker
from tests.support.brokers import ON_FOLDER
from tests.support.place import BROKERS, ROOT, Place, new_place, until

B, L = "tests.support.worker_tasks.basic", "tests.support.worker_tasks.letters"
QUEUE, DEAD = "antenna", "antenna.dlq"

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass(frozen=True)
class Death:
    """``reason`` of its letter, empty where there is none; ``tries`` are the kinds of its failures on record."""

    send: Callable[[Place], str]
    reason: str = "rejected"
    exception: str = ""
    tries: tuple[str, ...] = ()
    state: str = "failed"


def sent(task: str, **options: Any) -> Callable[[Place], str]:
    return lambda place: place.send(task, queue=QUEUE, **options)


def raw(name: str, exchange: str = "", key: str = QUEUE, body: str = "[[], {}, {}]", **headers: Any) -> Any:
    def publish(place: Place) -> str:
        with place.app.connection_for_write() as connection, connection.channel() as channel:
            given = {"id": name, "task": f"{B}.succeed", "lang": "py", **headers}
            message = channel.prepare_message(body, None, "application/json", "utf-8", given, {"correlation_id": name})
            channel.basic_publish(message, exchange=exchange, routing_key=key)
        return name

    return publish


def returned_too_often(place: Place) -> str:
    """Take a message and lose the connection, as a worker that dies at every start."""
    name = raw("returned")(place)
    with place.app.connection_for_read() as connection:
        for _ in range(broker.DELIVERY_LIMIT + 1):
            channel = connection.channel()
            until(lambda channel=channel: channel.basic_get(QUEUE, no_ack=False), 10, "it is delivered again")
            channel.close()
    return name


def cancelled(place: Place) -> str:
    task = place.send(f"{B}.succeed", queue=QUEUE)
    place.queues("cancel", task)
    return task


def disabled(place: Place) -> str:
    place.queues("disable", f"{B}.retry_once")
    return place.send(f"{B}.retry_once", queue=QUEUE)


DEATHS = {
    "it raises": Death(sent(f"{B}.fail"), exception="ValueError", tries=("error",)),
    "retries used up": Death(
        sent(f"{B}.fail_after_retries"), exception="ValueError", tries=("retry", "retry", "error")
    ),
    "soft time limit": Death(sent(f"{L}.exceed_soft_limit"), exception="SoftTimeLimitExceeded", tries=("error",)),
    "hard time limit": Death(
        sent(f"{B}.run_too_long"), exception="TimeLimitExceeded", tries=("time limit", "time limit")
    ),
    "its process is lost": Death(
        sent(f"{B}.lose_the_child"), exception="WorkerLostError", tries=("process lost", "process lost")
    ),
    "memory ceiling": Death(
        sent(f"{B}.run_out_of_memory"), exception="MemoryLimitExceeded", tries=("memory", "memory")
    ),
    "delivery limit": Death(returned_too_often, reason="delivery_limit"),
    "no binding": Death(raw("unrouted", broker.EXCHANGE_NAME, "nowhere"), reason="unrouted"),
    "no task message": Death(raw("malformed", body="{"), reason="malformed"),
    "it expired": Death(sent(f"{B}.succeed", expires=0.5), reason="", exception="TaskRevokedError", tries=("expired",)),
    "it was cancelled": Death(
        cancelled, reason="", exception="TaskRevokedError", tries=("cancelled",), state="cancelled"
    ),
    "it is disabled": Death(disabled, reason="disabled", state="disabled"),
}


@pytest.fixture(params=BROKERS)
def place(request: pytest.FixtureRequest, settings: Any) -> Iterator[Place]:
    settings.ANTENNA_COLLECT_LETTERS = True
    with new_place("deaths", request.param) as made:
        made.use_test_database()
        made.environment |= {"ANTENNA_COLLECT_LETTERS": "1", "ANTENNA_EXTRA_TASKS": f"{B},{L}"}
        for module in (B, L):
            importlib.import_module(module)  # As who disables knows the application's tasks.
        made.queues("declare")
        yield made


def seen(place: Place, ids: dict[str, str]) -> dict[str, Any]:
    """Return of each death its letter's reason and exception, the kinds of its tries, and its state."""
    found = {}
    for name, task in ids.items():
        letter = Letter.objects.filter(task_id=task).first()
        tries = TaskFailure.objects.filter(task_id=task).order_by("failed_at")
        last = tries.last()
        found[name] = (
            letter.reason if letter else "",
            (letter.exception if letter and letter.exception else last.exception if last else "").rpartition(".")[2],
            tuple(row.kind for row in tries),
            task_state.of(task).state,
        )
    return found


# kombu publishes a broadcast and its answers with retries, so the worker's answer may come twice.
@pytest.mark.filterwarnings("ignore:Received multiple replies from node name")
def test_every_way_to_die_leads_to_its_letter_and_its_cause(place: Place):
    expected = {name: (each.reason, each.exception, each.tries, each.state) for name, each in DEATHS.items()}
    first = ("delivery limit", "it expired", "it was cancelled", "it is disabled")
    ids = {name: DEATHS[name].send(place) for name in first}
    place.worker(QUEUE)
    ids |= {name: each.send(place) for name, each in DEATHS.items() if name not in first}
    with suppress(AssertionError):  # The comparison below says which is missing.
        until(lambda: seen(place, ids) == expected, seconds=60)
    assert seen(place, ids) == expected

    letters = {row["task_id"]: row for row in place.queues("letters", "list").json}
    assert letters[ids["it raises"]]["place"].endswith(" in fail")
    row = TaskFailure.objects.get(task_id=ids["it raises"])
    assert 'raise ValueError("at once")' in row.traceback
    assert row.peak_kib > 10_000
    shown = place.queues("letters", "show", str(letters[ids["delivery limit"]]["id"])).json
    assert shown["missing"] == "no failure of it is on record; the broker says: delivery_limit"
    causes = {row["message"]: row["tries"] for row in place.queues("failures", "--causes").json}
    assert (causes["always"], causes["at once"]) == (3, 1)
    old_command = {row["task_id"]: row["detail"] for row in place.queues("dead-letters", DEAD).json}
    assert "ValueError: at once at tests/support/worker_tasks/basic.py:" in old_command[ids["it raises"]]


@pytest.mark.parametrize("place", ON_FOLDER, indirect=True)
def test_task_that_was_delivered_again_and_ended_at_once_is_not_shown_as_computing(place: Place):
    task = place.send(f"{B}.succeed", queue=QUEUE)
    with place.app.connection_for_read() as connection, connection.channel() as channel:
        until(lambda: channel.basic_get(QUEUE, no_ack=False), 10, "it is delivered")
    place.worker(QUEUE)
    until(lambda: TaskRun.objects.filter(task_id=task, attempts=2).exists(), 20, "its second start is counted")
    until(lambda: task_state.of(task).state == task_state.NO_TRACE, 20, "it has ended")


def test_table_of_the_operators_page_names_every_death():
    text = (ROOT / "docs" / "operations" / "failures.md").read_text()
    table = text.partition("| how it ended |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) == list(DEATHS)
