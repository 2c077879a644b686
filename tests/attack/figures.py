"""What staff without any permission read on the pages of the queues: no job, no call, in no form."""

from collections.abc import Iterator

from tests.attack.client import Client, Request
from tests.attack.people import People
from tests.attack.report import Report

PART = "figures"
QUEUES = "/admin/queues/"
#: Each page with its parts and its tables.
PAGES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "": (("overview",), ("queues", "findings", "jobs", "tasks")),
    "queue/antenna-ingest/": (("status", "tasks"), ("tasks",)),
    "workers/": (("workers",), ()),
    "calls/": (("calls",), ("lanes", "holders", "outcomes", "limits", "weights")),
    "schedule/": ((), ()),
    "audit/": ((), ()),
    "letters/": ((), ()),
    "replays/": ((), ()),
    "task/abc/": ((), ()),
}
LISTS = (
    "queues",
    "workers",
    "audit",
    "states",
    "states/snapshot",
    "disabled",
    "letters",
    "failures",
    "replays",
    "queues/antenna-ingest/peek",
    "tasks/abc/state",
)


def attack(client: Client, people: People, report: Report) -> None:
    """Read every page, part and table after staff who may see jobs: what was rendered for them is at hand."""
    seers, clerk = people.admin["staff"], people.admin["clerk"]
    markers = [scene.marker.encode() for scene in (*people.scenes.values(), people.victim)]
    seen = client.send(PART, seers, Request("GET", f"{QUEUES}?format=json&table=jobs"))
    if seen is None or not any(marker in seen.content for marker in markers):
        report.found(PART, "errors", "who may view jobs sees none, so the check sees nothing", QUEUES)
    for request in requests():
        client.send(PART, seers, request)
        # Its answer is searched for the texts of every project (`Client.judge`).
        answer = client.send(PART, clerk, request)
        is_closed = "table=jobs" in request.path or request.path.startswith(f"{QUEUES}calls/")
        if is_closed and answer is not None and answer.status_code == 200:
            report.found(PART, "leaks", "staff without a permission read jobs or calls", request.repeat(clerk))


def requests() -> Iterator[Request]:
    """Yield every page, each part that is polled, and each table as CSV and JSON; and the lists of the API."""
    for page, (parts, tables) in PAGES.items():
        for query in ("", "?live=table", *(f"?live={part}" for part in parts)):
            yield Request("GET", f"{QUEUES}{page}{query}")
        for kind in ("csv", "json"):
            for table in ("", *(f"&table={table}" for table in tables)):
                yield Request("GET", f"{QUEUES}{page}?format={kind}{table}")
    for name in LISTS:
        yield Request("GET", f"/api/v2/{name}/")
