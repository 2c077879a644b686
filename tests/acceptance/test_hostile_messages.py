"""No message ends a worker, and none vanishes: what is wrong before a task starts is in the dead letters, with why."""

import json
import time

import pytest

from ami.queues import dead_letters
from tests.places import BROKERS, Place, until
from tests.support.hostile_messages import BURIED, EXECUTED, cases, id_of, publish

on_every_broker = pytest.mark.parametrize("place", BROKERS, indirect=True)

T = "tests.acceptance.tasks"
FALLBACK = "antenna"


@on_every_broker
def test_hostile_messages_are_buried_with_a_reason_and_every_other_task_runs(place: Place):
    EXECUTED.unlink(missing_ok=True)
    place.environment["ANTENNA_FALLBACK_CONCURRENCY"] = "2"
    worker = place.worker(FALLBACK)
    hostile, good = [], []
    t = time.time()
    with place.app.connection_for_write() as connection:
        for case in cases(connection):
            publish(connection, FALLBACK, case)
            hostile.append(case)
            if len(hostile) % 10 == 0:
                good.append(place.send(f"{T}.succeed"))
    t2 = time.time()
    place_is_done = lambda: {r["id"] for r in place.ran("succeed", state="SUCCESS")} >= set(good)  # noqa: E731
    try:
        until(place_is_done, 30, "every good task ran")
        t3 = time.time()
        def n(): 
            with place.app.connection_for_write() as connection: return dead_letters.counts(place.app.topology, connection)["antenna.dlq"]
        l=[n()]
        from contextlib import suppress
        with suppress(AssertionError): until(lambda: n() >= 158, 10, "letters")
        with place.app.connection_for_write() as connection:
            letters = dead_letters.peek(connection, "antenna.dlq", limit=400)
        for x in letters: print(x)
        print("LETTERS", l, len(letters), time.time()-t3, t3-t2, t2-t, place.depth(FALLBACK))
        ids = {x.task_id for x in letters}
        ran = {r["id"]:r["state"] for r in place.ran("succeed")}
        for c in hostile:
            if id_of(c.name) not in ids: print("NOT BURIED", c.outcome, c.name, ran.get(id_of(c.name)))
            elif c.outcome != BURIED: print("buried", c.name, [x.reason for x in letters if x.task_id==id_of(c.name)])
    finally:
        print(worker.popen.poll(), EXECUTED.exists(), worker.text)
    raise AssertionError
