"""Posted results: wrong ones refused one by one with the field named, others stored unchanged, handled as posted."""

import gzip
import json
import threading
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from rest_framework.test import APIClient

from ami.jobs.models import JobImage, StoredResult
from ami.jobs.services import ingest, stored_results
from ami.main.models import Classification, Detection
from ami.ml.api import bodies, gate
from ami.ml.services import image_results
from tests.support.product.job_setup import World
from tests.support.product.result_messages import keep_result_messages
from tests.support.product.results import handle_result

YEARS = "results.0.result.results.detections.0"


@pytest.fixture(autouse=True)
def published(monkeypatch) -> list[dict[str, object]]:
    return keep_result_messages(monkeypatch)


def post(client: APIClient, job, text: str | bytes):
    return client.generic("POST", f"/api/v2/jobs/{job.pk}/result/", text, content_type="application/json")


def refused_for(answer) -> str:
    """Return why the first item is refused."""
    assert answer.status_code == 200, answer.content
    [first, *_] = answer.json()["tasks"]
    assert first["status"] == "refused"
    assert "\x00" not in first["reason"]
    return first["reason"]


def body_of(world: World, captures, **changes) -> dict:
    items = [{"reply_subject": f"r{capture.pk}", "result": world.found(capture)} for capture in captures]
    items[0]["result"] |= changes
    return {"results": items}


@pytest.mark.parametrize(
    ("where", "value", "field"),
    [
        ("timestamp", "0001-01-01T00:00:00", f"{YEARS}.timestamp"),
        ("timestamp", "9999-12-31T23:59:59", f"{YEARS}.timestamp"),
        ("timestamp", "2201-01-01T00:00:00", f"{YEARS}.timestamp"),
        ("timestamp", 1e308, f"{YEARS}.timestamp"),
        ("bbox", {"x1": 1e308, "y1": 0, "x2": 1, "y2": 1}, f"{YEARS}.bbox.x1"),
        ("bbox", {"x1": 0, "y1": 0, "x2": 1, "y2": -1.1e7}, f"{YEARS}.bbox.y2"),
        ("bbox", {"x1": 10**400, "y1": 0, "x2": 1, "y2": 1}, f"{YEARS}.bbox.x1"),
        ("inference_time", "1e999", f"{YEARS}.inference_time"),
        ("source_image_id", "\ud800", "results.0.result.detections.0.source_image_id"),
        ("source_image_id", "1\x00", "results.0.result.detections.0.source_image_id"),
        ("unknown", ["\udfff"], "results.0.result.detections.0.unknown.0"),
    ],
)
def test_what_would_fail_in_the_worker_is_refused_with_the_field(world, client, where, value, field) -> None:
    job = world.running([capture := world.captures(1)[0]])
    body = body_of(world, [capture])
    body["results"][0]["result"]["detections"][0][where] = value
    assert refused_for(post(client, job, json.dumps(body))).startswith(f"{field}: ")


@pytest.mark.parametrize("where", ["timestamp", "scores"])
@pytest.mark.parametrize("value", ["0001-01-01T00:00:00", [1e999], ["x"]])
def test_a_wrong_classification_is_refused_with_the_field(world, client, where, value) -> None:
    job = world.running([capture := world.captures(1)[0]])
    body = body_of(world, [capture])
    body["results"][0]["result"]["detections"][0]["classifications"][0][where] = value
    reason = refused_for(post(client, job, json.dumps(body)))
    assert reason.startswith(f"{YEARS}.classifications.0.{where}")


@pytest.mark.parametrize("when", ["1900-01-01T00:00:00", "2200-12-31T23:59:59"])
@pytest.mark.sqlite
def test_the_first_and_the_last_year_are_saved(world, client, when, published) -> None:
    job = world.running([capture := world.captures(1)[0]])
    body = body_of(world, [capture])
    for holder in (found := body["results"][0]["result"]["detections"][0], found["classifications"][0]):
        holder["timestamp"] = when
    found["bbox"] = {"x1": -1e7, "y1": -1e7, "x2": -1e7, "y2": -1e7}
    assert post(client, job, json.dumps(body)).status_code == 200
    ingest.handle(job.pk, result_key=StoredResult.objects.get().key)
    assert str(Detection.objects.get().detection_time.year)[:2] in ("19", "22")


@pytest.mark.parametrize("subject", ["a b", "a\r\nPUB x 0", "\t", "é", "\x7f", "\ud800"])
def test_invalid_reply_subject_is_refused_and_not_repeated(world, client, subject) -> None:
    job = world.running([capture := world.captures(1)[0]])
    body = {"results": [{"reply_subject": subject, "result": world.found(capture)}]}
    answer = post(client, job, json.dumps(body))
    assert refused_for(answer).startswith("results.0.reply_subject: ")
    assert answer.json()["tasks"][0]["reply_subject"] == ""


