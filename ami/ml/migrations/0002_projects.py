"""In which projects pipelines and services are used."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('main', '0001_initial'),
        ('ml', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='processingservice',
            name='projects',
            field=models.ManyToManyField(blank=True, related_name='processing_services', to='main.project'),
        ),
        migrations.CreateModel(
            name='ProjectPipelineConfig',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('enabled', models.BooleanField(default=True)),
                ('config', models.JSONField(blank=True, default=dict)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('pipeline', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='project_configs', to='ml.pipeline')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pipeline_configs', to='main.project')),
            ],
        ),
        migrations.AddField(
            model_name='pipeline',
            name='projects',
            field=models.ManyToManyField(blank=True, related_name='pipelines', through='ml.ProjectPipelineConfig', to='main.project'),
        ),
        migrations.AddConstraint(
            model_name='projectpipelineconfig',
            constraint=models.UniqueConstraint(fields=('pipeline', 'project'), name='one_config_per_pipeline_project'),
        ),
    ]
