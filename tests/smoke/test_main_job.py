"""The demo's main job on the deployment, from a container beside it (``make demo BROKER=containers``)."""

import re

from tests.support.containers.deployment import Deployment

FRAMES = "12"


def test_the_main_job_passes_every_rule(deployment: Deployment):
    deployment.compose("--profile", "demo", "build", "demo", timeout=600)
    said = deployment.compose(
        "--profile", "demo", "run", "--rm", "--no-TTY", "demo", "--frames", FRAMES, timeout=280, check=False
    )
    rules = re.findall(r"^(holds|broken) +(.+?)  ", said, re.M)
    assert len(rules) == 8, said[-3000:]
    assert [name for verdict, name in rules if verdict == "broken"] == []
    assert f"total_images {2 * int(FRAMES)}" in said
