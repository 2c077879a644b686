"""``python -m ami.topology``: prints and renders the table; execs the worker of a queue, or beat; runs all of them."""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ami.topology import broker, command, compose, definitions, nats_login, one_machine
from ami.topology.accounts import NatsAccount, RabbitMQAccount, accounts
from ami.topology.errors import TopologyError
from ami.topology.kubernetes import cli
from ami.topology.monitoring import cli as monitoring
from ami.topology.overrides import AUTO, BOUNDS
from ami.topology.process import Kind
from ami.topology.process_group import ProcessGroup
from ami.topology.topology import Topology, load
from ami.topology.written_file import write, write_or_print

COMPOSE_FILE = "docker-compose.worker.yml"


def main(argv: list[str] | None = None) -> int:
    """Run one verb; a `TopologyError` is printed to stderr, exit code 2."""
    arguments, extra = _parser().parse_known_args(argv)
    arguments.extra = extra
    if extra and arguments.verb not in ("worker", "beat"):
        _parser().error(f"unrecognized arguments: {' '.join(extra)}")
    try:
        return int(VERBS[arguments.verb](load(), arguments) or 0)
    except TopologyError as error:
        print(f"ami.topology: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    description = "Print and render the topology; exec the worker of a queue, or beat; run all of them."
    parser = argparse.ArgumentParser(prog="python -m ami.topology", description=description)
    verbs = parser.add_subparsers(dest="verb", required=True)
    worker = verbs.add_parser("worker", help="exec the Celery worker for QUEUE; further options go to Celery")
    worker.add_argument("queue")
    beat = verbs.add_parser("beat", help="exec Celery beat; further options go to Celery")
    for verb in (worker, beat):
        verb.add_argument("--print", action="store_true", help="print the command line instead of executing it")
    everything = verbs.add_parser("all", help="run one worker per queue under this process, on a laptop")
    everything.add_argument("--only", metavar="QUEUE,...", help="run the workers of these queues; default: every queue")
    everything.add_argument("--beat", action="store_true", help="run beat as well")
    everything.add_argument(
        "--concurrency",
        type=_concurrency,
        metavar="N",
        help="tasks at the same time in each worker; default: the row's, at most one per core",
    )
    table = verbs.add_parser("table", help="print every row with the overrides of this environment")
    table.add_argument("--json", action="store_true")
    verbs.add_parser("queues", help="print the queue names, one per line")
    verbs.add_parser("policies", help="print the RabbitMQ policies as JSON")
    loaded = verbs.add_parser("definitions", help="print the definitions that RabbitMQ loads at start, as JSON")
    loaded.add_argument(
        "--rabbitmq",
        default="3.10",
        metavar="VERSION",
        help="target RabbitMQ version; must not exceed the broker's; default: 3.10",
    )
    loaded.add_argument("--write", type=Path, metavar="FILE", help="write FILE atomically, mode 0644")
    loaded.add_argument("--nats-login", type=Path, metavar="FILE", help="write NATS's login to FILE, mode 0640")
    rendered = verbs.add_parser("compose", help=f"print {COMPOSE_FILE}")
    rendered.add_argument("--write", action="store_true", help="write the file")
    rendered.add_argument("--check", action="store_true", help="exit 1 if the file differs")
    cli.add_parser(verbs)
    monitoring.add_parsers(verbs)
    return parser


def _concurrency(text: str) -> int:
    low, high = BOUNDS["concurrency"]
    if not text.isdecimal() or not low <= int(text) <= high:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {low} to {high}")
    return int(text)


def _worker(topology: Topology, arguments: argparse.Namespace) -> int:
    return _exec(command.worker(topology, arguments.queue, arguments.extra), "worker", arguments)


def _beat(topology: Topology, arguments: argparse.Namespace) -> int:
    return _exec(command.beat(arguments.extra), "beat", arguments)


def _all(topology: Topology, arguments: argparse.Namespace) -> int:
    only = arguments.only.split(",") if arguments.only else ()
    with TemporaryDirectory(prefix="antenna-") as folder:
        commands = one_machine.commands(os.environ, Path(folder), arguments.concurrency, only, has_beat=arguments.beat)
        if refused := _preflight(commands[0].argv, dict(commands[0].environment)):
            return refused
        return ProcessGroup(commands).run()


def _exec(argv: list[str], process: Kind, arguments: argparse.Namespace) -> int:
    environment = command.environment(os.environ, process)
    if not arguments.print:
        # No shell: a failed substitution must not start Celery.
        os.execve(argv[0], argv, environment)  # noqa: S606
    # A line that the process itself would refuse is not printed.
    refused = _preflight(argv, environment)
    if not refused:
        print(shlex.join(argv))
    return refused


def _preflight(argv: Sequence[str], environment: dict[str, str]) -> int:
    """Return the exit code with which the process of ``argv`` would refuse its start, and print why; 0 if it starts."""
    preflight = command.preflight(argv)
    return subprocess.run(preflight, env=environment, stdin=subprocess.DEVNULL, check=False).returncode  # noqa: S603


def _table(topology: Topology, arguments: argparse.Namespace) -> None:
    rows = topology.as_dicts()
    if arguments.json:
        print(json.dumps({"routing": topology.routing, "fingerprint": topology.fingerprint, "workloads": rows}))
        return
    columns = (
        "queue",
        "service",
        "pool",
        "concurrency",
        "prefetch_multiplier",
        "max_tasks_per_child",
        "max_memory_per_child_kib",
        "soft_time_limit_seconds",
        "hard_time_limit_seconds",
        "memory_limit_kib",
    )
    rows = [{**row, "concurrency": AUTO} if row["auto_concurrency"] else row for row in rows]
    for column in columns:
        print(f"{column:28}", *(f"{row[column]!s:>26}" for row in rows))
    print(f"routing {topology.routing}, fingerprint {topology.fingerprint}")


def _queues(topology: Topology, arguments: argparse.Namespace) -> None:
    print("\n".join(topology.queues))


def _policies(topology: Topology, arguments: argparse.Namespace) -> None:
    print(json.dumps(list(broker.policies(topology)), indent=2))


def _definitions(topology: Topology, arguments: argparse.Namespace) -> None:
    declared = (RabbitMQAccount, NatsAccount) if arguments.nats_login else (RabbitMQAccount,)
    user, password, vhost, *nats = accounts(os.environ, *declared)
    account = definitions.Account(user, password, vhost)
    text = json.dumps(definitions.render(topology, account, definitions.parse(arguments.rabbitmq)), indent=2) + "\n"
    if arguments.nats_login:
        write(arguments.nats_login, nats_login.render(*nats), nats_login.MODE)
    write_or_print(arguments.write, text)


def _compose(topology: Topology, arguments: argparse.Namespace) -> int:
    path, text = Path(COMPOSE_FILE), compose.render()
    if arguments.check:
        if path.exists() and path.read_text() == text:
            return 0
        print(f"{COMPOSE_FILE} is not what the topology renders; run 'make render'.", file=sys.stderr)
        return 1
    if arguments.write:
        path.write_text(text)
        return 0
    print(text, end="")
    return 0


VERBS = {
    "worker": _worker,
    "beat": _beat,
    "all": _all,
    "table": _table,
    "queues": _queues,
    "policies": _policies,
    "definitions": _definitions,
    "compose": _compose,
    "kubernetes": cli.kubernetes,
    "alerts": monitoring.alert_rules,
    "dashboard": monitoring.grafana_dashboard,
}

if __name__ == "__main__":
    sys.exit(main())
