"""Adds a nullable copy of the capture's project to detections; a task fills it in steps."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('main', '0009_old_list_indexes'),
        ('ml', '0003_project_catalogue'),
    ]

    operations = [
        migrations.AddField(
            model_name='detection',
            name='project',
            field=models.ForeignKey(db_constraint=False, db_index=False, editable=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='detections', to='main.project'),
        ),
    ]
