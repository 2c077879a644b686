"""A paused queue stays paused while every worker, beat and RabbitMQ are killed; nothing is lost, and it resumes."""

import json
import time

from tests.support.containers.deployment import WORKERS, Deployment
from tests.support.containers.effects import Effects
from tests.support.containers.engine import until
from tests.support.containers.faults import kill, restarts
from tests.support.containers.load import Load
from tests.support.soak import soak

QUEUE = "antenna-ingest"
MESSAGES = soak(1000, 20_000)
#: After everybody is back, for so long nothing may begin.
QUIET_SECONDS = soak(3, 30)


def queues(deployment: Deployment, *argv: str) -> object:
    return json.loads(deployment.execute("web", "python", "manage.py", "queues", *argv, "--json"))


def test_pause_outlives_the_death_of_everything(deployment: Deployment, effects: Effects):
    victims = {name: deployment.container(name) for name in (*WORKERS, "celerybeat", "rabbitmq")}
    before = {name: restarts(container) for name, container in victims.items()}
    with Load(deployment, (QUEUE,), pace=0.002, count=MESSAGES) as load:
        until(lambda: len(load.ended(effects)) > 20, 120, "messages flow")
        told = queues(deployment, "pause", QUEUE, "--why", "a test")
        begun = len(effects.begun(f"{load.batch}-"))
        assert isinstance(told, dict)
        assert (told["missing"], len(told["confirmed"])) == ([], 1)
        load.until_sent(MESSAGES, 300)
    for container in victims.values():
        kill(container)
    for name, container in victims.items():
        until(lambda name=name, container=container: restarts(container) == before[name] + 1, 120, f"{name} is back")
    deployment.until_healthy("rabbitmq", *WORKERS, "celerybeat")
    time.sleep(QUIET_SECONDS)
    assert len(effects.begun(f"{load.batch}-")) == begun < MESSAGES, "none began while it was paused"
    queues(deployment, "resume", QUEUE)
    account = load.until_ended(effects, soak(240, 1200))
    print(account.figures | {"begun before the pause": begun})
    assert account.unflagged == {}
