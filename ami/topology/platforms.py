"""The verbs ``kubernetes`` and ``stack``: their options, and where what they render goes."""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ami.topology import stack
from ami.topology.errors import TopologyError
from ami.topology.kubernetes import render
from ami.topology.processes import MAX_REPLICAS, Choices
from ami.topology.topology import Topology


def add_parsers(verbs: Any) -> None:
    """Add both verbs to a parser's subparsers."""
    kubernetes = verbs.add_parser("kubernetes", help="print the topology as Kubernetes manifests")
    _add_common(kubernetes, "DIR", "a claim (ReadWriteMany)")
    kubernetes.add_argument("--namespace", default="antenna", help="default: antenna; '' leaves the choice to kubectl")
    kubernetes.add_argument("--no-keda", dest="keda", action="store_false", help="fixed replicas: the table's")
    kubernetes.add_argument(
        "--max-replicas",
        metavar="[QUEUE=]N",
        action="append",
        default=[],
        help=f"how many workers KEDA may start, for one queue or for each; default: {MAX_REPLICAS}. May be repeated",
    )
    kubernetes.add_argument("--vhost", default="antenna", help="the broker's virtual host; default: antenna")
    swarm = verbs.add_parser("stack", help="print the topology for `docker stack deploy`")
    _add_common(swarm, "FILE", "an external volume")
    swarm.add_argument(
        "--secret",
        metavar="NAME",
        action="append",
        default=[],
        help="one more variable that comes from a docker secret",
    )


def _add_common(verb: argparse.ArgumentParser, place: str, files: str) -> None:
    verb.add_argument("--image", help="default: ANTENNA_IMAGE, or antenna:local")
    verb.add_argument("--host", default=Choices.host, help=f"the name web is reached at; default: {Choices.host}")
    verb.add_argument("--web-replicas", type=int, default=Choices.web_replicas, metavar="N", help="default: 2")
    verb.add_argument(
        "--files", default="", metavar="NAME", help=f"{files} for /data; default: object storage holds it"
    )
    do = verb.add_mutually_exclusive_group()
    do.add_argument("--write", metavar=place, help="write it there")
    do.add_argument("--check", metavar=place, help="exit 1 when what lies there differs")


def kubernetes(topology: Topology, arguments: argparse.Namespace) -> int:
    """Print, write or compare the manifests; return the exit code."""
    choices = _choices(arguments)
    if not (arguments.write or arguments.check):
        print(render.stream(topology, os.environ, choices), end="")
        return 0
    folder = Path(arguments.write or arguments.check)
    files = {folder / name: text for name, text in render.render(topology, os.environ, choices).items()}
    # What was rendered before and is no more, like the worker of a queue that was switched off.
    first = render.header(choices).partition("\n")[0]
    stale = [path for path in sorted(folder.glob("*.yaml")) if path not in files and path.read_text().startswith(first)]
    if arguments.check:
        return _differing(files, stale)
    folder.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.unlink()
    return _write(files)


def swarm(topology: Topology, arguments: argparse.Namespace) -> int:
    """Print, write or compare the stack file; return the exit code."""
    text = stack.render(topology, os.environ, _choices(arguments))
    if arguments.check:
        return _differing({Path(arguments.check): text}, [])
    if arguments.write:
        return _write({Path(arguments.write): text})
    print(text, end="")
    return 0


def _write(files: Mapping[Path, str]) -> int:
    for path, text in files.items():
        path.write_text(text)
    return 0


def _differing(files: Mapping[Path, str], stale: list[Path]) -> int:
    wrong = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in (*wrong, *stale):
        print(f"{path} is not what the topology renders; run it again with --write.", file=sys.stderr)
    return 1 if wrong or stale else 0


def _choices(arguments: argparse.Namespace) -> Choices:
    chosen = vars(arguments)
    names = ("host", "namespace", "files", "vhost", "keda", "web_replicas")
    return Choices(
        image=arguments.image or os.environ.get("ANTENNA_IMAGE") or Choices.image,
        secrets=tuple(chosen.get("secret", ())),
        max_replicas=dict(_maximum(text) for text in chosen.get("max_replicas", ())),
        **{name: chosen[name] for name in names if name in chosen},
    )


def _maximum(text: str) -> tuple[str, int]:
    queue, _, number = text.rpartition("=")
    if not number.isascii() or not number.isdigit() or int(number) < 1:
        raise TopologyError(f"--max-replicas is '{text}'; give a number from 1, or QUEUE=NUMBER for one queue.")
    return queue, int(number)
