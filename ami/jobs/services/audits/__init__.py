"""Periodic repairs of jobs; the checks are independent, so one failing check does not stop the others."""

from ami.jobs.services.audits.data_integrity import audit_data_integrity
from ami.jobs.services.audits.health import audit_jobs, health_check
from ami.jobs.services.audits.stored_results import audit_stored_results

__all__ = ["audit_data_integrity", "audit_jobs", "audit_stored_results", "health_check"]
