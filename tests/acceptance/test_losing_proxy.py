"""A job behind a network that loses requests and answers: every image settles once, on both stacks."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.losing_proxy import KINDS
from tests.support.place import ROOT
from tests.support.soak import soak

IMAGES, BATCH, EACH, SHARE = soak((14, 1, 1, 0.5), (300, 4, 5, 0.35))


@pytest.mark.parametrize("broker", ["rabbitmq", "folder"])
def test_every_image_of_a_job_behind_a_losing_proxy_settles_once(broker: str) -> None:
    """PostgreSQL with RabbitMQ, SQLite with the folder; NATS in both."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "config.settings.test"}
    if broker == "folder":
        del environment["DATABASE_URL"]
    argv = [sys.executable, "-m", "tests.support.product.losing_job", "--broker", broker]
    argv += ["--images", str(IMAGES), "--batch", str(BATCH), "--share", str(SHARE)]
    done = subprocess.run(argv, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert min(found["faults"][kind] for kind in KINDS) >= EACH
    states, said = found["states"], found["said"]
    processed, failed = states.get("processed", 0), states.get("failed", 0)
    # The proxy may use up both deliveries of an image: that is failed, and said.
    assert processed + failed == IMAGES
    assert (found["failed_without_a_reason"], bool(found["log_of_failures"]) or not failed) == (0, True)
    assert found["status"] == "SUCCESS"
    assert found["doubles"] == 0
    rows = found["detections"]
    assert rows == found["occurrences"] == found["classifications"] == found["images_with_detections"] == processed
    assert (said["detections"], said["classifications"], said["captures"]) == (rows, rows, processed)
    assert (said["processed"], said["failed"], said["remaining"]) == (IMAGES, failed, 0)
    assert found["sums"] == {"detections": rows, "classifications": rows}
