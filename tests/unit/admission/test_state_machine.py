"""Calls and runs against a model in plain Python, with a crash at every step: before a commit and after it."""

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace

import pytest
from celery import current_app
from celery.exceptions import Ignore
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from ami.admission import call_stager, groups, leases, picks, run_publisher, runs, stopped
from ami.admission.models import Bucket, Call, DispatcherLease, RecentKey, Run, Share
from ami.admission.policies import policy_of
from ami.celery import staged_runs
from ami.celery.staged_calls import End, Next, Note
from tests.support.admission import POLICIES, QUEUE, message
from tests.support.soak import soak
from tests.support.worker_tasks import admitted

NAMES = ("once", "dropped", "replaced", "limited", "ordered", "together", "fair", "debounced")
TASKS = {name: getattr(admitted, name) for name in NAMES}
#: What the wish of a call is called in its arguments, where it is not ``wish``.
WISHES = {"limited": "number", "ordered": "number", "together": "numbers", "fair": "number"}
#: Tasks whose calls run when their policy says.
TIMED = ("ordered", "together", "debounced")
KEYS = ("a", "b")
HOLDERS = ("first", "second")
#: What a run of a fair task is charged at least.
SECONDS = 10
#: Which of what there is: drawn from a fixed range, as the clock has a say in how many there are (the least served
#: first), and Hypothesis allows the same steps nothing else to draw.
WHICH = st.integers(0, 99)


class Crash(Exception):
    """The process dies before its commit."""


