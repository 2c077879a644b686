"""Pipelines, algorithms, maps and services belong to a project; what exists is the staff's shared catalogue.

Only small tables change. Detections and classifications keep referring to the rows that they refer to.
"""

import django.db.models.deletion
from django.db import migrations, models


def give_services_their_project(apps, schema_editor):
    """Give each service that one project uses to that project, and each project a pulling service of its own.

    A pulling service of several projects is split, since its name is looked up within a project from now on: the row
    stays the first project's, and each other one gets an equal row. One with an address that several projects use
    stays as it is, the staff's (no project).
    """
    service_model = apps.get_model("ml", "ProcessingService")
    for service in service_model.objects.filter(project=None).order_by("pk"):
        first, *others = [*service.projects.order_by("pk"), None]
        others = [project for project in others if project is not None]
        if first is None or (service.endpoint_url and others):
            continue
        service.project = first
        service.save(update_fields=["project"])
        pipelines = list(service.pipelines.all())
        for project in others:
            copied = {name: getattr(service, name) for name in COPIED}
            own = service_model.objects.create(project=project, **copied)
            own.projects.add(project)
            own.pipelines.set(pipelines)
            service.projects.remove(project)


COPIED = ("name", "description", "endpoint_url", "last_seen", "last_seen_live", "last_seen_latency")


class Migration(migrations.Migration):

    dependencies = [
        ('main', '0004_project_catalogue'),
        ('ml', '0002_projects'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='algorithm',
            name='one_algorithm_per_name_version',
        ),
        migrations.RemoveConstraint(
            model_name='pipeline',
            name='one_pipeline_per_name_version',
        ),
        migrations.AddField(
            model_name='algorithm',
            name='project',
            field=models.ForeignKey(blank=True, help_text='the project it belongs to; empty: the shared catalogue, which only staff change', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='own_algorithms', to='main.project'),
        ),
        migrations.AddField(
            model_name='algorithmcategorymap',
            name='project',
            field=models.ForeignKey(blank=True, help_text='the project it belongs to; empty: the shared catalogue, which only staff change', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='category_maps', to='main.project'),
        ),
        migrations.AddField(
            model_name='pipeline',
            name='project',
            field=models.ForeignKey(blank=True, help_text='the project it belongs to; empty: the shared catalogue, which only staff change', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='own_pipelines', to='main.project'),
        ),
        migrations.AddField(
            model_name='processingservice',
            name='project',
            field=models.ForeignKey(blank=True, help_text='the project within which its name is unique; empty: of staff, for the projects below', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='own_processing_services', to='main.project'),
        ),
        migrations.AlterField(
            model_name='algorithm',
            name='category_map',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.RESTRICT, related_name='algorithms', to='ml.algorithmcategorymap'),
        ),
        migrations.AlterField(
            model_name='algorithm',
            name='key',
            field=models.CharField(db_index=True, max_length=255),
        ),
        migrations.AlterField(
            model_name='pipeline',
            name='slug',
            field=models.CharField(db_index=True, max_length=255),
        ),
        migrations.AlterField(
            model_name='processingservice',
            name='name',
            field=models.CharField(max_length=255),
        ),
        migrations.AddConstraint(
            model_name='algorithm',
            constraint=models.UniqueConstraint(condition=models.Q(('project__isnull', False)), fields=('project', 'key'), name='one_algorithm_per_project_key'),
        ),
        migrations.AddConstraint(
            model_name='algorithm',
            constraint=models.UniqueConstraint(condition=models.Q(('project__isnull', True)), fields=('key',), name='one_algorithm_per_shared_key'),
        ),
        migrations.AddConstraint(
            model_name='algorithm',
            constraint=models.UniqueConstraint(condition=models.Q(('project__isnull', False)), fields=('project', 'name', 'version'), name='one_algorithm_per_project_name_version'),
        ),
        migrations.AddConstraint(
            model_name='algorithm',
            constraint=models.UniqueConstraint(condition=models.Q(('project__isnull', True)), fields=('name', 'version'), name='one_algorithm_per_shared_name_version'),
        ),
        migrations.AddConstraint(
            model_name='pipeline',
            constraint=models.UniqueConstraint(condition=models.Q(('project__isnull', False)), fields=('project', 'slug'), name='one_pipeline_per_project_slug'),
        ),
        migrations.AddConstraint(
            model_name='pipeline',
            constraint=models.UniqueConstraint(condition=models.Q(('project__isnull', True)), fields=('slug',), name='one_pipeline_per_shared_slug'),
        ),
        migrations.AddConstraint(
            model_name='pipeline',
            constraint=models.UniqueConstraint(condition=models.Q(('project__isnull', False)), fields=('project', 'name', 'version'), name='one_pipeline_per_project_name_version'),
        ),
        migrations.AddConstraint(
            model_name='pipeline',
            constraint=models.UniqueConstraint(condition=models.Q(('project__isnull', True)), fields=('name', 'version'), name='one_pipeline_per_shared_name_version'),
        ),
        migrations.AddConstraint(
            model_name='processingservice',
            constraint=models.UniqueConstraint(condition=models.Q(('project__isnull', False)), fields=('project', 'name'), name='one_service_per_project_name'),
        ),
        migrations.AddConstraint(
            model_name='processingservice',
            constraint=models.UniqueConstraint(condition=models.Q(('project__isnull', True)), fields=('name',), name='one_service_per_shared_name'),
        ),
        migrations.RunPython(give_services_their_project, migrations.RunPython.noop),
    ]
