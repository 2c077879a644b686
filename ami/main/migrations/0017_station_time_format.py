"""A station's own format of the times in its file names."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("main", "0016_counts_are_calls")]

    operations = [
        migrations.AddField(
            model_name="deployment",
            name="data_source_time_format",
            field=models.CharField(
                blank=True,
                default="",
                help_text="how file names write the time, such as %d-%m-%Y_%H-%M-%S; empty: the usual forms, year first",
                max_length=100,
            ),
            preserve_default=False,
        ),
    ]
