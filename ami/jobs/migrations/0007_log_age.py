from django.db import migrations, models

from ami.main.concurrent_indexes import AddIndexConcurrently


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("jobs", "0006_served_at")]

    operations = [
        AddIndexConcurrently(
            model_name="joblog", index=models.Index(fields=["created_at"], name="jobs_joblog_age")
        ),
    ]
