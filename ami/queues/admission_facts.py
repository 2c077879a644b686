"""What admission asks of workers' rows and of operators' wishes: two statements."""

from collections import defaultdict

from django.db.models import Q
from django.db.models.functions import Now

from ami.admission.deployment import Deployment
from ami.queues.models import DesiredState, Worker
from ami.queues.rescue.verdict import Verdict


def read() -> Deployment:
    """Return which workers live, how much they run at once, and what is paused or disabled."""
    places: dict[str, int] = defaultdict(int)
    workers = set()
    for name, queues, concurrency, verdict in Worker.objects.values_list(
        "connection_name", "queues", "concurrency", "verdict"
    ):
        if verdict != Verdict.DEAD:
            workers.add(name)
            for queue in queues:
                places[queue] += concurrency
    holds = DesiredState.objects.filter(Q(until=None) | Q(until__gt=Now()), value__gte=1)
    kinds, aspects = DesiredState.Kind, DesiredState.Aspect
    paused = Q(kind=kinds.QUEUE, aspect=aspects.PAUSED)
    disabled = Q(kind__in=(kinds.TASK_NAME, kinds.JOB), aspect=aspects.DISABLED)
    limited = Q(kind__in=(kinds.PERMITS, kinds.RATE), aspect=aspects.MOST)
    weighed = Q(kind=kinds.FAIR_KEY, aspect=aspects.WEIGHT)
    wishes = list(holds.filter(paused | disabled | limited | weighed).values_list("kind", "name", "value"))
    numbers = {each: {name: value for kind, name, value in wishes if kind == each} for each in kinds}
    return Deployment(
        places=dict(places),
        workers=frozenset(workers),
        paused_queues=frozenset(numbers[kinds.QUEUE]),
        disabled_tasks=frozenset(numbers[kinds.TASK_NAME]),
        disabled_jobs=frozenset(numbers[kinds.JOB]),
        limits=numbers[kinds.PERMITS],
        rates=numbers[kinds.RATE],
        weights=numbers[kinds.FAIR_KEY],
    )
