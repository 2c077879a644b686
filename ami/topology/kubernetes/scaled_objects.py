"""A KEDA ScaledObject per queue: the number of workers follows the queue's depth and its expected wait.

Fields as in https://keda.sh/docs/2.18/scalers/rabbitmq-queue and https://keda.sh/docs/2.18/reference/scaledobject-spec.
"""

import math

from ami.topology import app
from ami.topology.errors import TopologyError
from ami.topology.kubernetes import processes
from ami.topology.kubernetes.objects import SECRET, Manifest, component, metadata, name_of
from ami.topology.kubernetes.processes import Choices
from ami.topology.topology import override_name
from ami.topology.workload import Workload

AUTHENTICATION = "rabbitmq"

#: Assumed duration of a task in the depth target.
TASK_SECONDS = 1

POLLING_SECONDS = 15
WINDOW_SECONDS = 300

#: Kubernetes's maxima for a scaling policy's period and for a stabilization window.
MAX_PERIOD_SECONDS, MAX_WINDOW_SECONDS = 1800, 3600


def authentication(choices: Choices) -> Manifest:
    """Return the TriggerAuthentication: the management API's URL is ``RABBITMQ_MANAGEMENT_URL`` of the Secret."""
    key = app.declared("rabbitmq_management_url").name
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": metadata(AUTHENTICATION, choices),
        "spec": {"secretTargetRef": [{"parameter": "host", "name": SECRET, "key": key}]},
    }


def scaled_object(row: Workload, choices: Choices) -> Manifest:
    """Return this workload's ScaledObject. Of its two triggers the one that wants more workers decides."""
    what, grace = component(row), row.stop_grace_period_seconds
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": metadata(what, choices),
        "spec": {
            "scaleTargetRef": {"name": name_of(what)},
            "pollingInterval": POLLING_SECONDS,
            # KEDA's, from one worker to none only; from many to one it is `behavior`.
            "cooldownPeriod": max(WINDOW_SECONDS, grace),
            "minReplicaCount": processes.min_replicas(row),
            "maxReplicaCount": processes.max_replicas(row, choices),
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(grace)}},
            "triggers": [_depth(row, choices), _wait(row, choices)],
        },
    }


def _behavior(grace_seconds: int) -> Manifest:
    """Scale up to twice the size per minute; scale down by one worker per stop grace period."""
    return {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 60}],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": min(MAX_WINDOW_SECONDS, max(WINDOW_SECONDS, grace_seconds)),
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": min(MAX_PERIOD_SECONDS, grace_seconds)}],
        },
    }


def depth_per_worker(row: Workload) -> int:
    """Return how many messages, running ones included, one worker processes within the queue's wait target."""
    return row.concurrency * max(1, math.floor(row.wait_target_seconds / TASK_SECONDS))


def _depth(row: Workload, choices: Choices) -> Manifest:
    """Depth: ready and unacknowledged messages per worker. Unacknowledged ones count, so a busy worker is not idle."""
    metadata = {"mode": "QueueLength", "value": str(depth_per_worker(row)), "excludeUnacknowledged": "false"}
    return _trigger("depth", "AverageValue", row, choices, metadata)


def _wait(row: Workload, choices: Choices) -> Manifest:
    """Wait: seconds until the current workers have taken all ready messages, at the rate of the last seconds.

    (messages ready + published per second) / delivered per second - 1. Without any delivery KEDA reads 0, so only the
    depth shows a queue whose workers all hang.
    """
    if row.wait_target_seconds <= 0:
        name = override_name(row, "wait_target_seconds")
        raise TopologyError(f"{name} is 0; KEDA needs a target above 0. Set it to what {row.queue} promises.")
    value = f"{row.wait_target_seconds:g}"
    metadata = {"mode": "ExpectedQueueConsumptionTime", "value": value, "excludeUnacknowledged": "true"}
    return _trigger("wait", "Value", row, choices, metadata)


def _trigger(name: str, kind: str, row: Workload, choices: Choices, metadata: dict[str, str]) -> Manifest:
    return {
        "type": "rabbitmq",
        "name": name,
        "metricType": kind,
        "metadata": {"protocol": "http", "vhostName": choices.vhost, "queueName": row.queue, **metadata},
        "authenticationRef": {"name": name_of(AUTHENTICATION)},
    }
