"""Runs each real client against this API: every image settles, nothing is there twice, the counters are a recount.

``make contract ADC_SOURCE=FOLDER ANTENNA_SOURCE=FOLDER``; the folders are checkouts of the origin's repositories, of
which nothing is copied here. A client without its folder does not run, which is said, and the exit code is 3.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import django

from tests.contract.clients import CLIENTS, ROOT, Client, Start

OK, WRONG, NOT_RUN = 0, 1, 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="make contract", description=__doc__)
    for variable in dict.fromkeys(client.variable for client in CLIENTS):
        parser.add_argument(f"--{variable.lower().replace('_', '-')}", metavar="FOLDER", type=Path, help="a checkout")
    parser.add_argument("--images", type=int, default=40, help="of each client's job")
    parser.add_argument("--broker", choices=("rabbitmq", "folder"), default="rabbitmq")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    given = vars(options)
    there = [(client, found) for client in CLIENTS if (found := _checkout(client, given[client.variable.lower()]))]
    rows = _run(there, options.images, options.broker) if there else []
    print(json.dumps(rows, indent=1) if options.json else _table(rows))
    for client in CLIENTS:
        if client not in [each for each, _ in there]:
            print(f"NOT RUN: the {client.name}: {client.variable} is no checkout of {client.version}", file=sys.stderr)
    if any(row["wrong"] for row in rows):
        return WRONG
    return OK if len(there) == len(CLIENTS) else NOT_RUN


def _checkout(client: Client, folder: Path | None) -> Path | None:
    return folder.resolve() if folder and (folder / client.needs).exists() else None


def _run(clients: list[tuple[Client, Path]], images: int, broker: str) -> list[dict[str, Any]]:
    django.setup()
    from tests.support.product.client_deployment import deployed

    with deployed(broker, images=images) as made:
        return [_outcome(client, checkout, made) for client, checkout in clients]


def _outcome(client: Client, checkout: Path, made: Any) -> dict[str, Any]:
    """Run one client's job and recount it."""
    from ami.jobs.models import Job
    from tests.support.losing_proxy import running
    from tests.support.place import until
    from tests.support.product.losing_job import recount
    from tests.support.web_server import free_port

    token, project = made.log_in(), made.world.project
    type(project).objects.filter(pk=project.pk).update(feature_flags={"async_pipeline_workers": not client.pushes})
    with running(made.web.url) as proxy, tempfile.TemporaryDirectory() as home, made.client(token) as api:
        start = Start(checkout, proxy.url, token, project.pk, project.name, Path(home), free_port())
        with _started(client, start, made.place):
            if client.pushes:
                _register(made, start)
            path = f"/projects/{project.pk}/pipelines/"

            def registered() -> Any:
                return next((row["id"] for row in api.get(path).json() if row["slug"] == client.slug), None)

            pipeline = until(registered, 90, f"the {client.name} has registered {client.slug}")
            keys = [capture.pk for capture in made.captures]
            body = {"name": client.name, "project_id": project.pk, "pipeline_id": pipeline}
            began = time.monotonic()
            answer = api.post("/jobs/?start_now=1", json=body | {"params": {"source_image_ids": keys}})
            assert answer.status_code == 201, answer.text
            job = Job.objects.get(pk=answer.json()["id"])

            def finished() -> bool:
                job.refresh_from_db()
                return job.is_final

            until(finished, 60 + 2 * len(keys), f"the job of the {client.name} is finished")
            seconds = time.monotonic() - began
    found = recount(job)
    requests = {f"{method} {path} {status}": n for (method, path, status), n in sorted(proxy.requests.items())}
    return {
        "client": client.name,
        "version": client.version,
        "job": job.pk,
        "seconds": round(seconds, 1),
        "images": len(keys),
        "states": found["states"],
        "detections": found["said"]["detections"],
        "wrong": _wrong(found, len(keys)),
        "requests": requests,
        "parameters": sorted(proxy.queries),
    }


def _wrong(found: dict[str, Any], images: int) -> list[str]:
    """Return what is not as it must be."""
    said, sums = found["said"], found["sums"]
    checks = {
        f"{images} images are processed": found["states"] == {"processed": images},
        "the job succeeded": found["status"] == "SUCCESS",
        "no detection is there twice": found["doubles"] == 0,
        "every image has a detection": found["images_with_detections"] == images,
        "the counters are a recount": said["detections"] == sums["detections"]
        and said["classifications"] == sums["classifications"]
        and (said["captures"], said["processed"]) == (images, images),
    }
    return [what for what, holds in checks.items() if not holds]


@contextmanager
def _started(client: Client, start: Start, place: Any) -> Iterator[None]:
    """Run the client's processes; its own folders come first among what Python imports."""
    (start.home / ".config").mkdir()
    sources = [str(start.checkout / each) for each in client.sources]
    environment = {
        "HOME": str(start.home),
        "TMPDIR": str(start.home),
        "PYTHONPATH": os.pathsep.join([*sources, str(ROOT)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        **client.environment(start),
    }
    if client.before:
        before = place.start(client.before(start), **environment)
        assert before.popen.wait(60) == 0, before.text
    process = place.start(client.command(start), **environment)
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{error}\n{process.text[-6000:]}") from error
    finally:
        process.kill()
        if client.leaves:
            client.leaves.unlink(missing_ok=True)


def _register(made: Any, start: Start) -> None:
    """Register the service at its address, as an operator does, and its pipelines."""
    from ami.ml.models import ProcessingService

    service = ProcessingService.objects.create(name="minimal push", endpoint_url=f"http://127.0.0.1:{start.port}")
    service.projects.add(made.world.project)
    with made.client(start.token) as api:
        answer = api.post(f"/ml/processing_services/{service.pk}/register_pipelines/", timeout=120)
        assert answer.status_code == 200, answer.text


def _table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        states = Counter(row["states"])
        verdict = "; ".join(f"NOT: {each}" for each in row["wrong"]) or "all as it must be"
        lines += [
            f"{row['client']} ({row['version']}): {verdict}",
            f"  {row['images']} images in {row['seconds']} s: {dict(states)}, {row['detections']} detections",
            *(f"  {count:5}  {request}" for request, count in row["requests"].items()),
            f"  parameters: {', '.join(row['parameters']) or 'none'}",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
