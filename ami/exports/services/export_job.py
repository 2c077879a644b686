"""The job kind of exports."""

from ami.exports.models import DataExport
from ami.exports.services import files, writer
from ami.jobs.models import Job
from ami.jobs.services.job_kinds import SliceOfWork, job_kind


@job_kind("data_export", stages=[("exporting", "Exporting"), ("uploading", "Uploading")], is_long=True)
def data_export(job: Job, turn: SliceOfWork) -> bool:
    """Write the export ``params["export_id"]`` of the job's project.

    Raises:
        ValueError: the export was deleted; the message is the job's error.
    """
    exports = DataExport.objects.select_related("project").filter(project_id=job.project_id)
    export = exports.filter(pk=job.params.get("export_id")).first()
    if export is None:
        raise ValueError(f"Job {job.pk} (data_export): params.export_id is missing or the export was deleted.")
    if export.finished_at and not job.cursor:
        # A finished job that is run again has an empty cursor; its export starts over, too.
        writer.restart(export)
    finished = writer.advance(export, turn)
    total = export.record_count or 0
    if finished:
        job.result = {"file_url": files.stable_url(export), "record_count": total, "file_size": export.file_size}
        job.save(update_fields=["result"])
    # Rows that were deleted meanwhile may leave fewer than were counted at the start.
    done = total if finished else min(writer.written_rows(export), total)
    job.save_progress(cursor={"stage": "uploading" if finished else "exporting"}, done=done, total=total)
    return finished
