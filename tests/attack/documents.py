"""The schema of the API: it has an ETag, is not sent again to who has it, and costs no more than a list."""

import os

from tests.attack.client import Client, Request, Role
from tests.attack.people import People
from tests.attack.report import Report
from tests.attack.stage import Stage

PART = "documents"
SCHEMA, FORMATS = "/api/v2/schema/", ("*/*", "application/json", "application/yaml")
LIST = Request("GET", "/api/v2/jobs/")
#: One of the schema may take the processor time of so many lists, of which one is a few statements.
MOST_TIMES, FLOOR_SECONDS = 5.0, 1.0
TICKS = os.sysconf("SC_CLK_TCK")
ANYBODY = Role("anonymous")


def attack(stage: Stage, client: Client, people: People, report: Report, *, short: bool) -> None:
    """Ask for each format again with its ETag, and compare what many of them cost with as many lists."""
    known = {}
    for form in FORMATS:
        request = Request("GET", SCHEMA, headers=(("Accept", form),))
        first = client.send(PART, ANYBODY, request)
        if first is None or first.status_code != 200 or not first.headers.get("ETag"):
            report.found(PART, "excess", "the schema has no ETag", request.repeat(ANYBODY))
            continue
        known[form] = etag = first.headers["ETag"]
        for given, status in ((etag, 304), ('"another"', 200), (f'"another", {etag}', 304)):
            asked = Request("GET", SCHEMA, headers=(("Accept", form), ("If-None-Match", given)))
            answer = client.send(PART, ANYBODY, asked)
            if answer is None or answer.status_code != status or (status == 304 and answer.content):
                report.found(PART, "excess", f"the schema is not answered {status} by its ETag", asked.repeat(ANYBODY))
    if len(set(known.values())) < 2:
        report.found(PART, "errors", "two formats of the schema have one ETag", SCHEMA)
    _compare(stage, client, people, report, 15 if short else 60)


def _compare(stage: Stage, client: Client, people: People, report: Report, count: int) -> None:
    lists = _seconds(stage, client, people.api["owner"], LIST, count)
    schemas = _seconds(stage, client, ANYBODY, Request("GET", SCHEMA), count)
    report.note(
        f"documents: {count} times the schema took {schemas:.2f} s of the processor, as many lists {lists:.2f} s"
    )
    if schemas > MOST_TIMES * lists + FLOOR_SECONDS:
        report.found(PART, "excess", "the schema is rendered for each request", f"{count} times GET {SCHEMA}")


def _seconds(stage: Stage, client: Client, role: Role, request: Request, count: int) -> float:
    """Return the processor seconds of the web server's workers for so many requests, after one of each."""
    client.send(PART, role, request)
    before = _processor(stage)
    client.send_all(PART, role, [request] * count)
    return _processor(stage) - before


def _processor(stage: Stage) -> float:
    ticks = 0
    for pid in stage.web.workers:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS
