"""A running Antenna's messages move into the split: none lost, each effect once."""

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ami.admission.models import Call
from ami.main.models import Detection
from ami.queues.dead_letters import burial_queues
from ami.topology.topology import load
from tests.support.adopting.killed_bridge import POINTS
from tests.support.adopting.old_antenna import old_antenna
from tests.support.adopting.running_antenna import traffic
from tests.support.place import Place, Process, until
from tests.support.product.job_setup import new_world
from tests.support.soak import soak


def test_declare_in_the_old_virtual_host_names_the_exchange_and_the_remedy(place: Place):
    with old_antenna(place.folder, place.broker_url):
        done = place.queues("declare", check=False)
        assert done.code == 1
        assert "exchange 'antenna'" in done.error
        assert "virtual host of its own" in done.error
        assert "'manage.py queues adopt'" in done.error
        assert "drain the queue" not in done.error

        done = place.queues("rollout", check=False)
        assert (done.code, done.json["name"], done.json["may_split"]) == (1, "another application's", False)
        assert "exchange 'antenna'" in done.json["next_step"]
        assert "'manage.py queues adopt'" in done.json["next_step"]
        assert "queues declare" not in done.json["next_step"]


def test_rollout_names_a_classic_queue_in_the_place_of_ours(place: Place):
    place.queues("declare")
    with place.app.connection_for_write() as connection, connection.channel() as channel:
        channel.queue_delete("antenna")
        channel.queue_declare("antenna", durable=True, auto_delete=False)
    done = place.queues("rollout", check=False)
    assert (done.code, done.json["name"]) == (1, "another application's")
    assert "queue 'antenna'" in done.json["next_step"]
    done = place.queues("declare", check=False)
    # A queue that exists keeps what it has; only its exchange would be refused.
    assert done.code == 0


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kills", [0, soak(4, 20)])
def test_running_antenna_is_adopted_and_no_message_is_lost(database_place: Place, settings: Any, kills: int):
    place, number = database_place, soak(200 if kills else 100, 2000)
    place.environment["ANTENNA_TEST_FOLDER"] = str(Path(settings.MEDIA_ROOT).parent)  # The pictures are there.
    with old_antenna(place.folder) as old:
        place.environment["OLD_BROKER_URL"] = old.url
        antenna = traffic(old, new_world(), images=number // 8, seed=13)
        antenna.send(number)
        place.queues("declare")
        workers = place.workers(*QUEUES)
        until(lambda: stage(place, "split") == "split", what="every queue has a consumer")
        plan = points(kills, number)

        with antenna.going_on():
            if kills or soak(False, True):
                bridge(place, plan[: kills // 2], ONCE if kills else "")
                # Back to one queue and out again, while the old web processes publish.
                for worker in workers[:-1]:
                    worker.stop()
                place.queues("rollback", "--yes")
                bridge(place, plan[kills // 2 :], ONCE if kills else "", ANTENNA_ROUTING="single")
                # A worker whose slots are all taken has no consumer for a moment.
                until(lambda: stage(place, "single") == "rolled back", what="its worker consumes")
                place.workers(*QUEUES[:-1])
            antenna.rest()
            following = begin(place, [], "--follow", "--silent-minutes", "0.05")
            until(lambda: old.waiting() < 5, 240, "what waited is moved")
        report = finished(following, 0)

        assert report["end"] == "silent"
        assert old.waiting() == 0
        assert sum(row["messages"] for row in report["all_runs"]["messages"]) == len(antenna.sent)
        alone = set(antenna.sent) - antenna.merged
        until(lambda: alone <= runs(place).keys() and not Call.objects.exists(), 240, "every message ran")
        assert not antenna.merged or antenna.merged & runs(place).keys(), "those of one station ran as one"
        # The crops that results lead to run as well.
        until(lambda: not any(place.depth(queue) for queue in QUEUES), 240, "nothing waits")
        assert place.queues("dead-letters").json == dict.fromkeys(burial_queues(place.app.topology), 0)

    ran = runs(place)
    doubles = sum(ran[task_id] - 1 for task_id in alone)
    possibly = report["all_runs"]["possibly_doubled"]
    print(f"{len(antenna.sent)} messages, {kills} kills, {doubles} doubles, {possibly} possibly doubled")
    assert doubles <= possibly <= kills
    assert doubles >= sum(point == "confirmed" for point, _ in plan)
    rows = Detection.objects.filter(source_image__in=antenna.images)
    assert rows.count() == len(antenna.images)
    assert set(antenna.job.images.values_list("state", flat=True)) == {"processed"}


QUEUES = load({}).queues


def stage(place: Place, routing: str) -> str:
    return str(place.queues("rollout", check=False, routing=routing).json["name"])


def points(kills: int, number: int) -> list[tuple[str, int]]:
    """Where each run is killed: every point in turn, after a few messages, the same in each test run."""
    rng = random.Random(13)
    return [(POINTS[3 - index % 5], rng.randint(1, number // (2 * kills))) for index in range(kills)]


#: Not to its end: only the runs that are killed.
ONCE = "-"


def bridge(place: Place, kills: list[tuple[str, int]], *argv: str, **environment: str) -> Any:
    """Run ``queues adopt`` with these kills, then to its end unless told otherwise; return its report."""
    return finished(begin(place, kills, *argv, **environment), len(kills))


def begin(place: Place, kills: list[tuple[str, int]], *argv: str, **environment: str) -> Process:
    line = [sys.executable, "-m", "tests.support.adopting.killed_bridge", json.dumps(kills)]
    return place.start([*line, "--from-env", "OLD_BROKER_URL", "--json", *filter(None, argv)], **environment)


def finished(process: Process, kills: int) -> Any:
    assert process.popen.wait(280) == 0, process.text
    lines = [json.loads(line) for line in process.text.splitlines() if line.startswith("{")]
    assert {"kills": kills} in lines, process.text
    return lines[-1]


def runs(place: Place) -> Counter[str]:
    """How often each task ran to its end, by its id."""
    return Counter(record["id"] for record in place.journal if record["state"] == "SUCCESS")
