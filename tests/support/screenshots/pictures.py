"""Which pages are photographed, in which size and theme, and how the files are made small."""

import io
import random
from dataclasses import dataclass
from pathlib import Path

from django.urls import reverse
from PIL import Image

from ami.jobs.models import Job
from ami.main.models import Detection, SourceImage
from ami.queues.models import Letter
from tests.support.browser import chromium, site
from tests.support.browser.page import DESK, PHONE, Page
from tests.support.screenshots import calls, deployment, letters, nights, queues

#: The charts of a queue are there when each has a canvas, the API's documentation when it has a path.
SETTLED = """document.querySelectorAll('.chart').length === document.querySelectorAll('.chart canvas').length
  && (!document.getElementById('docs') || !!document.querySelector('#docs .opblock-tag'))"""
STATUS = "performance.getEntriesByType('navigation')[0].responseStatus"


@dataclass(frozen=True)
class Shown:
    """The rows whose pages are shown."""

    job: Job
    capture: SourceImage
    letter: Letter


@dataclass(frozen=True)
class Picture:
    """One file of the documentation."""

    name: str
    path: str
    width: int = DESK
    dark: bool = False
    height: int = 1100
    at: str = ""


def take(folder: Path, everything: Path | None, docs: Path, only: str, rng: random.Random, *, keep: bool) -> int:
    """Write the rows, and take the pictures; return how many."""
    job, capture = nights.add(folder / "media", rng)
    shown = Shown(job, capture, letters.add(rng))
    queues.add(rng, nights.TASK_ID)
    calls.add(rng)
    queues.connect()
    site.operator()
    (folder / "browser").mkdir()
    with (
        deployment.served(folder / "static") as url,
        chromium.running(folder / "browser") as browser,
        site.signed_in(browser, url, site.OPERATOR) as page,
    ):
        if keep:
            input(f"{url}/admin/ {site.OPERATOR} {site.PASSWORD} ")
        return _all(page, shown, everything, only) if everything else _documented(page, shown, docs, only)


def pages(shown: Shown) -> dict[str, str]:
    """Return the address of every page of the console, and of the admin's main pages, by name."""
    queue, cause = queues.INGEST, shown.letter.cause
    node = "ingest@antenna-worker-2"
    plain = ("overview", "workers", "calls", "letters", "letter_list", "replays", "schedule", "audit", "handbook")
    detection = Detection.objects.filter(source_image=shown.capture)[0]
    return {
        **{name: reverse(f"console:{name}") for name in plain},
        "queue": reverse("console:queue", args=[queue]),
        "queue-paused": reverse("console:queue", args=[queues.INTERACTIVE]),
        "queue-day": reverse("console:queue", args=[queue]) + "?span=24h",
        "peek": reverse("console:peek", args=[queue]),
        "worker": reverse("console:worker", args=[node]),
        "letter": reverse("console:letter", args=[shown.letter.pk]),
        "letter-edit": reverse("console:letter_edit", args=[shown.letter.pk]),
        "letter-group": reverse("console:letter_group", args=[cause]),
        "task": reverse("console:task", args=[shown.letter.task_id]),
        "lever-pause": reverse("console:lever", args=["pause", queue]),
        "lever-purge": reverse("console:lever", args=["purge", queue]),
        "index": reverse("admin:index"),
        "api-docs": reverse("api_docs:show"),
        "jobs": reverse("admin:jobs_job_changelist"),
        "job": reverse("admin:jobs_job_change", args=[shown.job.pk]),
        "job-press": reverse("admin:jobs_job_press", args=[shown.job.pk, "cancel"]),
        "captures": reverse("admin:main_sourceimage_changelist")
        + f"?deployment__id__exact={shown.capture.deployment_id}",
        "capture": reverse("admin:main_sourceimage_change", args=[shown.capture.pk]),
        "detections": reverse("admin:main_detection_changelist"),
        "detection": reverse("admin:main_detection_change", args=[detection.pk]),
        "occurrences": reverse("admin:main_occurrence_changelist"),
    }


def _all(page: Page, shown: Shown, folder: Path, only: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for name, path in pages(shown).items():
        if only and not any(each in name for each in only.split(",")):
            continue
        for width in (DESK, PHONE):
            for dark in (False, True):
                file = folder / f"{name}-{width}{'-dark' if dark else ''}.png"
                _shoot(page, Picture(name, path, width, dark, 2600), file)
                count += 1
        for problem in dict.fromkeys(page.problems):
            print(f"{name}: {problem}")
        page.problems.clear()
    return count


def _documented(page: Page, shown: Shown, docs: Path, only: str) -> int:
    docs.mkdir(exist_ok=True)
    addresses = pages(shown)
    wanted = [
        Picture("overview", addresses["overview"], height=1400),
        Picture("overview-phone-dark", addresses["overview"], PHONE, True, 1700),
        Picture("queue", addresses["queue"]),
        Picture("workers", addresses["workers"], dark=True),
        Picture("letters", addresses["letters"]),
        Picture("job", addresses["job"], height=1180),
        Picture("capture", addresses["capture"]),
    ]
    taken = [each for each in wanted if only in each.name]
    for each in taken:
        file = docs / f"{each.name}.png"
        _shoot(page, each, file)
        print(f"{file.name} {_shrunk(file) / 1024:.0f} KiB")
    return len(taken)


def _shoot(page: Page, picture: Picture, file: Path) -> None:
    queues.refresh()
    nights.refresh()
    page.resize(picture.width, dark=picture.dark)
    page.open(picture.path)
    if (status := page.evaluate(STATUS)) != 200:
        raise SystemExit(f"{picture.path} answers {status}: no picture of {picture.name}")
    page.until(lambda: page.evaluate(SETTLED), 30, lambda: f"{picture.path} has its charts")
    page.evaluate(
        "Promise.all([...document.images].map(each => { each.loading = 'eager'; return each.decode().catch(() => 0) }))"
    )
    page.screenshot(file, most_height=picture.height)


def _shrunk(file: Path) -> int:
    """Store a picture in 256 colours; return its size in bytes."""
    with Image.open(io.BytesIO(file.read_bytes())) as image:
        small = image.convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        small.save(file, optimize=True)
    return file.stat().st_size
