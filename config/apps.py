"""Connects what no layer may import: signals of one layer to the listeners of another, or to Django's own parts."""

import gc
import os
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.contrib.admin.apps import SimpleAdminConfig
from django.core.management import CommandError, call_command
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder
from django.db.models.signals import post_migrate, pre_migrate

#: By source, the module of an app above the queues whose ``findings`` it is, and the sources that it needs.
FINDINGS = {
    "NATS": ("ami.jobs.services.nats_findings",),
    "bucket": ("ami.main.services.bucket_findings",),
    "promises": ("ami.telemetry.promise_findings", "database", "broker-unreachable"),
    "alerts": ("ami.telemetry.alerts.receiver_findings", "database"),
}


class AntennaAdminConfig(SimpleAdminConfig):
    """Django's admin on a site that hides secrets, records actions and counts sign-ins."""

    default_site = "ami.main.admin_site.AdminSite"


class CompositionConfig(AppConfig):
    """Loaded last; wires the ports between the apps."""

    name = "config"
    label = "composition"

    def ready(self) -> None:
        """Report errors where Sentry is configured; complete the task routes; connect beat's claims, the workers' rows,
        admission, telemetry's listeners, the sub-commands of `queues`
        from layers above, and the cache's table to `migrate`. What only workers, beat or the page use is deferred.
        """
        from ami.admission import deployment
        from ami.celery import database_away, fences, outages, sensitive, staged_calls, tick_claims, worker_records
        from ami.celery.outages import Source
        from ami.console.top import command as top
        from ami.environment.deferred import deferred
        from ami.jobs.errors import NatsUnavailable
        from ami.jobs.services import job_slice
        from ami.queues import admission_facts, broker_errors, database_errors, named_leases
        from ami.queues.diagnostics import sources
        from ami.queues.management import added
        from ami.queues.rescue import gone
        from ami.telemetry import listeners, ports
        from ami.telemetry.alerts import command as alerts
        from config import task_routes

        if settings.SENTRY_DSN:
            from ami.environment.reader import read
            from ami.topology.image import Image
            from config import sentry

            sentry.start(settings.SENTRY_DSN, settings.SENTRY_ENVIRONMENT, read(Image, os.environ).antenna_version)
        task_routes.apply()
        nats = deferred(FINDINGS["NATS"][0])
        outages.connect(
            Source(outages.DATABASE, lambda error, _: database_away.is_away(error), database_errors.sentence),
            Source(outages.CONFIRMATIONS, lambda error, _: broker_errors.is_unconfirmed(error), broker_errors.sentence),
            Source(
                outages.BROKER,
                lambda error, is_its: broker_errors.is_away(error, of_connection=is_its),
                broker_errors.sentence,
                ("celery.worker.consumer.consumer", "celery.beat", "ami.celery.scheduler"),
            ),
            Source(outages.NATS, lambda error, _: isinstance(error, NatsUnavailable), lambda e: nats.sentence(e)),
        )
        tick_claims.connect(deferred("ami.queues.ticks:CLAIMS"))
        fences.connect(deferred("ami.queues.fence_rows:FENCES"))
        duties = [deferred("ami.queues.letters.collector:DUTY")] if settings.ANTENNA_COLLECT_LETTERS else []
        duties += [deferred("ami.telemetry.sampler:DUTY"), dispatcher := deferred("ami.admission.dispatcher:DUTY")]
        staged_calls.connect(deferred("ami.admission.rows:ADMISSION"), lambda: dispatcher.wake())
        deployment.connect(admission_facts.read)
        sweeper = deferred("ami.queues.rescue.sweep:SWEEPER")
        worker_records.connect(deferred("ami.queues.worker_rows:RECORDS"), sweeper, *duties)
        sensitive.connect(settings.ANTENNA_SENSITIVE_NAMES)
        gone.connect(lambda *workers: dispatcher.worker_gone(*workers))
        gone.connect(job_slice.release_of_dead)
        gone.connect(named_leases.release_of_dead)
        listeners.connect()
        jobs = deferred("ami.jobs.services.running_jobs")
        ports.connect_jobs(lambda: jobs.running_jobs())
        ports.connect_job_counts(lambda: jobs.job_counts())
        added.connect("top", top.COMMAND)
        for name, (path, *needs) in FINDINGS.items():
            source = deferred(path)
            sources.connect(name, lambda source=source: source.findings(), *needs)
        added.connect("alerts", alerts.COMMAND)
        pre_migrate.connect(refuse_earlier, sender=apps.get_app_config("main"), dispatch_uid="antenna_earlier")
        post_migrate.connect(create_cache_table, sender=apps.get_app_config("main"), dispatch_uid="antenna_cache")
        gc.enable()  # After `manage.py` has switched it off.


def refuse_earlier(using: str, **_: Any) -> None:
    """Refuse to migrate a database that an earlier version made; `migrate` asks before it changes anything."""
    from config.waiting import migrations

    if migrations.EARLIER in MigrationRecorder(connections[using]).applied_migrations():
        raise CommandError(f"{connections[using].settings_dict['NAME']} cannot be migrated: {migrations.MADE_EARLIER}.")


def create_cache_table(using: str, **_: Any) -> None:
    """Create the table of a cache that lies in the database, unless it is there; `migrate` sends for it."""
    call_command("createcachetable", database=using, verbosity=0)
