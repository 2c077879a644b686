"""``python -m benchmarks.console``: every page of the console over a large deployment, and the cost of watching it.

Run it on RabbitMQ and PostgreSQL::

    python -m provision run --private --need rabbitmq,postgres,redis -- python -m benchmarks.console

200,000 messages wait, 10,000 letters of 40 causes are dead, 30 days were sampled, the audit log has 100,000 entries, 20
workers have reported themselves. The web server runs as deployed, with three processes. Twenty signed-in visitors poll
the overview every two seconds, as while a job runs, with their ETag; what the web processes use meanwhile, less what
they used before, is the cost of watching. Beside it stands what as many requests of a static file that has not changed
take. While the watchers go on, every page is asked for many times, by each of twenty sessions in turn; the time is the
client's on the loopback interface, until the last byte. Statements are counted by Django's test client over the same
database, for a user with each permission by itself; "snapshot" are those of a page that also takes the shared snapshot.
Beside each page stands a plain query of its rows.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from unittest import mock

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

import django

django.setup()

from django.contrib.auth.models import Permission  # noqa: E402
from django.db import connection  # noqa: E402
from django.test import Client  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402

from ami.console.page import rendered  # noqa: E402
from ami.telemetry.models import SharedValue  # noqa: E402
from ami.telemetry.snapshots import shared  # noqa: E402
from benchmarks.console import references, rows  # noqa: E402
from benchmarks.console.processors import Processors  # noqa: E402
from benchmarks.console.visitor import Visitor, Watcher  # noqa: E402
from tests.support import console_rows  # noqa: E402
from tests.support.browser.site import collect_static  # noqa: E402
from tests.support.console_pages import client  # noqa: E402
from tests.support.place import Place, new_place  # noqa: E402
from tests.support.web_server import Web, command_line, environment_of_script, free_port  # noqa: E402

PAGE_TARGET_MS, STATEMENTS_TARGET, WATCH_TARGET_PERCENT = 300.0, 15, 5.0
SESSIONS = 20
#: As in docker-compose.yml.
WEB_PROCESSES = 3
REFERENCES = 5
WATCHED = "/admin/queues/?live=overview"
#: As many requests of a file that has not changed: what the web server needs for any.
PLAIN = "/static/console/console.css"
#: The pages whose figures are the shared snapshot's.
OF_SNAPSHOT = ("overview", "queue", "workers", "worker")


@dataclass(frozen=True)
class Page:
    """One address: the client's milliseconds, the statements (also of taking the snapshot), a plain query's time."""

    name: str
    address: str
    p50_ms: float
    p95_ms: float
    statements: int
    with_snapshot: int | None
    plain_ms: float | None


@dataclass(frozen=True)
class Watching:
    """Per cent of a core by process: idle, as often asked for a file, and watched; and how the polls were answered."""

    idle: dict[str, float]
    plain: dict[str, float]
    watched: dict[str, float]
    sent: int
    unchanged: int
    failed: int
    p95_ms: float

    @property
    def cost(self) -> dict[str, float]:
        return {name: self.watched[name] - self.idle[name] for name in self.idle}


@contextmanager
def web_of(place: Place) -> Iterator[Web]:
    """Start the web server as deployed."""
    collect_static(place.folder / "files/static")
    place.environment.pop("WEB_CONCURRENCY", None)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    given = {**environment_of_script(), "ANTENNA_PUBLIC_URL": url, "ANTENNA_LOG_LEVEL": "WARNING"}
    web = Web(url, place.start([*command_line(port), "--workers", str(WEB_PROCESSES)], **given))
    web.await_ready()
    yield web
    web.process.stop()


def watch(web: Web, visitors: Sequence[Visitor], seconds: float) -> tuple[Watching, list[Watcher]]:
    """Measure idle, with the reference and watched, each for so long; the watchers go on."""
    processors = Processors(web)
    idle = processors.percent_of_a_core(seconds)
    asking = watchers_of(visitors, PLAIN)
    plain = processors.percent_of_a_core(seconds)
    for each in asking:
        each.end()
    polling = watchers_of(visitors, WATCHED)
    watched = processors.percent_of_a_core(seconds)
    answers = [answer for each in polling for answer in list(each.answers)]
    status = [answer.status for answer in answers]
    failed = len(answers) - status.count(200) - status.count(304)
    times = p95([answer.ms for answer in answers])
    return Watching(idle, plain, watched, status.count(200), status.count(304), failed, times), polling


def watchers_of(visitors: Sequence[Visitor], address: str) -> list[Watcher]:
    """Let each visitor ask every two seconds, one after the other."""
    found = [Watcher(each, address, number * 2.0 / len(visitors)) for number, each in enumerate(visitors)]
    for each in found:
        each.start()
    time.sleep(5)
    return found


def p95(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=20, method="inclusive")[-1]


def timed(visitors: Sequence[Visitor], times: int) -> dict[str, list[float]]:
    """Ask for every page so many times, by each session in turn."""
    found: dict[str, list[float]] = {}
    known = list(console_rows.all_addresses())
    # The first answers of a process read templates.
    for round_number in range(-WEB_PROCESSES, times):
        for number, (_, address) in enumerate(known):
            answer = visitors[(round_number + number) % len(visitors)].get(address)
            if answer.status != 200:
                raise SystemExit(f"{address} answers {answer.status}")
            if round_number >= 0:
                found.setdefault(address, []).append(answer.ms)
    return found


def statements(browser: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as seen:
        if browser.get(address).status_code != 200:
            raise SystemExit(f"{address} is not answered")
    return len(seen)


def taking_the_snapshot(browser: Client, address: str) -> int:
    SharedValue.objects.filter(name=shared.NAME).update(made_at=None)
    shared.forget()
    rendered.clear()
    return statements(browser, address)


def milliseconds(run: Callable[[], Any] | None) -> float | None:
    """Return the median of a few runs."""
    if run is None:
        return None
    times = []
    for _ in range(REFERENCES + 1):
        began = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times[1:])


def pages(times: dict[str, list[float]]) -> list[Page]:
    """Count the statements of each page beside its times."""
    browser = client(*Permission.objects.values_list("codename", flat=True))
    shared.current(0.0)
    found = []
    for name, address in console_rows.all_addresses():
        with mock.patch("ami.console.page.FRESH_SECONDS", 3600.0), mock.patch.object(shared, "MEMO_SECONDS", 3600.0):
            few = statements(browser, address)
        most = taking_the_snapshot(browser, address) if name in OF_SNAPSHOT else None
        took, plain = times[address], milliseconds(references.of(name, address))
        found.append(Page(name, address, statistics.median(took), p95(took), few, most, plain))
    return found


def measure(size: rows.Size, times: int, seconds: float) -> dict[str, Any]:
    """Fill the services and measure."""
    with new_place("console") as place:
        place.queues("declare")
        began = time.monotonic()
        samples = rows.fill(size)
        waiting = sum(place.depth(queue) for queue in console_rows.queues())
        print(f"filled in {time.monotonic() - began:.0f} s: {waiting:,} messages wait", file=sys.stderr)
        beats = rows.Beats()
        beats.start()
        codenames = list(Permission.objects.values_list("codename", flat=True))
        clients = [client(*codenames) for _ in range(SESSIONS)]
        with web_of(place) as web:
            timed([Visitor(clients[0], web.port)], 1)
            watching, polling = watch(web, [Visitor(each, web.port) for each in clients], seconds)
            print(f"watching: {watching.cost['web']:.2f}% of a core; now the pages", file=sys.stderr)
            took = timed([Visitor(each, web.port) for each in clients], times)
            for each in polling:
                each.end()
        found = pages(took)
        beats.end()
    return {"messages": waiting, "samples": samples, "load": os.getloadavg()[0], "pages": found, "watching": watching}


def table(found: dict[str, Any]) -> str:
    """Return the figures beside their targets."""
    lines = [f"{found['messages']:,} messages wait, {found['samples']:,} rows of samples; load {found['load']:.1f}"]
    lines.append(f"{'page':60}{'p50 ms':>8}{'p95 ms':>8}{'plain ms':>9}{'statements':>11}{'snapshot':>9}")
    for page in found["pages"]:
        plain = "" if page.plain_ms is None else f"{page.plain_ms:.1f}"
        times = f"{page.p50_ms:8.1f}{page.p95_ms:8.1f}{plain:>9}"
        lines.append(f"{page.address[-59:]:60}{times}{page.statements:11}{page.with_snapshot or '':>9}")
    lines.append(f"{'at most':60}{'':8}{PAGE_TARGET_MS:8.0f}{'':9}{STATEMENTS_TARGET:11}")
    watching = found["watching"]
    lines.append(f"{SESSIONS} watchers, % of a core (at most {WATCH_TARGET_PERCENT:g} of web):")
    for name, cost in watching.cost.items():
        parts = f"{watching.idle[name]:.2f} idle, {watching.watched[name]:.2f} watched"
        lines.append(f"  {name:12}{cost:6.2f}  ({parts}; {watching.plain[name]:.2f} asked as often for a file)")
    counts = f"{watching.sent} sent, {watching.unchanged} unchanged, {watching.failed} failed"
    lines.append(f"  polls: {counts}, p95 {watching.p95_ms:.1f} ms")
    return "\n".join(lines)


def missed(found: dict[str, Any]) -> list[str]:
    """Return the targets that are missed."""
    wrong = [f"{page.address}: p95 {page.p95_ms:.0f} ms" for page in found["pages"] if page.p95_ms > PAGE_TARGET_MS]
    many = (page for page in found["pages"] if page.statements > STATEMENTS_TARGET)
    wrong += [f"{page.address}: {page.statements} statements" for page in many]
    watching = found["watching"]
    if watching.cost["web"] > WATCH_TARGET_PERCENT:
        wrong.append(f"watching takes {watching.cost['web']:.2f}% of a core")
    if watching.failed:
        wrong.append(f"{watching.failed} polls failed")
    return wrong


def main() -> int:
    """Print the table; return 1 where a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows and messages, and fewer requests")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if connection.vendor != "postgresql":
        parser.error("needs PostgreSQL: set DATABASE_URL, or use provision run --private --need rabbitmq,postgres")
    subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity=0"], check=True)
    size, times, seconds = (rows.Size().tenth(), 10, 20.0) if options.quick else (rows.Size(), 40, 60.0)
    found = measure(size, times, seconds)
    if options.json:
        watching = asdict(found["watching"]) | {"cost": found["watching"].cost}
        print(json.dumps(found | {"pages": [asdict(page) for page in found["pages"]], "watching": watching}))
    else:
        print(table(found))
    wrong = missed(found)
    for each in wrong:
        print(f"MISSED: {each}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
