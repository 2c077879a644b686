"""The governor's step in a worker: each connect, each check, and each task that becomes due."""

from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker import state

from ami.governor.bootstep import FIRST_CHECK_SECONDS, GovernorStep
from ami.governor.plan import Plan


class PoolAdapter:
    """A pool of which only the timer matters."""

    def __init__(self) -> None:
        self.later: list[tuple[Any, ...]] = []

    def call_later(self, *what: Any) -> None:
        self.later.append(what)

    def before_loop(self) -> None:
        self.later.append(("before loop",))


class Governor:
    """A governor that records its calls, and fails where a test wants it to."""

    def __init__(self, fails: dict[str, Exception]) -> None:
        self.pool, self.asked, self._fails = PoolAdapter(), [], fails

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
    controller = SimpleNamespace(governor_plan=Plan(worker), autoscaler=None)
    return SimpleNamespace(
        controller=controller,
        apply_eta_task=lambda request: request.done.append("started"),
        event_dispatcher=None,
        task_consumer=SimpleNamespace(
            over_capacity=False, adjust=lambda: None, came_from_closed=lambda message: message == "held"
        ),
        qos_global=False,
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


def test_first_check_waits_for_the_loop_and_schedules_the_next(consumer: Any) -> None:
    step = started(consumer)
    before, (seconds, look, *args) = step.governor.pool.later
    assert (before, seconds) == (("before loop",), FIRST_CHECK_SECONDS)
    assert step.governor.asked == [consumer.task_consumer]
    look(*args)
    assert step.governor.pool.later[-1] == (7.0, look, *args)


def test_checks_of_a_lost_connection_end(consumer: Any) -> None:
    step = started(consumer)
    _, look, *args = step.governor.pool.later[-1]
    step.stop(consumer)
    assert step.governor.asked[-1] is None
    count = len(step.governor.pool.later)
    look(*args)
    assert len(step.governor.pool.later) == count


def test_a_failed_check_is_retried_and_the_last_decision_applied(
    consumer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    step = started(consumer, observe=ValueError("no"), act=ConnectionError("not the broker's"))
    _, look, *args = step.governor.pool.later[-1]
    look(*args)
    assert step.governor.asked[1:] == ["observe", "adjust", "act"]
    assert caplog.text.count("Governor check failed; retrying in 5 s") == 2
    assert step.governor.pool.later[-1][0] == step.plan.settings.memory_check_interval


def test_a_lost_connection_is_raised_and_the_next_check_scheduled(consumer: Any) -> None:
    step = started(consumer, adjust=ConnectionError("lost"))
    _, look, *args = step.governor.pool.later[-1]
    with pytest.raises(ConnectionError):
        look(*args)
    assert step.governor.pool.later[-1][0] == 7.0


@pytest.mark.parametrize("hub", [object(), None])
@pytest.mark.parametrize(
    ("over_capacity", "message", "done"),
    [(False, "open", ["started"]), (True, "open", ["returned"]), (False, "held", ["returned"])],
)
def test_a_due_task_starts_in_a_free_slot_and_is_requeued_without(
    consumer: Any, monkeypatch: pytest.MonkeyPatch, hub: Any, over_capacity: bool, message: str, done: list[str]
) -> None:
    monkeypatch.setattr(state, "task_ready", lambda _: None)
    consumer.hub, consumer.task_consumer.over_capacity = hub, over_capacity
    GovernorStep(consumer)
    request = SimpleNamespace(done=[], message=message)
    request.reject = lambda requeue: request.done.append("returned" if requeue else "buried")
    consumer.apply_eta_task(request)
    assert request.done == done


def test_autoscaler_of_a_pool_that_cannot_be_followed_is_said_to_have_no_effect(
    consumer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    consumer.controller.autoscaler = object()
    consumer.pool, consumer.prefetch_multiplier = SimpleNamespace(limit=3), 1
    consumer.timer = SimpleNamespace(call_after=lambda *_: None)
    consumer.task_consumer.manage = lambda *_: None
    GovernorStep(consumer).start(consumer)
    assert "--autoscale has no effect under the governor" in caplog.text
    assert "the worker runs 3 tasks at once" in caplog.text
