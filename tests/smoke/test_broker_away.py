"""RabbitMQ is killed, or short of disk: publishers hear of it in time, workers go on, and nothing is lost."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

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

Ask = Callable[[], httpx.Response]


@pytest.fixture(scope="module")
def ask(deployment: Deployment) -> Ask:
    """What a person asks of web by the API, and what becomes a task."""
    person = json.loads(deployment.execute("web", "python", "-m", "smoke_operator").splitlines()[-1])
    headers = {"Authorization": f"Token {person['token']}", "X-Forwarded-Proto": "https", "Host": "localhost"}

    def asked() -> httpx.Response:
        return httpx.post(f"{deployment.web_url}{person['path']}", headers=headers, timeout=60)

    return asked


def test_incident_7_a_disk_alarm_is_an_error_for_who_publishes_and_stops_no_worker(
    deployment: Deployment, effects: Effects, ask: Ask
):
    before = {service: restarts(deployment.container(service)) for service in WORKERS}
    with Load(deployment, QUEUES, pace=0.03, numbers={"seconds": 0.3}) as load:
        load.until_sent(soak(60, 160))
        with disk_alarm(deployment), ThreadPoolExecutor() as together:
            asked = together.submit(ask)
            checked = together.submit(deployment.execute, "web", *CHECK, check=False)
            until(lambda: load.refused, CONFIRM_TIMEOUT_SECONDS + SLACK_SECONDS, "a publisher is refused")
            answer = asked.result()
            assert (answer.status_code, bool(answer.headers.get("Retry-After"))) == (503, True), answer.text
            found = {one["name"]: one["level"] for one in json.loads(checked.result())}
            assert (found["alarm"], found["blocked"]) == ("error", "error")
            during = load.until_ended(effects, 120)
            assert [service for service in WORKERS if not deployment.is_healthy(service)] == []
        load.until_sent(len(during.sent) + 20)
        until(lambda: ask().status_code == 202, 60, "web publishes again")
    account = load.until_ended(effects, 120)
    refusals = [one["seconds"] for one in load.refused]
    web = answer.elapsed.total_seconds()
    print(account.figures | {"refused": len(refusals), "after s": max(refusals), "web's 503 after s": web})
    assert {one["refused"] for one in load.refused} == {"Unconfirmed"}
    for seconds in (*refusals, web):
        assert CONFIRM_TIMEOUT_SECONDS <= seconds < CONFIRM_TIMEOUT_SECONDS + SLACK_SECONDS
    assert account.again == {}, "no worker lost its connection"
    assert {service: restarts(deployment.container(service)) for service in WORKERS} == before


def test_incident_13_a_killed_broker_loses_nothing_and_everybody_comes_back_by_themselves(
    deployment: Deployment, effects: Effects, ask: Ask
):
    assert ask().status_code == 202, "web has a connection, which idles from now on"
    broker = deployment.container("rabbitmq")
    before = {service: restarts(deployment.container(service)) for service in (*WORKERS, "celerybeat", "web")}
    with Load(deployment, QUEUES, pace=0.03, numbers={"seconds": 0.3}) as load:
        load.until_sent(soak(60, 160))
        restarted = restarts(broker) + 1
        began = time.monotonic()
        kill(broker)
        confirmed = len(load.sent)
        until(lambda: restarts(broker) == restarted, 120, "it is started again")
        load.until_sent(confirmed + 40, 240)
        gap = time.monotonic() - began
        assert ask().status_code == 202, "the first try on a connection that was reset while it idled"
    account = load.until_ended(effects, 120)
    print(account.figures | {"refused": len(load.refused), "longest gap s": round(gap, 1)})
    assert account.unflagged == {}
    assert len(load.refused) > 0, "the broker was away"
    deployment.until_healthy("rabbitmq", *WORKERS, "celerybeat")
    after = {service: restarts(deployment.container(service)) for service in before}
    assert after == before, "nobody had to be started again"
