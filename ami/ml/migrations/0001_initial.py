"""Algorithms, pipelines and services; what refers to a project follows once there are projects."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name='AlgorithmCategoryMap',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('data', models.JSONField(blank=True, default=list)),
                ('labels', models.JSONField(blank=True, default=list)),
                ('labels_hash', models.CharField(db_index=True, editable=False, max_length=64)),
                ('version', models.CharField(blank=True, max_length=255)),
                ('description', models.TextField(blank=True)),
                ('uri', models.CharField(blank=True, max_length=8192)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'ordering': ['-created_at', '-pk'],
            },
        ),
        migrations.CreateModel(
            name='Algorithm',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=255)),
                ('key', models.CharField(max_length=255, unique=True)),
                ('version', models.IntegerField(default=1)),
                ('version_name', models.CharField(blank=True, max_length=255)),
                ('description', models.TextField(blank=True)),
                ('task_type', models.CharField(blank=True, max_length=255)),
                ('uri', models.CharField(blank=True, max_length=8192)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('category_map', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='algorithms', to='ml.algorithmcategorymap')),
            ],
            options={
                'ordering': ['name', 'version'],
            },
        ),
        migrations.CreateModel(
            name='Pipeline',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=255)),
                ('slug', models.CharField(max_length=255, unique=True)),
                ('version', models.IntegerField(default=1)),
                ('description', models.TextField(blank=True)),
                ('stages', models.JSONField(blank=True, default=list)),
                ('default_config', models.JSONField(blank=True, default=dict)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('algorithms', models.ManyToManyField(blank=True, related_name='pipelines', to='ml.algorithm')),
            ],
            options={
                'ordering': ['name', 'version'],
            },
        ),
        migrations.CreateModel(
            name='ProcessingService',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=255, unique=True)),
                ('description', models.TextField(blank=True)),
                ('endpoint_url', models.CharField(blank=True, max_length=1024, null=True)),
                ('last_seen', models.DateTimeField(blank=True, null=True)),
                ('last_seen_live', models.BooleanField(blank=True, null=True)),
                ('last_seen_latency', models.FloatField(blank=True, help_text='seconds', null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('pipelines', models.ManyToManyField(blank=True, related_name='processing_services', to='ml.pipeline')),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.AddConstraint(
            model_name='algorithm',
            constraint=models.UniqueConstraint(fields=('name', 'version'), name='one_algorithm_per_name_version'),
        ),
        migrations.AddConstraint(
            model_name='pipeline',
            constraint=models.UniqueConstraint(fields=('name', 'version'), name='one_pipeline_per_name_version'),
        ),
    ]
