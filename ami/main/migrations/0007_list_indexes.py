"""Adds the indexes of the lists of captures, detections, classifications and occurrences, without blocking writes."""

from django.db import migrations, models

from ami.main.concurrent_indexes import AddIndexConcurrently


class Migration(migrations.Migration):
    atomic = False

    dependencies = [('main', '0006_float_lists'), ('ml', '0003_project_catalogue')]

    operations = [
        AddIndexConcurrently(
            model_name='classification',
            index=models.Index(fields=['algorithm', 'id'], name='classifications_by_algorithm'),
        ),
        AddIndexConcurrently(
            model_name='classification',
            index=models.Index(condition=models.Q(('terminal', False)), fields=['id'], name='classifications_intermediate'),
        ),
        AddIndexConcurrently(
            model_name='detection',
            index=models.Index(fields=['detection_algorithm', 'id'], name='detections_by_algorithm'),
        ),
        AddIndexConcurrently(
            model_name='occurrence',
            index=models.Index(fields=['-determination_score', 'id'], name='occurrences_by_score'),
        ),
        AddIndexConcurrently(
            model_name='occurrence',
            index=models.Index(fields=['project', '-determination_score', 'id'], name='occurrences_of_project'),
        ),
        AddIndexConcurrently(
            model_name='occurrence',
            index=models.Index(fields=['deployment', '-determination_score', 'id'], include=['project', 'detection'], name='occurrences_of_station'),
        ),
        AddIndexConcurrently(
            model_name='occurrence',
            index=models.Index(fields=['event', '-determination_score', 'id'], include=['project', 'detection'], name='occurrences_of_event'),
        ),
        AddIndexConcurrently(
            model_name='occurrence',
            index=models.Index(fields=['determination', '-determination_score', 'id'], include=['project'], name='occurrences_of_taxon'),
        ),
        AddIndexConcurrently(
            model_name='sourceimage',
            index=models.Index(fields=['timestamp', 'id'], name='captures_by_time'),
        ),
        AddIndexConcurrently(
            model_name='sourceimage',
            index=models.Index(fields=['project', 'timestamp', 'id'], name='captures_of_project'),
        ),
        AddIndexConcurrently(
            model_name='sourceimage',
            index=models.Index(fields=['deployment', 'timestamp', 'id'], include=['project'], name='captures_of_station'),
        ),
        AddIndexConcurrently(
            model_name='sourceimage',
            index=models.Index(fields=['event', 'timestamp', 'id'], include=['project'], name='captures_of_event'),
        ),
    ]
