"""The demo's main job on the deployment, from a container beside it (``make demo BROKER=containers``)."""

import re

from tests.support.containers.deployment import Deployment
from tests.support.soak import soak

FRAMES = str(soak(6, 12))


def test_the_main_job_passes_every_rule(deployment: Deployment):
    said = deployment.compose(
        "--profile", "demo", "run", "--rm", "--no-TTY", "demo", "--frames", FRAMES, timeout=600, check=False
    )
    rules = re.findall(r"^(holds|broken) +(.+?)  ", said, re.M)
    assert len(rules) == 8, said[-3000:]
    assert [name for verdict, name in rules if verdict == "broken"] == []
    assert f"total_images {2 * int(FRAMES)}" in said
