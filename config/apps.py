"""Connects what no layer may import: signals of one layer to the listeners of another, or to Django's own parts."""

from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.contrib.admin.apps import SimpleAdminConfig
from django.core.management import call_command
from django.db.models.signals import post_migrate


class AntennaAdminConfig(SimpleAdminConfig):
    """Django's admin on a site that hides secrets, records actions and counts sign-ins."""

    default_site = "ami.main.admin_site.AdminSite"


class CompositionConfig(AppConfig):
    """Loaded last; wires the ports between the apps."""

    name = "config"
    label = "composition"

    def ready(self) -> None:
        """Complete the task routes; connect beat's claims, the workers' rows, the old application's tasks to their
        adoption, telemetry's listeners, and the cache's table to `migrate`.
        """
        from ami.celery import fences, sensitive, tick_claims, worker_records
        from ami.jobs.services import job_slice, nats_findings
        from ami.jobs.services import old_tasks as antenna
        from ami.jobs.services.running_jobs import running_jobs
        from ami.main.services import leases
        from ami.queues.adoption import old_tasks
        from ami.queues.diagnostics import sources
        from ami.queues.fence_rows import DatabaseFences
        from ami.queues.letters.collector import Collector
        from ami.queues.rescue import gone
        from ami.queues.rescue.sweep import Sweep
        from ami.queues.ticks import DatabaseTickClaims
        from ami.queues.worker_rows import DatabaseWorkerRecords
        from ami.telemetry import listeners, ports
        from ami.telemetry.sampler import Sampler
        from config import task_routes

        task_routes.apply()
        tick_claims.connect(DatabaseTickClaims())
        fences.connect(DatabaseFences())
        duties: list[Any] = [Collector()] if settings.ANTENNA_COLLECT_LETTERS else []
        duties.append(Sampler())
        worker_records.connect(DatabaseWorkerRecords(), Sweep(), *duties)
        sensitive.connect(settings.ANTENNA_SENSITIVE_NAMES)
        gone.connect(job_slice.release_of_dead)
        gone.connect(leases.release_named)
        listeners.connect()
        ports.connect_jobs(running_jobs)
        sources.connect("NATS", nats_findings.findings)
        old_tasks.connect(antenna.table())
        post_migrate.connect(create_cache_table, sender=apps.get_app_config("main"), dispatch_uid="antenna_cache")


def create_cache_table(using: str, **_: Any) -> None:
    """Create the table of a cache that lies in the database, unless it is there; `migrate` sends for it."""
    call_command("createcachetable", database=using, verbosity=0)
