"""Runs a job through the losing proxy with this project's own puller, web server and workers, and recounts it.

In a process of its own, because it uses the database of its environment: PostgreSQL, or SQLite. Prints JSON.
"""

import argparse
import json
import sys
import time
from collections import Counter
from typing import Any

import django

#: Short leases, so that what the proxy uses up is delivered again soon.
LEASE = {"NATS_TASK_TTR": "4", "NATS_MAX_EXTENSIONS": "1"}
SLUG = "constant"


def recount(job: Any) -> dict[str, Any]:
    """Return what the job says beside what its rows say."""
    from django.db.models import Count, Sum

    from ami.jobs.models import JobLog
    from ami.jobs.services.progress import progress
    from ami.main.models import Classification, Detection, Occurrence

    images = job.images.values_list("source_image", flat=True)
    real = Detection.objects.real().filter(source_image__in=images)
    twice = real.order_by().values("source_image", "detection_algorithm", "bbox_key").annotate(n=Count("pk"))
    said = {p["key"]: p["value"] for stage in progress(job)["stages"] for p in stage["params"]}
    sums = job.images.aggregate(detections=Sum("detections_count"), classifications=Sum("classifications_count"))
    failed = job.images.filter(state="failed")
    return {
        "status": job.status,
        "states": dict(Counter(job.images.values_list("state", flat=True))),
        "doubles": twice.filter(n__gt=1).count(),
        "detections": real.count(),
        "occurrences": Occurrence.objects.filter(detection__in=real).count(),
        "classifications": Classification.objects.filter(detection__in=real, is_current=True).count(),
        "images_with_detections": real.order_by().values("source_image").distinct().count(),
        "said": said,
        "sums": sums,
        "failed_without_a_reason": failed.filter(error="").count(),
        "log_of_failures": JobLog.objects.filter(job=job, level__in=("ERROR", "WARNING")).count(),
    }


def run(images: int, broker: str, seed: int, share: float, batch: int) -> dict[str, Any]:
    """Run the job; return its recount, the faults and the seconds."""
    from ami.jobs.models import Job
    from ami.jobs.services.audits import lost_images
    from tests.support.losing_proxy import running
    from tests.support.place import until
    from tests.support.product.client_deployment import deployed

    lost_images.GRACE_SECONDS = 2  # type: ignore[misc]
    with deployed(broker, images=images, **LEASE) as made, running(made.web.url, seed=seed, share=share) as proxy:
        token, world = made.log_in(), made.world
        pulling = ["--antenna", proxy.url, "--project", str(world.project.pk), "--name", "losing", "--pipeline", SLUG]
        pulling += ["--batch-size", str(batch), "--poll-seconds", "0.2", "--pullers", "2", "--log-level", "warning"]
        made.place.start([sys.executable, "-m", "processing_service", "pull", *pulling], ANTENNA_TOKEN=token)
        with made.client(token) as client:
            path = f"/projects/{world.project.pk}/pipelines/"

            def registered() -> Any:
                return next((row["id"] for row in client.get(path).json() if row["slug"] == SLUG), None)

            began = time.monotonic()
            pipeline = until(registered, 60, "the puller has registered its pipelines")
            keys = [capture.pk for capture in made.captures]
            body = {"name": "losing", "project_id": world.project.pk, "pipeline_id": pipeline}
            answer = client.post("/jobs/?start_now=1", json=body | {"params": {"source_image_ids": keys}})
            assert answer.status_code == 201, answer.text
        job = Job.objects.get(pk=answer.json()["id"])

        def finished() -> bool:
            lost_images.fail_lost_images()
            time.sleep(0.5)
            job.refresh_from_db()
            return job.is_final

        until(finished, 60 + images, "every image is settled")
        seconds = time.monotonic() - began
        return {"faults": dict(proxy.done), "seconds": round(seconds, 1), **recount(job)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--broker", choices=("rabbitmq", "folder"), default="rabbitmq")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.35)
    parser.add_argument("--batch", type=int, default=4)
    options = vars(parser.parse_args())
    django.setup()
    print(json.dumps(run(**options)), flush=True)


if __name__ == "__main__":
    main()
