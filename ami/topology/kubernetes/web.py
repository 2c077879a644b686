"""Web and Flower with their Services, and the setup Job."""

import hashlib
import json
from collections.abc import Mapping

from ami.topology.kubernetes import processes
from ami.topology.kubernetes.objects import (
    Manifest,
    container,
    disruption_budget,
    labels,
    metadata,
    name_of,
    pod,
    spread,
)
from ami.topology.kubernetes.processes import Choices
from ami.topology.kubernetes.workers import ROLLING, deployment, probes

WEB_PORT, FLOWER_PORT = 8000, 5555
SETUP_KEPT_SECONDS = 24 * 3600


def web(environ: Mapping[str, str], choices: Choices, annotations: Mapping[str, str]) -> list[Manifest]:
    """Return web's Deployment, Service and budget.

    The probe sends the headers of a request through the proxy: an allowed host, https.
    """
    headers = [{"name": "Host", "value": choices.host}, {"name": "X-Forwarded-Proto", "value": "https"}]
    process = {
        **container("web", ["web"], choices, processes.of_web(environ), processes.WEB),
        "ports": [{"name": "http", "containerPort": WEB_PORT}],
        # Requests still arrive until the Service has removed the pod.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}},
        **probes({"httpGet": {"path": "/livez", "port": "http", "httpHeaders": headers}}),
    }
    grace = processes.WEB_GRACE_SECONDS
    template = pod("web", process, choices, annotations, terminationGracePeriodSeconds=grace, **spread("web"))
    return [
        deployment("web", choices, template, ROLLING, choices.web_replicas),
        _service("web", WEB_PORT, choices),
        disruption_budget("web", choices),
    ]


def flower(choices: Choices, annotations: Mapping[str, str]) -> list[Manifest]:
    """Return Flower's Deployment, never two pods at once, and its Service. It needs no disruption budget."""
    process = {
        **container("flower", ["flower"], choices, processes.of_flower(), processes.FLOWER),
        "ports": [{"name": "http", "containerPort": FLOWER_PORT}],
        **probes({"httpGet": {"path": "/healthcheck", "port": "http"}}),
    }
    template = pod("flower", process, choices, annotations)
    return [deployment("flower", choices, template, {"type": "Recreate"}, 1), _service("flower", FLOWER_PORT, choices)]


def setup(choices: Choices, annotations: Mapping[str, str]) -> list[Manifest]:
    """Return the Job that migrates the database and declares the queues.

    A Job is immutable, so its name contains a hash of its template: a new image makes a new Job, and applying the same
    one again does nothing.
    """
    process = container("setup", ["setup"], choices, processes.of_setup(), processes.SETUP)
    template = pod("setup", process, choices, annotations, restartPolicy="Never")
    template["metadata"]["labels"] = labels("setup")
    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {**metadata("setup", choices), "name": f"{name_of('setup')}-{digest}"},
            "spec": {
                "backoffLimit": 6,
                "activeDeadlineSeconds": 2 * processes.START_SECONDS,
                "ttlSecondsAfterFinished": SETUP_KEPT_SECONDS,
                "template": template,
            },
        }
    ]


def _service(what: str, port: int, choices: Choices) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(what, choices),
        "spec": {
            "selector": labels(what),
            "ports": [{"name": "http", "port": port, "targetPort": "http"}],
        },
    }
