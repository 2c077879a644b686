"""A deployment's own CELERY_TASK_ROUTES, with real workers."""

import json

import pytest

from ami.topology.table import HOUSEKEEPING
from tests.support import forked_python
from tests.support.place import BROKERS, Place, until

T = "tests.support.worker_tasks.basic"


@pytest.mark.parametrize("place", BROKERS, indirect=True)
def test_routes_of_a_deployment_hold_for_calls_and_retries(place: Place):
    place.environment["DJANGO_SETTINGS_MODULE"] = "tests.support.deployment_settings"
    place.environment["DEPLOYMENT_TASK_ROUTES"] = json.dumps({f"{T}.*": {"queue": HOUSEKEEPING}})
    place.queues("declare")
    place.worker(HOUSEKEEPING)
    place.celery("call", f"{T}.succeed")
    place.celery("call", f"{T}.fail_after_retries", "--kwargs", '{"countdown": 0}')
    (record,) = until(lambda: place.ran("succeed"))
    assert record["consumed_from"] == HOUSEKEEPING
    until(lambda: place.depth(f"{HOUSEKEEPING}.dlq") == 1, what="each retry ran there, too")
    assert place.depth("antenna") == 0


def test_publisher_without_the_workers_routes_is_found(place: Place):
    own = {
        "DJANGO_SETTINGS_MODULE": "tests.support.deployment_settings",
        "DEPLOYMENT_TASK_ROUTES": json.dumps({f"{T}.*": {"queue": HOUSEKEEPING}}),
    }
    place.queues("declare")
    place.worker(HOUSEKEEPING, **own)

    def found(**environment: str) -> bool:
        argv = ["manage.py", "queues", "check", "--live", "--json"]
        done = forked_python.run(argv, env={**place.environment, **environment})
        return "fingerprint" in [row["name"] for row in json.loads(done.stdout)]

    assert found()
    assert not found(**own)
