"""Tasks with policies in real workers: what ran is seen at its effects alone.

A worker takes longer to start than most of these examples to run: each serves several of them, one after another.
"""

import itertools
import time
from collections.abc import Callable, Iterator

import pytest
from django.db import transaction

from ami.admission.models import Call, Run
from ami.celery.staged_calls import dispatching
from tests.support.admission import QUEUE, admission_place, effects, forget_effects, most_at_once, task
from tests.support.brokers import ON_FOLDER, ON_RABBITMQ
from tests.support.place import Place, Process, until
from tests.support.soak import soak

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(soak(300, 3600))]


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with admission_place(request.param) as made:
        yield made


def _call_and_fail() -> None:
    task("sent").delay(2)
    raise ZeroDivisionError


def is_quiet() -> bool:
    """Whether no call waits and none runs."""
    return not Call.objects.exists() and not Run.objects.exists()


def call_runs_after_its_commit_and_not_after_a_rollback(place: Place, worker: Process) -> None:
    with transaction.atomic():
        task("sent").delay(1)
        assert place.depth(QUEUE) == 0
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        _call_and_fail()
    place.app.send_task(task("sent").name, kwargs={"number": 3})
    until(lambda: len(effects(place, what="end")) == 2, 30)
    until(is_quiet, 10)
    assert sorted(line["number"] for line in effects(place, what="end")) == [1, 3]


def bursts_of_one_key_run_one_at_a_time_and_the_last_wish_last(place: Place, worker: Process) -> None:
    for burst in range(2):
        for wish in range(30):
            task("once").delay(key="a", wish=100 * burst + wish, seconds=0.3)
        until(is_quiet, 30)
    lines = effects(place)
    assert most_at_once(lines, "key", {}) == 1
    wishes = [line["wish"] for line in lines if line["what"] == "end"]
    assert wishes[-1] == 129
    assert 29 in wishes
    assert len(wishes) <= 5, wishes


def retry_slices_and_failure_change_the_rows_of_their_run(place: Place, worker: Process) -> None:
    buried = place.depth(f"{QUEUE}.dlq")
    task("retried").delay(key="a", tries=2)
    task("sliced").delay(key="a", steps=3)
    task("failing").delay(key="a")
    until(is_quiet, 40)
    assert [line["retries"] for line in effects(place, what="end")] == [2]
    assert [line["steps"] for line in effects(place, what="begin") if "steps" in line] == [3, 2, 1]
    if place.is_rabbitmq:
        until(lambda: place.depth(f"{QUEUE}.dlq") == buried + 1, 10, "the failed task is a dead letter")
    assert "Traceback" not in worker.text.replace("ValueError: at once", "") or "at once" in worker.text


def permits_and_rate_hold_across_workers(place: Place, worker: Process) -> None:
    place.worker(QUEUE, "--hostname", "second@%h")  # Of these examples the last one.
    for number in range(12):
        task("limited").delay(key="ab"[number % 2], number=number, seconds=0.2)
        task("paced").delay(number)
    until(is_quiet, 40)
    lines = effects(place)
    assert most_at_once([line for line in lines if "key" in line], "key", {}) == 2
    paced = [line["at"] for line in lines if line["what"] == "begin" and "key" not in line]
    assert len(paced) == 12
    assert paced[-1] - paced[0] > 0.8


def calls_in_order_stop_behind_a_letter_and_go_on_when_it_is_replayed(place: Place, worker: Process) -> None:
    buried = place.depth(f"{QUEUE}.dlq")
    for number in range(4):
        task("ordered").delay(key="a", number=number, fails=9 if number == 1 else 0)
        task("skipping").delay(key="a", number=-1 if number == 1 else number)
        task("ordered").delay(key="b", number=number)
    until(lambda: len(effects(place, what="end", key="b")) == 4 and _stopped() == 1, 40, "a key has stopped")
    assert [line["number"] for line in effects(place, what="end", key="a")].count(0) == 2
    [holder] = [each for each in place.queues("staged", "--calls").json if each["state"] == "stopped"]
    until(lambda: place.depth(f"{QUEUE}.dlq") == buried + 2, 20)
    assert place.queues("release", holder["task_id"], "--why", "its images are gone").json["was"] == "stopped"
    until(is_quiet, 20)
    ended = [line["number"] for line in effects(place, what="end", key="a")]
    assert sorted(ended) == [0, 0, 2, 2, 3, 3]


