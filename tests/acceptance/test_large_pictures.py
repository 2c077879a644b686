"""A picture that does not fit the memory of a worker's child is refused with its reason, and the others are cropped."""

from pathlib import Path
from typing import Any

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from PIL import Image

from ami.main.models import Detection
from tests.support.place import Place, until
from tests.support.product import factories
from tests.support.product.image_files import jpeg, saved

SIDE = 5000
TASK = "ami.ml.tasks.create_detection_images"


def test_picture_beyond_a_childs_memory_is_dead_lettered(database_place: Place, settings: Any) -> None:
    place = database_place
    place.environment |= {
        "ANTENNA_TEST_FOLDER": str(Path(settings.MEDIA_ROOT).parent),  # The pictures are there.
        "ANTENNA_INGEST_CONCURRENCY": "1",
        "ANTENNA_INGEST_MAX_MEMORY_PER_CHILD_KIB": str(256 * 1024),
        "ANTENNA_INGEST_MEMORY_CEILING": "0",  # The parent's limit alone.
    }
    large = saved(Image.new("CMYK", (SIDE, SIDE)), "JPEG", progressive=True)
    station = factories.station()
    captures = [factories.capture(station, path=f"large/{number}.jpg") for number in range(3)]
    for capture, content in zip(captures, (jpeg((90, 60)), large, jpeg((90, 60))), strict=True):
        default_storage.save(capture.path, ContentFile(content))
        factories.detection(capture, [0, 0, 30, 20])
    place.queues("declare")
    worker = place.worker("antenna-ingest")
    place.send(TASK, [capture.pk for capture in captures], queue="antenna-ingest")
    (letter,) = until(lambda: place.queues("dead-letters", "antenna-ingest.dlq").json, 60)
    assert (letter["task"], letter["retries"]) == (TASK, 0)
    assert "25.0 megapixels, CMYK, progressive): decoding takes 318 MiB, and its process may still take" in worker.text
    assert "MiB, a fresh one 288 MiB. Raise MAX_MEMORY_PER_CHILD_KIB" in worker.text
    assert list(Detection.objects.filter(path="").values_list("source_image_id", flat=True)) == [captures[1].pk]
