"""The demo's main job on the deployment, from a container beside it (``make demo BROKER=containers``)."""

import re

from tests.support.containers.deployment import Deployment
from tests.support.soak import soak

FRAMES = str(soak(6, 12))


def test_main_job_passes_every_check(deployment: Deployment):
    output = deployment.compose(
        "--profile", "demo", "run", "--rm", "--no-TTY", "demo", "--frames", FRAMES, timeout=600, check=False
    )
    checks = re.findall(r"^(pass|fail) +(.+?)  ", output, re.M)
    assert len(checks) == 8, output[-3000:]
    assert [name for result, name in checks if result == "fail"] == []
    assert f"total_images {2 * int(FRAMES)}" in output
    assert "/data/demo" not in output, "a path that exists only in the container"
