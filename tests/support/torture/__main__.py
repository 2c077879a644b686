"""``python -m tests.support.torture DISK FOLDER``: run the torture with its broker on ``DISK``; print the verdict.

The diaries are in ``FOLDER``, on another disk. Moments of kills are numbers of deliveries: the same on any machine.
"""

import argparse
import json
import multiprocessing
import random
import sys
import time
from dataclasses import asdict
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from kombu import Consumer

from ami.transports.objectstore.check.journal import read_queue
from ami.transports.objectstore.queue.factory import open_folder
from tests.support.place import until
from tests.support.small_disk import Ballast
from tests.support.torture import program
from tests.support.torture.diary import Diary, read
from tests.support.torture.plan import CONSUMED, DEAD_LETTERS, EXPIRING
from tests.support.torture.verdict import judge

#: Forks each process from one that has imported what they need.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([program.__name__])

EACH = 2
#: So many publishes are rejected before the disk gets free space again.
REJECTED = 10


class Torture:
    """The processes; a killed one is replaced, and its successor goes on in the same diary."""

    def __init__(self, disk: Path, folder: Path, seed: int, messages: int, deadline: float) -> None:
        self.disk, self.folder, self.seed = disk, folder, seed
        self.messages = messages // EACH
        self.deadline = time.monotonic() + deadline
        self.broker = disk / "broker"
        self.url = f"objectstore+file://{self.broker}"
        self.killed: list[str] = []
        self.killed_on_full_disk = 0
        self.running: dict[str, ForkServerProcess] = {}
        self.names = [f"{role}-{number}" for role in ("consume", "publish") for number in range(EACH)]

    def start(self, name: str) -> None:
        arguments = (name.partition("-")[0], name, self.url, self.folder, self.seed, self.messages)
        self.running[name] = FORKS.Process(target=program.run, args=arguments, daemon=True)
        self.running[name].start()

    def kill(self, name: str) -> None:
        process = self.running[name]
        process.kill()
        process.join()
        self.killed.append(name)
        self.start(name)

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.join()

    def count(self, role: str, *words: str) -> int:
        """Return how many lines of a role's diaries begin with one of the words."""
        return sum(line[0] in words for number in range(EACH) for line in read(self.folder / f"{role}-{number}"))

    def wait(self, what: str, condition) -> None:
        """Wait for a condition, at most until the deadline of the whole."""
        until(lambda: self._all_live() and condition(), self.deadline - time.monotonic(), what)

    def _all_live(self) -> bool:
        dead = [name for name, one in self.running.items() if one.exitcode not in (None, 0)]
        assert not dead, f"{dead} ended: {self.logs()}"
        return True

    def logs(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in sorted(self.folder.glob("*.log")))

    # The parts of it.

    def run(self, kills: int) -> None:
        """Kill at ``kills`` moments; fill the disk at about the middle one."""
        chance = random.Random(self.seed)
        # Publishers have work until all was published.
        moments = sorted(chance.uniform(0.05, 0.85) for _ in range(kills))
        victims = [self.names[number % len(self.names)] for number in range(kills)]
        chance.shuffle(victims)
        # A consumer dies on the full disk.
        middle, consumer = kills // 2, victims.index("consume-0")
        victims[middle], victims[consumer] = victims[consumer], victims[middle]
        for name in self.names:
            self.start(name)
        for number, (moment, victim) in enumerate(zip(moments, victims, strict=True)):
            published = int(moment * self.messages * EACH)
            self.wait(f"{published} published", lambda least=published: self.count("publish", "done") >= least)
            if number == middle:
                self.fill_disk(victim)
            else:
                time.sleep(chance.uniform(0, 0.05))  # A moment at random.
                self.kill(victim)
        self.wait("all published", lambda: self.count("publish", "done") >= self.messages * EACH)

    def fill_disk(self, victim: str) -> None:
        """Leave no space until publishers were rejected, and kill one meanwhile."""
        ballast, before = Ballast(self.disk), self.rejected()
        for least, kill in ((REJECTED // 2, True), (REJECTED, False)):
            self.wait("rejected publishes", lambda least=least: ballast.fill() or self.rejected() - before >= least)
            if kill:
                self.kill(victim)
                self.killed_on_full_disk += 1
        ballast.remove()

    def rejected(self) -> int:
        return self.count("publish", "rejected") + self.count("consume", "rejected")

    def finish(self) -> None:
        """Wait until every queue is empty, and drain the dead letters."""
        stores = [open_folder(self.broker / "queues" / name) for name in (*CONSUMED, EXPIRING)]
        self.wait("every queue is empty", lambda: not any(map(_holds, stores)))
        self.end()
        dead = open_folder(self.broker / "queues" / DEAD_LETTERS.name)
        diary = Diary(self.folder / "dead")
        take = [lambda _, message: _take(message, diary)]
        with program.connect(self.url) as connection, Consumer(connection.channel(), [DEAD_LETTERS], callbacks=take):
            for _ in range(dead.look().depth()):
                connection.drain_events(timeout=30)
        assert not _holds(dead), "dead letters were left"
        damage = [one for folder in (self.broker / "queues").iterdir() for one in read_queue(folder).damage]
        assert not damage, damage


def _holds(store) -> bool:
    with store.lock:
        return bool(store.look().entries)


def _take(message, diary: Diary) -> None:
    program.note(message, DEAD_LETTERS.name, diary)
    message.ack()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.torture", description=__doc__)
    parser.add_argument("disk", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=240, help="deadline of the whole")
    options = parser.parse_args()
    torture = Torture(options.disk, options.folder, options.seed, options.messages, options.seconds)
    began, failure = time.monotonic(), ""
    try:
        torture.run(options.kills)
        published = time.monotonic()
        torture.finish()
    except (AssertionError, TimeoutError) as error:
        published, failure = time.monotonic(), f"{error}; {torture.logs()}"
    finally:
        torture.end()
    found = asdict(judge(torture.folder / name for name in (*torture.names, "dead")))
    seconds = {"publishing": published - began, "whole": time.monotonic() - began}
    kills = {"killed": torture.killed, "killed_on_full_disk": torture.killed_on_full_disk}
    print(json.dumps({**found, **kills, "seconds": seconds, "failure": failure}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
