"""The soft and the hard time limit of a task, where a command line, a task or a call names one of them alone."""

from typing import Any, NamedTuple


class TimeLimits(NamedTuple):
    """In seconds; None or 0 for no limit."""

    soft: float | None
    hard: float | None


def in_proportion(named: TimeLimits, base: TimeLimits) -> TimeLimits:
    """Return the limits that are named, and for the rest the base's, moved in proportion where the soft one would not
    come first: Celery looks at the hard one only after the soft one.

    Of two that are named the wrong way round the hard one holds.
    """
    share = min(1.0, base.soft / base.hard) if base.soft and base.hard else 1.0
    soft, hard = named
    if hard and (soft or base.soft or 0) >= hard and not (soft and soft == hard):
        return TimeLimits(hard * share, hard)
    if soft and not hard and base.hard and soft >= base.hard:
        return TimeLimits(soft, soft / share)
    return TimeLimits(soft or base.soft, hard or base.hard)


def of_call(given: Any, task: Any, worker: TimeLimits) -> TimeLimits:
    """Return the limits of a message: those that its call names, its task's, or its worker's.

    ``given`` are the hard and the soft one of the message, to which a publisher adds those of the task.
    """
    own = TimeLimits(task.soft_time_limit, task.time_limit)
    hard, soft = given
    named = TimeLimits(soft if soft != own.soft else None, hard if hard != own.hard else None)
    return in_proportion(named, in_proportion(own, worker))
