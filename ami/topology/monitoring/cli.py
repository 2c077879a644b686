"""The verbs ``alerts`` and ``dashboard``."""

import argparse
from pathlib import Path
from typing import Any

from ami.topology.monitoring import alerts, dashboard
from ami.topology.topology import Topology
from ami.topology.written_file import write_or_print


def add_parsers(verbs: Any) -> None:
    """Add the verbs to a parser's subparsers."""
    rules = verbs.add_parser("alerts", help="print Prometheus's alert rules, with this environment's numbers")
    rules.add_argument(
        "--runbook",
        type=_absolute,
        metavar="URL",
        help="absolute address of the handbook, before PAGE/#CHAPTER; without it rules have no runbook_url",
    )
    board = verbs.add_parser("dashboard", help="print the Grafana dashboard, with this environment's queues")
    for verb in (rules, board):
        verb.add_argument("file", nargs="?", type=Path, metavar="FILE", help="write FILE atomically, mode 0644")


def _absolute(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"'{url}' is no absolute address; write https://...")
    return url


def alert_rules(topology: Topology, arguments: argparse.Namespace) -> None:
    write_or_print(arguments.file, alerts.render(topology, arguments.runbook or ""))


def grafana_dashboard(topology: Topology, arguments: argparse.Namespace) -> None:
    write_or_print(arguments.file, dashboard.render(topology))
