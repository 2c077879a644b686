"""Two queues that share keys and permits, paused and disabled in any order, against an oracle in plain Python."""

import json
from collections import defaultdict
from typing import Any

import pytest
from celery import current_app
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from ami.admission import leases, permits, picks, runs
from ami.admission.models import Bucket, Call, DispatcherLease, RecentKey, Reservation, Run, Share
from tests.support.admission import QUEUE
from tests.support.soak import soak
from tests.support.worker_tasks import admitted

QUEUES = (QUEUE, "antenna-interactive")
KEYS = ("a", "b", "c")
PERMITS = 4
WHICH = st.integers(0, 99)


class Machine(RuleBasedStateMachine):
    """What may be sent is read from the rows by the oracle, and compared with what is picked.

    ``short`` are the queues that found too few permits of a key, the one that waits longest first.
    """

    def __init__(self) -> None:
        super().__init__()
        for model in (Call, Run, Share, Bucket, RecentKey, Reservation, DispatcherLease):
            model.objects.all().delete()
        for queue in QUEUES:
            leases.acquire([queue], "me")
        self.paused, self.disabled = set[str](), set[str]()
        self.short: defaultdict[str, list[str]] = defaultdict(list)
        self.number = 0
        for key in "aaaab":
            self.call_in_order(key, QUEUES[0], 8)

    @rule(key=st.sampled_from(KEYS), queue=st.sampled_from(QUEUES), job=st.sampled_from((7, 8, 8)))
    def call_in_order(self, key: str, queue: str, job: int) -> None:
        self.number += 1
        given = {"key": key, "number": self.number, "job_id": job}
        admitted.ordered_of_job.apply_async((), given, queue=queue)

    @rule(key=st.sampled_from(KEYS[:2]), queue=st.sampled_from(QUEUES), size=st.integers(1, PERMITS))
    def call_with_a_cost(self, key: str, queue: str, size: int) -> None:
        admitted.weighty.apply_async((), {"key": key, "size": size}, queue=queue)

    @rule(queue=st.sampled_from(QUEUES))
    def pause_or_resume(self, queue: str) -> None:
        self.paused ^= {queue}
        for waiting in self.short.values():
            waiting[:] = [each for each in waiting if each != queue]
        Reservation.objects.filter(queue=queue).delete()  # Nothing renews it: it ends within seconds.

    @rule(job=st.sampled_from(("7", "8")))
    def disable_or_enable(self, job: str) -> None:
        self.disabled ^= {job}

    @rule(queue=st.sampled_from(QUEUES), room=st.integers(1, 4))
    def dispatch(self, queue: str, room: int) -> None:
        if queue in self.paused:
            return
        first = self._first_in_order(queue)
        window = Run.objects.filter(queue=queue).count() + room
        picked = picks.pick(picks.staged_tasks(current_app), queue, "me", window, disabled_jobs=self.disabled)
        calls = [each.call for each in picked]
        ordered = {call.pk for call in calls if call.task == admitted.ordered_of_job.name}
        assert ordered <= first, "not the first of its key"
        self._compare_permits(queue, [call for call in calls if call.permit_key])
        if len(calls) < room:
            assert ordered == first, "a key that may run was held up by another one"
            self._note_short(queue)

    def _first_in_order(self, queue: str) -> set[int]:
        """Return the calls in order that may be sent from a queue: the first of keys of which nothing runs."""
        running, first = set(Run.objects.values_list("key", flat=True)), dict[str, Call]()
        for call in Call.objects.filter(task=admitted.ordered_of_job.name, run=None).order_by("pk"):
            first.setdefault(str(call.key), call)
        return {
            call.pk
            for key, call in first.items()
            if key not in running and call.queue == queue and str(_given(call)["job_id"]) not in self.disabled
        }

    def _compare_permits(self, queue: str, calls: list[Call]) -> None:
        for call in calls:
            waiting = self.short[call.permit_key]
            assert not waiting or waiting[0] == queue, "picked past a call that waits longer in another queue"
            if queue in waiting:
                waiting.remove(queue)
        held = defaultdict[str, int](int)
        for run in Run.objects.exclude(permit_key=None):
            held[str(run.permit_key)] += run.permit_cost
        assert all(cost <= PERMITS for cost in held.values()), held

    def _note_short(self, queue: str) -> None:
        """Note the keys of which a call waits here though there was room: it found too few permits."""
        waiting = Call.objects.filter(run=None, task=admitted.weighty.name)
        of_queue = set(waiting.filter(queue=queue).values_list("permit_key", flat=True))
        for key in of_queue:
            if queue not in self.short[key]:
                self.short[key].append(queue)

    @rule(which=WHICH)
    def end(self, which: int) -> None:
        rows = list(Run.objects.order_by("call"))
        if rows:
            run = rows[which % len(rows)]
            call = Call.objects.get(pk=run.call)
            task = current_app.tasks[run.task]
            begun = runs.begin(task, run.pk, "delivery", call.task_id)
            assert begun is not None
            assert runs.end(task, begun, None)

    def teardown(self) -> None:
        """Nothing waits for ever once all may run."""
        self.paused, self.disabled = set(), set()
        for _ in range(200):
            for queue in QUEUES:
                self.dispatch(queue, 4)
            while Run.objects.exists():
                self.end(0)
            if not Call.objects.exists():
                return
        raise AssertionError("calls wait for ever")


def _given(call: Call) -> dict[str, Any]:
    return dict(json.loads(call.arguments)[1])


@pytest.mark.sqlite
@pytest.mark.django_db
def test_queues_share_keys_and_permits_as_the_oracle_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(leases, "SECONDS", 3600.0)
    monkeypatch.setattr(permits, "RESERVED_SECONDS", 3600.0)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=soak(16, 200),
            stateful_step_count=soak(24, 80),
            deadline=None,
            derandomize=True,
            print_blob=True,
        ),
    )
