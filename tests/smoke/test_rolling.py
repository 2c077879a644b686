"""Every worker is replaced under load: each returns what it has not begun, ends what it has, and nothing is lost."""

from typing import Any

from tests.support.containers.deployment import QUEUES, WORKERS, Deployment
from tests.support.containers.effects import Effects
from tests.support.containers.engine import inspect, until
from tests.support.containers.events import events
from tests.support.containers.load import Load
from tests.support.soak import soak

ROUNDS = soak(1, 3)
LONG_SECONDS = 3
SIGTERM = "15"


def test_incident_18_replacing_every_worker_under_load_loses_nothing_and_kills_nobody(
    deployment: Deployment, effects: Effects
):
    old: list[str] = []
    with (
        events("kill", "die") as told,
        # One process serves housekeeping: what is sent must be less than it can do, or it never comes to an end.
        Load(deployment, QUEUES, pace=0.2, numbers={"seconds": 0.1}) as load,
        Load(deployment, QUEUES, pace=2, numbers={"seconds": LONG_SECONDS}) as long,
    ):
        load.until_sent(40, 240)
        for service, queue in tuple(zip(WORKERS, QUEUES, strict=True)) * ROUNDS:
            until(
                lambda name=queue: long.running(effects) & long.sent_to(name), 240, f"{service} has begun a long task"
            )
            old.append(deployment.container(service))
            deployment.compose("up", "--detach", "--no-deps", "--force-recreate", service, timeout=600)
        load.until_sent(len(load.sent) + 40, 240)
        until(lambda: all(told.of(container, "die") for container in old), 60, "the engine tells of it")
        signals = {container: [signal_of(event) for event in told.of(container, "kill")] for container in old}
        deaths = {container: told.of(container, "die") for container in old}
        asked = {container: told.of(container, "kill")[0]["time"] for container in old}
    accounts = [each.until_ended(effects, 480) for each in (load, long)]
    for account in accounts:
        print(account.figures)
        assert account.unflagged == {}
        assert account.again == {}, "what was begun was ended by who had begun it"
    deployment.until_healthy(*WORKERS)

    for service, container in zip(WORKERS * ROUNDS, old, strict=True):
        (death,) = deaths[container]
        seconds = death["time"] - asked[container]
        print(f"{service}: signals {signals[container]}, {seconds} s")
        assert death["Actor"]["Attributes"]["exitCode"] == "0"
        assert signals[container] == [SIGTERM]
        assert seconds < inspect(deployment.container(service))["Config"]["StopTimeout"]


def signal_of(event: dict[str, Any]) -> str:
    return str(event["Actor"]["Attributes"]["signal"])
