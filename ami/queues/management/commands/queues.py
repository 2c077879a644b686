"""``manage.py queues``: a thin wrapper around every queue operation."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import IO, TYPE_CHECKING, Any, cast

from celery import current_app
from django.conf import settings
from django.core.checks import CheckMessage, run_checks
from django.core.management.base import BaseCommand, CommandError, CommandParser
from kombu import Connection

from ami.celery import answer_limits
from ami.celery.broker_kind import kind_of
from ami.celery.declaration import declare
from ami.environment.deferred import deferred
from ami.environment.errors import did_you_mean
from ami.queues import audit_log, broker_errors, diagnostics
from ami.queues.diagnostics import Finding
from ami.queues.management import added, confirmation, operations, table
from ami.queues.management.argument_types import positive
from ami.queues.management.result import Result, listed
from ami.queues.management.verbs import MODULE_OF, VerbParser
from ami.queues.management_api import ManagementApi, ManagementUnavailable
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator
from ami.topology import broker
from ami.topology.topology import Topology

if TYPE_CHECKING:
    from ami.queues import broker_queues, dead_letters, governors, messages, rollout, schedule, tasks
    from ami.queues.letters import both
else:
    both = deferred("ami.queues.letters.both")
    broker_queues, dead_letters, governors, messages, rollout, schedule, tasks = (
        deferred(f"ami.queues.{name}")
        for name in ("broker_queues", "dead_letters", "governors", "messages", "rollout", "schedule", "tasks")
    )

#: A statement that the database does not answer is given up after so many seconds.
ANSWER_SECONDS = 30.0


class Command(BaseCommand):
    """Runs one operation per sub-command; see ``manage.py queues VERB --help``."""

    # A failing check of another app must not keep an operator from the queues.
    requires_system_checks = []
    help = "Operate queues, workers and tasks; see the sub-commands."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add one sub-command per operation."""
        verbs = parser.add_subparsers(dest="verb", required=True, parser_class=VerbParser)
        verbs.add_parser("declare", help="declare queues, dead-letter queues, exchanges and policies")
        verbs.add_parser("tasks", help="list every registered task with its queue, rule and limits")
        check = verbs.add_parser("check", help="check tasks, routes and schedule; exit 1 on an error")
        check.add_argument("--live", action="store_true", help="check the broker, every worker and Redis, too")
        verbs.add_parser("rollout", help="show rollout status and next step; exit 1 if messages would be stranded")
        back = verbs.add_parser("rollback", help="move the messages of the split queues to the fallback queue")
        verbs.add_parser("governor", help="show each worker's memory, state and reasons")
        letters = verbs.add_parser("dead-letters", help="count, list, replay or discard dead letters")
        letters.add_argument("queue", nargs="?", help="list the oldest letters of this queue")
        acts = letters.add_mutually_exclusive_group()
        acts.add_argument("--replay", action="store_true", help="publish them to the current queue of their tasks")
        acts.add_argument("--discard", action="store_true", help="delete them permanently")
        letters.add_argument("--limit", type=positive, default=None, help="maximum number of messages")
        for asking in (back, letters):
            confirmation.add_options(asking)
        verbs.add_parser("schedule", help="write the declared schedule into beat's tables")
        operations.add_parsers(verbs)
        added.add_parsers(verbs)
        for verb in verbs.choices.values():
            verb.add_argument("--json", action="store_true", help="print JSON instead of a table")
            if not parser.called_from_command_line:  # Django looks for the options of a call among those of all verbs.
                verb.add_options()

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        """Run one sub-command; a broker error is one sentence and exit code 1."""
        answer_limits.limit(ANSWER_SECONDS)
        self.topology: Topology = settings.ANTENNA_TOPOLOGY
        self.json: bool = options["json"]
        if verb in added.RUNS:
            added.RUNS[verb].run(options, cast(IO[str], self.stdout))
            return
        if verb in operations.RUNS or verb in MODULE_OF:
            self._operate(verb, options)
            return
        run = getattr(self, "_" + verb.replace("-", "_"))
        operation = _operation(verb, options)
        if verb == "dead-letters":
            self._refuse_wrong_queue(options)
        try:
            if not _changes_something(verb, options):
                run(options)
                return
            if _destroys(verb, options) and not options["yes"]:
                confirmation.require_terminal(operation)
                confirmation.require_agreement(f"{operation}: go on?", self._planned(verb, options))
            with audit_log.recorded(operation, who=audit_log.command_user(), which=_subject(options)):
                run(options)
        except Refused as error:
            raise CommandError(str(error)) from error
        except broker_errors.kinds() as error:
            raise CommandError(broker_errors.sentence(error)) from error

    def _operate(self, verb: str, options: dict[str, Any]) -> None:
        """Run one of `operations`; wrong input is one sentence and exit code 2."""
        try:
            is_agreed = options.get("yes") or options.get("dry_run") or options.get("count") is not None
            if verb in ("purge", "move") and not is_agreed:
                confirmation.require_terminal(f"queues {verb}")
                messages.refuse_unknown(self.topology, options["queue"])
                with current_app.connection_for_read() as connection:
                    if verb == "purge":
                        count = messages.purgeable(connection, options["queue"])
                        options["count"] = confirmation.require_number(f"queues {verb}", options["queue"], count)
                    else:
                        counts = {options["queue"]: messages.waiting(connection, options["queue"])}
                        confirmation.require_agreement(f"queues {verb}: go on?", counts)
            result = operations.run(self.topology, verb, options)
        except Refused as error:
            raise CommandError(str(error), returncode=2) from error
        except broker_errors.kinds() as error:
            raise CommandError(broker_errors.sentence(error)) from error
        self._print(result)
        if result.closing and not self.json:
            self.stdout.write(result.closing)
        if result.code:
            raise SystemExit(result.code)

    def _declare(self, options: dict[str, Any]) -> None:
        with current_app.connection_for_write() as connection:
            lost = broker_queues.unbound(self.topology, connection, settings.RABBITMQ_MANAGEMENT_URL)
            names = declare(self.topology, connection, own=lost)
            policies = _put_policies(self.topology, connection)
        self._show({"queues": names, "policies": policies}, [("declared", name) for name in names], ("", "queue"))
        if not self.json:
            self.stdout.write(f"policies: {policies if isinstance(policies, str) else ', '.join(policies)}")

    def _tasks(self, options: dict[str, Any]) -> None:
        columns = ("task", "queue", "rule", "limits s", "retries", "trigger", "queue for users")
        shown = ("task", "queue", "rule", _limits, "max_retries", _trigger, "by_person")
        self._print(listed(tasks.rows(self.topology), shown, columns))

    def _check(self, options: dict[str, Any]) -> None:
        found = [_finding(message) for message in run_checks(tags=["queues"])]
        if options["live"]:
            from ami.queues.diagnostics import redis_servers  # It imports redis, which few commands need.

            conf = current_app.conf
            servers = redis_servers.configured(settings.CACHES, conf.result_backend or "", conf.broker_url or "")
            found += diagnostics.findings(self.topology, current_app, settings.RABBITMQ_MANAGEMENT_URL, servers)
            found = diagnostics.gravest_first(found)
        self._print(listed(found, ("level", "name", "sentence"), ("level", "what", "fact and remedy")))
        if any(item.level == "error" for item in found):
            raise SystemExit(1)
        if not found and not self.json:
            self.stdout.write("No problems found.")

    def _rollout(self, options: dict[str, Any]) -> None:
        with current_app.connection_for_read() as connection:
            held = partial(governors.held, current_app)
            stage = rollout.stage(self.topology, connection, settings.RABBITMQ_MANAGEMENT_URL, held)
        cells = [
            (state.queue, state.service, state.messages, "held" if state.is_held else state.consumers)
            for state in stage.queues
        ]
        self._show(asdict(stage), cells, ("queue", "service", "messages", "consumers"))
        if not self.json:
            self.stdout.write(f"routing: {self.topology.routing}\nstage: {stage.name}\nnext: {stage.next_step}")
        if not stage.may_split:
            raise SystemExit(1)

    def _planned(self, verb: str, options: dict[str, Any]) -> dict[str, int]:
        """Return how many messages of which queue the operation would reach."""
        with current_app.connection_for_read() as connection:
            if verb == "rollback":
                return rollout.planned(self.topology, connection)
            return {options["queue"]: both.planned(connection, options["queue"], options["limit"])}

    def _rollback(self, options: dict[str, Any]) -> None:
        if options["dry_run"]:
            planned = self._planned("rollback", options)
            self._show(planned, list(planned.items()), ("from", "messages to move"))
            return
        with current_app.connection_for_write() as connection:
            moved = rollout.rollback(self.topology, connection, self._progress)
        self._show(moved, list(moved.items()), ("from", "messages moved"))
        if not self.json:
            self.stdout.write(
                "next: set ANTENNA_ROUTING=single for every process and keep the fallback worker running."
            )

    def _governor(self, options: dict[str, Any]) -> None:
        found = governors.query(current_app)
        self._show(governors.as_dicts(found), [governors.cells(worker) for worker in found], governors.COLUMNS)

    def _dead_letters(self, options: dict[str, Any]) -> None:
        queue, limit = options["queue"], options["limit"]
        if options["dry_run"]:
            self._done("would_reach", queue, self._planned("dead-letters", options)[queue])
            return
        operator = Operator(audit_log.command_user(), "command")
        with current_app.connection_for_write() as connection:
            if queue is None:
                counts = both.counts(self.topology, connection)
                self._show(counts, list(counts.items()), ("queue", "messages"))
            elif options["replay"]:
                self._done("replayed", queue, both.replay(self.topology, connection, queue, operator, limit))
            elif options["discard"]:
                self._done("discarded", queue, both.discard(connection, queue, limit))
            else:
                self._list(both.oldest(connection, queue, limit or 20))

    def _refuse_wrong_queue(self, options: dict[str, Any]) -> None:
        """Refuse a queue that keeps no dead letters, and options that need a queue."""
        queue, known = options["queue"], dead_letters.burial_queues(self.topology)
        acts = options["replay"] or options["discard"]
        if options["dry_run"] and not acts:
            raise CommandError("--dry-run shows what --replay or --discard would reach; add one of them.")
        if queue is None and (acts or options["limit"]):
            raise CommandError(f"Name the queue. Known: {', '.join(known)}.")
        if queue is not None and queue not in known:
            raise CommandError(
                f"'{queue}' keeps no dead letters. Known: {', '.join(known)}.{did_you_mean(queue, known)}"
            )

    def _done(self, what: str, queue: str, count: int) -> None:
        self._show({what: count}, [(queue, count)], ("queue", what))

    def _list(self, letters: list[dead_letters.DeadLetter]) -> None:
        rows = [asdict(letter) for letter in letters]
        columns = ("queue", "id", "task", "reason", "retries", "arguments", "why")
        self._show(rows, [tuple(row.values()) for row in rows], columns)

    def _schedule(self, options: dict[str, Any]) -> None:
        counts = schedule.synchronise()
        self._show(counts, list(counts.items()), ("rows", "count"))

    def _progress(self, queue: str, count: int) -> None:
        if count % 1000 == 0:
            self.stderr.write(f"{queue}: {count} moved")

    def _print(self, found: Result) -> None:
        self._show(found.data, found.cells, found.columns)

    def _show(self, data: Any, cells: list[Any], columns: tuple[str, ...]) -> None:
        table.write(cast(IO[str], self.stdout), data, cells, columns, as_json=self.json)


