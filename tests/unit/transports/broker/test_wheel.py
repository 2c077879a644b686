"""The timing wheel: each message comes once, never early, whenever the process that fires it is killed."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ami.transports.objectstore.broker.wheel import WIDTHS, Slot, slot_for
from tests.support.soak import soak
from tests.support.transports.wheel_simulation import simulation

#: The delays of a simulated message: at once, within a second, and through every width.
DELAYS = (0.001, 0.4, 1.0, 3.0, 17.0, 90.0, 300.0, 5_000.0, 70_000.0, 200_000.0)


@given(now=st.floats(0, 2e9), delay=st.floats(0, 1e9))
def test_a_slot_holds_its_message_and_is_not_open_unless_it_is_the_narrowest(now, delay):
    due = now + delay
    slot = slot_for(due, now)
    assert slot.start <= due < slot.start + slot.width
    assert slot.opens > now or slot.width == 1
    wider = [width for width in WIDTHS if width > slot.width]
    assert all(Slot(int(due // width) * width, width).opens <= now for width in wider)
    assert Slot.parse(slot.name) == slot


@pytest.mark.parametrize("url", ["file", "memory", "remote"], indirect=True)
@pytest.mark.parametrize("seed", range(soak(3, 100)))
def test_every_message_fires_once_when_due_whatever_kills_its_timekeeper(url, monkeypatch, seed):
    chance = random.Random(seed)
    with simulation(url, monkeypatch) as site:
        for _ in range(40):
            for _ in range(chance.randrange(4)):
                site.publish(chance.choice(DELAYS) * chance.random())
            following = site.work(steps=chance.randrange(24))
            jump = chance.choice([0.05, 1.0, 20.0, 3_000.0, 90_000.0, following - site.now])
            site.now += max(0.0, min(jump, 200_000.0))
        while set(site.delivered) != set(site.due):
            following = site.work()
            assert following < float("inf") or set(site.delivered) == set(site.due)
            site.now = max(site.now, min(following, site.now + 100_000.0))
        assert all(len(moments) == 1 for moments in site.delivered.values())
        assert all(moment >= site.due[name] for name, [moment] in site.delivered.items())


def test_a_message_is_fired_at_the_moment_that_the_wheel_names(url, monkeypatch):
    with simulation(url, monkeypatch) as site:
        for delay in DELAYS:
            site.publish(delay)
        while len(site.delivered) < len(DELAYS):
            site.now = max(site.now, site.work())
        late = [moment - site.due[name] for name, [moment] in site.delivered.items()]
        assert max(late) < 0.1


def test_a_delayed_message_is_stored_without_reading_a_slot(folder_url, monkeypatch):
    with simulation(folder_url, monkeypatch) as site:
        for _ in range(3):
            site.publish(3_600.0)
        [slot] = site.broker.wheel.slots()
        assert not site.broker.wheel.store(slot).is_followed


def test_emptied_slots_are_removed(folder_url, monkeypatch):
    with simulation(folder_url, monkeypatch) as site:
        for delay in DELAYS:
            site.publish(delay)
        while len(site.delivered) < len(DELAYS):
            site.now = max(site.now, site.work())
        site.work()
        assert site.broker.wheel.slots() == []