@pytest.mark.sqlite
def test_posted_bytes_are_stored_once_even_if_posted_again(
    world, client, published, django_capture_on_commit_callbacks
) -> None:
    captures = world.captures(2)
    job = world.running(captures)
    first, second = (json.dumps(item, indent=1) for item in body_of(world, captures, extra=[1])["results"])
    with django_capture_on_commit_callbacks(execute=True):
        for text in (f'{{"results": [{first}, {second}]}}', f'{{"client_info": {{}}, "results":[\n{second},{first}]}}'):
            answer = post(client, job, text)
            assert (answer.status_code, answer.json()["results_queued"]) == (200, 2)
    stored = {row.reply_subject: bytes(stored_results.load(row)) for row in StoredResult.objects.all()}
    assert stored == {f"r{captures[0].pk}": first.encode(), f"r{captures[1].pk}": second.encode()}


def test_a_result_in_another_spelling_is_handled_again_and_changes_nothing(world, client) -> None:
    job = world.running([capture := world.captures(1)[0]])
    body = body_of(world, [capture])
    for text in (json.dumps(body), json.dumps(body, indent=2)):
        assert post(client, job, text).status_code == 200
    for row in StoredResult.objects.all():
        ingest.handle(job.pk, result_key=row.key)
    assert StoredResult.objects.exclude(handled_at=None).count() == 2
    assert Classification.objects.count() == JobImage.objects.filter(state="processed").count() == 1


def test_a_body_that_an_older_version_stored_is_handled(world) -> None:
    job = world.running([capture := world.captures(1)[0]])
    content = {"reply_subject": "r", "result": world.found(capture, boxes=2)}
    packed = gzip.compress(json.dumps(content, sort_keys=True, separators=(",", ":")).encode(), 1, mtime=0)
    name = storages["results"].save(f"job_{job.pk}/old.json.gz", ContentFile(packed))
    row = StoredResult.objects.create(job=job, key=name, name=name, size_bytes=len(packed))
    ingest.handle(job.pk, result_key=row.key)
    assert Classification.objects.count() == 2


@pytest.mark.parametrize("cut", [True, False])
def test_results_are_saved_alike_whether_their_lists_were_text_or_not(world, monkeypatch, cut) -> None:
    if cut:
        monkeypatch.setattr(image_results, "MOST_NUMBERS", 1000)
    job = world.running([capture := world.captures(1)[0]])
    found = world.found(capture, boxes=3)
    scores = [n / 700 for n in range(700)]
    for index, detection in enumerate(found["detections"]):
        again = {**detection["classifications"][0], "scores": [0.5, 0.1], "terminal": False}
        better = {**again, "scores": [0.5 + index, 0.1], "terminal": True}
        labels = ["Noctua pronuba", *map(str, range(699))]
        long = {**again, "scores": scores[::-1], "logits": scores, "labels": labels}
        detection["classifications"] = [again, better, long, better]
    row = stored_results.store(job, "r", found)
    ingest.handle(job.pk, result_key=row.key)
    saved = list(Classification.objects.order_by("detection__bbox_key").values_list("score", "terminal", "scores"))
    assert saved == [(scores[-1], False, scores[::-1]), (1.5, True, [1.5, 0.1]), (2.5, True, [2.5, 0.1])]
    assert Classification.objects.get(score=scores[-1]).logits == scores


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"detections": [{"timestamp": "0001-01-01T00:00:00"}]}, "timestamp"),
        ({"detections": [{"bbox": {"x1": 1e308, "y1": 0, "x2": 1, "y2": 1}}]}, "bbox.x1"),
        ({"algorithms": {"a": [[]] * 20_000}}, "algorithms"),
    ],
)
def test_message_published_around_the_api_is_refused_with_its_field(world, changes, field) -> None:
    job = world.running([capture := world.captures(1)[0]])
    found = world.found(capture)
    for key, value in changes.items():
        found[key] = [{**found["detections"][0], **value[0]}] if key == "detections" else value
    row = stored_results.store(job, "r", found)
    with pytest.raises(ingest.ResultRefused, match=field):
        ingest.handle(job.pk, result_key=row.key)
    if key == "detections":
        with pytest.raises(ingest.ResultRefused, match=field):
            handle_result(job.pk, result=found)


