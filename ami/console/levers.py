"""The operations that a page has buttons for: what each does in a sentence, what it asks for, and who may.

Another module adds its own with `add`; the functions are those of the admin's actions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone

from ami.queues import pauses, worker_operations
from ami.queues.admin_site.operation_actions import (
    COUNT,
    MOST_MOVED,
    NO_WAIT,
    PROCESSES,
    Field,
    Operation,
    cancel,
    disable,
    enable,
    last_worker,
    move,
    purge,
    scale,
    waiting,
    wish,
)
from ami.queues.refusals import Refused

#: For how long: the choices of a form, in seconds; empty is until it is undone.
DURATIONS = (
    ("", "until it is undone"),
    ("900", "15 minutes"),
    ("3600", "1 hour"),
    ("14400", "4 hours"),
    ("43200", "12 hours"),
    ("86400", "1 day"),
    ("604800", "7 days"),
)
FOR = Field("until", "For", "duration")


@dataclass(frozen=True)
class Lever:
    """One operation on one target, which its button names.

    ``effect`` says what happens, with ``{target}`` in the place of it; ``fact`` returns what a user should know of a
    target before, and may refuse. A ``grave`` one loses or ends something: its button is red, its reason is required.
    """

    verb: str
    permission: str
    operation: Operation
    effect: str
    fields: tuple[Field, ...] = ()
    label: str = ""
    grave: bool = False
    fact: Callable[[str], str] = lambda _: ""

    @property
    def needs(self) -> str:
        """The permission with its app's label, which is ``queues`` where none is given."""
        return self.permission if "." in self.permission else f"queues.{self.permission}"

    @property
    def text(self) -> str:
        """What the button says."""
        return self.label or self.verb.capitalize()

    def run(self, target: str, operator: Any, why: str, given: dict[str, str]) -> str:
        """Run it; return a sentence.

        Raises:
            Refused: the input is wrong, or the reason is missing; nothing was changed.
        """
        if self.grave and not why.strip():
            raise Refused("Give a reason: this cannot be undone.")
        for field in self.fields:
            if field.is_required and not given.get(field.name):
                raise Refused(f"Fill in '{field.label}'.")
            if field.kind == "duration":
                given = {**given, field.name: _until(given.get(field.name, ""))}
        return self.operation(target, operator, why, given)


def _until(seconds: str) -> str:
    if seconds not in dict(DURATIONS):
        raise Refused(f"'{seconds[:20]}' is not one of the durations.")
    return (timezone.now() + timedelta(seconds=int(seconds))).isoformat() if seconds else ""


LEVERS: dict[str, Lever] = {}


def add(*more: Lever) -> None:
    """Add levers; the verb is also the name in the address of its form."""
    LEVERS.update({lever.verb: lever for lever in more})


#: Who lacks one of these sees no jobs, or no calls.
VIEW_JOBS, VIEW_CALLS = "jobs.view_job", "admission.view_call"


def allowed(user: Any) -> frozenset[str]:
    """Return the permissions that a user has, of those that buttons need and that decide what a page shows."""
    has: Callable[[str], bool] = user.has_perm
    needed = {f"queues.{PEEK}", VIEW_JOBS, VIEW_CALLS, *(lever.needs for lever in LEVERS.values())}
    return frozenset(each for each in needed if has(each))


QUEUE, WORKERS, PEEK = "pause_queue", "control_workers", "peek_queue"

add(
    Lever(
        "pause",
        QUEUE,
        wish(pauses.pause, **NO_WAIT),
        "No task of {target} begins any more, on no worker, also after restarts. What runs goes on; what is published "
        "waits.",
        (FOR,),
    ),
    Lever("resume", QUEUE, wish(pauses.resume, **NO_WAIT), "Workers consume {target} again."),
    Lever(
        "purge",
        "purge_queue",
        purge,
        "Every message that waits in {target} is deleted for good. What runs goes on.",
        (COUNT,),
        grave=True,
        fact=waiting,
    ),
    Lever(
        "move",
        "move_messages",
        move,
        "Messages that wait in {target} go to another queue, oldest first. Those of other tasks go to the end of their "
        "queue.",
        (
            Field("to", "To", "queue", is_required=True),
            Field("task", "Only of this task (its full name)"),
            Field("limit", f"At most (up to {MOST_MOVED})", "number"),
        ),
    ),
    Lever(
        "park",
        WORKERS,
        wish(worker_operations.park, **NO_WAIT),
        "{target} finishes what runs and takes nothing more, also after restarts.",
        (FOR,),
        fact=last_worker,
    ),
    Lever("unpark", WORKERS, wish(worker_operations.unpark, **NO_WAIT), "{target} takes tasks again."),
    Lever(
        "stop",
        WORKERS,
        wish(worker_operations.stop, **NO_WAIT),
        "{target} is parked, and what it runs is ended: its messages return to their queue and run again elsewhere.",
        (FOR,),
        grave=True,
        fact=last_worker,
    ),
    Lever(
        "scale",
        WORKERS,
        scale,
        "{target} gets so many processes; those that run tasks finish them first.",
        (PROCESSES,),
    ),
    Lever(
        "restart",
        WORKERS,
        wish(worker_operations.restart),
        "Every process of {target} is replaced, one after the other, each when its task has ended.",
    ),
    Lever(
        "cancel",
        "cancel_task",
        cancel,
        "Task {target} is asked to end, and is ended 30 s later. Where it waits, it is dropped unrun.",
        grave=True,
    ),
    Lever(
        "disable",
        "disable_task",
        disable,
        "What would begin of {target} is set aside until it is enabled. What runs goes on.",
        (FOR,),
    ),
    Lever("enable", "disable_task", enable, "What was set aside of {target} goes to the tail of its queue."),
)
