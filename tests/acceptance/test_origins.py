"""Who asked decides: a tick, a click, and "run selected tasks" of the same task, and a retry of each."""

import json
from typing import Any

import pytest
from celery import current_app
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse
from django_celery_beat.models import IntervalSchedule, PeriodicTask
from rest_framework.test import APIClient

from ami.main.models import User
from ami.ml.models import ProcessingService
from ami.queues.publish import publish_for_user
from tests.support.place import BROKERS, RABBITMQ, Place, new_place, until
from tests.support.soak import soak

pytestmark = pytest.mark.django_db(transaction=True)

RETRYING = "ami.jobs.tasks.audit_retrying_once"
PUBLISHING = "ami.jobs.tasks.audit_publishing"
HOUSEKEEPING, INTERACTIVE, INGEST, FALLBACK = (
    "antenna-housekeeping",
    "antenna-interactive",
    "antenna-ingest",
    "antenna",
)
RETRIES = pytest.mark.parametrize("countdown", [0, 2], ids=["immediate retry", "countdown retry"])


@pytest.fixture(scope="module")
def tasks():
    """The tasks of this module's own, known to this process while it runs."""
    before = set(current_app.tasks)
    from tests.support.worker_tasks import origins  # Importing it is what registers them.

    yield origins
    for name in set(current_app.tasks) - before:
        if name.rsplit(".", 1)[-1] in vars(origins):
            current_app.tasks.pop(name)


#: A header is a header on every broker; the folder has its turn in the long form.
ON = soak((RABBITMQ,), BROKERS)


@pytest.fixture(scope="module", params=ON)
def deployment(request: pytest.FixtureRequest, django_db_setup: None, tasks: Any):
    """Four workers that know those tasks."""
    with new_place("origins", request.param) as place:
        place.use_test_database()
        place.environment["ANTENNA_EXTRA_TASKS"] = "tests.support.worker_tasks.basic,tests.support.worker_tasks.origins"
        place.queues("declare")
        place.workers(HOUSEKEEPING, INTERACTIVE, INGEST, FALLBACK)
        yield place


@pytest.fixture
def superuser() -> User:
    return User.objects.create_user("root@example.org", "secret-word", is_staff=True, is_superuser=True)


def entry(task: str, *, enabled: bool, **kwargs: Any) -> PeriodicTask:
    """A row of the schedule that beat sends once, a second from now, if it is enabled at all."""
    second, _ = IntervalSchedule.objects.get_or_create(every=1, period="seconds")
    return PeriodicTask.objects.create(
        name=f"{task} {kwargs}", task=task, interval=second, kwargs=json.dumps(kwargs), one_off=True, enabled=enabled
    )


def run_selected(superuser: User, row: PeriodicTask) -> str:
    """Click on "Run selected tasks now"; return the id of the task that the admin names."""
    browser = Client()
    browser.force_login(superuser)
    path = reverse("admin:django_celery_beat_periodictask_changelist")
    answer = browser.post(path, {"action": "run_tasks", "_selected_action": [row.pk]})
    (message,) = [str(message) for message in get_messages(answer.wsgi_request)]
    assert f"sent to {INTERACTIVE}" in message
    return message.partition(": task ")[2].split()[0]


def tries(place: Place, **fields: Any) -> list[tuple[str, str, int]]:
    """Queue, origin and number of each of the two tries of the task."""
    found = until(lambda: len(found := place.ran(RETRYING, **fields)) == 2 and found, what=f"both tries of {fields}")
    return [(record["consumed_from"], record["origin"], record["retries"]) for record in found]


@RETRIES
def test_tick_of_beat_and_its_retry_run_on_housekeeping(deployment: Place, tasks: Any, countdown: int):
    entry(RETRYING, enabled=True, countdown=countdown)
    began = len(deployment.ran(RETRYING))
    beat = deployment.beat()
    until(lambda: len(deployment.ran(RETRYING)) == began + 2, what="the tick and its retry")
    assert beat.stop() == 0
    sent = deployment.ran(RETRYING)[began:]
    assert len({record["id"] for record in sent}) == 1
    assert [(record["consumed_from"], record["origin"], record["retries"]) for record in sent] == [
        (HOUSEKEEPING, "beat", 0),
        (HOUSEKEEPING, "beat", 1),
    ]


@RETRIES
def test_what_a_person_asks_for_and_its_retry_run_on_interactive(deployment: Place, tasks: Any, countdown: int):
    published = publish_for_user(tasks.audit_retrying_once, countdown=countdown)
    assert published.queue == INTERACTIVE
    assert tries(deployment, id=published.task_id) == [(INTERACTIVE, "person", 0), (INTERACTIVE, "person", 1)]


@RETRIES
def test_run_selected_tasks_and_its_retry_run_on_interactive(
    deployment: Place, superuser: User, tasks: Any, countdown: int
):
    task_id = run_selected(superuser, entry(RETRYING, enabled=False, countdown=countdown))
    assert tries(deployment, id=task_id) == [(INTERACTIVE, "person", 0), (INTERACTIVE, "person", 1)]


def test_click_through_the_api_runs_a_housekeeping_task_on_interactive(deployment: Place, superuser: User):
    service = ProcessingService.objects.create(name="a puller")
    client = APIClient()
    client.force_authenticate(superuser)
    answer = client.post(reverse("processing-service-check", args=[service.pk]))
    assert (answer.status_code, answer.data["queue"]) == (202, INTERACTIVE)
    ran = until(lambda: deployment.ran("check_processing_service", id=answer.data["task_id"]))
    assert (ran[0]["consumed_from"], ran[0]["origin"]) == (INTERACTIVE, "person")


@RETRIES
def test_task_without_an_asker_retries_on_its_own_queue(deployment: Place, countdown: int):
    task_id = deployment.send(RETRYING, kwargs={"countdown": countdown})
    assert tries(deployment, id=task_id) == [(HOUSEKEEPING, "task", 0), (HOUSEKEEPING, "task", 1)]


@RETRIES
@pytest.mark.parametrize(("origin", "home"), [("person", INTERACTIVE), ("beat", HOUSEKEEPING)])
def test_queue_given_in_the_call_holds_for_the_first_try_alone(
    deployment: Place, countdown: int, origin: str, home: str
):
    task_id = deployment.send(RETRYING, kwargs={"countdown": countdown}, queue=FALLBACK, origin=origin)
    assert tries(deployment, id=task_id) == [(FALLBACK, origin, 0), (home, origin, 1)]


@pytest.mark.parametrize(
    ("origin", "publisher", "subtask"),
    [("person", INTERACTIVE, INTERACTIVE), ("beat", HOUSEKEEPING, HOUSEKEEPING)],
)
def test_subtask_inherits_its_origin_only_where_its_row_says_so(
    deployment: Place, origin: str, publisher: str, subtask: str
):
    before = len(deployment.ran("published_calculated_fields"))
    deployment.send(PUBLISHING, kwargs={"mark": origin}, origin=origin)
    ran = until(lambda: deployment.ran("audit_publishing", origin=origin))
    assert [record["consumed_from"] for record in ran] == [publisher]
    inherits = until(lambda: deployment.ran("audit_published", origin=origin))
    assert [record["consumed_from"] for record in inherits] == [subtask]
    ingested = until(lambda: deployment.ran("published_calculated_fields")[before:])
    assert [(record["consumed_from"], record["origin"]) for record in ingested] == [(INGEST, "task")]
