"""Drops the indexes of foreign keys that another index begins with."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [('main', '0007_list_indexes')]

    operations = [
        migrations.AlterField(
            model_name='classification',
            name='algorithm',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.RESTRICT, related_name='classifications', to='ml.algorithm'),
        ),
        migrations.AlterField(
            model_name='classification',
            name='detection',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='classifications', to='main.detection'),
        ),
        migrations.AlterField(
            model_name='detection',
            name='detection_algorithm',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.RESTRICT, related_name='detections', to='ml.algorithm'),
        ),
        migrations.AlterField(
            model_name='detection',
            name='source_image',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='detections', to='main.sourceimage'),
        ),
        migrations.AlterField(
            model_name='occurrence',
            name='deployment',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='occurrences', to='main.deployment'),
        ),
        migrations.AlterField(
            model_name='occurrence',
            name='determination',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='occurrences', to='main.taxon'),
        ),
        migrations.AlterField(
            model_name='occurrence',
            name='event',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='occurrences', to='main.event'),
        ),
        migrations.AlterField(
            model_name='occurrence',
            name='project',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='occurrences', to='main.project'),
        ),
        migrations.AlterField(
            model_name='sourceimage',
            name='deployment',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='captures', to='main.deployment'),
        ),
        migrations.AlterField(
            model_name='sourceimage',
            name='event',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='captures', to='main.event'),
        ),
        migrations.AlterField(
            model_name='sourceimage',
            name='project',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='captures', to='main.project'),
        ),
    ]
