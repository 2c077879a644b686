"""Several processes on one folder: all see the same after forks, kills and removals."""

import gc
import os
import re
import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from ami.transports.objectstore.queue.commands import Ack
from tests.support.place import until
from tests.support.soak import soak
from tests.support.transports.python_processes import run, started
from tests.support.transports.queue_state import assert_consistent, picture
from tests.support.transports.recording_follower import number, on_folder
from tests.support.transports.small_stores import claim, held, publish, snapshots_every, waiting
from tests.support.transports.small_stores import on_folder as store_on_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "queue"


WORK = """
import sys
from pathlib import Path
from ami.transports.objectstore.queue.commands import Ack
from tests.support.transports.small_stores import *
store, me, count = on_folder(Path(sys.argv[1]), 4000), sys.argv[2], int(sys.argv[3])
with snapshots_every(10_000):
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        assert publish(store, f"{me}-{number}", size=100) == [True]
        for name in claim(store, 2, me):
            assert store.payload(store.look().entries[name]).startswith(name.encode())
            if not name.endswith("7"):
                store.commit([Ack(name)])
            print(name, flush=True)
"""


@pytest.mark.processes
def test_processes_that_publish_and_claim_at_once_share_the_messages(folder: Path):
    count = soak(100, 1000)
    with ExitStack() as stack:
        workers = [stack.enter_context(started(WORK, folder, me, count)) for me in "abc"]
        for process in workers:
            assert process.stdout.readline() == "ready\n"
        for process in workers:
            process.stdin.write("go\n")
            process.stdin.flush()
        output = [process.communicate(timeout=240)[0].split() for process in workers]
        assert [process.returncode for process in workers] == [0, 0, 0]
    store = store_on_folder(folder, 4000)
    everything = {f"{me}-{number}" for me in "abc" for number in range(count)}
    claimed = Counter(name for names in output for name in names)
    assert set(claimed.values()) == {1}
    assert claimed.keys() | set(waiting(store)) == everything
    with store.lock:
        state = store.look()
        assert_consistent(state)
        assert state.leased.keys() == {name for name in claimed if name.endswith("7")}
    assert len(held(store)) == len(state.entries)
    live = sum(state.in_segment.values())
    assert len(list(folder.glob("*.log"))) * 4000 < 4 * live + 40 * 4000


PUBLISH_FOREVER = """
import sys
from pathlib import Path
from tests.support.transports.small_stores import *
store = on_folder(Path(sys.argv[1]), 2000, durable=True)
number = 0
with snapshots_every(5000):
    while True:
        publish(store, f"{sys.argv[2]}-{number}", size=100)
        store.look()
        print(f"{sys.argv[2]}-{number}", flush=True)
        number += 1
"""


@pytest.mark.processes
def test_killed_processes_lose_nothing_they_confirmed(folder: Path):
    store, confirmed = store_on_folder(folder, 2000, durable=True), set()
    rounds = soak(4, 40)
    for at in range(rounds):
        with ExitStack() as stack:
            workers = [stack.enter_context(started(PUBLISH_FOREVER, folder, f"{at}{me}")) for me in "ab"]
            for process in workers:
                for _ in range(3 + 7 * at % 23):
                    confirmed.add(process.stdout.readline().strip())
            for process in workers:
                process.send_signal(signal.SIGKILL)
                whole, _, _ = process.stdout.read().rpartition("\n")
                confirmed |= set(whole.split())
        found = held(store).keys()
        assert confirmed <= found
        assert len(found) <= len(confirmed) + 2 * (at + 1)
    again = store_on_folder(folder, 2000)
    assert picture(again.look()) == picture(store.look())
    assert not any(entry.redelivered for entry in again.look().entries.values())


REMOVE = """
import sys
from pathlib import Path
from tests.support.transports.small_stores import *
store = on_folder(Path(sys.argv[1]))
for line in sys.stdin:
    store.destroy()
    print(publish(store, f"anew-{line.strip()}"), flush=True)
"""


