"""RabbitMQ is killed, or short of disk: people go on, publishers hear of it in time, and nothing is lost."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest

from ami.celery.producer import CONFIRM_TIMEOUT_SECONDS
from tests.support.containers.deployment import QUEUES, WORKERS, Deployment
from tests.support.containers.effects import Effects
from tests.support.containers.engine import until
from tests.support.containers.faults import disk_alarm, kill, restarts
from tests.support.containers.load import Load
from tests.support.soak import soak

#: Beside the wait for the confirmation itself: connecting, and two processors for everything that runs beside this.
SLACK_SECONDS = 30

CHECK = ("python", "manage.py", "queues", "check", "--live", "--json")


class Person:
    """Asks web by the API for what becomes a job."""

    def __init__(self, deployment: Deployment) -> None:
        told = json.loads(deployment.execute("web", "python", "-m", "smoke_operator").splitlines()[-1])
        headers = {"Authorization": f"Token {told['token']}", "X-Forwarded-Proto": "https", "Host": "localhost"}
        self._http = httpx.Client(base_url=deployment.web_url, headers=headers, timeout=60)
        self._path = told["path"]

    def ask(self) -> httpx.Response:
        return self._http.post(self._path)

    def has_ended(self, asked: httpx.Response) -> bool:
        return bool(self._http.get(f"/api/v2/jobs/{asked.json()['job_id']}/").json()["status"] == "SUCCESS")

    def close(self) -> None:
        self._http.close()


@pytest.fixture(scope="module")
def person(deployment: Deployment) -> Iterator[Person]:
    with closing(Person(deployment)) as found:
        yield found


def test_incident_7_a_disk_alarm_is_an_error_for_who_publishes_and_stops_no_worker(
    deployment: Deployment, effects: Effects, person: Person
):
    before = {service: restarts(deployment.container(service)) for service in WORKERS}
    with Load(deployment, QUEUES, pace=0.03, numbers={"seconds": 0.3}) as load:
        load.until_sent(soak(60, 160))
        with disk_alarm(deployment), ThreadPoolExecutor() as together:
            asked = together.submit(person.ask)
            checked = together.submit(deployment.execute, "web", *CHECK, check=False)
            until(lambda: load.refused, CONFIRM_TIMEOUT_SECONDS + SLACK_SECONDS, "a publisher is refused")
            answer = asked.result()
            assert answer.status_code == 202, answer.text
            found = {one["name"]: one["level"] for one in json.loads(checked.result())}
            assert (found["alarm"], found["blocked"]) == ("error", "error")
            during = load.until_ended(effects, 120)
            assert [service for service in WORKERS if not deployment.is_healthy(service)] == []
            assert not person.has_ended(answer), "its call waits as a row"
        load.until_sent(len(during.sent) + 20)
        until(lambda: person.has_ended(answer), 60, "what was asked for meanwhile")
    account = load.until_ended(effects, 120)
    refusals = [one["seconds"] for one in load.refused]
    web = answer.elapsed.total_seconds()
    print(account.figures | {"refused": len(refusals), "after s": max(refusals), "web's answer after s": web})
    assert {one["refused"] for one in load.refused} == {"Unconfirmed"}
    assert web < CONFIRM_TIMEOUT_SECONDS, "it waits for no confirmation"
    for seconds in refusals:
        assert CONFIRM_TIMEOUT_SECONDS <= seconds < CONFIRM_TIMEOUT_SECONDS + SLACK_SECONDS
    assert account.again == {}, "no worker lost its connection"
    assert {service: restarts(deployment.container(service)) for service in WORKERS} == before


def test_incident_13_a_killed_broker_loses_nothing_and_everybody_comes_back_by_themselves(
    deployment: Deployment, effects: Effects, person: Person
):
    assert person.ask().status_code == 202, "web has a connection, which idles from now on"
    broker = deployment.container("rabbitmq")
    before = {service: restarts(deployment.container(service)) for service in (*WORKERS, "celerybeat", "web")}
    with Load(deployment, QUEUES, pace=0.03, numbers={"seconds": 0.3}) as load:
        load.until_sent(soak(60, 160))
        restarted = restarts(broker) + 1
        began = time.monotonic()
        kill(broker)
        meanwhile = person.ask()
        assert meanwhile.status_code == 202, meanwhile.text
        confirmed = len(load.sent)
        until(lambda: restarts(broker) == restarted, 120, "it is started again")
        load.until_sent(confirmed + 40, 240)
        gap = time.monotonic() - began
        asked = person.ask()
        until(lambda: person.has_ended(meanwhile) and person.has_ended(asked), 60, "what was asked for meanwhile")
    account = load.until_ended(effects, 120)
    print(account.figures | {"refused": len(load.refused), "longest gap s": round(gap, 1)})
    assert account.unflagged == {}
    assert len(load.refused) > 0, "the broker was away"
    deployment.until_healthy("rabbitmq", *WORKERS, "celerybeat")
    after = {service: restarts(deployment.container(service)) for service in before}
    assert after == before, "nobody had to be started again"
