"""Large tables on PostgreSQL, made by INSERT ... SELECT generate_series: captures and what was found on them.

Each capture has two detections, each of these a classification and an occurrence; one project has a tenth of the rows,
one has few, the others share the rest.
"""

from dataclasses import dataclass
from datetime import timedelta

from django.db import connection
from django.utils import timezone

from ami.jobs.models import Job
from ami.jobs.models.states import JobStatus
from ami.jobs.services import progress
from ami.main.models import Deployment, Event, Project, SourceImageCollection, User
from ami.ml.models import AlgorithmCategoryMap, Pipeline
from tests.support.product import factories

PROJECTS, STATIONS, NIGHTS, TAXA, JOBS = 10, 100, 50, 200, 200
STATEMENTS = """
INSERT INTO main_sourceimage (created_at, updated_at, project_id, deployment_id, event_id, path, public_base_url,
    timestamp, width, height, size, checksum, checksum_algorithm, detections_count)
SELECT now(), now(), s.project_id, s.id, e.id, 'trap/' || s.number || '/2026/' || md5(n::text) || '-' || n || '.jpg',
    '', timestamptz '2025-01-01 20:00Z' + (n %% %(nights)s) * interval '1 day' + n * interval '10 milliseconds',
    4096, 2160, 1000000 + n, '', '', 2
FROM generate_series(0, %(captures)s - 1) n
JOIN stations s ON s.number = CASE WHEN n %% 1000 = 0 THEN 0 ELSE 1 + n / %(nights)s %% (%(stations)s - 1) END
JOIN events e ON e.deployment_id = s.id AND e.number = n %% %(nights)s;

INSERT INTO main_detection (created_at, updated_at, source_image_id, detection_algorithm_id, project_id, bbox, bbox_key,
    path, timestamp)
SELECT now(), now(), c.id, CASE WHEN c.id %% 50 = 0 THEN %(rare)s ELSE %(detector)s END, c.project_id,
    CASE WHEN k = 2 THEN NULL ELSE jsonb_build_array(10 * k, 10, 50, 50) END,
    CASE WHEN k = 2 THEN 'null' ELSE '[' || 10 * k || ',10,50,50]' END, '', c.timestamp
FROM main_sourceimage c CROSS JOIN generate_series(0, 2) k WHERE k < 2 OR c.id %% 20 = 0 ORDER BY c.id, k;

INSERT INTO main_classification (created_at, updated_at, detection_id, algorithm_id, category_map_id, taxon_id, score,
    scores, logits, terminal, timestamp)
SELECT now(), now(), d.id, %(classifier)s, %(map)s, t.id, (d.id * 7919 %% 10007) / 10007.0, '', '',
    d.id %% 100 <> 0, d.timestamp
FROM main_detection d JOIN taxa t ON t.number = d.id * d.id %% %(taxa)s WHERE d.bbox IS NOT NULL ORDER BY d.id;

INSERT INTO main_occurrence (created_at, updated_at, detection_id, project_id, deployment_id, event_id,
    determination_id, determination_score)
SELECT now(), now(), d.id, c.project_id, c.deployment_id, c.event_id, k.taxon_id,
    CASE WHEN d.id %% 40 = 0 THEN NULL ELSE k.score END
FROM main_detection d JOIN main_sourceimage c ON c.id = d.source_image_id JOIN main_classification k
    ON k.detection_id = d.id ORDER BY d.id;

INSERT INTO main_sourceimagecollection_images (sourceimagecollection_id, sourceimage_id)
SELECT s.id, c.id FROM main_sourceimage c JOIN main_sourceimagecollection s ON c.project_id = s.project_id
    AND c.id %% CASE s.name WHEN 'half' THEN 2 ELSE 100 END = 0 ORDER BY 1, 2;

INSERT INTO jobs_jobimage (job_id, source_image_id, state, position, attempts, reply_subject, claimed_by, extensions,
    error, detections_count, classifications_count, settled_at)
SELECT j.id, f.first + n, CASE WHEN j.status <> 'SUCCESS' AND n %% 2 = 0 THEN 'pending' ELSE 'processed' END, n, 1, '',
    '', 0, '', 2, 2, now()
FROM (SELECT id, status, row_number() OVER (ORDER BY id) - 1 AS number FROM jobs_job) j
CROSS JOIN (SELECT min(id) AS first FROM main_sourceimage) f
CROSS JOIN generate_series(0, %(images)s - 1) n;

INSERT INTO jobs_storedresult (job_id, key, name, size_bytes, reply_subject, task_id, publishes, created_at, handled_at,
    error)
SELECT i.job_id, 'job/' || i.job_id || '/' || md5(i.id::text), 'x', 1000, '', md5('task' || i.id), 1, now(), now(), ''
FROM jobs_jobimage i WHERE i.state = 'processed'
"""


