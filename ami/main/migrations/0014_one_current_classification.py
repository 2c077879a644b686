"""Makes classifications unique by detection, algorithm and job, with one current row, without blocking writes."""

from django.db import migrations, models

from ami.main.concurrent_indexes import AddIndexConcurrently, AddUniqueConcurrently


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("main", "0013_classification_history")]

    operations = [
        AddUniqueConcurrently(
            "classification",
            models.UniqueConstraint(
                fields=("detection", "algorithm", "job"), name="one_classification_per_detection_algorithm_and_job"
            ),
        ),
        AddUniqueConcurrently(
            "classification",
            models.UniqueConstraint(
                condition=models.Q(("job__isnull", True)),
                fields=("detection", "algorithm"),
                name="one_classification_without_job_per_detection_and_algorithm",
            ),
        ),
        AddUniqueConcurrently(
            "classification",
            models.UniqueConstraint(
                condition=models.Q(("is_current", True)),
                fields=("detection", "algorithm"),
                name="one_current_classification_per_detection_and_algorithm",
            ),
        ),
        AddIndexConcurrently(
            "classification",
            models.Index(condition=models.Q(("is_current", False)), fields=["id"], name="classifications_replaced"),
        ),
    ]
