"""The governor's step in a worker: what happens at each connect, each look, and each task whose time has come."""

from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker import state

from ami.governor.bootstep import FIRST_LOOK_SECONDS, GovernorStep, Plan


class Crew:
    """A crew of which only the timer matters."""

    def __init__(self) -> None:
        self.later: list[tuple[Any, ...]] = []

    def call_later(self, *what: Any) -> None:
        self.later.append(what)

    def before_loop(self) -> None:
        self.later.append(("before loop",))


class Governor:
    """A governor that notes what it is asked, and fails where a test says."""

    def __init__(self, fails: dict[str, Exception]) -> None:
        self.crew, self.asked, self._fails = Crew(), [], fails

    def attach(self, consumer: Any, *_: Any) -> None:
        self.asked.append(consumer)

    def detach(self) -> None:
        self.asked.append(None)

    def observe(self) -> float:
        self._does("observe")
        return 7.0

    def adjust(self) -> None:
        self._does("adjust")

    def act(self) -> None:
        self._does("act")

    def _does(self, what: str) -> None:
        self.asked.append(what)
        if error := self._fails.get(what):
            raise error


@pytest.fixture
def consumer(worker: Any) -> SimpleNamespace:
    controller = SimpleNamespace(governor_plan=Plan(worker, lambda _: False))
    return SimpleNamespace(
        controller=controller,
        apply_eta_task=lambda request: request.done.append("started"),
        event_dispatcher=None,
        task_consumer=SimpleNamespace(overdrawn=False),
        call_soon=lambda function, *args: function(*args),
        connection_errors=(ConnectionError,),
        qos=SimpleNamespace(decrement_eventually=lambda: None),
        hub=object(),
    )


def started(consumer: Any, **fails: Exception) -> GovernorStep:
    step = GovernorStep(consumer)
    step.governor = Governor(fails)
    step.start(consumer)
    return step


def test_the_first_look_waits_for_the_loop_and_each_look_says_when_the_next_is(consumer: Any) -> None:
    step = started(consumer)
    before, (seconds, look, *args) = step.governor.crew.later
    assert (before, seconds) == (("before loop",), FIRST_LOOK_SECONDS)
    assert step.governor.asked == [consumer.task_consumer]
    look(*args)
    assert step.governor.crew.later[-1] == (7.0, look, *args)


def test_looks_of_a_connection_that_is_gone_end(consumer: Any) -> None:
    step = started(consumer)
    _, look, *args = step.governor.crew.later[-1]
    step.stop(consumer)
    assert step.governor.asked[-1] is None
    count = len(step.governor.crew.later)
    look(*args)
    assert len(step.governor.crew.later) == count


def test_a_look_that_fails_is_tried_again_and_what_was_decided_last_is_done(
    consumer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    step = started(consumer, observe=ValueError("no"), act=ConnectionError("not the broker's"))
    _, look, *args = step.governor.crew.later[-1]
    look(*args)
    assert step.governor.asked[1:] == ["observe", "adjust", "act"]
    assert caplog.text.count("The governor could not look; it tries again.") == 2
    assert step.governor.crew.later[-1][0] == step.plan.settings.memory_check_interval


def test_a_connection_that_is_lost_is_for_celerys_loop_and_the_next_look_comes_all_the_same(consumer: Any) -> None:
    step = started(consumer, adjust=ConnectionError("gone"))
    _, look, *args = step.governor.crew.later[-1]
    with pytest.raises(ConnectionError):
        look(*args)
    assert step.governor.crew.later[-1][0] == 7.0


@pytest.mark.parametrize("hub", [object(), None])
@pytest.mark.parametrize(("overdrawn", "done"), [(False, ["started"]), (True, ["returned"])])
def test_a_task_whose_time_has_come_starts_when_a_slot_is_free_and_goes_back_when_none_is(
    consumer: Any, monkeypatch: pytest.MonkeyPatch, hub: Any, overdrawn: bool, done: list[str]
) -> None:
    monkeypatch.setattr(state, "task_ready", lambda _: None)
    consumer.hub, consumer.task_consumer.overdrawn = hub, overdrawn
    GovernorStep(consumer)
    request = SimpleNamespace(done=[])
    request.reject = lambda requeue: request.done.append("returned" if requeue else "buried")
    consumer.apply_eta_task(request)
    assert request.done == done
