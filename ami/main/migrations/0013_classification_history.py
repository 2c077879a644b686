"""Gives classifications a job and a mark of the current one; existing rows have no job and are current.

Both columns have a constant default, so PostgreSQL changes its catalogue only: the table is not rewritten.
"""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("main", "0012_capture_path_index"), ("jobs", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="classification",
            name="is_current",
            field=models.BooleanField(db_default=True, default=True, editable=False),
        ),
        migrations.AddField(
            model_name="classification",
            name="job",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                db_index=False,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="classifications",
                to="jobs.job",
            ),
        ),
    ]
