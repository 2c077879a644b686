"""Results that the API has validated are read as the wire models read them."""

import json
from typing import Any

import pytest

from ami.ml.schemas import PipelineTaskResult
from ami.ml.services import checked_results
from ami.ml.services.wire import version
from tests.support.product.posted_results import ERROR, RESULTS

TIMES = [
    "2026-01-01T22:00:00",
    "2026-01-01T22:00:00.1234567Z",
    "2026-01-01 22:00+02:00",
    "2026-01-01",
    1767304800,
    1.5e9,
]


def item(**changes: Any) -> bytes:
    result = json.loads(json.dumps(RESULTS))
    result["detections"][0]["classifications"][0] |= changes
    return json.dumps({"reply_subject": "r", "result": result}).encode()


def summary(response: Any) -> list[Any]:
    """Return everything that is saved of a response."""
    [detection] = response.detections
    [each] = detection.classifications
    box = detection.bbox
    saved = [each.classification, each.algorithm.key, each.timestamp, list(each.scores), each.terminal]
    lists = [list(each.logits or []), list(each.labels or [])]
    names = [response.pipeline, [image.id for image in response.source_images], detection.source_image_id]
    return [*names, detection.algorithm.key, detection.timestamp, box.x1, box.y1, box.x2, box.y2, *saved, *lists]


@pytest.mark.parametrize("when", TIMES)
def test_times_are_read_alike(when: Any) -> None:
    text = item(timestamp=when)
    assert summary(checked_results.read(text)) == summary(PipelineTaskResult.model_validate_json(text).result)


@pytest.mark.parametrize(
    "changes",
    [
        {"scores": [1, 0.5, "0.25"], "logits": None},
        {"scores": [], "logits": [1, 2.5, True], "labels": None},
        {"labels": ["Möth", "\u2028"], "unknown": {"a": [1]}, "terminal": False},
    ],
)
def test_lists_are_read_alike(changes: dict[str, Any]) -> None:
    text = item(**changes)
    assert summary(checked_results.read(text)) == summary(PipelineTaskResult.model_validate_json(text).result)


@pytest.mark.parametrize("changes", [{"terminal": "yes"}, {"timestamp": None}])
def test_what_only_the_wire_models_read_is_left_to_them(changes: dict[str, Any]) -> None:
    assert checked_results.read(item(**changes)) is None


def test_an_error_is_left_to_the_wire_models_and_a_response_with_an_error_is_none() -> None:
    assert checked_results.read(json.dumps({"reply_subject": "r", "result": ERROR}).encode()) is None
    both = json.dumps({"reply_subject": "r", "result": {**RESULTS, "error": "x"}}).encode()
    assert checked_results.read(both) is not None


def test_version_changes_with_the_models_and_with_their_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    before = version()
    monkeypatch.setattr("ami.ml.services.wire.CHECKS", 0)
    version.cache_clear()
    assert version() != before
    version.cache_clear()
