"""Dead letters of several causes over two days, with their failures, and replays of some."""

import random
from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone

from ami.queues.models import Letter, LetterEvent, Replay, TaskFailure
from tests.support.screenshots.queues import CROPS, EXPORT, RESULT

Event = LetterEvent.What


@dataclass(frozen=True)
class Cause:
    """Letters with one cause; ``hours`` is the span in which they died, the last of them ``ago`` minutes back."""

    task: str
    queue: str
    exception: str
    message: str
    place: str
    count: int
    hours: float
    ago: float


CAUSES = (
    Cause(
        RESULT,
        "antenna-ingest.dlq",
        "IntegrityError",
        "duplicate key value violates unique constraint “one_detection_per_capture_algorithm_and_box”",
        "ami/ml/services/saving.py:148 in save_detections",
        41,
        5.5,
        2,
    ),
    Cause(
        CROPS,
        "antenna-ingest.dlq",
        "CaptureUnreadable",
        "captures/panama-03/20260621031500-12-snapshot.jpg: image file is truncated (3 bytes not processed)",
        "ami/ml/services/pictures.py:61 in read",
        17,
        19,
        34,
    ),
    Cause(
        EXPORT,
        "antenna-interactive.dlq",
        "SoftTimeLimitExceeded",
        "SoftTimeLimitExceeded()",
        "ami/exports/services/writing.py:92 in write_rows",
        4,
        30,
        410,
    ),
    Cause(
        "ami.main.tasks.sync_source_images",
        "antenna-housekeeping.dlq",
        "SourceError",
        "Storage source 'Barro Colorado': Could not connect to the endpoint URL",
        "ami/main/services/sources.py:178 in _walk_bucket",
        9,
        12,
        180,
    ),
    Cause(
        "ami.labs.tasks.export_traits", "antenna.dlq", "NotRegistered", "ami.labs.tasks.export_traits", "", 2, 20, 700
    ),
)
TRACEBACK = """Traceback (most recent call last):
  File "/app/ami/celery/task.py", line 88, in __call__
    return super().__call__(*args, **kwargs)
  File "/app/ami/jobs/tasks.py", line 96, in process_nats_pipeline_results
    handle_batch(keys)
  File "/app/ami/ml/services/saving.py", line 148, in save_detections
    Detection.objects.bulk_create(rows)
  File "/usr/lib/python3.13/site-packages/django/db/backends/utils.py", line 105, in _execute
    return self.cursor.execute(sql, params)
{exception}: {message}
"""


def add(rng: random.Random) -> Letter:
    """Write the letters; return the one whose page is shown: it came back after a replay."""
    now = timezone.now()
    rows, failures = [], []
    for number, cause in enumerate(CAUSES):
        for place in range(cause.count):
            back = timedelta(hours=cause.hours * (place / cause.count) ** 1.6, minutes=cause.ago)
            at = now - back - timedelta(seconds=rng.randrange(50))
            task_id = f"{rng.getrandbits(32):08x}-7f13-4c2e-8d90-{rng.getrandbits(48):012x}"
            rows.append(_letter(number, place, cause, task_id, at, died=2 if number == 0 and not place else 1))
            failures += [
                _failure(number, cause, task_id, at - timedelta(seconds=40 * (2 - try_)), try_) for try_ in range(3)
            ]
    Letter.objects.bulk_create(rows)
    TaskFailure.objects.bulk_create(failures)
    shown = Letter.objects.filter(died=2)[0]
    _trail(shown)
    _replays()
    return shown


def _letter(number: int, place: int, cause: Cause, task_id: str, at, *, died: int) -> Letter:  # type: ignore[no-untyped-def]
    arguments = f"() {{'job_id': 12, 'keys': ['job-12/{4_180 + place}', 'job-12/{4_181 + place}', '…']}}"
    return Letter(
        identity=f"shown-{number}-{place}",
        queue=cause.queue,
        task_id=task_id,
        task=cause.task,
        reason="rejected",
        detail=f"{cause.exception} after 3 retries",
        retries=2,
        arguments=arguments if number == 0 else f"() {{'capture_ids': [{88_120 + place}]}}",
        cause=f"{number + 1:02d}c0ffee{number:032d}",
        exception=cause.exception,
        place=cause.place,
        cause_text=cause.message[:255],
        body=b'[[], {"job_id": 12}, {}]',
        body_bytes=412,
        content_type="application/json",
        headers="{}",
        properties="{}",
        died=died,
        first_collected_at=at - timedelta(hours=2 if died > 1 else 0),
        collected_at=at,
    )


def _failure(number: int, cause: Cause, task_id: str, at, try_: int) -> TaskFailure:  # type: ignore[no-untyped-def]
    return TaskFailure(
        task_id=task_id,
        retries=try_,
        delivery=0,
        task=cause.task,
        kind="retry" if try_ < 2 else "error",
        exception=cause.exception,
        message=cause.message,
        place=cause.place,
        traceback=TRACEBACK.format(exception=cause.exception, message=cause.message),
        node="ingest@antenna-worker-2",
        host="antenna-worker-2",
        pid=312,
        failed_at=at,
        seconds=2.4 + try_,
        peak_kib=211_000,
        cause=f"{number + 1:02d}c0ffee{number:032d}",
        cause_text=cause.message[:255],
    )


def _trail(letter: Letter) -> None:
    person = "user 2 deployer@example.org"
    events = (
        (
            letter.collected_at - timedelta(minutes=9),
            Event.REPLAYED,
            person,
            "the duplicate rows are deleted",
            "antenna-ingest",
        ),
        (letter.collected_at, Event.DIED, "", "", "rejected by ingest@antenna-worker-2"),
    )
    LetterEvent.objects.bulk_create(
        LetterEvent(letter=letter, at=at, what=what, by=by, why=why, detail=detail)
        for at, what, by, why, detail in events
    )


def _replays() -> None:
    now = timezone.now()
    common = {"selection": {"task": CROPS}, "most_pk": 10**6, "until": now + timedelta(minutes=2)}
    Replay.objects.create(
        **common,
        state=Replay.State.RUNNING,
        total=260,
        done=171,
        rate=2.0,
        by="user 2 deployer@example.org",
        why="disk has room again",
        began_at=now - timedelta(seconds=86),
        holder="shown",
    )