def test_invalid_reply_subject_is_never_published(world, monkeypatch) -> None:
    monkeypatch.setattr(ingest.jetstream, "acknowledge", lambda *_, **__: pytest.fail("acknowledged"))
    job = world.running([capture := world.captures(1)[0]])
    subject = f"$JS.ACK.job_{job.pk}.c.1.1.1.0.0\r\nPUB x 0"
    handle_result(job.pk, result=world.found(capture), reply_subject=subject)
    assert Detection.objects.count() == 1


def test_the_structure_of_tasks_and_registrations_is_bounded(world, client) -> None:
    job = world.running(world.captures(1))
    info = {"batch_size": 1, "client_info": {"a": [{}] * 20_000}}
    answer = client.post(f"/api/v2/jobs/{job.pk}/tasks/", info, format="json")
    assert (answer.status_code, list(answer.json())) == (400, ["detail", "client_info.a"])
    body = {"processing_service_name": "w", "pipelines": [], "x": [{}] * 20_000}
    answer = client.post(f"/api/v2/projects/{world.project.pk}/pipelines/", body, format="json")
    assert (answer.status_code, list(answer.json())) == (400, ["detail", "x"])
    body = {"processing_service_name": "w\ud800", "pipelines": []}
    path = f"/api/v2/projects/{world.project.pk}/pipelines/"
    answer = client.generic("POST", path, json.dumps(body), content_type="application/json")
    assert (answer.status_code, list(answer.json())) == (400, ["detail", "processing_service_name"])


def test_both_numbers_are_settings(settings, world, client) -> None:
    job = world.running([capture := world.captures(1)[0]])
    text = json.dumps(body_of(world, [capture], x={"a": [[[[[[[[]]]]]]]]}))
    assert post(client, job, text).json()["results_queued"] == 1
    settings.ANTENNA_RESULT_MAX_DEPTH = 10
    assert refused_for(post(client, job, text)) == "results.0.result.x: Nested more than 10 levels deep."
    settings.ANTENNA_RESULT_MAX_DEPTH, settings.ANTENNA_RESULT_MAX_ELEMENTS = 12, 5
    assert ": More than 5 elements" in refused_for(post(client, job, text))


# --- One large body at a time -------------------------------------------------------------------------------------


def test_second_large_body_is_a_503_while_small_ones_pass(world, client, monkeypatch) -> None:
    monkeypatch.setattr(bodies, "LARGE_BYTES", 3000)
    monkeypatch.setattr(gate, "WAIT_SECONDS", 0.05)
    job = world.running([capture := world.captures(1)[0]])
    small, large = (json.dumps(body_of(world, [capture], x="x" * n)) for n in (0, 3000))
    with bodies.GATE.turn():
        answer = post(client, job, large)
        assert (answer.status_code, answer["Retry-After"]) == (503, "30")
        assert not StoredResult.objects.exists()
        assert post(client, job, small).status_code == 200
    assert post(client, job, large).status_code == 200


def test_one_large_body_waits_and_a_third_is_refused() -> None:
    large_bodies, waiting, done = gate.Gate(), threading.Event(), threading.Event()

    def second() -> None:
        waiting.set()
        with large_bodies.turn():
            done.set()

    with ExitStack() as stack:
        stack.enter_context(large_bodies.turn())
        thread = threading.Thread(target=second)
        thread.start()
        waiting.wait(5)
        deadline = threading.Event()
        while large_bodies._places._value and not deadline.wait(0.01):
            pass
        with pytest.raises(gate.Busy), large_bodies.turn():
            pass
        assert not done.is_set()
    assert done.wait(5)
    thread.join(5)
    with large_bodies.turn():
        pass


class Stream:
    """A request whose sender stops, or sends a byte at a time."""

    def __init__(self, *, stops: bool) -> None:
        self.META = {"CONTENT_LENGTH": "100", "gunicorn.socket": self}
        self.stops, self.timeouts, self._request = stops, [], self

    def gettimeout(self) -> None:
        return None

    def settimeout(self, seconds: float | None) -> None:
        self.timeouts.append(seconds)

    def read(self, size: int) -> bytes:
        if self.stops:
            raise TimeoutError
        return b"x"


@pytest.mark.parametrize("stops", [True, False])
def test_a_sender_that_is_silent_or_slow_is_a_408_and_frees_its_turn(monkeypatch, stops) -> None:
    clock = iter(range(0, 10**6, 7))
    monkeypatch.setattr(bodies, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(bodies, "LARGE_BYTES", 10)
    stream = Stream(stops=stops)
    with pytest.raises(bodies.TooSlow), bodies.results(stream):
        pass
    assert stream.timeouts == [bodies.SILENCE_SECONDS, None]
    with bodies.GATE.turn():
        pass
