"""The audit of jobs as a whole, and its answer."""

import logging
from collections.abc import Callable

from ami.jobs.errors import NatsUnavailable
from ami.jobs.services.audits.findings import Findings
from ami.jobs.services.audits.lost_images import fail_lost_images, publish_expired_again
from ami.jobs.services.audits.stalled_jobs import (
    finish_cancelled,
    finish_complete,
    publish_queued_again,
    run_stalled_again,
)
from ami.jobs.services.audits.streams import delete_orphan_streams, snapshot_running_jobs

logger = logging.getLogger(__name__)

Check = Callable[[], Findings]


def audit_jobs() -> dict[str, dict[str, int]]:
    """Run every repair and return {check: {checked, fixed, unfixable}}."""
    checks: dict[str, Check] = {
        "lost_images": fail_lost_images,
        "expired_messages": publish_expired_again,
        "stalled_jobs": run_stalled_again,
        "queued_jobs": publish_queued_again,
        "cancelled_jobs": finish_cancelled,
        "complete_jobs": finish_complete,
        "zombie_streams": delete_orphan_streams,
    }
    return {name: run_alone(name, check).as_dict() for name, check in checks.items()}


def health_check() -> dict[str, dict[str, int]]:
    """Run the repairs and return the platform's four sections."""
    found = audit_jobs()
    stale = Findings.total(
        found[name] for name in ("stalled_jobs", "queued_jobs", "expired_messages", "cancelled_jobs", "complete_jobs")
    )
    return {
        "lost_images": found["lost_images"],
        "stale_jobs": stale.as_dict(),
        "running_job_snapshots": run_alone("running_job_snapshots", snapshot_running_jobs).as_dict(),
        "zombie_streams": found["zombie_streams"],
    }


def run_alone(name: str, check: Check) -> Findings:
    """Run one check; what it raises is logged and counted as unfixable, and the next check runs."""
    try:
        return check()
    except NatsUnavailable as error:
        logger.warning("The check %s has to wait: %s", name, error)
    except Exception:
        # An audit exists for states nobody foresaw; each of its checks must survive the others.
        logger.exception("The check %s failed.", name)
    return Findings(unfixable=1)
