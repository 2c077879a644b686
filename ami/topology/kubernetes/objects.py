"""Parts of the Kubernetes objects: names, labels, and a pod with restricted rights."""

import re
from collections.abc import Mapping
from typing import Any

from ami.topology.errors import TopologyError
from ami.topology.kubernetes.processes import STATE_FOLDER, USER_ID, Choices, Size
from ami.topology.workload import Workload

Manifest = dict[str, Any]

#: The name of both the Secret that the operator creates and the rendered ConfigMap.
SECRET = CONFIGURATION = "antenna"  # noqa: S105 - its name, not its value

_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def component(row: Workload) -> str:
    """Return the name of this workload's objects without ``antenna-``: ``worker-ingest`` for the key INGEST.

    A compose service is ``celeryworker_ingest``; names in Kubernetes have no underscore (DNS-1123).
    """
    return f"worker-{row.key.lower().replace('_', '-')}"


def name_of(what: str) -> str:
    """Return the object's name.

    Raises:
        TopologyError: it is not a valid name in Kubernetes.
    """
    name = f"antenna-{what}"
    if not _LABEL.fullmatch(name):
        raise TopologyError(f"'{name}' is not a name in Kubernetes; use letters, digits and '_' only in a row's key.")
    return name


def labels(what: str) -> dict[str, str]:
    """Return the labels that select this component's pods. They never change: a selector is immutable."""
    return {"app.kubernetes.io/name": "antenna", "app.kubernetes.io/component": what}


def metadata(what: str, choices: Choices, **more: Any) -> Manifest:
    """Return an object's metadata, with the chosen namespace if any."""
    place = {"namespace": choices.namespace} if choices.namespace else {}
    return {"name": name_of(what), **place, "labels": labels(what), **more}


def container(what: str, command: list[str], choices: Choices, environment: Mapping[str, str], size: Size) -> Manifest:
    """Return the container of a process.

    Memory request and limit are equal, so a worker within its limit is not evicted from a full node. Cores are limited
    only where the row sets ``cpus``: otherwise any worker may use idle ones.
    """
    memory = f"{size.memory_kib}Ki"
    limit = {"cpu": f"{size.cpu_limit_milli}m"} if size.cpu_limit_milli else {}
    return {
        "name": what,
        "image": choices.image,
        "imagePullPolicy": "IfNotPresent",
        # `args`, so that the image's entrypoint, if any, stays.
        "args": command,
        # The later one wins: the memory limit was computed from the rendered values.
        "envFrom": [{"secretRef": {"name": SECRET}}, {"configMapRef": {"name": CONFIGURATION}}],
        "env": [{"name": name, "value": value.replace("$(", "$$(")} for name, value in environment.items()],
        "resources": {
            "requests": {"cpu": f"{size.cpu_milli}m", "memory": memory},
            "limits": {"memory": memory, **limit},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(choices),
    }


def _mounts(choices: Choices) -> list[Manifest]:
    """Return the mounts beside the image.

    Without shared files /data is read-only: what a pod wrote there would be lost with it, without an error.
    """
    return [
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod
        {"name": "state", "mountPath": STATE_FOLDER},
        {"name": "files", "mountPath": "/data", **({} if choices.files else {"readOnly": True})},
    ]


def pod(what: str, process: Manifest, choices: Choices, annotations: Mapping[str, str], **more: Any) -> Manifest:
    """Return the pod template around one container. The volumes outlive the container, not the pod."""
    files: Manifest = {"persistentVolumeClaim": {"claimName": choices.files}} if choices.files else {"emptyDir": {}}
    return {
        "metadata": {"labels": labels(what), "annotations": dict(annotations)},
        "spec": {
            "automountServiceAccountToken": False,
            # Otherwise a Service named x sets a variable X_PORT, which a program may read as a setting.
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER_ID,
                "runAsGroup": USER_ID,
                "fsGroup": USER_ID,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            **more,
            "containers": [process],
            "volumes": [
                {"name": "tmp", "emptyDir": {"sizeLimit": "4Gi"}},
                {"name": "state", "emptyDir": {"sizeLimit": "64Mi"}},
                {"name": "files", **files},
            ],
        },
    }


def spread(what: str) -> Manifest:
    """Return the preference that this component's pods run on different nodes."""
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": labels(what)},
            }
        ]
    }


def disruption_budget(what: str, choices: Choices) -> Manifest:
    """Return the budget that lets a node drain evict one pod at a time.

    ``maxUnavailable``, since ``minAvailable: 1`` with a single replica would block the drain of its node for ever. It
    has an effect from the second replica on. A pod that is not ready does not block a drain.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(what, choices),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": labels(what)},
        },
    }
