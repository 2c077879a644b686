"""Workers that end again and again are a live finding; those that were asked to, and recycled children, are none."""

from typing import Any

import pytest

from tests.support.place import FOLDER, Place, until

T = "tests.support.worker_tasks.basic"


def found(place: Place, name: str) -> list[tuple[str, str]]:
    rows = place.queues("check", "--live", check=False).json
    return [(row["level"], row["sentence"]) for row in rows if row["name"] == name]


def restarts(place: Place) -> list[dict[str, Any]]:
    """What the only worker tells of its restarts."""
    (answer,) = (place.app.control.inspect(timeout=10, limit=1).stats() or {}).values()
    return list(answer["starts"]["restarts"])


@pytest.mark.parametrize("place", [FOLDER], indirect=True)
def test_incident_6_worker_that_is_killed_again_and_again_is_found(place: Place, db: None):
    place.queues("declare")
    place.environment["ANTENNA_FALLBACK_MAX_TASKS_PER_CHILD"] = "1"
    worker = place.worker("antenna")
    for _ in range(3):
        place.send(f"{T}.succeed", queue="antenna")
    until(lambda: len({record["pid"] for record in place.ran("succeed")}) == 3, what="each task has a child of its own")
    worker.stop()
    worker = place.worker("antenna")
    assert restarts(place) == [], "neither recycled children nor a stop"
    for _ in range(2):
        worker.kill()
        worker = place.worker("antenna")
    assert [one["how"] for one in restarts(place)] == ["without notice"] * 2
    assert found(place, "restarts") == [], "two kills may be chance"
    place.send(f"{T}.hold", 60, queue="antenna")
    until(lambda: "received" in worker.text, what="it runs the task")
    until(lambda: list((place.folder / "governor").glob("*/*.run")), what="its run is recorded")
    worker.kill()
    place.worker("antenna")
    ((level, sentence),) = found(place, "restarts")
    assert level == "warning"
    assert "was started 3 times within an hour" in sentence
    assert f"It was running {T}.hold." in sentence
