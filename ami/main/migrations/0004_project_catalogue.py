"""Makes taxa assigned to projects no longer shared, and deletes an algorithm with its own project.

Django implements ``on_delete`` itself, so the largest tables, detections and classifications, are not altered.
"""

import django.db.models.deletion
from django.db import migrations, models


def keep_taxa_of_projects_to_them(apps, schema_editor):
    """Remove taxa that are assigned to projects, as results do with their labels, from the shared checklist.

    Taxa of identifications are assigned to the project from now on; here for the existing identifications.
    """
    taxon_model = apps.get_model("main", "Taxon")
    assigned = taxon_model.projects.through.objects.values("taxon_id")
    taxon_model.objects.filter(pk__in=assigned).update(shared=False)
    named = apps.get_model("main", "Identification").objects.exclude(taxon=None).order_by()
    pairs = named.values_list("taxon_id", "occurrence__project_id").distinct()
    through = taxon_model.projects.through
    rows = [through(taxon_id=taxon, project_id=project) for taxon, project in pairs]
    through.objects.bulk_create(rows, ignore_conflicts=True, batch_size=1000)


class Migration(migrations.Migration):

    dependencies = [
        ('main', '0003_api_tokens'),
        ('ml', '0002_projects'),
    ]

    operations = [
        migrations.AddField(
            model_name='taxon',
            name='shared',
            field=models.BooleanField(db_default=True, default=True, help_text='in the checklist that everybody sees, not only its projects'),
        ),
        migrations.AlterField(
            model_name='classification',
            name='algorithm',
            field=models.ForeignKey(on_delete=django.db.models.deletion.RESTRICT, related_name='classifications', to='ml.algorithm'),
        ),
        migrations.AlterField(
            model_name='classification',
            name='category_map',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.RESTRICT, related_name='classifications', to='ml.algorithmcategorymap'),
        ),
        migrations.AlterField(
            model_name='detection',
            name='detection_algorithm',
            field=models.ForeignKey(on_delete=django.db.models.deletion.RESTRICT, related_name='detections', to='ml.algorithm'),
        ),
        migrations.RunPython(keep_taxa_of_projects_to_them, migrations.RunPython.noop),
    ]
