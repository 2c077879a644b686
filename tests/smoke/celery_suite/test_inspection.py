"""What an operator sees: `inspect` and Flower."""

import httpx

from ami.topology.router import ORIGIN_HEADER
from ami.topology.table import INTERACTIVE
from ami.topology.topology import load
from tests.support.celery_suite.vendor import CeleryTestSetup
from tests.support.celery_suite.workers import Workers, asked
from tests.support.containers.deployment import Deployment
from tests.support.containers.engine import until


def test_every_worker_answers_ping(celery_setup: CeleryTestSetup, workers: Workers):
    assert celery_setup.app.control.inspect(timeout=15, limit=len(workers)).ping() == {
        worker.hostname(): {"ok": "pong"} for worker in workers.values()
    }


def test_every_worker_consumes_its_own_queue_and_no_other(celery_setup: CeleryTestSetup, workers: Workers):
    told = asked(celery_setup.app, workers).active_queues()
    assert {node: [queue["name"] for queue in queues] for node, queues in told.items()} == {
        worker.hostname(): [queue] for queue, worker in workers.items()
    }


def test_stats_show_the_topology_and_the_governor(
    celery_setup: CeleryTestSetup, workers: Workers, deployment: Deployment
):
    topology = load({name: value for name, value in deployment.variables.items() if name.startswith("ANTENNA_")})
    told = asked(celery_setup.app, workers).stats()
    for queue, worker in workers.items():
        row, stats = topology.workload(queue), told[worker.hostname()]
        assert stats["pool"]["max-concurrency"] == row.concurrency
        told_of = {"fingerprint": topology.fingerprint, "routing": "split", "queues": [queue], "own_queues": [queue]}
        assert stats["topology"] == told_of
        assert stats["governor"]["mode"] == "on"
        assert stats["governor"]["faults"] == []
        assert stats["governor"]["soft_limit_kib"] == row.max_memory_per_child_kib
        assert stats["governor"]["hard_limit_kib"] == row.child_limit_kib


def test_flower_shows_every_worker_to_whoever_may_see_it(
    celery_setup: CeleryTestSetup, workers: Workers, deployment: Deployment
):
    url = f"http://127.0.0.1:{deployment.port('flower', 5555)}"
    user, _, password = deployment.variables["FLOWER_BASIC_AUTH"].partition(":")
    login = (user, password)
    for path in ("/workers", "/api/workers", "/metrics"):
        assert httpx.get(f"{url}{path}").status_code == 401
        assert httpx.get(f"{url}{path}", auth=(user, "guessed")).status_code == 401

    def seen() -> dict[str, list[str]]:
        told = httpx.get(f"{url}/api/workers", params={"refresh": 1}, auth=login, timeout=30).json()
        return {node: [queue["name"] for queue in one.get("active_queues", ())] for node, one in told.items()}

    expected = {worker.hostname(): [queue] for queue, worker in workers.items()}
    until(lambda: seen() == expected, 60, "Flower knows every worker and its queue")


def test_flower_shows_a_task_and_the_worker_that_ran_it(
    celery_setup: CeleryTestSetup, workers: Workers, deployment: Deployment
):
    url = f"http://127.0.0.1:{deployment.port('flower', 5555)}"
    user, _, password = deployment.variables["FLOWER_BASIC_AUTH"].partition(":")
    name = "ami.jobs.tasks.jobs_health_check"
    task = celery_setup.app.send_task(name, headers={ORIGIN_HEADER: "person"}).id

    def told() -> dict[str, str]:
        answer = httpx.get(f"{url}/api/task/info/{task}", auth=(user, password), timeout=30)
        return answer.json() if answer.status_code == 200 else {}

    until(lambda: told().get("state") == "SUCCESS", 60, "Flower saw it succeed")
    assert told()["name"] == name
    assert told()["worker"] == workers[INTERACTIVE].hostname()
