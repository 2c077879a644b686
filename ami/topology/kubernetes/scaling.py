"""A KEDA ScaledObject per queue: how many workers it gets, by how much lies there and by how long that will take.

Fields as in https://keda.sh/docs/2.18/scalers/rabbitmq-queue and https://keda.sh/docs/2.18/reference/scaledobject-spec.
"""

import math

from ami.topology import processes
from ami.topology.errors import TopologyError
from ami.topology.kubernetes.objects import SECRET, Manifest, component, metadata, name_of
from ami.topology.processes import Choices
from ami.topology.topology import override_name
from ami.topology.workload import Workload

AUTHENTICATION = "rabbitmq"

#: What a task is taken to last until the broker's rates say better.
TASK_SECONDS = 1

POLLING_SECONDS = 15
WINDOW_SECONDS = 300

#: The largest that Kubernetes takes for a policy's period and for a stabilization window.
MAX_PERIOD_SECONDS, MAX_WINDOW_SECONDS = 1800, 3600


def authentication(choices: Choices) -> Manifest:
    """Return where KEDA finds the management API: in the Secret, as ``RABBITMQ_MANAGEMENT_URL``."""
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": metadata(AUTHENTICATION, choices),
        "spec": {"secretTargetRef": [{"parameter": "host", "name": SECRET, "key": "RABBITMQ_MANAGEMENT_URL"}]},
    }


def scaled_object(row: Workload, choices: Choices) -> Manifest:
    """Return how this workload's Deployment grows and shrinks. Of two triggers the one that asks for more decides."""
    what, grace = component(row), row.stop_grace_period_seconds
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": metadata(what, choices),
        "spec": {
            "scaleTargetRef": {"name": name_of(what)},
            "pollingInterval": POLLING_SECONDS,
            # Only from one to none; the same wish from many to one is `behavior`.
            "cooldownPeriod": max(WINDOW_SECONDS, grace),
            "minReplicaCount": processes.least(row),
            "maxReplicaCount": processes.most(row, choices),
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(grace)}},
            "triggers": [_depth(row, choices), _wait(row, choices)],
        },
    }


def _behavior(grace_seconds: int) -> Manifest:
    """Grow to twice the size within a minute. Shrink by one worker, and by the next when that one has drained."""
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
    """Return how many messages, those that run included, one worker works off within the queue's promise."""
    return row.concurrency * max(1, math.floor(row.wait_target_seconds / TASK_SECONDS))


def _depth(row: Workload, choices: Choices) -> Manifest:
    """Depth: what waits and what runs, shared among the workers. What runs counts, so a busy worker is no idle one."""
    metadata = {"mode": "QueueLength", "value": str(depth_per_worker(row)), "excludeUnacknowledged": "false"}
    return _trigger("depth", "AverageValue", row, choices, metadata)


def _wait(row: Workload, choices: Choices) -> Manifest:
    """Wait: in how many seconds the workers that are there will have taken what waits, at the rate of the last seconds.

    (messages ready + published per second) / delivered per second - 1. Nothing delivered at all reads as 0 there, so a
    queue whose workers all hang is seen by its depth alone.
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
