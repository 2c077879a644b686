"""Producers and workers on a folder, killed at random: nothing confirmed is lost, nothing runs twice unflagged."""

import multiprocessing
import random
import threading
from collections import Counter
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from ami.transports.objectstore.queue.factory import open_folder
from tests.support.place import until
from tests.support.soak import soak
from tests.support.transports import crash_program
from tests.support.transports.crash_program import unconfirmed

ROUNDS, KILLS, SECONDS_BETWEEN = soak((1, 16, 0.3), (8, 20, 1.0))
EACH = 4

#: Forks each of them from a process that has imported what they need.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([crash_program.__name__])


class RoundProcesses:
    """The processes of one round; a killed one is replaced, and its successor goes on in the same diary."""

    def __init__(self, folder: Path) -> None:
        self.url = f"objectstore+file://{folder / 'broker'}"
        self.folder = folder
        self.stop = folder / "stop"
        self.killed: list[str] = []
        self.running: dict[str, ForkServerProcess] = {}
        for number in range(EACH):
            self.start(f"produce-{number}")
            self.start(f"work-{number}")

    def start(self, name: str) -> None:
        role = name.partition("-")[0]
        files = self.folder / name, self.stop, self.folder / f"{name}.log"
        self.running[name] = FORKS.Process(target=crash_program.run, args=(role, self.url, *files), daemon=True)
        self.running[name].start()

    def kill_one(self, chance: random.Random) -> None:
        name = chance.choice(sorted(self.running))
        process = self.running[name]
        process.kill()
        process.join()
        self.killed.append(name)
        self.start(name)

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.join()

    def producers_are_done(self) -> bool:
        producers = [process for name, process in self.running.items() if name.startswith("produce")]
        assert all(process.exitcode in (None, 0) for process in producers), self.logs()
        return all(process.exitcode == 0 for process in producers)

    def logs(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in sorted(self.folder.glob("*.log")) if path.stat().st_size)

    def lines(self, role: str) -> list[list[str]]:
        found = (path for path in sorted(self.folder.glob(f"{role}-?")) if path.is_file())
        return [line.split() for path in found for line in path.read_text().splitlines()]


def round_of_kills(folder: Path, chance: random.Random) -> dict[str, int]:
    folder.mkdir()
    processes = RoundProcesses(folder)
    try:
        until(lambda: len(processes.lines("work")) > 50, 60, "messages flow")
        for _ in range(KILLS):
            processes.kill_one(chance)
            threading.Event().wait(
                SECONDS_BETWEEN * chance.uniform(0.5, 1.5)
            )  # The kills are spread over the time, at random.
        processes.stop.touch()
        until(processes.producers_are_done, 120, "the producers had everything confirmed")
        store = open_folder(folder / "broker" / "queues" / "crash")
        until(lambda: not store.look().entries, 120, "everything is handled")
    finally:
        processes.end()
    return judged(processes)


def judged(processes: RoundProcesses) -> dict[str, int]:
    confirmed = {name for kind, name in processes.lines("produce") if kind == "confirmed"}
    in_doubt = [name for number in range(EACH) for name in unconfirmed(processes.folder / f"produce-{number}")]
    assert len(in_doubt) <= sum(name.startswith("produce") for name in processes.killed)
    handled = Counter(name for _, name in processes.lines("work"))
    unflagged = Counter(name for kind, name in processes.lines("work") if kind == "first")
    lost = confirmed - set(handled)
    assert not lost, f"{len(lost)} of {len(confirmed)} were confirmed and never handled: {sorted(lost)[:3]}"
    twice = [name for name, count in unflagged.items() if count > 1]
    assert not twice, f"{len(twice)} were handled twice without the flag: {twice[:3]}"
    again = sum(count - 1 for count in handled.values())
    assert {name.partition("-")[0] for name in processes.killed} == {"produce", "work"}
    return {"confirmed": len(confirmed), "handled again, flagged": again, "kills": len(processes.killed)}


@pytest.mark.timeout(3000)
def test_nothing_confirmed_is_lost_when_anyone_may_be_killed_at_any_moment(tmp_path, record_property):
    chance = random.Random(20260101)
    for number in range(ROUNDS):
        found = round_of_kills(tmp_path / str(number), chance)
        print(f"round {number}: {found}")
        assert found["confirmed"] > 100
        assert found["kills"] == KILLS
