"""The verbs of ``manage.py queues``: a verb's module is imported, and its options are added, when it is used."""

from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandParser

#: By module of this package: the verbs in it, and what each does.
MODULES: dict[str, dict[str, str]] = {
    "failures": {
        "failures": "show why tasks failed: the newest tries, --causes, or the tries of one task with their tracebacks",
    },
    "letters": {
        "letters": "list, group, show, replay, edit and discard dead letters that are collected",
    },
    "staged": {
        "staged": "list calls of tasks with a policy that are not on the broker yet, and what they wait for",
    },
    "dropped": {
        "dropped": "show how many calls were merged or dropped, and why",
    },
    "statistics": {
        "statistics": "show how much waits and runs and how many processes work, per queue or task",
    },
    "limits": {
        "limits": "list how many runs of tasks with permits or a rate there may be, and who changed it",
        "limit": "set how many runs there may be, for the whole deployment; what runs goes on",
        "unlimit": "go back to the number that the code declares",
        "weights": "list the fair keys that get more work time than others, and who changed it",
        "weigh": "set the weight of a fair key (a project): a multiple of the work time of others; 1 for as much",
    },
    "calls": {
        "compact": "make one call of all waiting calls of a key, of a task that is unique or grouped",
        "release": "free the key and the permit of a stuck call: its run is taken away, or its key goes on without it",
    },
    "schedule_policies": {
        "misfire": "say what becomes of an entry's late ticks: nothing, one run for all of them, or one for each",
    },
    "states": {
        "states": "count what is initial, pending, computing, awaiting, failed and disabled, per queue",
        "state": "say where one task is; exit 1 if there is no trace of it",
        "snapshot": "what is queued, running, completed and failed per queue, and its workers, as JSON",
        "disable": "set a task, or job:12, aside at its start until it is enabled; what runs goes on",
        "enable": "let a disabled task or job run again; what was set aside goes to the tail of its queue",
        "disabled": "list what is disabled, with how many messages are set aside",
    },
}
MODULE_OF = {verb: module for module, verbs in MODULES.items() for verb in verbs}


class VerbParser(CommandParser):
    """A verb's parser, which has no options before it parses."""

    complete: Callable[[], None] | None = None

    def parse_known_args(self, *args: Any, **options: Any) -> Any:
        self.add_options()
        return super().parse_known_args(*args, **options)

    def add_options(self) -> None:
        """Add the options, once."""
        complete, self.complete = self.complete, None
        if complete is not None:
            complete()
