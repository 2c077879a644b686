"""A real Prometheus with the configuration of the profile `monitoring` scrapes a real web, and evaluates the rules."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from ami.celery.task_times import LENGTH
from ami.telemetry.models import TaskTotal
from ami.topology.monitoring import alerts
from ami.topology.monitoring.metrics import METRICS
from ami.topology.topology import load
from tests.support.monitoring.programs import Prometheus, running
from tests.support.place import ROOT, Place, new_place, until
from tests.support.web_server import Web, web_of

TOKEN, QUEUE = "a-token-of-32-characters-or-more-x", "antenna"
FOLDER = ROOT / "compose/monitoring"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def place() -> Iterator[Place]:
    with new_place("prometheus") as made:
        made.use_test_database()
        made.queues("declare")
        yield made


def configured(folder: Path, web: Web) -> Path:
    """Write the profile's configuration for this web, with its file of the token; scraped each second."""
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    (job,) = [each for each in config["scrape_configs"] if each["job_name"] == "antenna"]
    job["static_configs"] = [{"targets": [web.url.removeprefix("http://")]}]
    job["authorization"]["credentials_file"] = str(folder / "token")
    config |= {"scrape_configs": [job], "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}}
    shutil.copy(FOLDER / "alerts.yml", folder / "alerts.yml")
    (folder / "token").write_text(TOKEN)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    return folder / "prometheus.yml"


def rules(prometheus: Prometheus) -> list[dict[str, Any]]:
    return [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]


def test_prometheus_scrapes_web_and_evaluates_every_rule(place: Place, tmp_path: Path):
    TaskTotal.objects.create(queue=QUEUE, task="ami.jobs.tasks.run_job", counts=[1.0] * LENGTH)
    place.worker(QUEUE)
    web = web_of(place, ANTENNA_METRICS_TOKEN=TOKEN)
    with running(configured(tmp_path, web), tmp_path) as prometheus:
        until(lambda: prometheus.value('up{job="antenna"}') == 1, 30, "web is scraped")
        until(lambda: {rule["health"] for rule in rules(prometheus)} == {"ok"}, 30, "every rule is evaluated")
        assert len(rules(prometheus)) == sum(map(len, alerts.groups(load()).values())) + 2, "of antenna-slow, too"
        consumers = f'celery_active_consumer_count{{queue_name="{QUEUE}"}}'
        until(lambda: prometheus.value(consumers) == 1, 30, "the worker is seen")
        no_consumer = 'ALERTS{alertname="AntennaNoConsumer",alertstate="pending"}'

        def without_consumer() -> set[str]:
            return {each["metric"]["queue_name"] for each in prometheus.get("query", query=no_consumer)["result"]}

        until(lambda: without_consumer() == set(load().queues) - {QUEUE}, 30, "the other queues are about to alert")
        known = set(prometheus.get("label/__name__/values"))
        # What is absent is unknown here: nothing has ticked, no job runs, and RabbitMQ tells no oldest age yet.
        absent = {"antenna_queue_oldest_seconds", "antenna_queue_oldest_is_bound", "antenna_queue_promise_kept"}
        absent |= {"antenna_beat_last_tick_timestamp_seconds", "antenna_jobs", "antenna_findings"}
        assert {series for metric in METRICS for series in metric.series} - known <= absent
        (tmp_path / "token").write_text("a wrong one")
        until(lambda: prometheus.value('up{job="antenna"}') == 0, 30, "the wrong token is refused")
        not_scraped = 'ALERTS{alertname="AntennaNotScraped",alertstate="pending"}'
        until(lambda: prometheus.value(not_scraped) == 1, 30, "and it alerts")
    assert httpx.get(f"{web.url}/metrics").status_code == 401
    assert TOKEN not in web.process.text
    assert 'GET /metrics HTTP/1.1" 200' not in web.process.text
