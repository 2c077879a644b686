"""The kinds of stale counts are no choices any more: only an earlier version writes them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("main", "0015_many_classifications_per_algorithm")]

    operations = [
        migrations.AlterField(
            model_name="stalecount",
            name="kind",
            field=models.CharField(max_length=16),
        ),
    ]