def _changes_something(verb: str, options: dict[str, Any]) -> bool:
    if options.get("dry_run"):
        return False
    return verb in {"declare", "rollback", "schedule"} or bool(options.get("replay") or options.get("discard"))


def _destroys(verb: str, options: dict[str, Any]) -> bool:
    return verb == "rollback" or bool(options.get("discard"))


def _operation(verb: str, options: dict[str, Any]) -> str:
    flags = [f" --{flag}" for flag in ("replay", "discard") if options.get(flag)]
    return f"queues {verb}{''.join(flags)}"


def _subject(options: dict[str, Any]) -> str:
    limit = options.get("limit")
    return f"{options.get('queue') or 'all queues'}{f', at most {limit} messages' if limit else ''}"


def _limits(row: tasks.TaskRow) -> str:
    return f"{row.soft_time_limit_seconds:g}/{row.hard_time_limit_seconds:g}"


def _put_policies(topology: Topology, connection: Connection) -> list[str] | str:
    """Return the names of the policies that were written, or why there are none."""
    if not kind_of(connection).is_managed:
        return "none, only RabbitMQ has policies"
    try:
        api = ManagementApi(settings.RABBITMQ_MANAGEMENT_URL, connection.virtual_host)
        return api.put_policies(broker.policies(topology, api.version()))
    except ManagementUnavailable as error:
        return f"not written: {error}"


def _trigger(row: tasks.TaskRow) -> str:
    return f"{row.triggered_by}, each {row.every_seconds} s" if row.every_seconds else row.triggered_by


def _finding(message: CheckMessage) -> Finding:
    return Finding("error" if message.is_serious() else "warning", message.id or "", message.msg)
