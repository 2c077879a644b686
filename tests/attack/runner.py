"""Runs the parts in order, and measures the memory kept after them."""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from tests.attack import access, documents, figures, fuzz, growth, logins, memory, messages, pages
from tests.attack.addresses import all_addresses
from tests.attack.client import Client, Request, Role
from tests.attack.people import People, create_people, new_owner
from tests.attack.report import Report
from tests.attack.stage import INGEST, Stage
from tests.support.place import until
from tests.support.product.result_messages import TASKS as RESULT_TASKS

#: Enough requests to import all modules and fill all caches before memory is compared.
ORDINARY = 100
SETTLE_SECONDS = 2.0
WORK_SECONDS = 240.0


def run(stage: Stage, report: Report, parts: Sequence[str], chooser: random.Random, *, short: bool) -> None:
    """Run the parts one after the other."""
    people = create_people(stage)
    client = Client(stage.web.url, report, people.secrets)
    try:
        with report.part("warm-up"):
            ordinary(client, people, all_addresses())
            work(stage, people)
        stage.before = stage.mib
        report.note(f"memory before: {stage.memory}")
        for name, attack in _parts(stage, client, people, report, chooser, short).items():
            if name in parts:
                _one(name, attack, stage, report)
        with report.part("after"):
            ordinary(client, people, [])
            time.sleep(SETTLE_SECONDS)
        report.kept_mib = max(0.0, stage.mib - stage.before)
        report.note(f"memory after: {stage.memory}")
        report.note(f"{client.repeated} requests were sent again: their idle connection had been closed")
    finally:
        client.close()


def _parts(
    stage: Stage, client: Client, people: People, report: Report, chooser: random.Random, short: bool
) -> dict[str, Callable[[], Any]]:
    most, most_pages, most_opened = (24, 16, 150) if short else (500, 400, 1000)
    return {
        "access": lambda: access.attack(client, people, report, chooser, most),
        "admin": lambda: pages.attack(client, people, report, chooser, most_pages, most_opened),
        "schema": lambda: fuzz.attack(stage, client, people, report, chooser, short=short),
        "messages": lambda: messages.attack(stage, report, short=short),
        "bodies": lambda: memory.attack(stage, client, people, report, short=short),
        "logins": lambda: logins.attack(client, report, short=short),
        "growth": lambda: growth.attack(client, people, report, short=short),
        "figures": lambda: figures.attack(client, people, report),
        "documents": lambda: documents.attack(stage, client, people, report, short=short),
    }


def _one(name: str, attack: Callable[[], Any], stage: Stage, report: Report) -> None:
    before = stage.mib
    with report.part(name), memory.Peak(stage) as peak:
        attack()
        for death in stage.deaths():
            report.found(name, "deaths", death.rstrip("0123456789 "), death)
    report.parts[name].peak_mib = peak.mib
    report.parts[name].kept_mib = max(0.0, stage.mib - before)


def ordinary(client: Client, people: People, addresses: Sequence[Any]) -> None:
    """Send ordinary requests; each address once, as the superuser."""
    for address in addresses:
        if "logout" not in address.path and "{key}" not in address.path:
            admin = address.path.startswith("/admin/")
            role = (people.admin if admin else people.api)["superuser"]
            client.send("warm-up", role, Request("GET", address.path))
    part, role = "warm-up" if addresses else "after", people.api["owner"]
    client.send_all(part, role, [Request("GET", "/api/v2/jobs/")] * ORDINARY)
    client.send_all(part, Role("anonymous"), [Request("GET", "/livez")] * ORDINARY)


def work(stage: Stage, people: People) -> None:
    """Give the worker ordinary tasks, so that its modules are imported and its caches filled."""
    scene, role = new_owner(stage, people, "warm-up")
    world, job = scene.side.world, scene.side.job
    body = {"results": [{"reply_subject": "r", "result": world.found(scene.side.capture)}]}
    path = f"{stage.web.url}/api/v2/jobs/{job.pk}/result/"
    httpx.post(path, json=body, headers=role.headers, timeout=WORK_SECONDS).raise_for_status()
    for index in range(ORDINARY):
        stage.place.send("tests.support.worker_tasks.basic.succeed", f"warm-up-{index}", queue=INGEST)
    until(lambda: len(stage.place.ran("succeed")) >= ORDINARY, WORK_SECONDS, "the worker did the ordinary tasks")
    until(lambda: any(map(stage.place.ran, RESULT_TASKS)), WORK_SECONDS, "the worker saved a result")