def _stopped() -> int:
    return Call.objects.filter(stopped_at__isnull=False).count()


def group_runs_once_for_all_its_calls(place: Place, worker: Process) -> None:
    for number in range(20):
        task("grouped").delay(key="ab"[number % 2], numbers=[number if number != 7 else -7])
    until(is_quiet, 40)
    whole = effects(place, what="end", key="a")
    assert [line["numbers"] for line in whole] == [list(range(0, 20, 2))], worker.text
    handled = sorted(number for line in effects(place, what="end", key="b") for number in line["numbers"])
    assert handled == [1, 3, 5, 9, 11, 13, 15, 17, 19]
    assert [-7] in [line["numbers"] for line in effects(place, what="begin", key="b")], "it fails alone"


def one_call_of_another_project_does_not_wait_behind_many(place: Place, worker: Process) -> None:
    """It begins after what was sent before it: a window of calls, whatever waits behind."""
    for number in range(soak(300, 5000)):
        task("fair").delay(key="many", number=number)
    until(lambda: len(effects(place, what="begin")) >= 30, 30)
    before = len(effects(place, what="begin"))
    task("fair").delay(key="one", number=0)
    until(lambda: effects(place, key="one", what="begin"), 30)
    order = [line["key"] for line in effects(place, what="begin")]
    assert order.index("one") - before <= 80, "more than a second of calls of 50 ms on four processes were before it"
    until(is_quiet, 60 + soak(0, 300))


def work_time_follows_the_weights_of_keys(place: Place, worker: Process) -> None:
    place.queues("weigh", "key=heavy", "3", "--why", "a test's")
    for number in range(soak(150, 3600)):
        for key in ("heavy", "light"):
            task("fair").delay(key=key, number=number, seconds=0.05)
    until(lambda: len(effects(place, what="begin", key="heavy")) >= soak(120, 3000), 60 + soak(0, 300))
    begun = [line["key"] for line in effects(place, what="begin")][40:]
    share = begun.count("heavy") / begun.count("light")
    assert 3 / soak(1.4, 1.1) <= share <= 3 * soak(1.4, 1.1), share
    place.queues("weigh", "key=heavy", "1")
    until(is_quiet, 60 + soak(0, 300))


def calls_of_a_disabled_job_hold_up_no_other_ones_and_run_once_it_is_enabled(place: Place, worker: Process) -> None:
    for _ in range(60):
        task("of_job").delay(job_id=7, seconds=0.2)
    until(lambda: len(effects(place, what="begin")) >= 4, 30, "it runs")
    place.queues("disable", "job:7", "--why", "a test's")
    until(lambda: effects(place, what="begin")[-1]["at"] < time.monotonic() - 5, 40, "nothing of it begins any more")
    begun = len(effects(place, what="begin"))
    assert begun < 60
    for _ in range(10):
        task("of_job").delay(job_id=8)
    until(lambda: len(effects(place, what="end", job=8)) == 10, 30, "another job runs")
    assert len(effects(place, what="begin", job=7)) == begun
    [lane] = [each for each in place.queues("staged").json if each["waiting"]]
    assert (lane["waiting"], lane["disabled"]) == (60 - begun, 60 - begun)
    place.queues("enable", "job:7")
    until(is_quiet, 60)
    assert len(effects(place, what="end", job=7)) == 60


