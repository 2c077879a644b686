"""Updates the public base URL of a station's captures in batches."""

from ami.main.models.captures import SourceImage
from ami.queues.slices import Slice

BATCH = 1000


def update_public_urls(deployment_id: int, base_url: str, turn: Slice) -> bool:
    """Set ``public_base_url`` where it differs, until the slice is over; return whether all are set.

    Batches avoid locking all rows of a station at once.
    """
    wrong = SourceImage.objects.filter(deployment_id=deployment_id).exclude(public_base_url=base_url)
    while batch := list(wrong.order_by("pk").values_list("pk", flat=True)[:BATCH]):
        SourceImage.objects.filter(pk__in=batch).update(public_base_url=base_url)
        if turn.over():
            return False
    return True
