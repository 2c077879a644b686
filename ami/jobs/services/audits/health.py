"""Runs all checks of jobs and reports their counts."""

import logging
from collections.abc import Callable

from ami.jobs.errors import NatsUnavailable
from ami.jobs.services.audits.findings import Findings
from ami.jobs.services.audits.lost_images import fail_lost_images, republish_expired_images
from ami.jobs.services.audits.stalled_jobs import (
    finish_cancelled,
    finish_complete,
    republish_unstarted_jobs,
    rerun_stalled_jobs,
)
from ami.jobs.services.audits.streams import delete_orphan_streams, snapshot_running_jobs

logger = logging.getLogger(__name__)

Check = Callable[[], Findings]


def audit_jobs() -> dict[str, dict[str, int]]:
    """Run every check and return {check: {checked, fixed, unfixable}}."""
    checks: dict[str, Check] = {
        "lost_images": fail_lost_images,
        "expired_messages": republish_expired_images,
        "stalled_jobs": rerun_stalled_jobs,
        "queued_jobs": republish_unstarted_jobs,
        "cancelled_jobs": finish_cancelled,
        "complete_jobs": finish_complete,
        "zombie_streams": delete_orphan_streams,
    }
    return {name: run_check(name, check).as_dict() for name, check in checks.items()}


def health_check() -> dict[str, dict[str, int]]:
    """Run the checks and return the platform's four sections."""
    counts = audit_jobs()
    stale = Findings.total(
        counts[name] for name in ("stalled_jobs", "queued_jobs", "expired_messages", "cancelled_jobs", "complete_jobs")
    )
    return {
        "lost_images": counts["lost_images"],
        "stale_jobs": stale.as_dict(),
        "running_job_snapshots": run_check("running_job_snapshots", snapshot_running_jobs).as_dict(),
        "zombie_streams": counts["zombie_streams"],
    }


def run_check(name: str, check: Check) -> Findings:
    """Run one check; an exception is logged and counted as unfixable."""
    try:
        return check()
    except NatsUnavailable as error:
        logger.warning("Job check %s postponed: %s", name, error)
    except Exception:
        # An audit handles unforeseen states, so an error in one check must not stop the others.
        logger.exception("Job check %s failed", name)
    return Findings(unfixable=1)
