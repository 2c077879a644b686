import hashlib

import django.db.models.deletion
import django.utils.timezone
from django.apps.registry import Apps
from django.conf import settings
from django.db import migrations, models
from django.db.migrations.recorder import MigrationRecorder


class OldToken(models.Model):
    """The clear-text tokens of Django REST framework, whose app is no longer installed."""

    key = models.CharField(max_length=40, primary_key=True)
    created = models.DateTimeField()
    user_id = models.BigIntegerField()

    class Meta:
        app_label = "authtoken"
        db_table = "authtoken_token"
        apps = Apps()


def hash_old_tokens(apps, schema_editor):
    """Copy the clear-text tokens as hashes, so that they stay valid, and drop their table."""
    connection = schema_editor.connection
    if OldToken._meta.db_table not in connection.introspection.table_names():
        return
    new, now = apps.get_model("main", "ApiToken").objects.using(connection.alias), django.utils.timezone.now()
    new.bulk_create(
        new.model(
            digest=hashlib.sha256(old.key.encode()).hexdigest(),
            prefix=old.key[:8],
            name="from before tokens had names",
            user_id=old.user_id,
            created_at=old.created,
            # The last use is unknown: the idle time starts now.
            last_used_at=now,
        )
        for old in OldToken._base_manager.using(connection.alias).all()
    )
    schema_editor.delete_model(OldToken)


def forget_old_app(apps, schema_editor):
    """Remove the other remains of the app: keys in the admin's history, permissions, applied migrations."""
    connection = schema_editor.connection
    types = apps.get_model("contenttypes", "ContentType").objects.using(connection.alias).filter(app_label="authtoken")
    history = apps.get_model("admin", "LogEntry").objects.using(connection.alias)
    # A token's name in the history was its key.
    history.filter(content_type__in=types).update(object_repr="token")
    types.delete()
    MigrationRecorder(connection).migration_qs.filter(app="authtoken").delete()


class Migration(migrations.Migration):

    dependencies = [
        ('main', '0002_login_attempts'),
        ('admin', '0003_logentry_add_action_flag_choices'),
        ('contenttypes', '0002_remove_content_type_name'),
    ]

    operations = [
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(editable=False, max_length=64, unique=True)),
                ('prefix', models.CharField(editable=False, help_text='how the key begins', max_length=8)),
                ('name', models.CharField(blank=True, max_length=255)),
                ('scope', models.CharField(choices=[('person', 'Person'), ('worker', 'Worker')], default='person', max_length=16)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('last_used_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('projects', models.ManyToManyField(blank=True, help_text="a worker's, no others", related_name='+', to='main.project')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='api_tokens', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'API token',
                'ordering': ['-created_at', '-pk'],
                'permissions': [('revoke_apitoken', 'Can revoke API tokens')],
                'indexes': [models.Index(fields=['user', 'scope', 'created_at'], name='main_apitok_user_id_7fd1a9_idx')],
            },
        ),
        migrations.RunPython(hash_old_tokens, migrations.RunPython.noop, elidable=True),
        migrations.RunPython(forget_old_app, migrations.RunPython.noop, elidable=True),
    ]
