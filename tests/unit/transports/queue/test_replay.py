"""Every process that reads a queue holds the same, wherever it began to read."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ami.transports.objectstore.queue import snapshot
from ami.transports.objectstore.queue.commands import (
    Ack,
    Bury,
    Claim,
    Command,
    Configure,
    Enqueue,
    Purge,
    Renew,
    RenewAll,
    Rescue,
    Return,
    Sweep,
    Take,
)
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.memory import MemoryObjects
from tests.support.soak import soak
from tests.support.transports.queue_state import AppliedState, assert_consistent, line, picture
from tests.support.transports.small_stores import clock, on_folder, on_objects, snapshots_every

ids = st.sampled_from("abcdefgh")
owners = st.sampled_from(["x", "y"])
entrypoints = st.sampled_from(["", "e"])
durations = st.sampled_from([0.5, 1.0, 10.0, 100.0])
commands: st.SearchStrategy[Command] = st.one_of(
    *[
        st.builds(
            Enqueue,
            ids,
            st.binary(max_size=40),
            entrypoints,
            st.integers(-1, 1),
            st.none() | st.floats(0, 300),
            st.none() | st.just(5.0),
        )
    ]
    * 3,
    *[st.builds(Claim, st.integers(0, 3), owners, st.none() | durations, st.none() | entrypoints)] * 2,
    *[st.builds(Ack, ids)] * 2,
    st.builds(Take, st.integers(0, 2), st.none() | entrypoints),
    st.builds(Return, ids, st.booleans()),
    st.builds(Bury, ids, st.just("rejected")),
    st.builds(Renew, ids, st.none() | owners, st.none() | durations),
    st.builds(RenewAll, owners, durations),
    st.builds(Rescue, durations | st.just(0.0), st.none() | owners),
    st.builds(Configure, st.none() | st.integers(0, 2), st.booleans()),
    st.just(Purge()),
    st.just(Sweep()),
)
#: Seconds since the batch before, by another clock perhaps, and what is in it.
batches = st.tuples(st.sampled_from([0.0, 0.0, 0.4, 1.0, 10.0, 130.0, -20.0]), st.lists(commands, max_size=4))
histories = st.lists(batches, min_size=1, max_size=30)
thorough = settings(max_examples=soak(50, 2000), deadline=None, derandomize=True)


def comparable(answers: list[Any]) -> list[Any]:
    """Return answers in a form that can be compared."""
    return [
        [(entry.id, entry.redelivered, entry.deliveries) for entry in answer]
        if isinstance(answer, list)
        else type(answer)
        if isinstance(answer, Exception)
        else answer
        for answer in answers
    ]


@thorough
@given(histories)
def test_what_a_state_keeps_beside_its_messages_is_what_they_say(history: list[tuple[float, list[Command]]]):
    queue, moment = AppliedState(), 0.0
    for segment, (passed, batch) in enumerate(history):
        moment += passed
        queue.segment = segment // 3
        queue(moment, *batch)
        queue(moment, Sweep())
        assert_consistent(queue.state)
    order = line(queue.state)
    assert queue.claim(moment, 99) == order


@thorough
@given(histories, st.lists(st.integers(0, 30), max_size=3))
def test_a_state_that_was_written_down_goes_on_like_one_that_was_not(
    history: list[tuple[float, list[Command]]], at: list[int]
):
    whole, broken, moment = AppliedState(), AppliedState(), 0.0
    for number, (passed, batch) in enumerate(history):
        moment += passed
        if number in at:
            broken.state = snapshot.load(snapshot.dump(broken.state))
            assert picture(broken.state) == picture(whole.state)
        answers = [queue(moment, *batch, Sweep()) for queue in (whole, broken)]
        assert comparable(answers[0] if batch else []) == comparable(answers[1] if batch else [])
    assert picture(broken.state) == picture(whole.state)


@pytest.mark.parametrize("kind", ["folder", "objects"])
@thorough
@given(history=st.lists(st.tuples(st.integers(0, 1), batches), min_size=1, max_size=30), every=st.integers(100, 3000))
def test_all_stores_of_a_journal_hold_the_same(
    kind: str, history: list[tuple[int, tuple[float, list[Command]]]], every: int
):
    with tempfile.TemporaryDirectory() as folder, clock() as now, snapshots_every(every):
        objects = MemoryObjects()
        opening: dict[str, Callable[[], Store]] = {
            "folder": lambda: on_folder(Path(folder) / "queue"),
            "objects": lambda: on_objects(objects),
        }
        stores, alone = [opening[kind](), opening[kind]()], AppliedState()
        payloads: dict[str, bytes] = {}
        for which, (passed, batch) in history:
            now.now += passed
            # A store that only publishes answers True to everything: here each one reads.
            before = stores[which].look().version
            answers = stores[which].commit(batch, durable=False)
            # Claims that find nothing are no batch.
            if stores[which].look().version > before:
                expected = alone(now.now, *batch)
                assert comparable(answers) == comparable([expected] if len(batch) == 1 else expected)
            for command, answer in zip(batch, answers, strict=True):
                if isinstance(command, Enqueue) and answer is True:
                    payloads[command.id] = command.payload
        stores[0].commit([Sweep()])
        alone(now.now, Sweep())
        states = [store.look() for store in (*stores, opening[kind]())]
        assert picture(states[0]) == picture(states[1]) == picture(states[2])
        assert_consistent(states[0])
        places = ("version", "in_segment", "entries", "now", "acknowledged")
        assert picture(states[0], without=places) == picture(alone.state, without=places)
        for store in (*stores, opening[kind]()):
            held = {entry.id: store.payload(entry) for entry in store.look().entries.values()}
            assert held == {name: payloads[name] for name in held}
            store.close()
