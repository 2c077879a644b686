"""The parts of the local Antenna: web, the workers with beat, and the processing service."""

from __future__ import annotations

import os
import sys
import time

import httpx

from demo.client import Client
from demo.local.login import Login
from demo.local.place import LocalPlace
from demo.local.supervisor import Part, PartFailed, Supervisor

PYTHON = sys.executable
#: What asks again and again: health, style sheets, pollers and the pages' live parts.
POLLS = r'^$|"GET /(livez|favicon|static/|api/v2/jobs/|admin/\S*[?&]live=)\S* HTTP/1.1" (200|304) '
#: Empty lines, and the tasks that each worker lists.
LISTS = r"\| *$|\|   \. "
START_SECONDS = 90.0
POLL_SECONDS = 0.3
#: A worker finishes what it runs; the processes of a developer's machine are not waited for as long as deployed ones.
WORKERS_STOP_SECONDS = 20.0
PROCESSES_PER_QUEUE = "1" if (os.cpu_count() or 1) <= 4 else "2"


def antenna(place: LocalPlace) -> tuple[Part, Part]:
    """Return web, and the workers with beat."""
    web = [PYTHON, "manage.py", "runserver", "--noreload", f"127.0.0.1:{place.port}"]
    workers = [PYTHON, "-m", "ami.topology", "all", "--beat", "--concurrency", PROCESSES_PER_QUEUE]
    return (
        Part("web", web, {"DJANGO_DEBUG": "1"}, quiet=POLLS),
        Part("workers", workers, prefix="", stop_seconds=WORKERS_STOP_SECONDS, quiet=LISTS),
    )


def processing(place: LocalPlace, project: int, token: str) -> Part:
    """Return the service that pulls images and posts results."""
    argv = [PYTHON, "-m", "processing_service", "pull", "--antenna", place.web, "--token-env", "ANTENNA_TOKEN"]
    argv += ["--project", str(project), "--name", "local puller", "--pullers", "1", "--batch-size", "4"]
    return Part("processing", argv, {"ANTENNA_TOKEN": token})


def await_web(place: LocalPlace, supervisor: Supervisor, login: Login) -> Client:
    """Wait until web answers, and sign in.

    Raises:
        PartFailed: it ended, or did not answer in time.
    """
    deadline = time.monotonic() + START_SECONDS
    while not _lives(place.web):
        supervisor.check()
        if time.monotonic() > deadline:
            raise PartFailed(f"web did not answer at {place.web} within {START_SECONDS:.0f} s; its lines are above.")
        time.sleep(POLL_SECONDS)
    client = Client(place.web)
    client.log_in(login.email, login.password)
    return client


def _lives(web: str) -> bool:
    try:
        return httpx.get(f"{web}/livez", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