@pytest.mark.processes
def test_a_folder_that_another_process_removes_begins_anew(folder: Path):
    store, publisher, reader = (store_on_folder(folder) for _ in range(3))
    with started(REMOVE, folder) as process:
        for at in range(5):
            publish(store, *map(str, range(30)))
            claim(store, 5)
            reader.look()
            process.stdin.write(f"{at}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "[True]\n"
            assert publish(publisher, "blind") == [True]
            assert claim(store) == [f"anew-{at}"]
            assert held(reader) == {f"anew-{at}": b"anew-%d" % at, "blind": b"blind"}
            assert publish(store, "0") == [True]
            assert waiting(reader) == waiting(publisher) == ["blind", "0"]


@pytest.mark.processes
def test_a_publish_is_never_confirmed_into_a_folder_that_is_gone(folder: Path):
    """Every publish that was confirmed after the last removal is there."""
    store, confirmed = store_on_folder(folder), []
    with started(REMOVE, folder) as process:
        for at in range(soak(3, 10)):
            process.stdin.write(f"{at}\n")
            process.stdin.flush()
            before = len(confirmed)
            while process.poll() is None:
                publish(store, f"{at}-{len(confirmed)}")
                confirmed.append(f"{at}-{len(confirmed)}")
                if len(confirmed) > before + 200:
                    break
            assert process.stdout.readline() == "[True]\n"
            publish(store, f"last-{at}")
            found = waiting(store)
            assert f"anew-{at}" in found
            mine = [name for name in found if not name.startswith("anew")]
            # All that was confirmed before the removal is removed, all that was confirmed after it is there.
            assert mine == [*confirmed, f"last-{at}"][len(confirmed) + 1 - len(mine) :]
            confirmed.append(f"last-{at}")


def test_a_folder_that_was_replaced_by_another_is_told_from_it(folder: Path, tmp_path: Path):
    reader = on_folder(folder)
    reader.append(*number(10))
    other = on_folder(tmp_path / "other")
    other.append(b"other")
    folder.rename(tmp_path / "away")
    (tmp_path / "other").rename(folder)
    assert reader.all() == [b"other"]
    reader.append(b"next")
    assert on_folder(folder).all() == [b"other", b"next"]
    assert on_folder(tmp_path / "away").all() == number(10)


def test_a_removed_folder_leaves_nothing_behind_and_no_file_open(folder: Path, tmp_path: Path):
    store, other = store_on_folder(folder), store_on_folder(folder)
    for each in (store, other):
        publish(each, *map(str, range(50)))
        each.look()
    before = open_files(tmp_path)
    assert len(before) >= 6
    store.destroy()
    other.close()
    assert open_files(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def open_files(folder: Path) -> list[str]:
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return [name for link in links if os.path.islink(link) and (name := os.readlink(link)).startswith(str(folder))]


def test_a_store_that_nobody_uses_any_more_leaves_no_file_open(folder: Path, tmp_path: Path):
    # What was there before is no part of this, and looking through it takes most of the time.
    gc.collect()
    gc.freeze()
    try:
        for _ in range(3):
            publish(store_on_folder(folder), "a")
            gc.collect()
            assert open_files(tmp_path) == []
    finally:
        gc.unfreeze()


FORK = """
import os, sys
from pathlib import Path
from tests.support.transports.small_stores import *
folder = Path(sys.argv[1])
store = on_folder(folder)
publish(store, "parent")
store.look()
child = os.fork()
if child == 0:
    own = on_folder(folder)
    for number in range(50):
        publish(own, f"child-{number}")
    # The parent's is not meant for it, but works.
    publish(store, "child-too")
    os._exit(0 if len(waiting(own)) >= 52 else 1)
for number in range(50):
    publish(store, f"parent-{number}")
    store.look()
assert os.waitpid(child, 0)[1] == 0
assert len(waiting(store)) == len(waiting(on_folder(folder))) == 102
assert waiting(store) == waiting(on_folder(folder))
"""


@pytest.mark.processes
def test_a_forked_child_uses_a_store_of_its_own(folder: Path):
    assert run(FORK, folder) == (0, "")
    assert len(waiting(store_on_folder(folder))) == 102


FORK_WHILE_ANOTHER_THREAD_APPENDS = """
import os, sys, threading
from pathlib import Path
from tests.support.transports.small_stores import *
store = on_folder(Path(sys.argv[1]))
publish(store, "before")
inside, forever = threading.Event(), threading.Event()
def pwrite(fd, content, at):
    inside.set()
    forever.wait()
os.pwrite = pwrite
threading.Thread(target=publish, args=(store, "never"), daemon=True).start()
inside.wait()
if os.fork() == 0:
    print("child", flush=True)
    sys.stdin.read()
    os._exit(0)
forever.wait()
"""


@pytest.mark.processes
def test_a_forked_child_keeps_no_lock_of_its_killed_parent(folder: Path):
    with started(FORK_WHILE_ANOTHER_THREAD_APPENDS, folder) as parent:
        assert parent.stdout.readline() == "child\n"
        parent.kill()
        parent.wait()
        assert run(PUBLISH_ONCE, folder) == (0, "")
    assert waiting(store_on_folder(folder)) == ["before", "once"]


PUBLISH_ONCE = """
import sys
from pathlib import Path
from tests.support.transports.small_stores import *
publish(on_folder(Path(sys.argv[1])), "once")
"""

INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from tests.support.transports.small_stores import *
class Interrupted(Exception):
    pass
def interrupt(*_):
    raise Interrupted
signal.signal(signal.SIGALRM, interrupt)
store, other, number, interrupted = on_folder(Path(sys.argv[1])), on_folder(Path(sys.argv[1])), 0, 0
while interrupted < int(sys.argv[2]):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.00002 * (number % 50))
        for _ in range(1000):
            number += 1
            publish(store, str(number), size=100)
            claim(store)
            store.look()
    except Interrupted:
        interrupted += 1
    # Had it kept the lock, this one would wait for ever.
    publish(other, f"other-{interrupted}")
signal.setitimer(signal.ITIMER_REAL, 0)
print("done")
"""


@pytest.mark.processes
def test_an_interruption_anywhere_keeps_no_lock_and_loses_no_state(folder: Path):
    status, output = run(INTERRUPTED, folder, soak(150, 3000))
    assert (status, output) == (0, "done\n")
    store = store_on_folder(folder)
    assert_consistent(store.look())
    others = [name for name in held(store) if name.startswith("other")]
    assert len(others) == soak(150, 3000)


@pytest.mark.processes
def test_the_lock_is_waited_for(folder: Path):
    with started(FORK_WHILE_ANOTHER_THREAD_APPENDS, folder) as holder:
        assert holder.stdout.readline() == "child\n"
        with started(PUBLISH_ONCE, folder) as waiter:
            until(lambda: "FLOCK" in locks() and re.search(rf"-> FLOCK .* {waiter.pid} ", locks()), 60)
            assert waiter.poll() is None
            holder.kill()
            holder.wait()
            assert waiter.wait(60) == 0


def locks() -> str:
    return Path("/proc/locks").read_text()


def test_snapshots_of_many_processes_do_not_disturb_each_other(folder: Path):
    stores = [store_on_folder(folder, 1000) for _ in range(4)]
    with snapshots_every(2000):
        for at in range(200):
            publish(stores[at % 4], str(at), size=50)
            assert claim(stores[(at + 1) % 4]) == [str(at)]
            stores[(at + 2) % 4].commit([Ack(str(at))])
    assert held(store_on_folder(folder, 1000)) == {}
    assert len(list(folder.glob("*.log"))) < 12
    assert len(list(folder.glob("snapshot-*"))) == 2
