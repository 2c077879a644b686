"""Remedies name what exists here: a Compose service, a Deployment, `make run` or a command."""

from typing import Any

import pytest
import yaml
from django.conf import settings as configured

from ami.queues import start_commands
from tests.support.checkout import ROOT

ROWS = configured.ANTENNA_TOPOLOGY.workloads


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_compose_service_of_a_remedy_exists(row: Any, settings: Any):
    settings.ANTENNA_STARTED_BY = "compose"
    services = yaml.safe_load((ROOT / "docker-compose.worker.yml").read_text())["services"]
    command = start_commands.of_worker(row)
    assert command.startswith("docker compose -f docker-compose.yml -f docker-compose.worker.yml up --detach ")
    assert command.rpartition(" ")[2] in services
    assert start_commands.of_beat().rpartition(" ")[2] in services


@pytest.mark.parametrize(
    ("starter", "says"),
    [
        ("compose", "docker compose "),
        ("kubernetes", "kubectl rollout restart deployment"),
        ("make", "make run"),
        ("command", "python -m ami.topology "),
    ],
)
def test_every_remedy_is_of_what_starts_the_processes(starter: str, says: str, settings: Any):
    settings.ANTENNA_STARTED_BY = starter
    commands = [start_commands.of_worker(ROWS[0]), start_commands.of_beat(), start_commands.of_workers()]
    assert all(command.startswith(says) for command in commands), commands
