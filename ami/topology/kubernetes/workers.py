"""A Deployment per workload, and the one of beat."""

from collections.abc import Mapping
from typing import Any

from ami.topology import containers, processes
from ami.topology.kubernetes.objects import Manifest, component, container, disruption_budget, metadata, pod, spread
from ami.topology.processes import START_SECONDS, Choices
from ami.topology.workload import Workload

#: Beside one that starts; a worker that cannot start never takes the place of one that works.
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}


def worker(
    row: Workload, environ: Mapping[str, str], choices: Choices, annotations: Mapping[str, str]
) -> list[Manifest]:
    """Return the workload's Deployment and its budget.

    With KEDA no number of replicas stands in the Deployment: each ``kubectl apply`` would undo what KEDA decided.
    """
    what = component(row)
    command = [*containers.WAITING, "worker", row.queue]
    environment = processes.of_worker(row, environ)
    process = {
        **container("worker", command, choices, environment, processes.size_of(row)),
        **_probes(containers.PULSE_FILE),
    }
    # SIGTERM is Celery's warm shutdown: it takes no more tasks and finishes those it has.
    template = pod(
        what,
        process,
        choices,
        {**annotations, "antenna.promise": row.promise},
        terminationGracePeriodSeconds=row.stop_grace_period_seconds,
        **spread(what),
    )
    template["metadata"]["labels"] = {**template["metadata"]["labels"], "antenna.queue": row.queue}
    replicas = processes.least(row)
    return [
        deployment(what, choices, template, ROLLING, None if choices.keda else replicas),
        disruption_budget(what, choices),
    ]


def beat(environ: Mapping[str, str], choices: Choices, annotations: Mapping[str, str]) -> list[Manifest]:
    """Return beat's Deployment: one, and never two at once. It has no budget: it may be away for a moment."""
    command = [*containers.WAITING, "beat"]
    process = {
        **container("beat", command, choices, processes.of_beat(environ), processes.BEAT),
        **_probes(containers.TICK_FILE),
    }
    template = pod("beat", process, choices, annotations, terminationGracePeriodSeconds=processes.BEAT_GRACE_SECONDS)
    return [deployment("beat", choices, template, {"type": "Recreate"}, 1)]


def deployment(what: str, choices: Choices, template: Manifest, strategy: Manifest, replicas: int | None) -> Manifest:
    """Return a Deployment. A rollout may wait for as long as a process may take to start."""
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
    """Return the three probes that ask the same.

    Ready decides about a rollout, within a minute. Alive is generous: the file that is asked for grows old while the
    broker is away, and workers that restart together do not bring it back. After five minutes a process that hangs is
    worth a restart.
    """
    patience: dict[str, Any] = {"timeoutSeconds": 10}
    return {
        "startupProbe": {**ask, **patience, "periodSeconds": 10, "failureThreshold": START_SECONDS // 10},
        "readinessProbe": {**ask, **patience, "periodSeconds": 15, "failureThreshold": 4},
        "livenessProbe": {**ask, **patience, "periodSeconds": 30, "failureThreshold": 10},
    }


def _probes(file: str) -> Manifest:
    return probes({"exec": {"command": ["fresh", file, str(containers.FRESH_SECONDS)]}})
