"""A worker without network for a minute: it comes back by itself, and what it had begun runs again and says so."""

import time
from contextlib import ExitStack

import pytest

from tests.support.containers.deployment import WORKERS, Deployment
from tests.support.containers.effects import Effects
from tests.support.containers.faults import restarts, silence, unplugged
from tests.support.containers.load import Load
from tests.support.place import until
from tests.support.soak import soak

CUT_SECONDS = 60
ROUNDS = soak(1, 4)

#: What is silent, what is unplugged, and who beside them must not notice.
SILENT, UNPLUGGED = "celeryworker_ingest", "celeryworker_interactive"
CUT = ("antenna-ingest", "antenna-interactive")
BESIDE = "antenna"


@pytest.fixture(scope="module")
def effects(deployment: Deployment) -> Effects:
    return Effects(deployment.database_url)


def test_incident_5_workers_without_network_for_a_minute_come_back_and_lose_nothing(
    deployment: Deployment, effects: Effects
):
    before = {service: restarts(deployment.container(service)) for service in WORKERS}
    with (
        Load(deployment, CUT, pace=0.15, numbers={"seconds": 0.2}) as load,
        Load(deployment, (BESIDE,), pace=0.5, numbers={"seconds": 0.1}) as beside,
    ):
        load.until_sent(20)
        for _ in range(ROUNDS):
            with ExitStack() as cut:
                cut.enter_context(silence(deployment.container(SILENT)))
                cut.enter_context(unplugged(deployment, UNPLUGGED))
                over, sent = time.monotonic() + CUT_SECONDS, len(beside.sent)
                until(lambda at=over: time.monotonic() >= at, CUT_SECONDS + 5, "the cut is over")
                during = len(beside.ended(effects)) - sent
            healed = time.monotonic()
            ended = len(load.ended(effects))
            until(lambda least=ended + 20: len(load.ended(effects)) > least, 60, "they work again")
            print(f"working again {time.monotonic() - healed:.1f} s after the cut")
    account = load.until_ended(effects, 120)
    aside = beside.until_ended(effects, 30)
    print(account.figures | {"beside, during the cut": during})
    assert account.unflagged == {}
    assert (during > 60, aside.again) == (True, {}), "who was not cut off did not notice"
    assert {service: restarts(deployment.container(service)) for service in WORKERS} == before
    deployment.until_healthy(*WORKERS)
