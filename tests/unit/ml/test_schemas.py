"""The wire models accept the bodies of real clients and refuse violations of the contract."""

import json
from datetime import datetime

import pytest
from pydantic import ValidationError

from ami.ml.schemas import (
    PipelineRequest,
    PipelineResultsError,
    PipelineResultsResponse,
    PipelineTaskResult,
    ResultRequest,
    TasksRequest,
)
from tests.support.product.posted_results import ERROR, RESULTS


def result(body: dict) -> PipelineResultsResponse | PipelineResultsError:
    return PipelineTaskResult.model_validate({"reply_subject": "$JS.ACK.1", "result": body}).result


def test_a_batch_mixes_results_and_errors():
    body = {"results": [{"reply_subject": "a", "result": RESULTS}, {"reply_subject": "b", "result": ERROR}]}
    taken = ResultRequest.model_validate_json(json.dumps(body))
    assert [type(one.result) for one in taken.results] == [PipelineResultsResponse, PipelineResultsError]


def test_a_time_without_a_zone_stays_without_one():
    detection = result(RESULTS).detections[0]
    assert detection.timestamp == datetime.fromisoformat("2026-01-01T22:00:00")
    assert detection.timestamp.tzinfo is None


def test_result_survives_a_round_trip():
    before = PipelineTaskResult.model_validate({"reply_subject": "a", "result": RESULTS})
    assert PipelineTaskResult.model_validate_json(before.model_dump_json()) == before


def test_an_error_may_leave_out_its_image():
    assert result({"error": "boom"}) == PipelineResultsError(error="boom")


def test_results_with_an_empty_error_are_results():
    assert isinstance(result({**RESULTS, "error": None}), PipelineResultsResponse)


def test_results_are_tried_before_errors():
    assert isinstance(result({**RESULTS, "error": "also this"}), PipelineResultsResponse)


@pytest.mark.parametrize("errors", [None, "one went wrong", ["a", "b"]])
def test_errors_are_a_text_or_a_list(errors):
    assert result({**RESULTS, "errors": errors}).errors == errors


def test_unknown_keys_are_ignored():
    assert result({**RESULTS, "gpu": "none"}) == result(RESULTS)


def test_a_box_the_wrong_way_round_is_kept_as_it_came():
    turned = json.loads(json.dumps(RESULTS))
    turned["detections"][0]["bbox"] = {"x1": 9, "y1": 9, "x2": 1, "y2": 1}
    assert result(turned).detections[0].bbox.x1 == 9


def test_a_null_box_says_that_nothing_was_found():
    empty = json.loads(json.dumps(RESULTS))
    empty["detections"][0]["bbox"] = None
    assert result(empty).detections[0].bbox is None


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_are_finite(number):
    with pytest.raises(ValidationError, match="finite"):
        result({**RESULTS, "total_time": number})


def test_a_refusal_names_the_field_that_is_missing():
    with pytest.raises(ValidationError) as refused:
        result({"pipeline": "constant"})
    assert ("result", "results", "detections") in [one["loc"] for one in refused.value.errors()]


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_has_at_least_one_task(size):
    with pytest.raises(ValidationError, match="batch_size"):
        TasksRequest(batch_size=size)


def test_a_bare_list_of_results_is_refused():
    with pytest.raises(ValidationError):
        ResultRequest.model_validate([{"reply_subject": "a", "result": ERROR}])


def test_the_config_of_a_request_is_an_object():
    with pytest.raises(ValidationError, match="config"):
        PipelineRequest.model_validate({"pipeline": "constant", "source_images": [], "config": None})
