"""What is answered, saved, logged and settled for posted bodies: a table of right, lenient and wrong ones."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from rest_framework.test import APIClient

from ami.jobs.models import Job, JobImage, JobLog, StoredResult
from ami.jobs.models.states import ImageState
from ami.jobs.services import ingest
from ami.main.models import Classification, Detection, SourceImage, Taxon
from ami.ml.models import Algorithm, Pipeline
from tests.support.product.job_setup import World, new_world
from tests.support.product.result_messages import keep_result_messages
from tests.support.product.results import handle_result

pytestmark = pytest.mark.sqlite

P, F, C = "processed", "failed", "claimed"


@dataclass
class Rig:
    """A job whose three images are claimed with the reply subjects r0, r1 and r2; another project; another pipeline."""

    world: World
    other: World
    captures: list[SourceImage]
    foreign: SourceImage
    job: Job
    client: APIClient

    def good(self, number: int = 0, **changes: Any) -> dict[str, Any]:
        """A right item, its result changed."""
        result = self.world.found(self.captures[number]) | changes
        return {"reply_subject": f"r{number}", "result": copy.deepcopy(result)}

    def error(self, number: int = 0, **changes: Any) -> dict[str, Any]:
        result = {"error": "it is broken", "image_id": str(self.captures[number].pk)} | changes
        return {"reply_subject": f"r{number}", "result": result}

    def found(self, **changes: Any) -> dict[str, Any]:
        """An item whose detection is changed."""
        item = self.good()
        item["result"]["detections"][0] |= changes
        return item

    def classified(self, *without: str, **changes: Any) -> dict[str, Any]:
        """An item whose classification is changed, or lacks a key."""
        item = self.good()
        found = item["result"]["detections"][0]["classifications"][0]
        found |= changes
        for key in without:
            del found[key]
        return item

    def of_image(self, key: Any, subject: str = "r0") -> dict[str, Any]:
        """An item about another image."""
        item = self.good()
        item["result"]["source_images"][0]["id"] = item["result"]["detections"][0]["source_image_id"] = key
        return item | {"reply_subject": subject}

    def post(self, body: Any) -> Any:
        return self.client.post(f"/api/v2/jobs/{self.job.pk}/result/", body, format="json")

    def handle(self) -> None:
        """Handle what is stored, twice: the second delivery changes nothing."""
        for _ in "ab":
            ingest.handle_batch(self.job.pk, list(StoredResult.objects.values_list("pk", flat=True)))

    @property
    def states(self) -> str:
        return " ".join(self.job.images.order_by("source_image_id").values_list("state", flat=True))

    @property
    def log(self) -> str:
        return "\n".join(JobLog.objects.filter(job=self.job).values_list("message", flat=True))


@pytest.fixture
def rig(world: World, monkeypatch) -> Rig:
    monkeypatch.setattr("ami.jobs.services.job_results.publish_crops", lambda images: None)
    keep_result_messages(monkeypatch)
    other = new_world("other")
    mine = Pipeline.objects.create(project=world.project, name="second", slug="second")
    mine.algorithms.add(Algorithm.objects.create(project=world.project, name="d2", key="d2", task_type="detection"))
    captures = world.captures(3)
    job = world.running(captures)
    for number, capture in enumerate(captures):
        JobImage.objects.filter(source_image=capture).update(state=ImageState.CLAIMED, reply_subject=f"r{number}")
    [foreign] = other.captures(1)
    elsewhere = other.running([foreign])
    JobImage.objects.filter(job=elsewhere).update(state=ImageState.CLAIMED, reply_subject="elsewhere")
    Taxon.objects.get_or_create(name="Noctua pronuba", defaults={"display_name": "Noctua pronuba"})
    client = APIClient()
    client.force_authenticate(world.user)
    return Rig(world, other, captures, foreign, job, client)


def algorithm(key: str) -> dict[str, str]:
    return {"name": key, "key": key}


Case = tuple[str, Callable[[Rig], list[Any]], str, int, str, str]

#: The name, the items, what is answered (q: queued, r: refused), detections saved, states of the images, in the log.
CASES: list[Case] = [
    ("one right item", lambda r: [r.good()], "q", 1, f"{P} {C} {C}", ""),
    ("three right items", lambda r: [r.good(n) for n in range(3)], "qqq", 3, f"{P} {P} {P}", ""),
    ("an error", lambda r: [r.error()], "q", 0, f"{F} {C} {C}", "it is broken"),
    ("an error without an image", lambda r: [r.error(image_id=None)], "q", 0, f"{F} {C} {C}", "it is broken"),
    ("nothing found", lambda r: [r.good(detections=[])], "q", 0, f"{P} {C} {C}", ""),
    # The pipeline and its algorithms.
    ("an unknown pipeline", lambda r: [r.good(pipeline="unknown")], "r", 0, f"{F} {C} {C}", "'unknown'"),
    ("another pipeline of the project", lambda r: [r.good(pipeline="second")], "r", 0, f"{F} {C} {C}", "'second'"),
    ("another project's", lambda r: [r.good(pipeline=r.other.pipeline.slug)], "r", 0, f"{F} {C} {C}", "pipe-other"),
    ("no pipeline", lambda r: [r.good(pipeline="")], "r", 0, f"{F} {C} {C}", "result.results.pipeline"),
    ("unknown detector", lambda r: [r.found(algorithm=algorithm("x1"))], "r", 0, f"{F} {C} {C}", "'x1'"),
    ("detector of another pipeline", lambda r: [r.found(algorithm=algorithm("d2"))], "r", 0, f"{F} {C} {C}", "'d2'"),
    ("unknown classifier", lambda r: [r.classified(algorithm=algorithm("x2"))], "r", 0, f"{F} {C} {C}", "'x2'"),
    (
        "another project's classifier",
        lambda r: [r.classified(algorithm=algorithm(r.other.classifier.key))],
        *("r", 0, f"{F} {C} {C}", "'cls-other'"),
    ),
    (
        "unknown, nothing found",
        lambda r: [r.good(pipeline="unknown", detections=[])],
        "r",
        0,
        f"{F} {C} {C}",
        "unknown",
    ),
    # Images.
    ("an image of another job", lambda r: [r.of_image(str(r.foreign.pk))], "r", 0, f"{F} {C} {C}", "no image of the"),
    ("an image that is nowhere", lambda r: [r.of_image("987654321")], "r", 0, f"{F} {C} {C}", "no image of the job"),
    ("a key that is no number", lambda r: [r.of_image("DSC_1.jpg")], "r", 0, f"{F} {C} {C}", "no image of the job"),
    ("another spelling of a key", lambda r: [r.of_image(f"0{r.captures[0].pk}")], "r", 0, f"{F} {C} {C}", "no image"),
    ("an enormous key", lambda r: [r.of_image("9" * 40)], "r", 0, f"{F} {C} {C}", "no image of the job"),
    ("no image at all", lambda r: [r.good(source_images=[], detections=[])], "q", 0, f"{F} {C} {C}", "names no image"),
    ("another image of the job", lambda r: [r.of_image(str(r.captures[1].pk))], "q", 1, f"{C} {P} {C}", ""),
    ("an error of a foreign image", lambda r: [r.error(image_id=str(r.foreign.pk))], "q", 0, f"{F} {C} {C}", "broken"),
    ("an error, integer key", lambda r: [r.error(image_id=r.captures[0].pk)], "q", 0, f"{F} {C} {C}", "broken"),
    # Reply subjects of refused items: whose delivery is settled.
    (
        "wrong, subject of another job",
        lambda r: [r.good(pipeline="x") | {"reply_subject": "elsewhere"}],
        *("r", 0, f"{C} {C} {C}", "'x'"),
    ),
    ("wrong, no subject", lambda r: [r.good(pipeline="x") | {"reply_subject": ""}], "r", 0, f"{C} {C} {C}", "'x'"),
    ("wrong, null subject", lambda r: [r.good(pipeline="x") | {"reply_subject": None}], "r", 0, f"{C} {C} {C}", "'x'"),
    ("wrong, forged", lambda r: [r.good(pipeline="x") | {"reply_subject": "r0 r1"}], "r", 0, f"{C} {C} {C}", "subject"),
    ("wrong, list", lambda r: [r.good(pipeline="x") | {"reply_subject": ["r0"]}], "r", 0, f"{C} {C} {C}", "subject"),
    ("right, no subject", lambda r: [r.good() | {"reply_subject": ""}], "q", 1, f"{P} {C} {C}", ""),
    ("right, null subject", lambda r: [r.good() | {"reply_subject": None}], "q", 1, f"{P} {C} {C}", ""),
    ("right, missing subject", lambda r: [{"result": r.good()["result"]}], "q", 1, f"{P} {C} {C}", ""),
    # Wrong shapes.
    ("a number", lambda r: [7], "r", 0, f"{C} {C} {C}", "results.0: "),
    ("null", lambda r: [None], "r", 0, f"{C} {C} {C}", "results.0: "),
    ("a list", lambda r: [[r.good()]], "r", 0, f"{C} {C} {C}", "results.0: "),
    ("an empty object", lambda r: [{}], "r", 0, f"{C} {C} {C}", "results.0.result"),
    ("no result", lambda r: [{"reply_subject": "r0"}], "r", 0, f"{F} {C} {C}", "results.0.result"),
    ("a text as a result", lambda r: [{"reply_subject": "r0", "result": "ok"}], "r", 0, f"{F} {C} {C}", "result"),
    ("no detections", lambda r: [r.good(detections=None)], "r", 0, f"{F} {C} {C}", "result.results.detections"),
    ("a wrong box", lambda r: [r.found(bbox={"x1": "a"})], "r", 0, f"{F} {C} {C}", "detections.0.bbox.x1"),
    ("a wrong time", lambda r: [r.found(timestamp="yesterday")], "r", 0, f"{F} {C} {C}", "detections.0.timestamp"),
    ("a NUL character", lambda r: [r.found(crop_image_url="a\x00")], "r", 0, f"{F} {C} {C}", "NUL"),
    ("a wrong score", lambda r: [r.classified(scores=["high"])], "r", 0, f"{F} {C} {C}", "scores"),
    # What pydantic 1 takes.
    ("integer keys", lambda r: [r.of_image(r.captures[0].pk)], "q", 1, f"{P} {C} {C}", ""),
    ("integer labels", lambda r: [r.classified(labels=[1, 2])], "q", 1, f"{P} {C} {C}", ""),
    ("an integer class", lambda r: [r.classified(classification=12, labels=[12, 1])], "q", 1, f"{P} {C} {C}", ""),
    ("no scores", lambda r: [r.classified("scores")], "q", 1, f"{P} {C} {C}", ""),
    ("unknown keys", lambda r: [r.good(version=3) | {"more": {}}], "q", 1, f"{P} {C} {C}", ""),
    ("its configuration", lambda r: [r.good(config={"a": 1})], "q", 1, f"{P} {C} {C}", ""),
    # One bad item leaves the others.
    (
        "good, wrong pipeline, good",
        lambda r: [r.good(), r.good(1, pipeline="x"), r.good(2)],
        "qrq",
        2,
        f"{P} {F} {P}",
        "'x'",
    ),
    ("bad shape between", lambda r: [r.good(), 5, r.good(2)], "qrq", 2, f"{P} {C} {P}", "results.1"),
    ("an error and a refusal", lambda r: [r.error(), r.good(1, pipeline="x")], "qr", 0, f"{F} {F} {C}", "'x'"),
    ("refused, then right", lambda r: [r.good(pipeline="x"), r.good()], "rq", 1, f"{P} {C} {C}", "'x'"),
    ("all refused", lambda r: [r.good(n, pipeline="x") for n in range(3)], "rrr", 0, f"{F} {F} {F}", "Refused 3 of 3"),
    ("nothing", lambda r: [], "", 0, f"{C} {C} {C}", ""),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_posted_items_are_answered_saved_logged_and_settled(rig: Rig, case: Case) -> None:
    _, items, answered, saved, states, logged = case
    known = [model.objects.count() for model in (Pipeline, Algorithm)]
    taxa = set(Taxon.objects.values_list("name", flat=True))
    answer = rig.post({"results": items(rig), "client_info": None})
    assert answer.status_code == 200, answer.content
    body = answer.json()
    assert "".join(task["status"][0] for task in body["tasks"]) == answered
    assert body["results_queued"] == answered.count("q")
    assert all(type(task[key]) is str for task in body["tasks"] for key in ("task_id", "reply_subject", "status"))
    assert all(bool(task.get("reason")) == (task["status"] == "refused") for task in body["tasks"])
    rig.handle()
    assert Detection.objects.real().count() == Classification.objects.count() == saved
    assert rig.states == states
    assert logged in rig.log
    assert [model.objects.count() for model in (Pipeline, Algorithm)] == known
    if "q" not in answered:
        assert set(Taxon.objects.values_list("name", flat=True)) == taxa
    assert JobImage.objects.get(job__project=rig.other.project).state == C


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "{", '"x"', "null", '{"results": 3}', '{"results": null}', '{"results": {}}', '{"results": [{]}'],
)
def test_a_body_that_is_no_list_of_results_is_a_400_that_says_so(rig: Rig, text: str) -> None:
    answer = rig.client.generic("POST", f"/api/v2/jobs/{rig.job.pk}/result/", text, content_type="application/json")
    assert answer.status_code == 400
    assert isinstance(answer.json()["detail"], str)
    assert not StoredResult.objects.exists()


@pytest.mark.parametrize("client_info", [None, "x", [], {"n": 1}])
def test_what_a_client_says_of_itself_refuses_no_result(rig: Rig, client_info: Any) -> None:
    answer = rig.post({"results": [rig.good()], "client_info": client_info})
    assert (answer.status_code, answer.json().get("results_queued")) == (200, 1)


def test_many_items_are_taken_in_pieces(rig: Rig) -> None:
    items = [rig.error(0, error=f"e{number}") for number in range(2500)]
    answer = rig.post({"results": items})
    assert (answer.status_code, answer.json()["results_queued"]) == (200, 2500)
    assert [task["reply_subject"] for task in answer.json()["tasks"]] == ["r0"] * 2500


def test_the_names_of_the_pipeline_at_the_start_stay_right(rig: Rig) -> None:
    pipeline = rig.world.pipeline
    started = {"slugs": [pipeline.slug], "algorithms": sorted([rig.world.detector.key, rig.world.classifier.key])}
    assert Job.objects.get(pk=rig.job.pk).cursor["pipeline"] == {**started, "steps": started["algorithms"]}
    pipeline.algorithms.remove(rig.world.classifier)
    assert rig.post({"results": [rig.good()]}).json()["tasks"][0]["status"] == "queued"
    Job.objects.filter(pk=rig.job.pk).update(cursor={})
    assert rig.post({"results": [rig.good(1)]}).json()["tasks"][0]["status"] == "refused"


def test_equal_refusals_are_one_and_a_right_result_comes_after(rig: Rig) -> None:
    for _ in "ab":
        rig.post({"results": [rig.good(pipeline="x")]})
    assert StoredResult.objects.count() == 1
    rig.handle()
    assert rig.states == f"{F} {C} {C}"
    rig.post({"results": [rig.good()]})
    rig.handle()
    assert rig.states == f"{P} {C} {C}"


def test_a_stored_result_of_another_pipeline_fails_its_delivery_and_saves_nothing(rig: Rig) -> None:
    handle_result(rig.job.pk, result=rig.good(pipeline="second")["result"], reply_subject="r1")
    assert (rig.states, Detection.objects.count()) == (f"{C} {F} {C}", 0)
    assert "job runs 'pipe-world'" in rig.log


def test_no_number_of_queries_grows_with_the_items(rig: Rig, django_assert_max_num_queries) -> None:
    rig.post({"results": []})
    with django_assert_max_num_queries(30):
        rig.post({"results": [rig.good(n % 3, total_time=n) for n in range(60)]})


def test_a_hundred_reasons_are_ten_lines_of_the_log(rig: Rig) -> None:
    rig.post({"results": [rig.good(pipeline=f"p{n}") for n in range(100)]})
    assert rig.log.count("Refused 1 of 100") == 10


def test_tasks_carry_the_configuration_where_it_is_switched_on(rig: Rig, settings, monkeypatch) -> None:
    from ami.jobs.services import jetstream
    from ami.jobs.services.jetstream import Delivery

    config = {"threshold": 0.5, "request_source_image_batch_size": 4}
    Pipeline.objects.filter(pk=rig.world.pipeline.pk).update(default_config=config)
    delivered = [Delivery(rig.captures[0].pk, "r0", 1)]
    monkeypatch.setattr(jetstream, "fetch", lambda job_id, batch: delivered)
    for switched, expected in ((False, None), (True, {"threshold": 0.5})):
        settings.ANTENNA_TASK_CONFIG = switched
        answer = rig.client.post(f"/api/v2/jobs/{rig.job.pk}/tasks/", {"batch_size": 5000, "client_info": None}, "json")
        [task] = answer.json()["tasks"]
        assert task.get("config") == expected
