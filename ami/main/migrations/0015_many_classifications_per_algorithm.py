"""Drops the constraint that allowed one classification per detection and algorithm."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("main", "0014_one_current_classification")]

    operations = [
        migrations.RemoveConstraint(
            model_name="classification",
            name="one_classification_per_detection_and_algorithm",
        ),
    ]
