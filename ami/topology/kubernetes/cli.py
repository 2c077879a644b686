"""The verb ``kubernetes``: its options, and where the manifests go."""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ami.environment.reader import read
from ami.topology.errors import TopologyError
from ami.topology.image import Image
from ami.topology.kubernetes import render
from ami.topology.kubernetes.processes import MAX_REPLICAS, Choices
from ami.topology.topology import Topology


def add_parser(verbs: Any) -> None:
    """Add the verb to a parser's subparsers."""
    verb = verbs.add_parser("kubernetes", help="print the topology as Kubernetes manifests")
    verb.add_argument("--image", help="default: ANTENNA_IMAGE, or antenna:local")
    verb.add_argument("--host", default=Choices.host, help=f"public host name of web; default: {Choices.host}")
    verb.add_argument("--web-replicas", type=int, default=Choices.web_replicas, metavar="N", help="default: 2")
    verb.add_argument(
        "--files",
        default="",
        metavar="NAME",
        help="ReadWriteMany claim to mount at /data; default: none, files are in object storage",
    )
    verb.add_argument(
        "--namespace", default="antenna", help="default: antenna; '' omits it, and kubectl's own namespace applies"
    )
    verb.add_argument("--no-keda", dest="keda", action="store_false", help="use the table's fixed replicas, no scaling")
    verb.add_argument(
        "--max-replicas",
        metavar="[QUEUE=]N",
        action="append",
        default=[],
        help=f"maximum workers per queue under KEDA, for QUEUE or for all; default: {MAX_REPLICAS}; repeatable",
    )
    verb.add_argument("--vhost", default="antenna", help="RabbitMQ virtual host; default: antenna")
    target = verb.add_mutually_exclusive_group()
    target.add_argument("--write", metavar="DIR", help="write the manifests to DIR")
    target.add_argument("--check", metavar="DIR", help="exit 1 if the manifests in DIR differ")


def kubernetes(topology: Topology, arguments: argparse.Namespace) -> int:
    """Print, write or compare the manifests; return the exit code."""
    choices = _choices(arguments)
    if not (arguments.write or arguments.check):
        print(render.stream(topology, os.environ, choices), end="")
        return 0
    folder = Path(arguments.write or arguments.check)
    files = {folder / name: text for name, text in render.render(topology, os.environ, choices).items()}
    # Rendered earlier and no longer part of the topology, like the worker of a queue that was switched off.
    first = render.header(choices).partition("\n")[0]
    stale = [path for path in sorted(folder.glob("*.yaml")) if path not in files and path.read_text().startswith(first)]
    if arguments.check:
        return _report_differences(files, stale)
    folder.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.unlink()
    for path, text in files.items():
        path.write_text(text)
    return 0


def _report_differences(files: Mapping[Path, str], stale: list[Path]) -> int:
    wrong = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in (*wrong, *stale):
        print(f"{path} is not what the topology renders; run it again with --write.", file=sys.stderr)
    return 1 if wrong or stale else 0


def _choices(arguments: argparse.Namespace) -> Choices:
    names = ("host", "namespace", "files", "vhost", "keda", "web_replicas")
    return Choices(
        image=arguments.image or read(Image, os.environ).antenna_image,
        max_replicas=dict(_maximum(text) for text in arguments.max_replicas),
        **{name: getattr(arguments, name) for name in names},
    )


def _maximum(text: str) -> tuple[str, int]:
    queue, _, number = text.rpartition("=")
    if not number.isascii() or not number.isdigit() or int(number) < 1:
        raise TopologyError(f"--max-replicas is '{text}'; give a number from 1, or QUEUE=NUMBER for one queue.")
    return queue, int(number)