def message_of_a_stranger_becomes_a_row(place: Place, worker: Process) -> None:
    with dispatching():
        place.app.send_task(task("dropped").name, kwargs={"key": "a", "wish": 1})
    assert not Call.objects.exists()
    until(lambda: effects(place, what="end"), 30)
    until(is_quiet, 10)
    assert len(effects(place, what="end")) == 1


def statistics_and_log_lines_name_what_waits_and_runs(place: Place, worker: Process) -> None:
    said = len(worker.text)
    for number in range(5):
        task("limited").delay(key="a", number=number, seconds=4)
    until(lambda: len(effects(place, what="begin")) == 2, 30)
    rows = {row["name"]: row for row in place.queues("statistics").json}
    tasks = {row["name"]: row for row in place.queues("statistics", "--tasks").json}
    running = {line["id"] for line in effects(place, what="begin")}
    waiting = list(Call.objects.filter(run=None).order_by("pk").values_list("task_id", flat=True))
    for found in (rows[QUEUE], tasks[task("limited").name]):
        assert (found["queue_size"], found["active_jobs"]) == (3, 2)
        assert (set(found["active_job_ids"]), found["queued_job_ids"]) == (running, waiting)
        assert (found["total_workers"], found["alive_workers"], found["master_thread_alive"]) == (4, 4, False)
    assert (rows["antenna-ingest"]["queue_size"], rows["antenna-ingest"]["total_workers"]) == (0, 0)
    until(is_quiet, 60)
    for line in (
        "👑 Master fetched 2 jobs from database",
        f"📥 Added job '{task('limited').name}' to queue",
        " pulled job from queue",
        " finished job",
    ):
        assert line in worker.text[said:]


def limit_is_changed_while_workers_run(place: Place, worker: Process) -> None:
    """More runs at once within seconds, and fewer again as they end."""
    name = task("limited").name
    for number in range(24):
        task("limited").delay(key="a", number=number, seconds=1)
    until(lambda: len(effects(place, what="begin")) >= 2, 30)
    place.queues("limit", name, "4", "--why", "a test's")
    until(lambda: running(place)[-1:] == [4], 15, "four run at once")
    place.queues("limit", name, "1")
    until(lambda: max(running(place)[-5:]) == 1, 40, "one runs at a time, again and again")
    place.queues("unlimit", name)
    until(is_quiet, 90)
    assert len(effects(place, what="end")) == 24


def running(place: Place) -> list[int]:
    """Return how many ran after each line that a task has written."""
    found = [0]
    for line in effects(place):
        found.append(found[-1] + (1 if line["what"] == "begin" else -1))
    return found


DISPATCHED = (
    bursts_of_one_key_run_one_at_a_time_and_the_last_wish_last,
    group_runs_once_for_all_its_calls,
    one_call_of_another_project_does_not_wait_behind_many,
    calls_of_a_disabled_job_hold_up_no_other_ones_and_run_once_it_is_enabled,
    permits_and_rate_hold_across_workers,
)
#: A worker that has dispatched reads a new weight up to ten seconds later.
AT_ITS_FIRST_DISPATCH = (work_time_follows_the_weights_of_keys,)
STAGED = (
    call_runs_after_its_commit_and_not_after_a_rollback,
    retry_slices_and_failure_change_the_rows_of_their_run,
    calls_in_order_stop_behind_a_letter_and_go_on_when_it_is_replayed,
    message_of_a_stranger_becomes_a_row,
    statistics_and_log_lines_name_what_waits_and_runs,
    limit_is_changed_while_workers_run,
)


@pytest.mark.parametrize(
    ("place", "examples"),
    [
        *itertools.product(ON_FOLDER, (DISPATCHED, AT_ITS_FIRST_DISPATCH)),
        *((broker, STAGED) for broker in ON_RABBITMQ),
    ],
    indirect=["place"],
)
def test_policies_hold_in_a_worker(place: Place, examples: tuple[Callable[[Place, Process], None], ...]):
    worker = place.worker(QUEUE)
    for example in examples:
        forget_effects(place)
        example(place, worker)
        assert is_quiet(), example.__name__
