"""Workers without network: they come back by themselves, and what they had begun runs again and says so."""

import time
from contextlib import ExitStack

from tests.support.containers.deployment import WORKERS, Deployment
from tests.support.containers.effects import Effects
from tests.support.containers.engine import until
from tests.support.containers.faults import heartbeat, restarts, silence, unplugged
from tests.support.containers.load import Load
from tests.support.soak import soak

#: Longer than both ends need to notice: each gives the other up after two heartbeats.
CUT_SECONDS = soak(15, 60)
ROUNDS = soak(1, 4)
#: The product's, and one that lets the same be seen in less time.
HEARTBEAT_SECONDS = soak(5, 30)

#: What is silent, what is unplugged, and who beside them must not notice.
SILENT, UNPLUGGED = "celeryworker_ingest", "celeryworker_interactive"
CUT = ("antenna-ingest", "antenna-interactive")
BESIDE = "antenna"


def test_incident_5_workers_cut_off_come_back_and_lose_nothing(deployment: Deployment, effects: Effects):
    before = {service: restarts(deployment.container(service)) for service in WORKERS}
    with (
        heartbeat(deployment, HEARTBEAT_SECONDS, (SILENT, UNPLUGGED)),
        Load(deployment, CUT, pace=0.3, numbers={"seconds": 0.2}) as load,
        Load(deployment, (BESIDE,), pace=0.5, numbers={"seconds": 0.1}) as beside,
    ):
        load.until_sent(20, 240)
        for _ in range(ROUNDS):
            with ExitStack() as cut:
                cut.enter_context(silence(deployment.container(SILENT)))
                cut.enter_context(unplugged(deployment, UNPLUGGED))
                over, sent = time.monotonic() + CUT_SECONDS, len(beside.sent)
                until(lambda at=over: time.monotonic() >= at, CUT_SECONDS + 60, "the cut is over")
                during = len(beside.ended(effects)) - sent
            healed = time.monotonic()
            ended = len(load.ended(effects))
            until(lambda least=ended + 10: len(load.ended(effects)) > least, 120, "they work again")
            print(f"working again {time.monotonic() - healed:.1f} s after the cut")
    account = load.until_ended(effects, 240)
    aside = beside.until_ended(effects, 120)
    print(account.figures | {"beside, during the cut": during})
    assert account.unflagged == {}
    assert (during > CUT_SECONDS, aside.again) == (True, {}), "who was not cut off did not notice"
    assert {service: restarts(deployment.container(service)) for service in WORKERS} == before
    deployment.until_healthy(*WORKERS)
