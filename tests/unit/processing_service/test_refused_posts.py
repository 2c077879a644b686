"""What the puller says of results that Antenna refuses."""

import logging
import threading

import httpx

from ami.ml.schemas import ResultRequest
from processing_service.antenna import Antenna


def test_refused_results_are_logged_with_their_reason(caplog, monkeypatch):
    tasks = [
        {"reply_subject": "a", "status": "queued", "task_id": "1"},
        {"reply_subject": "b", "status": "refused", "task_id": "2", "reason": "of another pipeline"},
    ]
    antenna = Antenna("http://antenna.example", threading.Event(), "key")
    antenna._client = httpx.Client(
        base_url="http://antenna.example",
        transport=httpx.MockTransport(lambda _: httpx.Response(200, json={"status": "accepted", "tasks": tasks})),
    )
    with caplog.at_level(logging.ERROR):
        antenna.post_results(7, ResultRequest(results=[]))
    assert "of another pipeline" in caplog.text
    assert caplog.text.count("result refused") == 1
