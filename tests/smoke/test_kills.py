"""A whole container is killed: it comes back by itself, its tasks run again, and who did it twice is buried."""

import time

import pytest

from tests.support.containers.dead_letters import Letters
from tests.support.containers.deployment import SMALL, WORKERS, Deployment
from tests.support.containers.effects import Effects, publisher, send
from tests.support.containers.engine import until
from tests.support.containers.faults import kill, restarts
from tests.support.containers.load import Load
from tests.support.soak import soak

KILLS = soak(1, 5)
SERVICE, QUEUE = "celeryworker_ingest", "antenna-ingest"
AT_ONCE = int(SMALL["ANTENNA_INGEST_CONCURRENCY"])
FALLBACK, FALLBACK_QUEUE = "celeryworker", "antenna"


@pytest.fixture(autouse=True)
def healthy_afterwards(deployment: Deployment):
    yield
    deployment.until_healthy(*WORKERS)


def test_incident_18_a_killed_container_comes_back_and_every_task_ends(deployment: Deployment, effects: Effects):
    container = deployment.container(SERVICE)
    before = restarts(container)
    with Load(deployment, (QUEUE,), pace=0.1, count=14 * KILLS, numbers={"seconds": 1.5}) as load:
        for done in range(1, KILLS + 1):
            least = len(load.ended(effects)) + AT_ONCE
            until(lambda least=least: len(load.ended(effects)) >= least, 120, "it works")
            until(lambda: len(load.running(effects)) == AT_ONCE, 120, "every process has a task")
            kill(container)
            until(lambda number=before + done: restarts(container) == number, 120, "it is started again")
        load.until_sent(load.count, 120)
    account = load.until_ended(effects, 240)
    print(account.figures | {"restarts": restarts(container) - before})
    assert account.unflagged == {}
    assert 0 < len(account.again) <= AT_ONCE * KILLS, "what ran when it was killed, and nothing else"
    assert account.again.keys() <= account.redelivered
    said = deployment.logs(SERVICE)
    assert "Previous worker was killed without warning while running smoke.effect[" in said


def test_incident_18_a_task_that_runs_at_two_deaths_of_its_container_is_buried_and_named(
    deployment: Deployment, effects: Effects
):
    container, letters = deployment.container(FALLBACK), Letters(deployment, f"{FALLBACK_QUEUE}.dlq")
    before, key = restarts(container), f"deadly-{time.time_ns()}"
    with publisher(deployment) as app:
        send(app, "smoke.effect", [key], FALLBACK_QUEUE, seconds=100)
        innocent = [f"beside-{key}-{number}" for number in range(6)]
        for death in (1, 2):
            until(lambda number=death: len(effects.begun(key)) >= number, 120, f"it runs for the {death}. time")
            send(app, "smoke.effect", innocent[3 * death - 3 : 3 * death], FALLBACK_QUEUE)
            kill(container)
            until(lambda number=before + death: restarts(container) == number, 120, "it is started again")
        buried = letters.until(key, 120, "it is buried")
        until(lambda: effects.ended(f"beside-{key}-") == set(innocent), 120, "who ran beside it ends")
    assert [row.redelivered for row in effects.begun(key)] == [False, True], "twice, the second time said to be again"
    assert [letter["task"] for letter in buried] == ["smoke.effect"]
    task = f"smoke.effect[{buried[0]['task_id']}]"
    sentence = f"{task} was running each of the 2 times this worker was killed without warning"
    assert sentence in deployment.logs(FALLBACK)
    letters.discard()
