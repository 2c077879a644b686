"""Signals about jobs, for telemetry."""

from django.dispatch import Signal

job_status_changed = Signal()
"""sender=Job, job_id: int, old: str, new: str; sent after the update, inside the caller's transaction if any."""

image_settled = Signal()
"""sender=JobImage, job_id: int, source_image_id: int, state: str; sent after commit, once per image."""

result_stored = Signal()
"""sender=StoredResult, job_id: int, key: str, size_bytes: int; sent after the row is committed."""
