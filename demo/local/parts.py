"""The processes of the local Antenna: web, the workers with beat, and the processing service."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import httpx

from ami.topology import one_machine
from ami.topology.process_group import Command, ProcessGroup
from demo.local.output import Output
from demo.local.place import LocalPlace
from provision.patience import Patience, processor_seconds

PYTHON = sys.executable
#: What asks again and again: health, style sheets, pollers and the pages' live parts.
POLLS = r'^$|"GET /(livez|favicon|static/|api/v2/jobs/|admin/\S*[?&]live=)\S* HTTP/1.1" (200|304) '
#: Empty lines, and the tasks that each worker lists.
LISTS = r"^\s*$|^  \. "
#: Each try while web starts; every quarter of a minute a line of another kind says so.
RETRIES = r"antenna retry .*reason=ConnectError"
POLL_SECONDS = 0.3
#: Processes that wait use a little of the processor, too.
WORK_SECONDS = 10
SAY_SECONDS = 10.0
STOP_SECONDS = 8.0
#: A worker finishes what it runs; the processes of a developer's machine are not waited for as long as deployed ones.
WORKERS_STOP_SECONDS = 20.0
PROCESSES_PER_QUEUE = 1 if (os.cpu_count() or 1) <= 4 else 2
#: The order in which they are stopped, the last one first: who posts results before who takes them.
WEB, WORKERS, PROCESSING = range(3)


class PartFailed(Exception):
    """Something that is needed does not run or does not move; the message has its name."""


def antenna(place: LocalPlace, variables: Mapping[str, str]) -> list[Command]:
    """Return web, the workers and beat."""
    argv = [PYTHON, "manage.py", "runserver", "--noreload", f"127.0.0.1:{place.port}"]
    web = Command("web", argv, {**variables, "DJANGO_DEBUG": "1"}, STOP_SECONDS, quiet=POLLS, stage=WEB)
    workers = one_machine.commands(variables, place.pulses, PROCESSES_PER_QUEUE, has_beat=True)
    local = {"grace_seconds": WORKERS_STOP_SECONDS, "quiet": LISTS, "stage": WORKERS}
    return [web, *(replace(each, **local) for each in workers)]


def processing(place: LocalPlace, variables: Mapping[str, str], project: int, token: str) -> Command:
    """Return the service that pulls images and posts results."""
    argv = [PYTHON, "-m", "processing_service", "pull", "--antenna", place.web, "--token-env", "ANTENNA_TOKEN"]
    argv += ["--project", str(project), "--name", "local puller", "--pullers", "1", "--batch-size", "4"]
    own = {**variables, "ANTENNA_TOKEN": token}
    return Command("processing", argv, own, STOP_SECONDS, quiet=RETRIES, stage=PROCESSING)


def until(
    group: ProcessGroup,
    output: Output,
    what: str,
    condition: Callable[[], Any],
    signs: Callable[[], object] = lambda: processor_seconds() // WORK_SECONDS,
) -> Any:
    """Wait for a true result of ``condition`` as long as ``signs`` change, say what is waited for, and return it.

    Raises:
        PartFailed: a process ended too often, or nothing moved any more.
        KeyboardInterrupt: the output was closed.
    """
    patience, said = Patience(), time.monotonic()
    while not (answer := condition()):
        if not group.step(POLL_SECONDS):
            raise KeyboardInterrupt
        if group.down:
            raise PartFailed(f"{what}: {', '.join(group.down)} does not run; its last lines are above.")
        if patience.is_over(signs()):
            raise PartFailed(f"{what}: nothing has moved for {patience.seconds:.0f} s; the last lines are above.")
        if time.monotonic() - said >= SAY_SECONDS:
            said = time.monotonic()
            output.say(f"waiting for {what}")
    return answer


def web_lives(web: str) -> bool:
    """Return whether web answers."""
    try:
        return httpx.get(f"{web}/livez", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
