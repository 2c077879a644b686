"""When a job was last published, and how often, before it began."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='queued_at',
            field=models.DateTimeField(blank=True, editable=False, help_text='last published before it began', null=True),
        ),
        migrations.AddField(
            model_name='job',
            name='queued_times',
            field=models.PositiveSmallIntegerField(default=0, editable=False, help_text='published before it began'),
        ),
    ]
