"""Processes with a deployment's own settings module, which sets CELERY_TASK_ROUTES."""

import json
from typing import Any

import pytest

from .conftest import Run

pytestmark = pytest.mark.processes

TASK = "tests.support.worker_tasks.basic.succeed"
PLACE = f"""
from config import celery_app
route = celery_app.amqp.router.route
print(*(route({{}}, name, [], {{}})["queue"].name for name in ("{TASK}", "ami.jobs.tasks.run_job")))
print(celery_app.topology.fingerprint)
"""


def with_routes(routes: Any) -> dict[str, str]:
    return {
        "DJANGO_SETTINGS_MODULE": "tests.support.deployment_settings",
        "DEPLOYMENT_TASK_ROUTES": json.dumps(routes),
        "ANTENNA_EXTRA_TASKS": "tests.support.worker_tasks.basic",
    }


def test_routes_hold_for_commands_and_for_celery_without_django(run: Run):
    place = with_routes({"tests.support.*": {"queue": "antenna-ingest"}})
    without = run("-c", PLACE, **place)
    with_django = run("-c", f"import config, django; django.setup()\n{PLACE}", **place)
    assert without.stdout.startswith("antenna-ingest antenna-interactive\n"), without.stderr
    assert with_django.stdout == without.stdout


def test_command_lists_the_rule_with_its_source(run: Run):
    done = run("manage.py", "queues", "tasks", "--json", **with_routes({TASK: "antenna-housekeeping"}))
    (row,) = [row for row in json.loads(done.stdout) if row["task"] == TASK]
    assert (row["queue"], row["rule"]) == ("antenna-housekeeping", f"{TASK} (CELERY_TASK_ROUTES)")
    assert row["by_person"] == "antenna-interactive"


def test_exact_name_of_no_task_is_a_warning(run: Run):
    done = run("manage.py", "queues", "check", "--json", **with_routes({f"{TASK}s": "antenna"}))
    (found,) = [item["sentence"] for item in json.loads(done.stdout) if item["name"] == "queues.W005"]
    assert found == (f"CELERY_TASK_ROUTES names the task '{TASK}s', which is not registered. Did you mean '{TASK}'?")


STARTS = {
    "command": ["manage.py", "check"],
    "web": ["-m", "gunicorn", "config.wsgi", "--preload", "--bind", "127.0.0.1:0"],
    "worker": ["-m", "celery", "-A", "config", "worker", "-Q", "antenna-ingest"],
    "beat": ["-m", "celery", "-A", "config", "beat"],
    "call": ["-m", "celery", "-A", "config", "call", TASK],
}


@pytest.mark.parametrize("argv", STARTS.values(), ids=STARTS)
def test_unknown_queue_stops_every_kind_of_process(run: Run, argv: list[str]):
    done = run(*argv, **with_routes({TASK: {"queue": "antena-ingest"}}))
    assert done.returncode != 0
    assert f"Configuration refused: CELERY_TASK_ROUTES sends '{TASK}' to 'antena-ingest'" in done.stderr
    assert "Did you mean 'antenna-ingest'?" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("argv", [STARTS["command"], STARTS["worker"]], ids=["command", "worker"])
def test_task_of_two_globs_stops_check_and_worker(run: Run, argv: list[str]):
    done = run(*argv, **with_routes({"tests.support.*": "antenna-ingest", "*.succeed": "antenna"}))
    assert done.returncode != 0
    assert f"{TASK} is claimed by two globs: 'tests.support.*' (antenna-ingest) and '*.succeed'" in done.stderr
    assert "Traceback" not in done.stderr