class Machine(RuleBasedStateMachine):
    """``messages`` is the broker: at least once, in any order. ``running`` is what processes run, dead ones left out.

    The model of a key is the wishes that were committed and not yet taken by a run that went through to its end.
    """

    def __init__(self) -> None:
        super().__init__()
        for model in (Call, Run, Share, Bucket, RecentKey, DispatcherLease):
            model.objects.all().delete()
        leases.acquire([QUEUE], HOLDERS[0])
        self.messages: list[tuple[str, str]] = []
        self.unpublished: list[picks.Outgoing] = []
        self.running: list[SimpleNamespace] = []
        self.owed: dict[tuple[str, str], list[int]] = {}
        self.last_done: dict[tuple[str, str], int] = {}
        self.wish, self.starts, self.charged = 0, Counter[int](), Counter[str]()
        for name in ("once", "once", "limited", "limited", "fair", "fair", "dropped"):
            self.call(name, "a", True)
        self.call_for_later("once", "a")
        self.dispatch("")

    # The callers.

    @rule(name=st.sampled_from(sorted(TASKS)), key=st.sampled_from(KEYS), is_committed=st.booleans())
    def call(self, name: str, key: str, is_committed: bool) -> None:
        self._call(name, key, is_committed, 0.0)

    @rule(name=st.sampled_from(sorted(set(TASKS) - set(TIMED))), key=st.sampled_from(KEYS))
    def call_for_later(self, name: str, key: str) -> None:
        self._call(name, key, True, timezone.now().timestamp() + 3600)

    @rule(name=st.sampled_from(TIMED), key=st.sampled_from(KEYS))
    def call_with_a_time_is_refused(self, name: str, key: str) -> None:
        with pytest.raises(call_stager.CannotStage):
            self._call(name, key, True, timezone.now().timestamp() + 3600)

    @rule()
    def time_passes(self) -> None:
        Call.objects.filter(not_before__gt=timezone.now()).update(not_before=timezone.now())

    def _call(self, name: str, key: str, is_committed: bool, due: float) -> None:
        self.wish += 1
        kwargs = {"key": key, WISHES.get(name, "wish"): self.wish}
        try:
            with transaction.atomic():
                call_stager.stage(current_app, TASKS[name], (), kwargs, {"headers": {}}, due)
                if not is_committed:
                    raise Crash
        except Crash:
            return
        self.owed.setdefault((name, key), []).append(self.wish)

    # The dispatcher.

    @rule(crash=st.sampled_from(("", "before commit", "after commit", "after publish")))
    def dispatch(self, crash: str) -> None:
        try:
            with transaction.atomic():
                picked = picks.pick(picks.staged_tasks(current_app), QUEUE, HOLDERS[0], 7)
                if crash == "before commit":
                    raise Crash
        except Crash:
            return
        self._publish(picked, crash)

    def _publish(self, outgoing: list[picks.Outgoing], crash: str = "") -> None:
        if crash == "after commit":
            return
        self.messages += [(each.call.task, each.run) for each in outgoing]
        if crash != "after publish":
            run_publisher.confirmed([each.run for each in outgoing])

    @rule()
    def send_again_what_is_unseen(self) -> None:
        Run.objects.filter(state=Run.State.SENT).update(send_again_at=timezone.now())
        self._publish(run_publisher.unseen(QUEUE))

    @rule()
    def another_process_does_not_dispatch(self) -> None:
        with pytest.raises(picks.LeaseLost):
            picks.pick(picks.staged_tasks(current_app), QUEUE, HOLDERS[1], 6)

    # The workers.

    @rule(which=WHICH, is_kept=st.booleans(), crash=st.booleans())
    def deliver(self, which: int, is_kept: bool, crash: bool) -> None:
        """A message is delivered; one that is kept is delivered again."""
        if not self.messages:
            return
        index = which % len(self.messages)
        name, run = self.messages[index]
        if not is_kept:
            del self.messages[index]
        delivery = f"delivery{len(self.messages)}-{self.starts.total()}"
        self.starts[0] += 1
        try:
            with transaction.atomic():
                begun = runs.begin(current_app.tasks[name], run, delivery)
                if crash:
                    raise Crash
        except Crash:
            self.messages.append((name, run))  # Not acknowledged.
            return
        if begun is not None:
            calls = list(Call.objects.filter(run=run).order_by("pk").values_list("arguments", flat=True))
            self.running.append(SimpleNamespace(task=current_app.tasks[name], begun=begun, calls=calls))
            self._begun(self.running[-1])

    def _begun(self, run: SimpleNamespace) -> None:
        """A run of a key takes all that wait for it, also those that are due later."""
        name = run.task.name.rpartition(".")[2]
        key, taken = _wishes(run)
        owed = self.owed[name, key]
        assert name not in ("once", "dropped") or taken == set(owed), "not all that wait"
        assert name != "debounced" or max(taken) == max(owed), "not the last"

    @rule(which=WHICH)
    def deliver_to_a_version_without_the_policy(self, which: int) -> None:
        """A worker of another version runs the call of a message alone, and ends its run."""
        if not self.messages:
            return
        name, run = self.messages.pop(which % len(self.messages))
        task, ran = current_app.tasks[name], list[int]()
        row = Run.objects.filter(pk=run, state=Run.State.SENT).first()
        call = Call.objects.filter(pk=row.call).first() if row is not None else None
        with pytest.MonkeyPatch.context() as version, suppress(Ignore):
            for policy in POLICIES:
                version.setattr(task, policy, None)
            version.setattr(task, "run", lambda **_: ran.append(1))
            with message(task, run, id=call.task_id if call else "gone"):
                staged_runs.run(task, (), {})
        assert len(ran) == (call is not None), "once for its run, and not for one that has begun or ended"
        assert call is None or not Run.objects.filter(pk=run).exists(), "its run has ended"
        if call is not None:
            self._forget(SimpleNamespace(task=task, calls=[call.arguments]))

    @rule(which=WHICH, crash=st.booleans())
    def succeed(self, which: int, crash: bool) -> None:
        run = self._take(which)
        if run is None:
            return
        waiting = {key: list(owed) for key, owed in self.owed.items()}
        try:
            with transaction.atomic():
                assert runs.end(run.task, run.begun, None)
                if crash:
                    raise Crash
        except Crash:
            assert runs.settle(current_app, Note(run.begun.run, run.begun.delivery, End.DONE)), "its parent writes it"
        self._done(run, waiting)
        assert not runs.end(run.task, run.begun, None), "a run ends once"

    def _done(self, run: SimpleNamespace, waiting: dict[tuple[str, str], list[int]]) -> None:
        name = run.task.name.rpartition(".")[2]
        key, taken = _wishes(run)
        assert name != "ordered" or taken == {waiting[name, key][0]}, "not the first of its key"
        self.owed[name, key] = [each for each in waiting[name, key] if each not in self._merged(name, taken)]
        if name == "dropped":
            self.owed[name, key] = []
        if name == "together":
            assert sorted(run.begun.kwargs["numbers"]) == sorted(taken)
        elif run.begun.kwargs is not None:
            shown = run.begun.kwargs["wish"]
            assert shown == (min(taken) if name == "dropped" else max(taken))
            self.last_done[name, key] = max(self.last_done.get((name, key), 0), max(taken))

    def _merged(self, name: str, taken: set[int]) -> set[int]:
        """Return the wishes that a run stands for: of a debounced key also those before."""
        return set(range(max(taken) + 1)) if name == "debounced" else taken

    @rule(which=WHICH, is_later=st.booleans())
    def retry(self, which: int, is_later: bool) -> None:
        run = self._take(which)
        due = timezone.now().timestamp() + 3600 if is_later else 0.0
        assert run is None or runs.end(run.task, run.begun, Next(retries=1, due=due))

    @rule(which=WHICH, is_replayed=st.booleans())
    def fail(self, which: int, is_replayed: bool) -> None:
        """A run fails for the last time; the letter of a call in order is replayed or given up at once."""
        run = self._take(which)
        if run is None:
            return
        policy = policy_of(run.task)
        assert policy is not None
        if groups.split(run.task, policy, run.begun.run, run.begun.delivery):
            assert len(run.calls) > 1
            if policy.unique:
                self._forget(run, kept=max if policy.unique.last_wins else min)
            return
        calls = list(Call.objects.filter(run=run.begun.run))
        assert runs.settle(current_app, Note(run.begun.run, run.begun.delivery, End.FAILED))
        if policy.stops:
            [call] = calls
            with transaction.atomic():
                assert not call.key or stopped.keys() == {call.key}
                assert not any(each.call.key == call.key for each in self._picked())
            if is_replayed:
                assert stopped.go_on(call)
                return
            assert stopped.give_up([call.task_id]) == 1
        self._forget(run)

    def _picked(self) -> list[picks.Outgoing]:
        """Return what would be picked now."""
        try:
            with transaction.atomic():
                found = picks.pick(picks.staged_tasks(current_app), QUEUE, HOLDERS[0], 100)
                raise Crash
        except Crash:
            return found

    def _forget(self, run: SimpleNamespace, kept: Callable[[set[int]], int] | None = None) -> None:
        key, taken = _wishes(run)
        name = run.task.name.rpartition(".")[2]
        taken = self._merged(name, taken) - ({kept(taken)} if kept else set())
        owed = self.owed[name, key]
        owed[:] = [each for each in owed if each not in taken]

    @rule(which=WHICH)
    def lose_the_process(self, which: int) -> None:
        run = self._take(which)
        if run is None:
            return
        assert runs.settle(current_app, Note(run.begun.run, run.begun.delivery, End.RETURNED, Next(retries=1)))
        assert not runs.holds(run.begun)

    @rule()
    def lose_the_worker(self) -> None:
        """All its processes are dead; the rescue gives back what they ran. A frozen one ends in vain."""
        lost = [self._take(0) for _ in list(self.running)]
        assert runs.give_back(Q(worker="")) == len(lost)
        for run in filter(None, lost):
            assert not runs.end(run.task, run.begun, None)

    @rule(which=WHICH)
    def settle_a_second_message(self, which: int) -> None:
        """What a parent says of a message that began nothing changes no run."""
        if self.running:
            run = self.running[which % len(self.running)]
            for end in End:
                assert not runs.settle(current_app, Note(run.begun.run, "another", end))

    def _take(self, which: int) -> SimpleNamespace | None:
        """Return one of what runs, which ends now: its work is to be charged to its key, however it ends."""
        if not self.running:
            return None
        run: SimpleNamespace = self.running.pop(which % len(self.running))
        row = Run.objects.get(pk=run.begun.run)
        if row.fair_key:
            Run.objects.filter(pk=row.pk).update(began_at=timezone.now() - timedelta(seconds=SECONDS))
            self.charged[row.fair_key] += SECONDS
        return run

    # What holds at every moment.

    @invariant()
    def no_two_runs_of_one_key(self) -> None:
        active = Counter(
            (run.task.name, run.begun.kwargs["key"])
            for run in self.running
            if run.begun.kwargs is not None and run.task is not admitted.replaced
        )
        assert not active or max(active.values()) == 1, active

    @invariant()
    def no_more_runs_than_permits(self) -> None:
        held = Counter(Run.objects.filter(task=admitted.limited.name).values_list("permit_key", flat=True))
        assert not held or max(held.values()) <= 2, held
        assert len([run for run in self.running if run.task is admitted.limited]) <= 4

    @invariant()
    def work_is_charged_to_its_key(self) -> None:
        used = dict(Share.objects.values_list("fair_key", "used"))
        assert all(used[key] > seconds - 1 for key, seconds in self.charged.items()), (used, self.charged)

    @invariant()
    def the_rows_of_runs_are_those_that_run(self) -> None:
        rows = set(Run.objects.filter(state=Run.State.RUNNING).values_list("pk", flat=True))
        assert rows == {run.begun.run for run in self.running}

    def teardown(self) -> None:
        """After the last crash everything that was committed runs: the last wish of each key, and each limited call."""
        for _ in range(60):
            if not Call.objects.exists():
                break
            self.send_again_what_is_unseen()
            self.time_passes()
            self._publish(picks.pick(picks.staged_tasks(current_app), QUEUE, HOLDERS[0], 6))
            for name, run in self.messages:
                begun = runs.begin(current_app.tasks[name], run, "last")
                if begun is not None:
                    calls = list(Call.objects.filter(run=run).order_by("pk").values_list("arguments", flat=True))
                    self.running.append(SimpleNamespace(task=current_app.tasks[name], begun=begun, calls=calls))
            self.messages = []
            while self.running:
                run = self.running.pop()
                waiting = {key: list(owed) for key, owed in self.owed.items()}
                assert runs.end(run.task, run.begun, None)
                self._done(run, waiting)
        assert not Call.objects.exists()
        assert not Run.objects.exists()
        assert not any(self.owed.values()), self.owed


def _wishes(run: SimpleNamespace) -> tuple[str, set[int]]:
    """Return the key of a run, and the wishes of its calls; one call may have those of several."""
    name = WISHES.get(run.task.name.rpartition(".")[2], "wish")
    given = [json.loads(each)[1] for each in run.calls]
    wishes = [wish if isinstance(wish, list) else [wish] for wish in (each[name] for each in given)]
    return given[0]["key"], {each for wish in wishes for each in wish}


@pytest.mark.sqlite
@pytest.mark.django_db
def test_rows_agree_with_the_model_whatever_crashes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(leases, "SECONDS", 3600.0)
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
