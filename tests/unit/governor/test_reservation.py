"""Reservation: the sizes of tasks, how they are saved, and how many more tasks fit."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ami.governor.reservation import Promise, admissible, promised_kib
from ami.governor.settings import GovernorSettings
from ami.governor.task_sizes import FORMAT, NAMES, SAMPLES, TaskSizes
from tests.support.examples import examples
from tests.support.governor.decision_inputs import ONE_PERCENT_KIB, percents, sample

SETTINGS = GovernorSettings()
GIB_KIB = ONE_PERCENT_KIB
DEFAULT_KIB = 7 * GIB_KIB

kib = st.integers(-10 * GIB_KIB, 60 * GIB_KIB)
names = st.sampled_from(["ml.detect", "jobs.save", "main.sync", "exports.run"])
learned = st.lists(st.tuples(names, kib), max_size=80)
promises = st.lists(st.builds(Promise, names, kib), max_size=12)

many = examples(50, 1000)


def sizes_of(*pairs) -> TaskSizes:
    sizes = TaskSizes(None)
    for task, added_kib in pairs:
        sizes.learn(task, added_kib)
    return sizes


def test_p95_is_what_95_of_100_runs_stayed_below():
    assert sizes_of(*(("ml.detect", n) for n in range(1, 21))).p95_kib("ml.detect") == 19
    assert sizes_of(("ml.detect", 5)).p95_kib("ml.detect") == 5
    assert sizes_of(("ml.detect", 5)).p95_kib("jobs.save") is None


def test_only_the_last_runs_count():
    sizes = sizes_of(("ml.detect", 900), *(("ml.detect", 10) for _ in range(SAMPLES)))
    assert sizes.p95_kib("ml.detect") == 10


def test_run_after_which_memory_fell_added_nothing():
    assert sizes_of(("ml.detect", -500)).p95_kib("ml.detect") == 0


def test_largest_is_found_among_given_tasks():
    sizes = sizes_of(("ml.detect", 300), ("jobs.save", 100))
    assert sizes.largest_kib() == ("ml.detect", 300)
    assert sizes.largest_kib(["jobs.save", "main.sync"]) == ("jobs.save", 100)
    assert sizes.largest_kib(["main.sync"]) is None
    assert TaskSizes(None).largest_kib() is None


def test_names_seen_longest_ago_are_dropped():
    sizes = sizes_of(*((f"task-{n}", n) for n in range(NAMES)))
    sizes.learn("task-0", 1)
    sizes.learn("one more", 1)
    assert sizes.p95_kib("task-1") is None
    assert sizes.p95_kib("task-0") == 1


@many
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=SAMPLES - 1), st.integers(0, 10**9))
def test_p95_never_falls_when_a_run_was_larger(samples, more):
    sizes = sizes_of(*(("ml.detect", sample) for sample in samples))
    before = sizes.p95_kib("ml.detect")
    sizes.learn("ml.detect", before + more)
    assert before <= sizes.p95_kib("ml.detect") <= before + more


@many
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=SAMPLES))
def test_p95_is_monotone(pairs):
    smaller = sizes_of(*(("ml.detect", size) for size, _ in pairs)).p95_kib("ml.detect")
    larger = sizes_of(*(("ml.detect", size + more) for size, more in pairs)).p95_kib("ml.detect")
    assert smaller <= larger
    assert sum(size <= smaller for size, _ in pairs) >= 0.95 * len(pairs)


def test_what_was_learned_outlives_the_process(tmp_path):
    path = tmp_path / "worker@host" / "sizes.json"
    saved = TaskSizes(path)
    for n in range(30):
        saved.learn("ml.detect", n)
        saved.learn(f"task {n} ÿ", 1)
    saved.save()
    loaded = TaskSizes(path)
    loaded.load()
    assert loaded.p95_kib("ml.detect") == saved.p95_kib("ml.detect") == 28
    assert loaded.largest_kib() == ("ml.detect", 28)
    assert [child.name for child in path.parent.iterdir()] == ["sizes.json"], "nothing is left beside it"


def test_order_of_last_sight_outlives_the_process(tmp_path):
    saved = TaskSizes(tmp_path / "sizes.json")
    for n in [*range(NAMES), 0]:
        saved.learn(f"task-{n}", n)
    saved.save()
    loaded = TaskSizes(saved.path)
    loaded.load()
    loaded.learn("one more", 1)
    assert (loaded.p95_kib("task-0"), loaded.p95_kib("task-1")) == (0, None)


def written(**changed):
    return json.dumps({"format": FORMAT, "added_kib": {"ml.detect": [1, 2]}, **changed})


@pytest.mark.parametrize(
    "content",
    [
        written()[:-4],
        "",
        "[" * 100_000,
        "\x00\xff",
        "[]",
        "null",
        written(format="other"),
        written(added_kib=[]),
        json.dumps({"format": FORMAT}),
        written(added_kib={"ml.detect": ["1"]}),
        written(added_kib={"ml.detect": [-1]}),
        written(added_kib={"ml.detect": [True]}),
        written(added_kib={"ml.detect": []}),
        written(added_kib={"jobs.save": [1], "ml.detect": 5}),
        written(added_kib={"ml.detect": [float("inf")]}),
        written() + " " * 5_000_000,
    ],
)
def test_torn_or_foreign_file_is_ignored_with_a_warning(tmp_path, caplog, content):
    path = tmp_path / "sizes.json"
    path.write_bytes(content.encode("latin-1"))
    sizes = TaskSizes(path)
    sizes.learn("main.sync", 3)
    with caplog.at_level(logging.WARNING):
        sizes.load()
    assert sizes.largest_kib() == ("main.sync", 3), "what was known stays"
    assert f"Task sizes ignored, learning them again: {path}: " in caplog.text


def test_missing_file_is_ignored_silently(tmp_path, caplog):
    TaskSizes(tmp_path / "none.json").load()
    TaskSizes(None).load()
    TaskSizes(None).save()
    assert caplog.text == ""


def test_file_of_too_many_names_and_samples_is_cut_to_the_newest(tmp_path):
    path = tmp_path / "sizes.json"
    path.write_text(written(added_kib={f"task-{n}": [9] * 4 + [n] * SAMPLES for n in range(NAMES + 1)}))
    sizes = TaskSizes(path)
    sizes.load()
    assert (sizes.p95_kib("task-0"), sizes.p95_kib("task-1")) == (None, 1)


def test_a_full_disk_is_a_warning_and_keeps_the_old_file(tmp_path, caplog, monkeypatch):
    sizes = TaskSizes(tmp_path / "sizes.json")
    sizes.learn("ml.detect", 1)
    sizes.save()
    old = sizes.path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ami.governor.task_sizes.os.replace", full)
    sizes.learn("ml.detect", 2)
    sizes.save()
    assert "No space left on device" in caplog.text
    assert sizes.path.read_bytes() == old
    assert [file.name for file in tmp_path.iterdir()] == ["sizes.json"]


def test_running_tasks_promise_what_they_have_not_added_yet():
    sizes = sizes_of(("ml.detect", 300), ("jobs.save", 100))
    running = [Promise("ml.detect", 120), Promise("jobs.save", 400), Promise("main.sync", 10)]
    assert promised_kib(sizes, running) == 180
    assert promised_kib(sizes, running, default_kib=50) == 220


@pytest.mark.parametrize(
    ("memory", "running", "free_slots", "slots"),
    [
        (70, [], 8, 4),  # 20 GiB left, 5 each
        (70, [], 3, 3),
        (71, [], 8, 3),
        (70, [Promise("ml.detect", 0), Promise("ml.detect", 4 * GIB_KIB)], 8, 2),
        (88, [Promise("ml.detect", 0)], 8, 0),
        (88, [], 8, 1),
        (99, [], 8, 1),
        (99, [], 0, 0),
        (10, [], -1, 0),
        (None, [Promise("ml.detect", 0)], 8, 8),
    ],
)
def test_as_many_are_admitted_as_fit(memory, running, free_slots, slots):
    sizes = sizes_of(("ml.detect", 5 * GIB_KIB), ("jobs.save", GIB_KIB))
    admission = admissible(SETTINGS, sample(memory), sizes, running, free_slots, DEFAULT_KIB)
    assert admission.slots == slots
    assert (admission.largest, admission.largest_kib) == ("ml.detect", 5 * GIB_KIB)


def test_default_is_used_before_anything_was_learned():
    admission = admissible(SETTINGS, sample(70), TaskSizes(None), [Promise("ml.detect", 0)], 8, DEFAULT_KIB)
    assert (admission.slots, admission.largest, admission.promised_kib) == (1, None, DEFAULT_KIB)
    assert admission.sentence == (
        "1 of 8 free slots: 13312 MiB are left below 90% after 7168 MiB promised to 1 running, and a task not seen "
        "before may add 7168 MiB"
    )


def test_tasks_that_add_nothing_fill_every_slot():
    assert admissible(SETTINGS, sample(70), sizes_of(("ml.detect", 0)), [], 8, DEFAULT_KIB).slots == 8


@many
@given(learned, promises, percents, st.integers(-2, 20), st.integers(0, 10 * GIB_KIB))
def test_reservation_stays_in_its_bounds(pairs, running, memory, free_slots, default_kib):
    sizes = sizes_of(*pairs)
    admission = admissible(SETTINGS, sample(memory), sizes, running, free_slots, default_kib)
    assert admission.promised_kib >= 0
    assert 0 <= admission.slots <= max(0, free_slots)
    assert admission.slots or running or free_slots <= 0, "nothing runs: one is let in"
    if memory is not None and admission.slots > (0 if running else 1):
        needed = memory * GIB_KIB + admission.promised_kib + admission.slots * admission.largest_kib
        assert needed <= 90 * GIB_KIB


@many
@given(learned, promises, st.integers(0, 100), st.integers(0, 100))
def test_less_free_memory_never_admits_more(pairs, running, one, other):
    sizes = sizes_of(*pairs)
    fuller, emptier = (
        admissible(SETTINGS, sample(memory), sizes, running, 20, DEFAULT_KIB).slots
        for memory in (max(one, other), min(one, other))
    )
    assert fuller <= emptier
