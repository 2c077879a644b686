"""What Kubernetes objects are made of: names, labels, and a pod that may do nothing but its work."""

import re
from collections.abc import Mapping
from typing import Any

from ami.topology.errors import TopologyError
from ami.topology.processes import STATE_FOLDER, USER_ID, Choices, Size
from ami.topology.workload import Workload

Manifest = dict[str, Any]

#: The Secret that the operator makes, and the ConfigMap that is rendered.
SECRET = CONFIGURATION = "antenna"  # noqa: S105 - its name, not its value

_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def component(row: Workload) -> str:
    """Return what this workload's objects are called behind ``antenna-``: ``worker-ingest`` for the key INGEST.

    A compose service is ``celeryworker_ingest``; an underscore is no part of a name in Kubernetes (DNS-1123).
    """
    return f"worker-{row.key.lower().replace('_', '-')}"


def name_of(what: str) -> str:
    """Return the object's name.

    Raises:
        TopologyError: Kubernetes would refuse it.
    """
    name = f"antenna-{what}"
    if not _LABEL.fullmatch(name):
        raise TopologyError(f"'{name}' is no name in Kubernetes; a row's key has letters, digits and '_' alone.")
    return name


def labels(what: str) -> dict[str, str]:
    """Return the labels that select this component's pods. They never change: a selector is immutable."""
    return {"app.kubernetes.io/name": "antenna", "app.kubernetes.io/component": what}


def metadata(what: str, choices: Choices, **more: Any) -> Manifest:
    """Return an object's metadata, in the chosen namespace if there is one."""
    place = {"namespace": choices.namespace} if choices.namespace else {}
    return {"name": name_of(what), **place, "labels": labels(what), **more}


def container(what: str, command: list[str], choices: Choices, environment: Mapping[str, str], size: Size) -> Manifest:
    """Return the container of a process.

    What it may reach in memory is reserved for it, so a full node never takes a worker that stays in its limit. Cores
    are limited only where the row says so: idle ones are for whoever has work.
    """
    memory = f"{size.memory_kib}Ki"
    limit = {"cpu": f"{size.cpu_limit_milli}m"} if size.cpu_limit_milli else {}
    return {
        "name": what,
        "image": choices.image,
        "imagePullPolicy": "IfNotPresent",
        # `args`, since what the image puts in front of a command, if anything, stays.
        "args": command,
        # The later one wins: what was rendered is what the memory limit was worked out for.
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
    """Return the folders that are no part of the image.

    Without shared files nothing may be written below /data: it would be gone with the pod, and nobody would know.
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
            # Otherwise a Service called x becomes a variable X_PORT, which a program may take for a setting.
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
    """Return the wish that this component's pods run on different nodes."""
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
    """Return the budget that lets a node be drained of one pod at a time.

    ``maxUnavailable``, since ``minAvailable: 1`` beside a single replica would never let its node be drained. It means
    something from the second replica on. A pod that is not ready holds nobody up.
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
