"""What starts a process here: remedies name a Compose service, a Deployment or a command, whichever exists."""

from django.conf import settings

from ami.topology.workload import Workload

COMPOSE = "docker compose -f docker-compose.yml -f docker-compose.worker.yml up --detach"


def of_worker(row: Workload) -> str:
    """Return the command that starts the worker of a queue."""
    return _command(row.service, f"worker-{row.key.lower().replace('_', '-')}", f"worker {row.queue}")


def of_beat() -> str:
    """Return the command that starts beat."""
    return _command("celerybeat", "beat", "beat")


def of_workers() -> str:
    """Return the command that starts a worker for every queue."""
    return _command("", "", "all")


def _command(service: str, component: str, process: str) -> str:
    commands = {
        "compose": f"{COMPOSE} {service}".rstrip(),
        "kubernetes": f"kubectl rollout restart deployment/antenna-{component}"
        if component
        else "kubectl rollout restart deployment --selector app.kubernetes.io/name=antenna",
        "make": "make run",
    }
    return commands.get(settings.ANTENNA_STARTED_BY, f"python -m ami.topology {process}")
