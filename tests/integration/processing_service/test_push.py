"""Push mode over real HTTP: Antenna's requests, picture downloads and refusals."""

import httpx
import pytest

from ami.ml.schemas import PipelineResultsResponse, ProcessingServiceInfoResponse
from processing_service.api import PushSettings, create_app
from processing_service.downloads import DownloadLimits


@pytest.fixture(scope="module")
def service(serve):
    settings = PushSettings(limits=DownloadLimits(max_bytes=200_000, quiet_seconds=5, retry_seconds=0))
    with serve(create_app(settings)) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def ask(service, pipeline, *images, **more):
    sources = [{"id": str(number), "url": url} for number, url in enumerate(images, start=1)]
    return service.post("/process", json={"pipeline": pipeline, "source_images": sources, "config": {}, **more})


def test_info_lists_pipelines_and_algorithms(service):
    info = ProcessingServiceInfoResponse.model_validate(service.get("/info").json())
    assert [pipeline.slug for pipeline in info.pipelines] == ["sheet-moths", "constant"]
    assert len(info.algorithms) == 5
    assert service.get("/livez").json() == {"status": True}
    assert service.get("/readyz").json() == {"status": ["sheet-moths", "constant"]}


def test_insect_is_detected_and_classified(service, pictures):
    answer = ask(service, "sheet-moths", f"{pictures}/insect.jpg")
    results = PipelineResultsResponse.model_validate(answer.json())
    [detection] = results.detections
    assert detection.algorithm.key == "threshold-detector"
    assert detection.bbox.x1 == pytest.approx(300, abs=4)
    assert detection.bbox.y2 == pytest.approx(270, abs=4)
    assert detection.timestamp.tzinfo is not None
    assert [(one.algorithm.key, one.terminal) for one in detection.classifications] == [
        ("moth-binary", False),
        ("size-colour-species", True),
    ]
    for one in detection.classifications:
        assert sum(one.scores) == pytest.approx(1)
        assert len(one.scores) == len(one.labels) == len(one.logits)


def test_empty_sheet_has_no_detections_and_counts_as_processed(service, pictures):
    results = ask(service, "sheet-moths", f"{pictures}/empty-sheet.jpg").json()
    assert results["detections"] == []
    assert [image["id"] for image in results["source_images"]] == ["1"]


def test_constant_pipeline_returns_the_same_every_time(service, pictures):
    [detection] = ask(service, "constant", f"{pictures}/empty-sheet.jpg").json()["detections"]
    assert detection["bbox"] == {"x1": 80, "y1": 60, "x2": 240, "y2": 180}
    assert detection["classifications"][0]["classification"] == "Moth"
    assert detection["classifications"][0]["scores"] == [0.9]


def test_existing_detections_replace_the_detector(service, pictures):
    box = {"x1": 10.5, "y1": 20, "x2": 90, "y2": 80}
    source = {"id": "1", "url": f"{pictures}/insect.jpg"}
    existing = [{"source_image": source, "bbox": box, "algorithm": {"name": "Theirs", "key": "theirs"}}]
    [detection] = ask(service, "sheet-moths", source["url"], detections=existing).json()["detections"]
    assert detection["bbox"] == box
    assert detection["algorithm"]["key"] == "theirs"
    assert len(detection["classifications"]) == 2


def test_existing_box_outside_the_picture_is_reported(service, pictures):
    source = {"id": "1", "url": f"{pictures}/insect.jpg"}
    box = {"x1": 5000, "y1": 5000, "x2": 5001, "y2": 5001}
    existing = [{"source_image": source, "bbox": box, "algorithm": {"name": "T", "key": "t"}}]
    answer = ask(service, "sheet-moths", source["url"], detections=existing)
    assert answer.status_code == 422
    assert "detections.bbox" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing.jpg?signature=abc", "answered 404"),
        ("cut.jpg", "truncated"),
        ("text.jpg", "not a readable picture"),
        ("large.jpg", "more than 200000"),
        ("undeclared.jpg", "more than 200000"),
        ("to-file.jpg", "only http and https"),
        ("round.jpg", "redirects"),
    ],
)
def test_unavailable_picture_is_a_422_with_its_reason(service, pictures, path, reason):
    answer = ask(service, "sheet-moths", f"{pictures}/{path}")
    assert answer.status_code == 422
    assert reason in answer.json()["detail"]
    assert "signature" not in answer.text


def test_unreachable_host_is_a_503_so_that_the_batch_is_sent_again(service, pictures):
    answer = ask(service, "constant", "http://127.0.0.1:9/none.jpg", f"{pictures}/missing.jpg")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert "127.0.0.1:9/none.jpg: ConnectError" in answer.json()["detail"]


def test_unreachable_host_does_not_lose_the_other_pictures(service, pictures):
    results = ask(service, "constant", "http://127.0.0.1:9/none.jpg", f"{pictures}/insect.jpg").json()
    assert [image["id"] for image in results["source_images"]] == ["2"]
    assert results["errors"][0].startswith("image 1: ")


def test_a_redirect_to_a_picture_is_followed(service, pictures):
    assert len(ask(service, "sheet-moths", f"{pictures}/moved.jpg").json()["detections"]) == 1


def test_one_bad_picture_does_not_lose_the_others(service, pictures):
    results = ask(service, "constant", f"{pictures}/insect.jpg", f"{pictures}/text.jpg").json()
    assert [image["id"] for image in results["source_images"]] == ["1"]
    assert results["errors"][0].startswith("image 2: ")


def test_unknown_pipeline_is_a_422_with_the_known_ones(service, pictures):
    answer = ask(service, "sheet-moth", f"{pictures}/insect.jpg")
    assert answer.status_code == 422
    assert "sheet-moths" in answer.json()["detail"]


def test_config_that_is_not_an_object_is_a_422(service, pictures):
    assert ask(service, "constant", f"{pictures}/insect.jpg", config=None).status_code == 422
