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
    ("target", "quick", "slow", "waiting", "at_least", "paused", "state", "words"),
    [
        (None, 5, 0, 0, 0, False, NONE, "no wait target"),
        (1, 99, 1, 0, 0, False, KEPT, "99% began within 1 s"),
        (1, 9, 1, 0, 0, False, KEPT, "90% began within 1 s"),
        (1, 90, 10, 0, 0, False, BROKEN, "10% began later than 1 s"),
        (60, 0, 0, 0, 0, False, UNKNOWN, "nothing has run in the last five minutes"),
        (60, 0, 0, 7, 30, False, UNKNOWN, "what waits has not begun yet"),
        (60, 10, 0, 7, 90, False, BROKEN, "a message has waited for 90 s, the target is 60 s"),
        (60, 10, 0, 7, 50, False, KEPT, "100% began within 60 s"),
        (60, 10, 0, 1234, 5, True, BROKEN, "paused: 1,234 messages wait"),
    ],
)
def test_promise_is_judged(target, quick, slow, waiting, at_least, paused, state, words):
    stop = Stop("ann", "disk", 0.0) if paused else None
    found = judge(target, waits(quick, slow), waiting, at_least, paused=stop)
    assert (found.state, found.words) == (state, words)