@dataclass(frozen=True)
class LargeLists:
    """The rows by which lists are filtered, and users: of every project, of five, and of the one with few rows."""

    captures: int
    superuser: User
    member: User
    newcomer: User
    big: Project
    small: Project
    station: Deployment
    event: Event
    common_set: SourceImageCollection
    rare_set: SourceImageCollection
    taxon: int
    capture: int
    detector: int
    rare: int
    classifier: int
    job: int


def build(captures: int) -> LargeLists:
    """Fill empty tables with ``captures`` captures and return what their lists are filtered by."""
    owner, member, newcomer = (factories.user(name=name) for name in ("Owner", "Member", "Newcomer"))
    projects = [factories.project(owner=owner) for _ in range(PROJECTS)]
    for index, project in enumerate(projects):
        project.members.add(*[member] * (index % 2 == 0), *[newcomer] * (index == 0))
    # The first station is the only one of its project and has a thousandth of the captures.
    of = [projects[0] if index == 0 else projects[1 + index % (PROJECTS - 1)] for index in range(STATIONS)]
    stations = [factories.station(project) for project in of]
    rare = factories.Algorithm.objects.create(key="rare", name="Rare", task_type="detection")
    labels = AlgorithmCategoryMap.objects.create(labels=["a"], data=[{"index": 0, "label": "a"}], version="1")
    taxa = factories.Taxon.objects.bulk_create(
        factories.Taxon(name=f"Taxon of lists {n}", display_name=f"Taxon of lists {n}") for n in range(TAXA)
    )
    sets = SourceImageCollection.objects.bulk_create(
        SourceImageCollection(name="half", project=project) for project in projects[1:]
    )
    half = next(each for each in sets if each.project == of[5])
    few = SourceImageCollection.objects.create(name="few", project=of[5])
    nights = factories.NIGHT.date().toordinal()
    events = Event.objects.bulk_create(
        Event(project=station.project, deployment=station, group_by=factories.NIGHT.fromordinal(nights + n).date())
        for station in stations
        for n in range(NIGHTS)
    )
    job = _jobs(of[5])
    values = {
        "captures": captures,
        "nights": NIGHTS,
        "stations": STATIONS,
        "taxa": TAXA,
        "detector": factories.detector().pk,
        "rare": rare.pk,
        "classifier": factories.classifier().pk,
        "map": labels.pk,
    }
    values["images"] = captures // JOBS
    with connection.cursor() as cursor:
        # Without a check of every foreign key; the rows fit.
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            "CREATE TEMPORARY TABLE stations (number, id, project_id) AS VALUES "
            + _rows((index, station.pk, station.project_id) for index, station in enumerate(stations))
        )
        cursor.execute(
            "CREATE TEMPORARY TABLE events (number, id, deployment_id) AS VALUES "
            + _rows((index % NIGHTS, event.pk, event.deployment_id) for index, event in enumerate(events))
        )
        cursor.execute(
            "CREATE TEMPORARY TABLE taxa (number, id) AS VALUES "
            + _rows((index, taxon.pk) for index, taxon in enumerate(taxa))
        )
        for statement in STATEMENTS.split(";\n"):
            cursor.execute(statement, values)
        cursor.execute("DROP TABLE stations, events, taxa")
        cursor.execute("SET session_replication_role = DEFAULT")
        cursor.execute("ANALYZE jobs_jobimage")
        progress.store_counts(JOBS)
        cursor.execute("SELECT min(id) + 100 FROM main_sourceimage")
        (capture,) = cursor.fetchone()
    return LargeLists(
        captures=captures,
        superuser=factories.user(is_staff=True, is_superuser=True),
        member=member,
        newcomer=newcomer,
        big=of[5],
        small=projects[0],
        station=stations[5],
        event=events[5 * NIGHTS + 3],
        common_set=half,
        rare_set=few,
        taxon=taxa[1].pk,
        capture=capture,
        detector=values["detector"],
        rare=rare.pk,
        classifier=values["classifier"],
        job=job,
    )


def analyze() -> None:
    """Collect statistics and mark pages as visible, as autovacuum does; not within a transaction."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def _rows(rows) -> str:
    return ", ".join(str(tuple(row)) for row in rows)


def _jobs(project: Project) -> int:
    pipeline = Pipeline.objects.create(name="Lists", slug="lists")
    statuses = [JobStatus.STARTED if n % 50 == 0 else JobStatus.SUCCESS for n in range(JOBS)]
    jobs = [
        Job(
            name=f"job {n}",
            project=project,
            job_type_key="ml",
            pipeline=pipeline,
            status=status,
            collected_at=factories.NIGHT,
            finished_at=timezone.now() - timedelta(days=2) if status == JobStatus.SUCCESS else None,
        )
        for n, status in enumerate(statuses)
    ]
    return Job.objects.bulk_create(jobs)[1].pk
