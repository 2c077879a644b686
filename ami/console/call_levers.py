"""The levers of calls that are rows: limits, weights, and what is stuck."""

from typing import Any

from ami.console.levers import Lever, add
from ami.queues import call_operations, limits
from ami.queues.admin_site.operation_actions import Field
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator

LIMIT = "limit_tasks"


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise Refused(f"'{text[:40]}' is not a whole number.")
    return int(text[:9])


def _limit(*, is_rate: bool) -> Any:
    def run(name: str, operator: Operator, why: str, given: dict[str, str]) -> str:
        found = limits.limit(name, _whole(given["most"]), operator, why=why, is_rate=is_rate)
        return f"{found.most} from now on; what runs goes on."

    return run


def _unlimit(*, is_rate: bool) -> Any:
    def run(name: str, operator: Operator, why: str, _: dict[str, str]) -> str:
        return f"{limits.unlimit(name, operator, why=why, is_rate=is_rate).most} again, as in the code."

    return run


def _weigh(key: str, operator: Operator, why: str, given: dict[str, str]) -> str:
    found = limits.weigh(key, _whole(given["weight"]), operator, why=why)
    return f"It has the weight {found.weight} from now on."


def _release(task_id: str, operator: Operator, why: str, given: dict[str, str]) -> str:
    found = call_operations.release(task_id, operator, why=why, drop=given.get("drop") == "yes")
    became = "were deleted" if found.is_dropped else "wait again"
    return f"It was {found.was}; {found.calls} calls {became}."


def _compact(task: str, operator: Operator, why: str, _: dict[str, str]) -> str:
    found = call_operations.compact(task, operator, why=why)
    return f"{found.before} waiting calls became {found.after}."


MOST = (Field("most", "Runs", "number", is_required=True),)
add(
    Lever("limit", LIMIT, _limit(is_rate=False), "{target} has at most this number of active runs.", MOST),
    Lever(
        "limit-rate",
        LIMIT,
        _limit(is_rate=True),
        "At most this number of runs of {target} is sent in the time that the code gives.",
        MOST,
        label="Limit",
    ),
    Lever("unlimit", LIMIT, _unlimit(is_rate=False), "The number in the code counts for {target} again."),
    Lever(
        "unlimit-rate",
        LIMIT,
        _unlimit(is_rate=True),
        "The number in the code counts for {target} again.",
        label="Unlimit",
    ),
    Lever(
        "weigh",
        LIMIT,
        _weigh,
        "While several keys have calls waiting, {target} gets its weight times the work time of a key of weight 1.",
        (Field("weight", "Weight (1 to 1000)", "number", is_required=True),),
    ),
    Lever("compact", LIMIT, _compact, "All waiting calls of one key of {target} become one that one run can take."),
    Lever(
        "release",
        LIMIT,
        _release,
        "What call {target} holds is free for others at once. Where it runs, its process cannot write its end any "
        "more, and its calls run again; what it does outside the database goes on meanwhile. Where it has stopped its "
        "key, the key goes on without it, and its letter stays.",
        (Field("drop", "Write 'yes' to delete its calls instead"),),
        grave=True,
    ),
)
