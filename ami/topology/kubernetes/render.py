"""All objects as YAML files, one per group of objects that belong together."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import yaml

from ami.topology.kubernetes import processes, scaled_objects, web, workers
from ami.topology.kubernetes.objects import CONFIGURATION, SECRET, Manifest, component, labels, name_of
from ami.topology.kubernetes.processes import Choices
from ami.topology.topology import Topology

HEADER = """\
# Rendered from ami/topology/table.py by `python -m ami.topology kubernetes`; do not edit. See docs/kubernetes.md.
# Contains no secrets. Create the Secret that it refers to from your own .env:
#
#   kubectl create secret generic {secret}{place} --from-env-file=.env
"""


class _Plain(yaml.CSafeDumper):
    """Writes a repeated object in full, not as a YAML alias."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def groups(topology: Topology, environ: Mapping[str, str], choices: Choices) -> dict[str, list[Manifest]]:
    """Return file name -> objects, in the order in which they are applied.

    Raises:
        TopologyError: an option or a number is invalid on Kubernetes.
    """
    processes.refuse_unknown_queues(topology, choices)
    configuration = _configuration(environ, choices)
    # Pods that read the ConfigMap restart when it changes.
    digest = hashlib.sha256(json.dumps(configuration["data"], sort_keys=True).encode()).hexdigest()[:16]
    annotations = {"antenna.configuration": digest}
    files = {"namespace.yaml": [_namespace(choices)]} if choices.namespace else {}
    files |= {
        "configuration.yaml": [configuration],
        "setup.yaml": web.setup(choices, annotations),
        "web.yaml": web.web(environ, choices, annotations),
        "flower.yaml": web.flower(choices, annotations),
        "beat.yaml": workers.beat(environ, choices, annotations),
    }
    for row in topology.workloads:
        files[f"{component(row)}.yaml"] = workers.worker(row, environ, choices, annotations)
    if choices.keda:
        objects = [scaled_objects.scaled_object(row, choices) for row in topology.workloads]
        files["scaling.yaml"] = [scaled_objects.authentication(choices), *objects]
    return files


def render(topology: Topology, environ: Mapping[str, str], choices: Choices) -> dict[str, str]:
    """Return file name -> YAML, each with the header."""
    files = groups(topology, environ, choices)
    return {name: f"{header(choices)}---\n{_dump(objects)}" for name, objects in files.items()}


def stream(topology: Topology, environ: Mapping[str, str], choices: Choices) -> str:
    """Return everything as one stream of documents, for ``kubectl apply -f -``."""
    objects = [manifest for group in groups(topology, environ, choices).values() for manifest in group]
    return f"{header(choices)}---\n{_dump(objects)}"


def header(choices: Choices) -> str:
    """Return the comment that opens every file."""
    place = f" --namespace {choices.namespace}" if choices.namespace else ""
    return HEADER.format(secret=SECRET, place=place)


def _dump(objects: list[Manifest]) -> str:
    return yaml.dump_all(objects, Dumper=_Plain, sort_keys=False, width=120, default_flow_style=False)


def _namespace(choices: Choices) -> Manifest:
    """Return the namespace; Kubernetes warns of a pod that violates the restricted security standard."""
    rules = {"pod-security.kubernetes.io/warn": "restricted"}
    names = {"app.kubernetes.io/name": "antenna"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": choices.namespace, "labels": {**names, **rules}},
    }


def _configuration(environ: Mapping[str, str], choices: Choices) -> Manifest:
    place = {"namespace": choices.namespace} if choices.namespace else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIGURATION, **place, "labels": labels("configuration")},
        # Other pods reach web by its Service's name.
        "data": processes.shared(environ, choices, name_of("web")),
    }
