"""Adds the indexes of a project's detections and of those without one, without blocking writes."""

from django.db import migrations, models

from ami.main.concurrent_indexes import AddIndexConcurrently


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("main", "0010_detection_project")]

    operations = [
        AddIndexConcurrently(
            "detection",
            models.Index(
                fields=["project", "id"], condition=models.Q(bbox__isnull=False), name="detections_of_project"
            ),
        ),
        AddIndexConcurrently(
            "detection",
            models.Index(fields=["id"], condition=models.Q(project__isnull=True), name="detections_without_project"),
        ),
    ]
