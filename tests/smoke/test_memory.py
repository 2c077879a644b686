"""A task that takes more memory than its container has: the governor ends it alone, or else the kernel does."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.containers.dead_letters import Letters
from tests.support.containers.deployment import Deployment
from tests.support.containers.effects import Effects, publisher, send
from tests.support.containers.engine import inspect, until
from tests.support.containers.events import events
from tests.support.containers.faults import changed

SERVICE, QUEUE = "celeryworker", "antenna"

#: Enough for the two children and their parent, and less than the task takes.
SMALL = {"ANTENNA_FALLBACK_MAX_MEMORY_PER_CHILD_KIB": "131072", "ANTENNA_FALLBACK_CONTAINER_MEMORY_KIB": "524288"}
GREEDY_MIB = 1000
MODES = {"on": {}, "off": {"ANTENNA_FALLBACK_MEMORY_GOVERNOR": "off", "ANTENNA_FALLBACK_MEMORY_CEILING": "0"}}

#: `smoke.grow` is tried again once.
TRIES = 2


@pytest.fixture(scope="module")
def small(deployment: Deployment) -> Iterator[Callable[[str], Deployment]]:
    """Give the fallback worker little memory, and its governor on or off; at last all as it was."""
    yield lambda mode: changed(deployment, SERVICE, **SMALL, **MODES[mode])
    deployment.compose("up", "--detach", "--no-deps", SERVICE)
    deployment.until_healthy(SERVICE)


def run_greedy(deployment: Deployment, effects: Effects) -> tuple[str, list[dict[str, Any]]]:
    """Let it run beside harmless ones until it is buried; return its key and its letter."""
    key, letters = f"greedy-{time.time_ns()}", Letters(deployment, f"{QUEUE}.dlq")
    innocent = [f"beside-{key}-{number}" for number in range(20)]
    with publisher(deployment) as app:
        send(app, "smoke.effect", innocent[:10], QUEUE, seconds=0.1)
        send(app, "smoke.grow", [key], QUEUE, mib=GREEDY_MIB)
        send(app, "smoke.effect", innocent[10:], QUEUE, seconds=0.1)
    buried = letters.until(key, 180, "it is given up")
    until(lambda: effects.ended(f"beside-{key}-") == set(innocent), 120, "who ran beside it ends")
    letters.discard()
    return key, buried


def test_incident_6_a_child_that_the_kernel_kills_costs_its_task_a_retry_and_nobody_else_anything(
    small: Callable[[str], Deployment], effects: Effects
):
    deployment = small("off")
    container = deployment.container(SERVICE)
    before = inspect(container)
    with events("oom") as told:
        key, buried = run_greedy(deployment, effects)
        until(lambda: told.of(container, "oom"), 60, "the engine tells of it")
        deaths = len(told.of(container, "oom"))
    after = inspect(container)
    print({"oom events": deaths, "retries": [letter["retries"] for letter in buried]})
    assert (after["State"]["Pid"], after["RestartCount"]) == (before["State"]["Pid"], 0), "the container lived"
    assert [(letter["task"], letter["reason"]) for letter in buried] == [("smoke.grow", "rejected")]
    assert len(effects.begun(key)) == TRIES, "and not for ever"
    assert key not in effects.ended(key)
    assert "WorkerLostError" in deployment.logs(SERVICE)


def test_incident_6_with_the_governor_the_same_task_is_ended_before_the_kernel_must(
    small: Callable[[str], Deployment], effects: Effects
):
    deployment = small("on")
    container = deployment.container(SERVICE)
    with events("oom") as told:
        key, buried = run_greedy(deployment, effects)
        assert told.of(container, "oom") == []
    after = inspect(container)
    assert (after["State"]["OOMKilled"], after["RestartCount"]) == (False, 0)
    assert [letter["task"] for letter in buried] == ["smoke.grow"]
    assert len(effects.begun(key)) == TRIES
    # Its parent ended it, or the kernel refused it more.
    assert re.search(r"MemoryLimitExceeded\W+smoke\.grow (took|asked for)", deployment.logs(SERVICE))
