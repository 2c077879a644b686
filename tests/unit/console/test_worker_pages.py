"""The console's pages of workers: hosts, gauges, what runs, memory over time, and the levers."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from ami.console import page, seen_workers
from ami.queues.models import DesiredState, Worker
from ami.telemetry.models import Sample
from ami.telemetry.snapshots import shared
from ami.telemetry.snapshots.shape import Snapshot, Stop, TaskFigures, WorkerFigures
from tests.support.console_pages import buttons, client, few_statements, text

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
WORKERS, NODE = "/admin/queues/workers/", "ingest@here"
GIB = 1024**3


def figures(node: str = NODE, host: str = "here", **given: Any) -> WorkerFigures:
    values: dict[str, Any] = {
        "service": "celeryworker_ingest",
        "version": "1.2",
        "state": "running",
        "why": "",
        "seen_seconds": 3.0,
        "started_at": 0.0,
        "queues": ("antenna-ingest",),
        "closed_queues": (),
        "concurrency": 4,
        "children": 4,
        "pid": 7,
    }
    return WorkerFigures(node=node, host=host, **values | given)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Any:
    def show(*workers: WorkerFigures, **given: Any) -> None:
        page.rendered.clear()
        made = Snapshot(1.0, 1, (), workers, (), (), **given)
        monkeypatch.setattr(shared, "current", lambda *_: made)

    return show


def row(node: str = NODE) -> Worker:
    values = {"host": "here", "service": "celeryworker_ingest", "queues": ["antenna-ingest"], "pid": 1}
    return Worker.objects.create(node=node, started_at=timezone.now(), seen_at=Now(), is_connected=True, **values)


def test_workers_are_grouped_by_host_with_what_runs(shown: Any):
    task = TaskFigures("abc-1", "ami.jobs.tasks.run_job", 9, 65.0, kib=2048, progress="3 of 9")
    shown(figures(running=(task,)), figures("export@there", "there", closed_queues=("antenna-ingest",)))
    page = text(client().get(WORKERS))
    assert page.index(">here<") < page.index(">there<")
    assert '<a id="task-abc-1" href="/admin/queues/task/abc-1/"><span class="task-name"><span class="stem">' in page
    assert "ami.<wbr>jobs.<wbr>tasks.</span><span>run_<wbr>job</span>" in page
    assert "for 1 min, 3 of 9, 2 MiB" in page
    assert "<s>antenna-ingest</s> closed" in page


def test_gauge_draws_its_thresholds_and_says_them(shown: Any):
    memory = {"memory_used_bytes": GIB, "memory_limit_bytes": 2 * GIB, "hold_percent": 90.0, "release_percent": 80.0}
    held = {"state": "held", "held_seconds": 61.0, "reasons": ("memory 91 %",)}
    shown(figures(**memory, **held))
    page = text(client().get(WORKERS))
    assert "1.0 GiB of 2.0 GiB used, 50 %; holds at 90 %, releases below 80 %" in page
    assert '<rect class="used" x="0" y="2" width="80.0"' in page
    assert '<line class="hold" x1="144.0"' in page
    assert "held for 1 min" in page
    assert "memory 91 %" in page


def test_parked_worker_says_by_whom_and_until_when(shown: Any):
    shown(figures(state="parked", parked=Stop("user 1 Ann", "new disk", 10.0, 20.0)))
    page = text(client().get(WORKERS))
    assert "parked by user 1 Ann" in page
    assert "new disk" in page


def test_workers_are_filtered_by_the_address(shown: Any):
    shown(figures(), figures("export@there", "there", state="stale", queues=("antenna-slow",)))

    def nodes(query: str) -> list[str]:
        return [each["node"] for each in client().get(f"{WORKERS}?format=json{query}").json()["workers"]]

    assert nodes("") == [NODE, "export@there"]
    assert nodes("&queue=antenna-slow") == nodes("&state=stale") == nodes("&host=there") == ["export@there"]
    assert "No worker fits this filter" in text(client().get(f"{WORKERS}?host=none"))


def test_part_of_the_page_is_polled_with_its_filter(shown: Any):
    shown(figures())
    made = client()
    page = text(made.get(f"{WORKERS}?state=running"))
    assert f'hx-get="{WORKERS}?state=running&amp;live=workers"' in page
    part = made.get(f"{WORKERS}?state=running&live=workers")
    assert part.status_code == 200
    assert "<html" not in part.content.decode()
    assert NODE in part.content.decode()
    again = made.get(f"{WORKERS}?state=running&live=workers", headers={"If-None-Match": part["ETag"]})
    assert again.status_code == 304


def test_worker_without_a_service_is_shown(shown: Any):
    shown(figures(service="", running=(TaskFigures("", "a.task", 9, 1.0),)))
    assert NODE in text(client().get(WORKERS))


def test_no_worker_says_how_to_start_one(shown: Any):
    shown()
    assert "No worker has reported itself" in text(client().get(WORKERS))


def test_page_takes_few_statements_however_many_workers(shown: Any):
    shown(*(figures(f"w{number}@host{number % 20}", f"host{number % 20}") for number in range(200)))
    made = client("control_workers")
    with few_statements():
        text(made.get(WORKERS))
    with few_statements():
        text(made.get(f"{WORKERS}w7@host7/"))


def test_levers_lead_to_forms_that_park_and_scale(shown: Any):
    row()
    shown(figures())
    made = client("control_workers")
    page = text(made.get(f"{WORKERS}{NODE}/"))
    for verb in ("park", "scale", "restart", "stop"):
        assert f'href="/admin/queues/lever/{verb}/{NODE}/?' in page
    made.post(f"/admin/queues/lever/park/{NODE}/", {"why": "new disk", "until": ""})
    made.post("/admin/queues/lever/scale/here/", {"why": "", "count": "2"})
    wishes = DesiredState.objects.order_by("pk").values_list("kind", "name", "aspect", "value", "why")
    assert list(wishes) == [("node", NODE, "parked", 1, "new disk"), ("host", "here", "concurrency", 2, "")]
    assert made.get(f"{WORKERS}nobody/").status_code == 404


def test_viewer_has_no_levers_and_a_post_is_403(shown: Any):
    row()
    shown(figures())
    for address in (WORKERS, f"{WORKERS}{NODE}/"):
        page = text(client().get(address))
        assert buttons(page) == []
        assert "/admin/queues/lever/" not in page
    for verb in ("park", "unpark", "scale", "restart", "stop"):
        assert client().post(f"/admin/queues/lever/{verb}/{NODE}/", {"why": "mine"}).status_code == 403
    assert not DesiredState.objects.exists()


def test_worker_that_has_gone_says_when_it_was_last_seen(shown: Any):
    seen_at = timezone.now() - timedelta(minutes=10)
    Sample.objects.create(kind="worker", name=NODE, resolution=5, at=seen_at, version="1.2", memory_used_bytes=GIB)
    shown(figures("other@here"))
    made = client()
    with few_statements():
        page = text(made.get(f"{WORKERS}{NODE}/"))
    assert "does not report itself any more" in page
    assert seen_at.isoformat()[:19] in page
    assert "with version 1.2" in page
    assert "/lever/" not in page
    assert made.get(f"{WORKERS}nobody@here/").status_code == 404


def test_page_of_a_host_whose_last_worker_goes_says_so(shown: Any):
    shown(figures())
    made = client()
    made.get(f"{WORKERS}here/")
    shown()
    part = made.get(f"{WORKERS}here/", {"live": "workers"})
    assert (part.status_code, "No worker of here reports itself any more" in part.content.decode()) == (200, True)


def test_memory_over_time_is_drawn_with_its_gaps():
    times = [0.0, 5.0, 10.0, 15.0]
    columns = {"memory_used_bytes": [1.0, 2.0, None, 4.0], "memory_limit_bytes": [4.0] * 4}
    drawn = seen_workers.chart(times, columns)
    assert drawn is not None
    used, limit = drawn.lines
    assert used.points == ("0.0,90.0 200.0,60.0", "600.0,0.0")
    assert len(limit.points) == 1
    assert seen_workers.chart([], {}) is None
