"""What an operator runs against a live deployment: inspect, Flower, and the tables of the `queues` command."""

import socket

import httpx
import pytest

from ami.topology.topology import load
from tests.support.place import ON_FOLDER, Place, new_place, until

TOPOLOGY = load({})
QUEUES = TOPOLOGY.queues
LOGIN = ("operator", "secret")
NODES = sorted(row.key.lower() for row in TOPOLOGY.workloads)


@pytest.fixture(scope="module", params=ON_FOLDER)
def deployment(request: pytest.FixtureRequest):
    """A worker per queue."""
    with new_place("operating", request.param) as place:
        place.workers(*QUEUES)
        yield place


def test_celery_inspect_ping_on_the_command_line_answers_for_every_worker(deployment: Place):
    done = deployment.celery("inspect", "ping", "--timeout", "5")
    assert done.popen.wait(60) == 0, done.text
    assert f"{len(NODES)} nodes online" in done.text
    assert all(f"{node}@" in done.text for node in NODES)


@pytest.mark.parametrize("what", ["active_queues", "stats", "registered"])
def test_inspect_answers_for_every_worker(deployment: Place, what: str):
    answers = getattr(deployment.app.control.inspect(timeout=10, limit=len(NODES)), what)()
    assert sorted(name.split("@")[0] for name in answers) == NODES
    if what == "active_queues":
        assert {queue["name"] for queues in answers.values() for queue in queues} == set(QUEUES)
        assert {len(queues) for queues in answers.values()} == {1}
    if what == "stats":
        assert len({answer["topology"]["fingerprint"] for answer in answers.values()}) == 1


def test_incident_8_inspect_answers_beside_a_killed_worker(deployment: Place):
    dead = deployment.worker("antenna", "--hostname", "dead@%h")
    dead.kill()
    answers = deployment.app.control.inspect(timeout=10, limit=len(NODES)).ping()
    assert sorted(name.split("@")[0] for name in answers) == NODES


def test_healthy_deployment_has_no_error(deployment: Place, db: None):
    rows = deployment.queues("check", "--live").json
    assert [row for row in rows if row["level"] == "error"] == []
    assert [row["sentence"] for row in rows if row["level"] == "unseen"] == []


def test_flower_shows_workers_and_task_states_behind_a_login(deployment: Place):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flower = deployment.celery("flower", "--address=127.0.0.1", f"--port={port}", FLOWER_BASIC_AUTH=":".join(LOGIN))
    url = f"http://127.0.0.1:{port}"

    def answers() -> int | None:
        try:
            return httpx.get(url, timeout=5, verify=False).status_code
        except httpx.HTTPError:
            assert flower.popen.poll() is None, flower.text
            return None

    assert until(answers) == 401
    page = until(lambda: _workers(url))
    assert all(f"{node}@" in page for node in NODES)
    assert _page(url, "/api/workers?refresh=1", "interactive@")
    added = _add_consumer(url, f"interactive@{socket.gethostname()}", QUEUES[0])
    assert added.status_code == 403
    assert "was started for antenna-interactive only" in added.text
    task_id = deployment.send("tests.support.worker_tasks.basic.succeed")
    until(lambda: _page(url, f"/task/{task_id}", "SUCCESS"))
    assert _page(url, "/tasks", "datatable")
    assert _page(url, "/tasks/datatable?draw=1&start=0&length=50&order[0][column]=0", task_id)


def _workers(url: str) -> str | None:
    page = _page(url, "/workers", "@")
    return page if page and page.count("@") >= len(NODES) else None


def _add_consumer(url: str, node: str, queue: str) -> httpx.Response:
    path = f"/api/worker/queue/add-consumer/{node}"
    return httpx.post(url + path, params={"queue": queue}, auth=LOGIN, timeout=10)


def _page(url: str, path: str, text: str) -> str | None:
    """A page of Flower, once it shows the text."""
    page = httpx.get(url + path, auth=LOGIN, timeout=10).text
    return page if text in page else None


def test_tasks_table_lists_every_registered_task_with_exactly_one_queue(deployment: Place):
    rows = deployment.queues("tasks").json
    names = [row["task"] for row in rows]
    assert len(names) == len(set(names))
    assert {row["queue"] for row in rows} <= set(QUEUES)
    unrouted = {row["task"] for row in rows if not row["routed"]}
    assert all(name.startswith("tests.") for name in unrouted), unrouted
    assert all(row["triggered_by"] for row in rows if row["routed"]), rows
    for row in rows:
        assert row["soft_time_limit_seconds"] < row["hard_time_limit_seconds"], row
