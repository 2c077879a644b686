"""Why a task failed is on record within seconds, however it died, and beside its dead letter."""

import importlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from celery.events import EventReceiver
from django.apps import apps
from django.test import Client
from kombu import Connection

from ami.queues.models import Letter, TaskFailure, Worker
from tests.support.brokers import ON_FOLDER, ON_RABBITMQ
from tests.support.cut_relay import cut_relay
from tests.support.place import BROKERS, Place, new_place, until
from tests.support.product import factories

T, S = "tests.support.worker_tasks.basic", "tests.support.worker_tasks.secret"
CANARY = "canary-4b1d7c2e"
#: Retries are routed by name, and the tasks of tests have no rule.
QUEUE = "antenna"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with new_place("failures", request.param) as made:
        made.use_test_database()
        made.environment["ANTENNA_EXTRA_TASKS"] = f"{T},{S}"
        made.queues("declare")
        yield made


def tries(task_id: str) -> list[Any]:
    rows = TaskFailure.objects.filter(task_id=task_id).order_by("retries", "failed_at")
    return [(row.kind, row.exception.rpartition(".")[2], row.retries) for row in rows]


@pytest.mark.parametrize("place", ON_RABBITMQ, indirect=True)
def test_forged_message_that_fails_holds_up_no_other_failure(place: Place):
    worker = place.worker(QUEUE)
    forged = [{"x-delivery-count": count} for count in (2**31, 2**40, 2**62, -1, 2.5, "7", True)]
    forged += [{"x-delivery-count": 2**40, "antenna_began_at": "x", "antenna_next": "x", "antenna_run": ["x"]}]
    sent = [place.app.send_task(f"{T}.fail", queue=QUEUE, headers=headers).id for headers in [*forged, {}]]
    until(lambda: all(map(tries, sent)), 60, lambda: worker.text[-3000:])
    assert "not recorded" not in worker.text


@pytest.mark.parametrize("place", BROKERS[:1], indirect=True)
def test_causes_wait_while_the_database_is_away_also_over_a_restart(place: Place):
    if not place.environment["DATABASE_URL"].startswith("postgres"):
        pytest.skip("a file has no network")
    with cut_relay(place.environment["DATABASE_URL"], 5432) as database:
        place.environment["DATABASE_URL"] = database.url(place.environment["DATABASE_URL"])
        worker = place.worker(QUEUE)
        until(Worker.objects.exists, what="the worker has a row")
        database.cut()
        before = place.send(f"{T}.fail", queue=QUEUE)
        until(lambda: "at once" in worker.text, seconds=20, what="it failed")
        worker.kill()
        restarted = place.worker(QUEUE)
        after = place.send(f"{T}.fail", queue=QUEUE)
        until(lambda: "at once" in restarted.text, seconds=20, what="the other one failed")
        assert not TaskFailure.objects.exists()
        database.mend()
        until(lambda: tries(before) and tries(after), seconds=30, what="both are on record")


def read_events(place: Place, connection: Connection, texts: list[str]) -> None:
    """Begin to read every event of tasks, as Flower does."""
    receiver = EventReceiver(connection, handlers={"*": lambda event: texts.append(repr(event))}, app=place.app)
    channel = connection.default_channel
    (consumer,) = receiver.get_consumers(lambda **options: connection.Consumer(**options), channel)
    consumer.consume()


def answers(connection: Connection) -> None:
    """Read what the broker has sent."""
    with suppress(TimeoutError):
        while True:
            connection.drain_events(timeout=0.05)


def dump() -> str:
    """Return every row of this project's tables as text, apart from the protected bytes of letters."""
    rows = [
        {name: value for name, value in row.items() if name not in ("body", "original")}
        for model in apps.get_models()
        if model._meta.app_label in ("queues", "django_celery_results")
        for row in model._default_manager.values()
    ]
    return repr(rows)


def seen_active(place: Place, task: str) -> str:
    """Return what ``inspect active`` shows once it shows the task."""
    shown = [""]

    def is_shown() -> bool:
        shown[0] = repr(place.app.control.inspect(timeout=20, limit=1).active())
        return task in shown[0]

    until(is_shown, seconds=20, what="it is shown as active")
    return shown[0]


@pytest.mark.parametrize("place", ON_FOLDER, indirect=True)
def test_canary_in_a_sensitive_argument_appears_nowhere_but_in_the_message(place: Place, settings: Any):
    settings.ANTENNA_COLLECT_LETTERS = True
    place.environment["ANTENNA_COLLECT_LETTERS"] = "1"
    worker = place.worker(QUEUE, "-E")
    # Imported by who publishes, as the task of an application is.
    use_token = importlib.import_module(S).use_token
    events: list[str] = []
    with place.app.connection_for_read() as reading:
        read_events(place, reading, events)
        task = use_token.apply_async((3, CANARY), queue=QUEUE).id
        until(lambda: f"{task}] received" in worker.text, seconds=20, what="it runs")
        active = seen_active(place, task)
        until(lambda: Letter.objects.exists(), seconds=30, what="it is buried and collected")
        until(lambda: (answers(reading), "task-failed" in "".join(events))[1], seconds=20, what="its events are read")
    until(lambda: len(tries(task)) == 2, seconds=10, what="both causes are on record")
    (letter,) = Letter.objects.all()
    staff = Client()
    staff.force_login(factories.user(is_staff=True, is_superuser=True))
    pages = ("/admin/queues/letter/", f"/admin/queues/letter/{letter.pk}/change/", f"/api/v2/letters/{letter.pk}/")
    letters = repr(place.queues("letters", "show", str(letter.pk)).json)
    assert "the service refused ********" in letters
    shown = {"log": worker.text, "inspect": active, "events": "".join(events), "rows": dump(), "letters": letters}
    shown |= {page: staff.get(page).content.decode() for page in pages}
    assert all(task in text for text in shown.values())
    assert [name for name, text in shown.items() if CANARY in text] == []
    assert CANARY in bytes(letter.body).decode()
    assert CANARY in str(place.queues("letters", "body", str(letter.pk)).json)
