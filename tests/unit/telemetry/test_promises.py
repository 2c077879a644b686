"""Whether a queue keeps its promise, in words."""

import pytest

from ami.celery.task_times import BUCKETS
from ami.telemetry.snapshots.promises import BROKEN, KEPT, NONE, UNKNOWN, judge
from ami.telemetry.snapshots.shape import Stop


def waits(quick=0, slow=0):
    found = [0] * BUCKETS
    found[2], found[-3] = quick, slow
    return found


@pytest.mark.parametrize(
    ("target", "quick", "slow", "waiting", "oldest", "is_bound", "paused", "state", "words"),
    [
        (None, 5, 0, 0, 0, False, False, NONE, "no wait target"),
        (1, 99, 1, 0, 0, False, False, KEPT, "99% began within 1 s"),
        (1, 90, 10, 0, 0, False, False, BROKEN, "10% began later than 1 s"),
        (1, 5, 2, 0, 0, False, False, KEPT, "71% began within 1 s"),
        (1, 0, 1, 0, 0, False, False, BROKEN, "100% began later than 1 s"),
        (60, 0, 0, 0, 0, False, False, UNKNOWN, "nothing has run in the last five minutes"),
        (60, 0, 0, 7, 30, False, False, UNKNOWN, "what waits has not begun yet"),
        (60, 10, 0, 7, 90, False, False, BROKEN, "the oldest message waits 90 s, the target is 60 s"),
        (60, 10, 0, 7, 90, True, False, KEPT, "100% began within 60 s"),
        (60, 10, 0, 1234, 5, False, True, BROKEN, "paused: 1,234 messages wait"),
    ],
)
def test_promise_is_judged(target, quick, slow, waiting, oldest, is_bound, paused, state, words):
    stop = Stop("ann", "disk", 0.0) if paused else None
    found = judge(target, waits(quick, slow), waiting, oldest, is_bound=is_bound, paused=stop)
    assert (found.state, found.words) == (state, words)
