"""A source is away: the live check names it first, the processes say so once, and go on when it is back."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from ami.queues.models import Worker
from tests.support.cut_relay import CutRelay, cut_relay
from tests.support.place import FOLDER, ROOT, Place, Process, until
from tests.support.soak import soak
from tests.support.web_server import free_port, start_web

#: By source: its variable, its port, its finding, and whether the processes here ask it.
SOURCES = {
    "database": ("DATABASE_URL", 5432, "database", True),
    "broker": ("CELERY_BROKER_URL", 5672, "broker-unreachable", True),
    "redis": ("REDIS_URL", 6379, "redis", False),
    "nats": ("NATS_URL", 4222, "nats-away", False),
    "management": ("RABBITMQ_MANAGEMENT_URL", 15672, "management", False),
}
FAULTS = soak(
    (("refuse", "database"), ("refuse", "broker")),
    (
        *(("refuse", source) for source in SOURCES),
        ("cut", "database"),
        ("cut", "redis"),
        ("cut", "nats"),
        ("refuse", "database", "broker"),
    ),
)
GONE, BACK = (" cannot be used: ", " operation failed "), " answers again, after "

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Deployment:
    """Real processes that reach every source through a relay."""

    place: Place
    relays: dict[str, CutRelay]
    processes: list[Process]

    def command(self, *argv: str) -> "subprocess.CompletedProcess[str]":
        line = [sys.executable, "manage.py", "queues", *argv]
        given = {"cwd": ROOT, "env": self.place.environment, "capture_output": True, "text": True}
        return subprocess.run(line, **given, check=False, timeout=240)

    def lines(self, since: list[int]) -> list[list[str]]:
        """What each process has logged since then, but for what is no warning, and for the lines of each minute."""
        return [
            [line for line in process.text[size:].splitlines() if _counts(line)]
            for process, size in zip(self.processes, since, strict=True)
        ]


def _counts(line: str) -> bool:
    return (" INFO " not in line and "withheld" not in line and " so far." not in line) and bool(line.strip())


@pytest.fixture
def deployment(database_place: Place) -> Iterator[Deployment]:
    place, environment = database_place, database_place.environment
    second, _ = IntervalSchedule.objects.get_or_create(every=1, period="seconds")
    PeriodicTask.objects.create(name="often", task="ami.jobs.tasks.audit_data_integrity", interval=second)
    place.queues("declare")
    with ExitStack() as stack:
        relays = {}
        for source, (variable, port, _, _) in SOURCES.items():
            relays[source] = stack.enter_context(cut_relay(environment[variable], port))
            environment[variable] = relays[source].url(environment[variable])
        processes = [place.beat(), place.worker("antenna")]
        until(lambda: Worker.objects.exists() and "Sending due task" in processes[0].text, 90, "both are at work")
        yield Deployment(place, relays, processes)


def test_source_that_is_away_is_said_once_and_when_it_is_back(deployment: Deployment):
    for how, *sources in FAULTS:
        _fault(deployment, how, sources)


def _fault(deployment: Deployment, how: str, sources: list[str]) -> None:
    """Let sources go away, look, let them come back, and look at what was said."""
    since = [len(process.text) for process in deployment.processes]
    names = [SOURCES[source][2] for source in sources]
    asked = [source for source in sources if SOURCES[source][3]]
    for source in sources:
        getattr(deployment.relays[source], how)()
    if asked:
        until(lambda: all(map(_gone, deployment.lines(since))), 120, lambda: str(deployment.lines(since)))
    checked = deployment.command("check", "--live", "--json")
    assert (checked.returncode, checked.stderr) == (1, "")
    errors = [each["name"] for each in json.loads(checked.stdout) if each["level"] == "error"]
    assert errors[: len(names)] == names, errors
    assert [name for name in errors if name in names] == names, "each is named once"
    if asked:
        listed = deployment.command("list")
        assert (listed.returncode, listed.stdout, len(listed.stderr.splitlines())) == (1, "", 1)
    for source in sources:
        deployment.relays[source].mend()
    if asked:
        until(lambda: all(map(_back, deployment.lines(since))), 180, lambda: str(deployment.lines(since)))
    for lines in deployment.lines(since):
        assert len(lines) <= 2 * len(asked), "\n".join(lines)


def _gone(lines: list[str]) -> bool:
    return any(sign in line for line in lines for sign in GONE)


def _back(lines: list[str]) -> bool:
    return sum(BACK in line for line in lines) == sum(sign in line for line in lines for sign in GONE)


def test_page_is_a_503_with_a_sentence_while_the_database_is_away(database_place: Place):
    client = Client()
    client.force_login(get_user_model().objects.create_superuser(email="page@example.org", password="a"))
    cookies = {name: morsel.value for name, morsel in client.cookies.items()}
    environment = database_place.environment
    with cut_relay(environment["DATABASE_URL"], 5432) as relay:
        environment["DATABASE_URL"] = relay.url(environment["DATABASE_URL"])
        web = start_web(database_place, free_port())
        web.await_ready()
        relay.refuse()
        page, listed = (_get(web.url + path, cookies) for path in ("/admin/queues/", "/api/v2/jobs/"))
        assert (page.status_code, listed.status_code) == (503, 503)
        assert page.headers["Retry-After"]
        assert listed.headers["Retry-After"]
        assert page.text.startswith("The database does not answer at the moment")
        relay.mend()
        assert _get(web.url + "/admin/queues/", cookies).status_code == 200
    assert "Traceback" not in web.process.text


def _get(url: str, cookies: dict[str, str]):
    import httpx

    return httpx.get(url, cookies=cookies, timeout=60, verify=False)


@pytest.mark.parametrize("place", [FOLDER], indirect=True)
def test_held_queue_of_a_folder_is_held_in_list_and_rollout(database_place: Place):
    place = database_place
    place.queues("declare")
    place.environment |= {"MEMORY_THROTTLE_THRESHOLD": "2", "MEMORY_RESUME_THRESHOLD": "1"}
    worker = place._begin("antenna-ingest", (), (), {})
    until(lambda: "THROTTLE ACTIVE" in worker.text, 90, lambda: worker.text)
    until(lambda: _of(place.queues("list").json)["is_held"], 30, "the worker has reported itself")
    assert _of(place.queues("rollout", check=False).json["queues"])["is_held"]
    assert "all-held" in {each["name"] for each in place.queues("check", "--live", check=False).json}


def _of(rows: list[dict]) -> dict:
    return next(row for row in rows if row["queue"] == "antenna-ingest")
