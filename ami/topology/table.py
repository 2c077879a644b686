"""The table: the only place in this project that names a queue."""

from types import MappingProxyType

from ami.topology.workload import Workload

INGEST = "antenna-ingest"
HOUSEKEEPING = "antenna-housekeeping"
INTERACTIVE = "antenna-interactive"
SLOW = "antenna-slow"
FALLBACK = "antenna"

MIB = 1024

ROWS: tuple[Workload, ...] = (
    Workload(
        queue=INGEST,
        key="INGEST",
        service="celeryworker_ingest",
        promise="throughput; nothing lost",
        tasks=(
            "ami.jobs.tasks.process_nats_pipeline_result",
            "ami.jobs.tasks.process_nats_pipeline_results",
            "ami.ml.tasks.create_detection_images",
            "ami.main.tasks.*_calculated_fields",
        ),
        concurrency=16,
        max_tasks_per_child=500,
        max_memory_per_child_kib=512 * MIB,
        soft_time_limit_seconds=240,
        hard_time_limit_seconds=300,
        stop_grace_period_seconds=330,
        wait_target_seconds=600,
        redirects=MappingProxyType({"person": INTERACTIVE}),
    ),
    Workload(
        queue=HOUSEKEEPING,
        key="HOUSEKEEPING",
        service="celeryworker_housekeeping",
        promise="runs on its tick, however deep ingest is",
        tasks=(
            "ami.ml.tasks.check_processing_service",
            "ami.ml.tasks.check_processing_services_online",
            "ami.main.tasks.update_*",
            "ami.main.tasks.purge_old_rows",
            "ami.main.tasks.regroup_events",
            "ami.main.tasks.sync_source_images",
            "ami.jobs.tasks.audit_*",
            "ami.jobs.tasks.jobs_health_check",
            "ami.jobs.tasks.update_*",
            "ami.exports.tasks.run_scheduled_exports",
            # Celery's own: deletes results that have expired.
            "celery.backend_cleanup",
        ),
        concurrency=2,
        max_tasks_per_child=200,
        max_memory_per_child_kib=512 * MIB,
        soft_time_limit_seconds=240,
        hard_time_limit_seconds=300,
        stop_grace_period_seconds=330,
        wait_target_seconds=1,
        redirects=MappingProxyType({"person": INTERACTIVE}),
        inherits_origin=True,
    ),
    Workload(
        queue=INTERACTIVE,
        key="INTERACTIVE",
        service="celeryworker_interactive",
        promise="starts in about a second",
        tasks=(
            "ami.exports.tasks.*",
            "ami.jobs.tasks.run_job",
            "ami.ml.tasks.reprocess_captures",
            "ami.main.tasks.populate_collection",
            "ami.main.tasks.bulk_delete",
        ),
        concurrency=4,
        max_tasks_per_child=200,
        max_memory_per_child_kib=1024 * MIB,
        soft_time_limit_seconds=300,
        hard_time_limit_seconds=360,
        stop_grace_period_seconds=390,
        wait_target_seconds=1,
        redirects=MappingProxyType({"beat": HOUSEKEEPING}),
        inherits_origin=True,
    ),
    Workload(
        queue=SLOW,
        key="SLOW",
        service="celeryworker_slow",
        promise="best effort, no latency target",
        concurrency=1,
        max_tasks_per_child=10,
        max_memory_per_child_kib=4096 * MIB,
        soft_time_limit_seconds=1500,
        hard_time_limit_seconds=1620,
        stop_grace_period_seconds=1650,
        wait_target_seconds=3600,
        inherits_origin=True,
        enabled_by="ANTENNA_SLOW_ENABLED",
    ),
    Workload(
        queue=FALLBACK,
        key="FALLBACK",
        service="celeryworker",
        promise="no task is ever dropped or silently starving another queue",
        concurrency=2,
        max_tasks_per_child=100,
        max_memory_per_child_kib=512 * MIB,
        soft_time_limit_seconds=240,
        hard_time_limit_seconds=300,
        stop_grace_period_seconds=330,
        wait_target_seconds=60,
    ),
)
