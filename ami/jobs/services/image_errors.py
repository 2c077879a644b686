"""Says in sentences with counts why images of a job failed."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from django.db.models import Count
from django.db.models.functions import Substr

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ImageState

MOST_SENTENCES = 10
"""Different reasons in the progress of a job, and in the log for one batch; the rest is one more sentence."""

MOST_GROUPS = 50_000
"""Different texts that are read, those with the most images; many differ only in the link."""

REASON_LENGTH = 200
MOST_NAMED = 100
"""Images that one line of the log names in its context."""

_LINK = re.compile(r"https?://\S+")


def reasons_of(job_id: int) -> list[str]:
    """Return a sentence for each reason for which images of the job failed, the most frequent first."""
    rows = (
        JobImage.objects.filter(job_id=job_id, state=ImageState.FAILED)
        .annotate(reason=Substr("error", 1, REASON_LENGTH))
        .values_list("reason")
        .annotate(n=Count("pk"))
        .order_by("-n", "reason")
    )
    counts: Counter[str] = Counter()
    total = JobImage.objects.filter(job_id=job_id, state=ImageState.FAILED).count()
    for reason, number in rows[:MOST_GROUPS].iterator():
        counts[_general(reason)] += number
    return sentences(counts, total)


def sentences(counts: Mapping[str, int], total: int) -> list[str]:
    """Return at most ``MOST_SENTENCES`` sentences of reasons, and one for the failed images that they leave out."""
    shown = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_SENTENCES]
    said = [f"{count_only(number)}: {reason or 'no reason given'}" for reason, number in shown]
    if (rest := total - sum(number for _, number in shown)) > 0:
        said.append(f"{count_only(rest)} for other reasons.")
    return said


def count_only(number: int) -> str:
    """Return how many images failed, without a reason."""
    return f"{number} image{'' if number == 1 else 's'} failed"


def log_failures(job: Job, failures: Iterable[tuple[int, str]], *, level: str = "ERROR") -> None:
    """Write images that failed together to the job's log: one line per reason, at most ``MOST_SENTENCES`` and a rest.

    ``failures`` are pairs of capture and reason.
    """
    groups: dict[str, list[int]] = {}
    for image_id, reason in failures:
        groups.setdefault(reason, []).append(image_id)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    for reason, images in ordered[:MOST_SENTENCES]:
        what = f"Image {images[0]} failed" if len(images) == 1 else count_only(len(images))
        job.log(f"{what}: {reason}", level=level, source_image_ids=images[:MOST_NAMED])
    if rest := [image for _, images in ordered[MOST_SENTENCES:] for image in images]:
        job.log(f"{count_only(len(rest))} for other reasons.", level=level, source_image_ids=rest[:MOST_NAMED])


def _general(reason: str) -> str:
    """Return a reason without what differs from image to image: the link that was asked."""
    return _LINK.sub("(link)", reason)
