"""A Deployment per workload, and beat's."""

from collections.abc import Mapping
from typing import Any

from ami.topology import containers
from ami.topology.kubernetes import processes
from ami.topology.kubernetes.objects import Manifest, component, container, disruption_budget, metadata, pod, spread
from ami.topology.kubernetes.processes import START_SECONDS, Choices
from ami.topology.workload import Workload

#: The new pod is ready before the old one stops, so a worker that cannot start never replaces a working one.
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}


def worker(
    row: Workload, environ: Mapping[str, str], choices: Choices, annotations: Mapping[str, str]
) -> list[Manifest]:
    """Return the workload's Deployment and its budget.

    With KEDA the Deployment sets no replicas: each ``kubectl apply`` would overwrite KEDA's number.
    """
    what = component(row)
    command = [*containers.WAITING, "worker", row.queue]
    environment = processes.of_worker(row, environ)
    process = {
        **container("worker", command, choices, environment, processes.size_of(row)),
        **_probes(containers.PULSE_FILE),
    }
    # SIGTERM is Celery's warm shutdown: the worker stops consuming and finishes its tasks.
    template = pod(
        what,
        process,
        choices,
        {**annotations, "antenna.promise": row.promise},
        terminationGracePeriodSeconds=row.stop_grace_period_seconds,
        **spread(what),
    )
    template["metadata"]["labels"] = {**template["metadata"]["labels"], "antenna.queue": row.queue}
    replicas = processes.min_replicas(row)
    return [
        deployment(what, choices, template, ROLLING, None if choices.keda else replicas),
        disruption_budget(what, choices),
    ]


def beat(environ: Mapping[str, str], choices: Choices, annotations: Mapping[str, str]) -> list[Manifest]:
    """Return beat's Deployment: one pod, never two at once. Without a budget: beat may be down for a moment."""
    command = [*containers.WAITING, "beat"]
    process = {
        **container("beat", command, choices, processes.of_beat(environ), processes.BEAT),
        **_probes(containers.TICK_FILE),
    }
    template = pod("beat", process, choices, annotations, terminationGracePeriodSeconds=processes.BEAT_GRACE_SECONDS)
    return [deployment("beat", choices, template, {"type": "Recreate"}, 1)]


def deployment(what: str, choices: Choices, template: Manifest, strategy: Manifest, replicas: int | None) -> Manifest:
    """Return a Deployment. Its progress deadline is above the longest start of a process."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(what, choices),
        "spec": {
            **({} if replicas is None else {"replicas": replicas}),
            "revisionHistoryLimit": 5,
            "progressDeadlineSeconds": START_SECONDS + 300,
            "strategy": strategy,
            "selector": {"matchLabels": metadata(what, choices)["labels"]},
            "template": template,
        },
    }


def probes(ask: Manifest) -> Manifest:
    """Return the three probes, all with the same check.

    Readiness decides a rollout within a minute. Liveness allows five minutes: the checked file also ages while the
    broker is unreachable, and restarting all workers together would not help.
    """
    patience: dict[str, Any] = {"timeoutSeconds": 10}
    return {
        "startupProbe": {**ask, **patience, "periodSeconds": 10, "failureThreshold": START_SECONDS // 10},
        "readinessProbe": {**ask, **patience, "periodSeconds": 15, "failureThreshold": 4},
        "livenessProbe": {**ask, **patience, "periodSeconds": 30, "failureThreshold": 10},
    }


def _probes(file: str) -> Manifest:
    return probes({"exec": {"command": ["fresh", file, str(containers.FRESH_SECONDS)]}})
