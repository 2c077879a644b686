"""Producers and workers on a folder, killed at random: nothing confirmed is lost, nothing runs twice unflagged."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from ami.transports.objectstore.queue.opening import open_folder
from tests.support.place import ROOT, until
from tests.support.soak import soak
from tests.support.transports.crash_program import unconfirmed

ROUNDS, SECONDS = soak((1, 8), (20, 20))
EACH = 4


class Crew:
    """The processes of one round; whoever is killed is replaced at once and goes on in the same diary."""

    def __init__(self, folder: Path) -> None:
        self.url = f"objectstore+file://{folder / 'broker'}"
        self.folder = folder
        self.stop = folder / "stop"
        self.kills = 0
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        for number in range(EACH):
            self.start(f"produce-{number}")
            self.start(f"work-{number}")

    def start(self, name: str) -> None:
        role = name.partition("-")[0]
        argv = [sys.executable, "-m", "tests.support.transports.crash_program", role, self.url, str(self.folder / name)]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen([*argv, str(self.stop)], cwd=ROOT, stdout=log, stderr=log)

    def kill_one(self, chance: random.Random) -> None:
        name = chance.choice(sorted(self.running))
        process = self.running[name]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.kills += 1
        self.start(name)

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()

    def producers_are_done(self) -> bool:
        producers = [process for name, process in self.running.items() if name.startswith("produce")]
        assert all(process.poll() in (None, 0) for process in producers), self.logs()
        return all(process.poll() == 0 for process in producers)

    def logs(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in sorted(self.folder.glob("*.log")) if path.stat().st_size)

    def lines(self, role: str) -> list[list[str]]:
        found = (path for path in sorted(self.folder.glob(f"{role}-?")) if path.is_file())
        return [line.split() for path in found for line in path.read_text().splitlines()]


def round_of_kills(folder: Path, chance: random.Random) -> dict[str, int]:
    folder.mkdir()
    crew = Crew(folder)
    try:
        until(lambda: len(crew.lines("work")) > 50, 30, "messages flow")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            crew.kill_one(chance)
            threading.Event().wait(chance.uniform(0.5, 1.5))  # The kills are spread over the time, at random.
        crew.stop.touch()
        until(crew.producers_are_done, 60, "the producers told of all they tried")
        store = open_folder(folder / "broker" / "queues" / "crash")
        until(lambda: not store.look().entries, 60, "everything is handled")
    finally:
        crew.end()
    return judged(crew)


def judged(crew: Crew) -> dict[str, int]:
    told = {name for kind, name in crew.lines("produce") if kind == "told"}
    assert not [name for number in range(EACH) for name in unconfirmed(crew.folder / f"produce-{number}")]
    handled = Counter(name for _, name in crew.lines("work"))
    unflagged = Counter(name for kind, name in crew.lines("work") if kind == "first")
    lost = told - set(handled)
    assert not lost, f"{len(lost)} of {len(told)} were confirmed and never handled: {sorted(lost)[:3]}"
    twice = [name for name, count in unflagged.items() if count > 1]
    assert not twice, f"{len(twice)} were handled twice without the flag: {twice[:3]}"
    again = sum(count - 1 for count in handled.values())
    return {"confirmed": len(told), "handled again, flagged": again, "kills": crew.kills}


@pytest.mark.timeout(3000)
def test_nothing_confirmed_is_lost_when_anyone_may_be_killed_at_any_moment(tmp_path, record_property):
    chance = random.Random(20260101)
    for number in range(ROUNDS):
        found = round_of_kills(tmp_path / str(number), chance)
        print(f"round {number}: {found}")
        assert found["confirmed"] > 100
        assert found["kills"] >= SECONDS / 2
