"""Hostile messages on both brokers: no worker dies, later tasks run, and no message is lost."""

import time
from contextlib import suppress
from typing import Any

from tests.attack.report import Report
from tests.attack.stage import INGEST, SETTINGS, Stage
from tests.support.place import FOLDER, RABBITMQ, new_place, until

PART = "messages"
DLQ = f"{INGEST}.dlq"
GOOD = "tests.support.worker_tasks.basic.succeed"
#: A worker that runs no task for this long is stuck, even on a busy machine.
GOOD_SECONDS = 240.0
ONE_SECONDS = 60.0
#: The short form sends every fourth case; tests/acceptance/test_hostile_messages.py sends all to both brokers.
ONE_OF = 4
MOST_DEATHS = 10


def attack(stage: Stage, report: Report, *, short: bool) -> None:
    """Send every case to the ingest worker of RabbitMQ, then to one on a folder."""
    try:
        from tests.support import hostile_messages
    except ImportError as error:
        report.count(PART)
        report.found(PART, "errors", f"the hostile messages are missing: {error}", "tests/support/hostile_messages")
        return
    with suppress(FileNotFoundError):
        hostile_messages.EXECUTED.unlink()
    MessageAttack(stage, hostile_messages, report, RABBITMQ, short).run()
    with new_place("attack-folder", FOLDER) as place:
        place.environment.update(SETTINGS)
        place.queues("declare")
        folder = Stage(place, stage.web, place.worker(INGEST), stage.web_pids)
        MessageAttack(folder, hostile_messages, report, FOLDER, short).run()
    if hostile_messages.EXECUTED.exists():
        report.found(PART, "leaks", "a message was executed as code", str(hostile_messages.EXECUTED))


class MessageAttack:
    """Sends all cases to one worker of one broker; a worker that dies is reported and restarted."""

    def __init__(self, stage: Stage, table: Any, report: Report, kind: str, short: bool) -> None:
        self.stage, self.place, self.table, self.report, self.kind = stage, stage.place, table, report, kind
        self.short = short
        self.deaths = 0
        with self.place.app.connection_for_write() as connection:
            self.cases = table.cases(connection)[:: ONE_OF if short else 1]
        until(lambda: not self.place.depth(INGEST), GOOD_SECONDS, "the queue is empty before the first message")
        self._purge()

    def run(self) -> None:
        """Send all cases with good tasks between them; after a death, and in the long form, again one by one."""
        self._send(self.cases)
        survived = self._await_good(5, GOOD_SECONDS)
        if survived:
            self._account()
        if not survived or not self.short:
            self._purge()
            for case in self.cases:
                if self.deaths >= MOST_DEATHS:
                    self.report.note(f"messages: stopped on {self.kind} after {self.deaths} deaths of its worker")
                    break
                self._one(case)

    def _send(self, cases: Any) -> None:
        with self.place.app.connection_for_write() as connection:
            for index, case in enumerate(cases):
                self.report.count(PART)
                self.table.publish(connection, INGEST, case)
                if index % (len(cases) // 5 + 1) == 0:
                    self._good(f"good-{index}")
        self._good("good-last")

    def _good(self, name: str) -> None:
        self.place.send(GOOD, name, queue=INGEST, task_id=name)

    def _ran(self) -> set[str]:
        return {record["id"] for record in self.place.ran("succeed", state="SUCCESS")}

    def _await_good(self, at_least: int, seconds: float) -> bool:
        """Return whether ``at_least`` good tasks ran before the deadline and before the worker ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.stage.worker.popen.poll() is not None:
                self._died("one of all messages")
                return False
            if len({name for name in self._ran() if name.startswith("good-")}) >= at_least:
                return True
            time.sleep(0.1)
        self.report.found(PART, "deaths", f"the worker on {self.kind} runs no more good tasks", "all messages")
        return False

    def _one(self, case: Any) -> None:
        """Send one case and a good task after it."""
        self.report.count(PART)
        with self.place.app.connection_for_write() as connection:
            self.table.publish(connection, INGEST, case)
        name = f"behind-{time.monotonic_ns()}"
        self._good(name)
        deadline = time.monotonic() + ONE_SECONDS
        while time.monotonic() < deadline and name not in self._ran():
            if self.stage.worker.popen.poll() is not None:
                self._died(case.name)
                return
            time.sleep(0.02)
        if name not in self._ran():
            self.report.found(PART, "deaths", f"the worker on {self.kind} is stuck", case.name)
            self._restart()

    def _died(self, name: str) -> None:
        self.deaths += 1
        self.report.found(PART, "deaths", f"the worker on {self.kind} ended: {name}", f"hostile_messages: {name}")
        self._restart()

    def _restart(self) -> None:
        self.stage.worker.kill()
        self._purge()
        self.stage.worker = self.place.worker(INGEST)

    def _purge(self) -> None:
        for queue in (INGEST, DLQ):
            with self.place.app.connection_for_write() as connection, connection.channel() as channel:
                channel.queue_purge(queue)

    def _account(self) -> None:
        """Check that every published message ran or is dead-lettered."""
        deadline = time.monotonic() + GOOD_SECONDS
        must = sum(case.outcome == self.table.BURIED for case in self.cases)
        may = len(self.cases) - must
        while time.monotonic() < deadline and (self.place.depth(INGEST) or self.place.depth(DLQ) < must):
            time.sleep(0.2)
        buried, waiting = self.place.depth(DLQ), self.place.depth(INGEST)
        counts = f"{len(self.cases)} cases, {buried} dead letters, {waiting} waiting"
        self.report.note(f"messages on {self.kind}: {counts}; {self.stage.memory}")
        if waiting or not must <= buried <= must + may:
            what = f"on {self.kind} {must} to {must + may} of {len(self.cases)} messages must be dead letters"
            self.report.found(PART, "leaks", what, f"{buried} dead letters, {waiting} still waiting")
