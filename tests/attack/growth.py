"""Rows that a client can make without an end: refused requests, and results that belong to no image."""

import json
from collections.abc import Callable

from ami.jobs.models import Job, JobLog, StoredResult
from ami.main.models import User
from ami.queues.models import AuditEntry, RefusedRequests
from tests.attack.client import Client, Request, Role
from tests.attack.people import People
from tests.attack.report import Report

PART = "growth"
UNKNOWN = 10**17
#: The most lines of a job's log for one post, as it says why it has refused results.
LINES_PER_POST = 10
#: The most answers of one kind within two hours.
HOURS = 2

Counts = dict[str, int]


def attack(client: Client, people: People, report: Report, *, short: bool) -> None:
    """Send what is refused many times, and count the rows that it leaves."""
    scene = people.scenes["worker"]
    outsider = User.objects.get(email__startswith="outsider-")
    requests, posts, items = (40, 2, 200) if short else (400, 10, 1000)
    _bounded(
        client, report, people.api["outsider"], _refused(requests), lambda: _of_user(outsider), {"counts": 5 * HOURS}
    )
    junk = [_junk(scene.side.job, number, items) for number in range(posts)]
    most = {"lines": posts * LINES_PER_POST + posts}
    _bounded(client, report, people.api["worker"], junk, lambda: _of_job(scene.side.job), most)


def _bounded(
    client: Client, report: Report, role: Role, requests: list[Request], count: Callable[[], Counts], most: Counts
) -> None:
    before = count()
    client.send_all(PART, role, requests)
    for what, rows in count().items():
        if (grown := rows - before[what]) > most.get(what, 0):
            report.found(PART, "excess", f"{grown} rows ({what}) of {len(requests)} requests", requests[0].repeat(role))


def _refused(count: int) -> list[Request]:
    found = []
    for number in range(count):
        found.append(Request("POST", f"/api/v2/jobs/{UNKNOWN + number}/run/", b"{}"))
        found.append(Request("DELETE", "/api/v2/jobs/"))
        found.append(Request("POST", "/api/v2/projects/", json.dumps({"name": f"\0{number}"}).encode()))
        found.append(Request("POST", "/api/v2/projects/", b"x", "text/plain"))
    return found


def _junk(job: Job, number: int, items: int) -> Request:
    """Return a post of results with subjects that no delivery has: invented ones, and some forged for this job."""
    stream = f"$JS.ACK.job_{job.pk}.job-{job.pk}-consumer.1"
    shapes = (
        lambda n: {"reply_subject": f"z{number}.{n}"},
        lambda n: {"reply_subject": f"z{number}.{n}", "result": {"error": "x"}},
        lambda n: {"reply_subject": f"{stream}.{n}.{n}.{number}.0", "result": {"error": "x", "image_id": "0"}},
        lambda n: {"reply_subject": f"{stream}.{n}.{n}.{number}.0", "result": n},
    )
    body = json.dumps({"results": [shapes[n % len(shapes)](n) for n in range(items)]}).encode()
    return Request("POST", f"/api/v2/jobs/{job.pk}/result/", body)


def _of_user(user: User) -> Counts:
    return {
        "entries": AuditEntry.objects.filter(user=user).count(),
        "counts": RefusedRequests.objects.filter(user=user).count(),
    }


def _of_job(job: Job) -> Counts:
    return {
        "results": StoredResult.objects.filter(job=job).count(),
        "lines": JobLog.objects.filter(job=job).count(),
    }
