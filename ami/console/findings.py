"""Findings of the live check as the overview shows them: each with its runbook entry, and the lever that mends it."""

from dataclasses import dataclass

from django.urls import reverse

from ami.telemetry.snapshots.shape import AlertFigures, FindingFigures

#: The lever that mends a finding, on the finding's target.
LEVER_OF = {
    "paused": "resume",
    "parked": "unpark",
    "disabled": "enable",
    "set-aside": "enable",
    "unaccounted": "restart",
}
#: The page that shows more of it.
PAGE_OF = {
    **dict.fromkeys(("dead-letters", "unrouted", "letters-new", "letters-grow", "letters-back"), "letters"),
    **dict.fromkeys(("worker-state", "held", "all-held", "probe", "suspect", "restarts", "kernel-kills"), "workers"),
    **dict.fromkeys(("drift", "unaccounted", "no-limits", "several-queues", "fingerprint"), "workers"),
    **dict.fromkeys(("no-beat", "late-tick", "withheld-tick"), "schedule"),
}
WORDS = {"error": "Error", "warning": "Warning", "starting": "Starting", "unseen": "Not seen"}


@dataclass(frozen=True)
class FindingRow:
    """One finding; ``lever`` is a verb for ``target`` or empty, ``page`` the address of the page with more of it."""

    level: str
    word: str
    icon: str
    name: str
    sentence: str
    target: str
    lever: str
    page: str
    page_text: str
    runbook: str
    alert: AlertFigures | None = None


def is_of_job(finding: FindingFigures) -> bool:
    """Whether a finding names a job, such as ``job:12``."""
    return "job:" in (finding.target[:4], finding.sentence[:4])


def finding_row(finding: FindingFigures) -> FindingRow:
    """Return what is shown of a finding."""
    lever = LEVER_OF.get(finding.name, "")
    # The sentences of those that a lever mends begin with its target: a queue, a node, a task or a job.
    target = finding.target or (finding.sentence.partition(" ")[0] if lever else "")
    page = PAGE_OF.get(finding.name, "")
    return FindingRow(
        finding.level,
        WORDS.get(finding.level, finding.level),
        finding.level if finding.level in WORDS else "unknown",
        finding.name,
        finding.sentence,
        target,
        lever,
        reverse(f"console:{page}") if page else "",
        page.capitalize(),
        f"{reverse('console:handbook')}#{finding.name}",
        finding.alert,
    )
