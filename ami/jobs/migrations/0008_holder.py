"""A job's lease has the columns of every lease."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0007_log_age")]

    operations = [
        migrations.RemoveIndex(model_name="job", name="jobs_job_status_8b8fc1_idx"),
        migrations.RenameField(model_name="job", old_name="lease_owner", new_name="holder"),
        migrations.RenameField(model_name="job", old_name="lease_expires_at", new_name="until"),
    ]
