"""Jobs, their images, logs and stored results."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('main', '0001_initial'),
        ('ml', '0002_projects'),
    ]

    operations = [
        migrations.CreateModel(
            name='Job',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=255)),
                ('job_type_key', models.CharField(default='unknown', max_length=255)),
                ('status', models.CharField(choices=[('CREATED', 'Created'), ('PENDING', 'Pending'), ('RECEIVED', 'Received'), ('STARTED', 'Started'), ('RETRY', 'Retry'), ('SUCCESS', 'Success'), ('FAILURE', 'Failure'), ('CANCELING', 'Canceling'), ('REVOKED', 'Revoked'), ('UNKNOWN', 'Unknown')], default='CREATED', editable=False, max_length=16)),
                ('dispatch_mode', models.CharField(choices=[('internal', 'Internal'), ('sync_api', 'Sync Api'), ('async_api', 'Async Api')], default='internal', max_length=16)),
                ('task_id', models.CharField(blank=True, editable=False, max_length=255)),
                ('delay', models.PositiveIntegerField(default=0, help_text='seconds to wait before the work begins')),
                ('limit', models.PositiveIntegerField(blank=True, help_text='at most this many images', null=True)),
                ('shuffle', models.BooleanField(default=True)),
                ('params', models.JSONField(blank=True, default=dict)),
                ('result', models.JSONField(blank=True, null=True)),
                ('cursor', models.JSONField(blank=True, default=dict, editable=False)),
                ('done', models.PositiveBigIntegerField(default=0, editable=False)),
                ('total', models.PositiveBigIntegerField(default=0, editable=False)),
                ('collected_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('tries', models.PositiveSmallIntegerField(default=0, editable=False, help_text='errors of this run so far')),
                ('lease_owner', models.CharField(blank=True, editable=False, max_length=255)),
                ('lease_expires_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('heartbeat_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('scheduled_at', models.DateTimeField(blank=True, null=True)),
                ('started_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('finished_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('deployment', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='jobs', to='main.deployment')),
                ('pipeline', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='jobs', to='ml.pipeline')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='jobs', to='main.project')),
                ('source_image_collection', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='jobs', to='main.sourceimagecollection')),
                ('source_image_single', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='jobs', to='main.sourceimage')),
            ],
            options={
                'ordering': ['-created_at', '-pk'],
            },
        ),
        migrations.CreateModel(
            name='JobImage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('state', models.CharField(choices=[('pending', 'Pending'), ('published', 'Published'), ('claimed', 'Claimed'), ('processed', 'Processed'), ('failed', 'Failed')], default='pending', max_length=16)),
                ('position', models.PositiveBigIntegerField(default=0, help_text='order of publishing; random when shuffled')),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('reply_subject', models.CharField(blank=True, max_length=1024)),
                ('lease_expires_at', models.DateTimeField(blank=True, null=True)),
                ('published_at', models.DateTimeField(blank=True, null=True)),
                ('settled_at', models.DateTimeField(blank=True, null=True)),
                ('error', models.TextField(blank=True)),
                ('detections_count', models.PositiveIntegerField(default=0)),
                ('classifications_count', models.PositiveIntegerField(default=0)),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='images', to='jobs.job')),
                ('source_image', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='job_images', to='main.sourceimage')),
            ],
        ),
        migrations.CreateModel(
            name='JobLog',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('level', models.CharField(default='INFO', max_length=16)),
                ('message', models.TextField()),
                ('context', models.JSONField(blank=True, default=dict)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='log_entries', to='jobs.job')),
            ],
            options={
                'ordering': ['-created_at', '-pk'],
            },
        ),
        migrations.CreateModel(
            name='StoredResult',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=255, unique=True)),
                ('name', models.CharField(help_text='of the body in the storage "results"', max_length=255)),
                ('size_bytes', models.PositiveBigIntegerField(help_text='compressed')),
                ('reply_subject', models.CharField(blank=True, max_length=1024)),
                ('task_id', models.CharField(blank=True, max_length=255)),
                ('publishes', models.PositiveIntegerField(default=0)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('published_at', models.DateTimeField(blank=True, null=True)),
                ('handled_at', models.DateTimeField(blank=True, null=True)),
                ('error', models.TextField(blank=True)),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='stored_results', to='jobs.job')),
            ],
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(fields=['status', 'lease_expires_at'], name='jobs_job_status_8b8fc1_idx'),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(fields=['project', '-created_at'], name='jobs_job_project_1cf14b_idx'),
        ),
        migrations.AddIndex(
            model_name='jobimage',
            index=models.Index(fields=['job', 'state', 'position'], name='jobs_jobima_job_id_a839ab_idx'),
        ),
        migrations.AddIndex(
            model_name='jobimage',
            index=models.Index(condition=models.Q(('state', 'claimed')), fields=['lease_expires_at'], name='jobs_image_claimed_lease'),
        ),
        migrations.AddConstraint(
            model_name='jobimage',
            constraint=models.UniqueConstraint(fields=('job', 'source_image'), name='one_row_per_job_and_image'),
        ),
        migrations.AddIndex(
            model_name='joblog',
            index=models.Index(fields=['job', '-created_at'], name='jobs_joblog_job_id_e4aa59_idx'),
        ),
        migrations.AddIndex(
            model_name='storedresult',
            index=models.Index(condition=models.Q(('handled_at__isnull', True)), fields=['job', 'created_at'], name='jobs_result_unhandled'),
        ),
        migrations.AddIndex(
            model_name='storedresult',
            index=models.Index(fields=['handled_at'], name='jobs_stored_handled_7b6337_idx'),
        ),
    ]
