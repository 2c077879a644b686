"""Connects what no layer may import: signals of one layer to the listeners of another, or to Django's own parts."""

import os
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
        """Report errors where Sentry is configured; complete the task routes; connect beat's claims, the workers' rows,
        admission, the old application's tasks to their adoption, telemetry's listeners, the sub-commands of `queues`
        from layers above, and the cache's table to `migrate`.
        """
        from ami.admission import deployment
        from ami.admission import rows as admission_rows
        from ami.admission.dispatcher import Dispatcher
        from ami.celery import database_away, fences, outages, sensitive, staged_calls, tick_claims, worker_records
        from ami.celery.outages import Source
        from ami.console.top import command as top
        from ami.environment.deferred import deferred
        from ami.jobs.errors import NatsUnavailable
        from ami.jobs.services import job_slice, nats_findings
        from ami.jobs.services import old_tasks as antenna
        from ami.jobs.services.running_jobs import job_counts, running_jobs
        from ami.main.services import bucket_findings, leases
        from ami.queues import admission_facts, broker_errors, database_errors
        from ami.queues.adoption import old_tasks
        from ami.queues.diagnostics import look, sources
        from ami.queues.fence_rows import DatabaseFences
        from ami.queues.letters.collector import Collector
        from ami.queues.management import added
        from ami.queues.rescue import gone
        from ami.queues.rescue.sweep import Sweep
        from ami.queues.ticks import DatabaseTickClaims
        from ami.queues.worker_rows import DatabaseWorkerRecords
        from ami.telemetry import listeners, ports
        from ami.telemetry.alerts import command as alerts
        from ami.telemetry.alerts import receiver_findings
        from ami.telemetry.sampler import Sampler
        from config import task_routes

        if settings.SENTRY_DSN:
            from ami.environment.reader import read
            from ami.topology.image import Image
            from config import sentry

            sentry.start(settings.SENTRY_DSN, settings.SENTRY_ENVIRONMENT, read(Image, os.environ).antenna_version)
        task_routes.apply()
        outages.connect(
            Source(outages.DATABASE, lambda error, _: database_away.is_away(error), database_errors.sentence),
            Source(outages.CONFIRMATIONS, lambda error, _: broker_errors.is_unconfirmed(error), broker_errors.sentence),
            Source(
                outages.BROKER,
                lambda error, is_its: broker_errors.is_away(error, of_connection=is_its),
                broker_errors.sentence,
                ("celery.worker.consumer.consumer", "celery.beat", "ami.celery.scheduler"),
            ),
            Source(outages.NATS, lambda error, _: isinstance(error, NatsUnavailable), nats_findings.sentence),
        )
        tick_claims.connect(DatabaseTickClaims())
        fences.connect(DatabaseFences())
        duties: list[Any] = [Collector()] if settings.ANTENNA_COLLECT_LETTERS else []
        duties += [Sampler(), dispatcher := Dispatcher()]
        staged_calls.connect(admission_rows.DatabaseAdmission(), dispatcher.wake)
        deployment.connect(admission_facts.read)
        worker_records.connect(DatabaseWorkerRecords(), Sweep(), *duties)
        sensitive.connect(settings.ANTENNA_SENSITIVE_NAMES)
        gone.connect(dispatcher.worker_gone)
        gone.connect(job_slice.release_of_dead)
        gone.connect(leases.release_named)
        listeners.connect()
        ports.connect_jobs(running_jobs)
        ports.connect_job_counts(job_counts)
        added.connect("top", top.COMMAND)
        sources.connect("NATS", nats_findings.findings)
        sources.connect("bucket", bucket_findings.findings)
        promises = deferred("ami.telemetry.promise_findings")
        sources.connect("promises", lambda: promises.findings(), look.DATABASE, look.BROKER)
        sources.connect("alerts", receiver_findings.findings, look.DATABASE)
        added.connect("alerts", alerts.COMMAND)
        old_tasks.connect(antenna.table())
        post_migrate.connect(create_cache_table, sender=apps.get_app_config("main"), dispatch_uid="antenna_cache")


def create_cache_table(using: str, **_: Any) -> None:
    """Create the table of a cache that lies in the database, unless it is there; `migrate` sends for it."""
    call_command("createcachetable", database=using, verbosity=0)
