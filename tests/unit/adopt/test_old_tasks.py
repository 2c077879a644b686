"""The table of the old application's tasks: complete, in the documents, and only to tasks that exist."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from ami.adopt import old_results
from ami.adopt.becomes import CannotRun, Dropped, RunsAs
from ami.adopt.old_tasks import BECOMES
from ami.jobs.models import StoredResult
from ami.jobs.services.ingest import parse_text
from ami.jobs.services.stored_results import load
from ami.queues.tasks import load_tasks
from tests.support.adopting import fates
from tests.support.product.job_setup import World

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "adopting.md").read_text()


def test_each_of_the_23_tasks_is_in_the_table_and_in_the_document():
    assert len(BECOMES) == 23
    assert set(BECOMES) == {*fates.RUNS, *fates.DROPPED, *fates.BURIED}
    rows = re.findall(r"^\| `(ami[\w.]+)` \| (runs as|dropped|dead letter) \| `?(.+?)`? \|$", DOCUMENT, re.MULTILINE)
    assert {task: (what, why) for task, what, why in rows} == {name: _words(entry) for name, entry in BECOMES.items()}


def _words(entry: Any) -> tuple[str, str]:
    if isinstance(entry, RunsAs):
        return "runs as", entry.task
    return "dropped" if isinstance(entry, Dropped) else "dead letter", entry.because


def test_table_names_only_tasks_that_exist(app: Any):
    load_tasks()
    tasks = {entry.task for entry in BECOMES.values() if isinstance(entry, RunsAs)}
    assert tasks <= set(app.tasks)


@pytest.mark.django_db
@pytest.mark.parametrize("task", ["ami.tasks.regroup_events", "ami.main.tasks.refresh_project_cached_counts"])
def test_single_argument_is_taken_whatever_its_name(task: str, app: Any, world: World):
    entry = BECOMES[task]
    assert isinstance(entry, RunsAs)
    pk = world.station.pk if "regroup" in task else world.project.pk
    arguments = entry.convert({"pk": pk})
    entry.check(arguments)
    load_tasks()
    inspect.signature(app.tasks[entry.task].run).bind(**arguments)
    with pytest.raises(CannotRun, match="this database lacks its"):
        entry.check(entry.convert({"pk": 10**9}))


@pytest.mark.django_db
@pytest.mark.sqlite
def test_stored_result_of_a_batch_is_what_would_have_been_posted(world: World):
    captures = world.captures(2)
    job = world.running(captures)
    _, sent = fates.arguments(world, job.pk, captures[0], 0)["ami.ml.models.pipeline.save_results"]
    arguments = old_results.from_batch(sent)
    old_results.needs_job_and_images(arguments)
    stored = old_results.store(arguments, "an-id")
    row = StoredResult.objects.get()
    assert stored == {"job_id": job.pk, "result_key": row.key, "reply_subject": None}
    assert [image.id for image in parse_text(load(row)).source_images] == [str(captures[0].pk)]
    assert old_results.store(arguments, "an-id") == stored
    assert StoredResult.objects.get().publishes == 2


@pytest.mark.django_db
@pytest.mark.parametrize("subject", ["a\x00", "a" * 2000, 5, ["a"]])
def test_reply_subject_that_no_column_takes_cannot_run(subject: Any, world: World):
    job = world.running(world.captures(1))
    with pytest.raises(CannotRun, match="reply subject"):
        old_results.needs_job_and_images({"job_id": job.pk, "result_data": {}, "reply_subject": subject})


@pytest.mark.parametrize("text", [None, "", "{", 5])
def test_batch_that_is_not_json_cannot_run(text: Any):
    with pytest.raises(CannotRun):
        old_results.needs_job_and_images(old_results.from_batch({"results_json": text, "job_id": None}))
