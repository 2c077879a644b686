"""Removes stored URLs: export files are served by the API, and job results name the endpoint."""

from django.conf import settings
from django.db import migrations


def point_to_the_api(apps, schema_editor):
    """Replace the URLs in the results of export jobs, which are no longer served."""
    exports = apps.get_model("exports", "DataExport").objects.using(schema_editor.connection.alias)
    for export in exports.filter(job__isnull=False).select_related("job").iterator(chunk_size=500):
        job = export.job
        if isinstance(job.result, dict) and "file_url" in job.result:
            base = settings.ANTENNA_PUBLIC_URL.rstrip("/")
            job.result = {**job.result, "file_url": f"{base}/api/v2/exports/{export.pk}/file/"}
            job.save(update_fields=["result"])


class Migration(migrations.Migration):
    dependencies = [("exports", "0001_initial")]

    operations = [
        migrations.RunPython(point_to_the_api, migrations.RunPython.noop, elidable=True),
        migrations.RemoveField(model_name="dataexport", name="file_url"),
    ]
