"""System checks: what `manage.py check` says about pictures."""

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, register
from django.core.checks import Warning as CheckWarning

from ami.main.services.picture_memory import baseline_kib
from ami.topology.errors import TopologyError
from ami.topology.topology import Topology
from ami.topology.workload import ORIGINS, PARENT_MEMORY_KIB, Workload

CROPS = "ami.ml.tasks.create_detection_images"


@register("ml")
def check_largest_picture(**_: Any) -> list[CheckMessage]:
    """Check that the processes that make crops can decode the largest baseline JPEG that the setting admits."""
    topology: Topology = settings.ANTENNA_TOPOLOGY
    try:
        queues = {topology.place(CROPS, origin).queue: None for origin in (None, *ORIGINS)}
    except TopologyError:  # queues.E001 says it.
        return []
    return [
        message for queue in queues for message in _check_row(topology.workload(queue), settings.ANTENNA_MAX_MEGAPIXELS)
    ]


def _check_row(row: Workload, megapixels: int) -> Iterator[CheckMessage]:
    # A fresh child is about as large as its parent.
    free_kib = (row.child_limit_kib if row.pool == "prefork" else row.memory_limit_kib) - PARENT_MEMORY_KIB
    needed_kib = baseline_kib(megapixels)
    if needed_kib > free_kib:
        per_megapixel = (baseline_kib(1000) - baseline_kib(0)) / 1000
        fits = max(1, int((free_kib - baseline_kib(0)) / per_megapixel))
        yield CheckWarning(
            f"ANTENNA_MAX_MEGAPIXELS={megapixels} admits pictures that take {needed_kib // 1024} MiB to decode, and a "
            f"process of '{row.queue}' has {free_kib // 1024} MiB for them: they get no crops.",
            hint=f"Set ANTENNA_{row.key}_MAX_MEMORY_PER_CHILD_KIB={needed_kib + PARENT_MEMORY_KIB} or more, or "
            f"ANTENNA_MAX_MEGAPIXELS={fits}.",
            id="ml.W001",
        )
