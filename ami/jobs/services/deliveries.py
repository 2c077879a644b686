"""Which reply subjects name deliveries of a job: those of its images, and earlier deliveries of the same messages."""

from collections.abc import Iterable

from ami.jobs.models import JobImage
from ami.jobs.services.jetstream.messages import message_of

#: Images that were delivered more than once, among which an earlier delivery is looked for.
MOST_REDELIVERED = 10_000


def deliveries_of_job(job_id: int, reply_subjects: Iterable[str]) -> set[str]:
    """Return those of the reply subjects that name a delivery of the job; at most two statements.

    The row of an image has the subject of its latest delivery. One that came before has another subject and the same
    message: the same place in the stream, stored at the same time. A message of an earlier run of the job has another
    time, an invented subject no message.
    """
    asked = set(reply_subjects) - {""}
    if not asked:
        return set()
    subjects = JobImage.objects.filter(job_id=job_id).values_list("reply_subject", flat=True)
    found = set(subjects.filter(reply_subject__in=asked))
    if left := {subject: message for subject in asked - found if (message := message_of(job_id, subject))}:
        delivered_again = subjects.filter(attempts__gt=1).order_by("-pk")[:MOST_REDELIVERED]
        known = {message_of(job_id, subject) for subject in delivered_again}
        found |= {subject for subject, message in left.items() if message in known}
    return found
