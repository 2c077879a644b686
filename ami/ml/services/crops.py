"""Makes crops: one small JPEG per detection, cut out of its capture."""

import io
import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import transaction
from django.utils.crypto import salted_hmac

from ami.main.models import Detection, SourceImage
from ami.main.services.stored_files import CROPS
from ami.ml.errors import CaptureUnreadable, CropsFailed, CropsRefused, PictureRefused
from ami.ml.services.capture_files import read
from ami.ml.services.pictures import open_picture

if TYPE_CHECKING:
    from PIL import Image

logger = logging.getLogger(__name__)

QUALITY = 90


def detections_without_crop(image_ids: Iterable[int]) -> "list[Detection]":
    """Return the real detections of these captures that have no crop; null markers need none (hazard 8)."""
    return list(Detection.objects.real().filter(source_image_id__in=list(image_ids), path="").order_by("pk"))


def captures_without_crops(image_ids: Iterable[int]) -> dict[int | None, list[int]]:
    """Return the keys of those captures that have a detection without a crop, ascending, by their project."""
    rows = Detection.objects.real().filter(source_image_id__in=list(image_ids), path="").order_by("source_image_id")
    found: dict[int | None, list[int]] = {}
    for project_id, image_id in rows.values_list("project_id", "source_image_id").distinct():
        found.setdefault(project_id, []).append(image_id)
    return found


def make_crops(image_ids: Iterable[int]) -> int:
    """Make the missing crops, opening each capture once; return how many were made.

    A crop's name derives from its detection and the storage overwrites, so making it twice gives the same file.

    Raises:
        CropsFailed: after all captures were tried, if any failed.
        CropsRefused: as above, and no retry helps for any of them.
    """
    by_image: dict[int, list[Detection]] = {}
    for detection in detections_without_crop(image_ids):
        by_image.setdefault(detection.source_image_id, []).append(detection)
    failed: list[str] = []
    made, hopeless = 0, True
    for image in SourceImage.objects.filter(pk__in=by_image).order_by("pk"):
        try:
            made += _crop_capture(image, by_image[image.pk])
        except (CaptureUnreadable, PictureRefused, OSError, ValueError, MemoryError) as error:
            reason = str(error) or type(error).__name__
            logger.warning("Cropping capture %s failed: %s", image.pk, reason)
            failed.append(f"capture {image.pk}: {reason}")
            hopeless = hopeless and isinstance(error, PictureRefused)
    if failed:
        raise (CropsRefused if hopeless else CropsFailed)("; ".join(failed)[:2000])
    return made


def _crop_capture(image: SourceImage, detections: list[Detection]) -> int:
    """Crop one capture; crops already stored are saved even if a later detection fails."""
    done: list[Detection] = []
    try:
        rgb = open_picture(read(image), partial(_largest, detections))
        for detection in detections:
            detection.path = _store(detection, rgb)
            done.append(detection)
    finally:
        if done:
            _save_paths(done)
    return len(done)


@transaction.atomic
def _save_paths(detections: list[Detection]) -> None:
    """Lock the detections in the order in which results are saved, and update them."""
    rows = Detection.objects.filter(pk__in=[detection.pk for detection in detections])
    ordered = rows.order_by("source_image_id", "detection_algorithm_id", "bbox_key")
    list(ordered.select_for_update(no_key=True).values_list("pk"))
    Detection.objects.bulk_update(detections, ["path"], batch_size=500)


def _largest(detections: Iterable[Detection], width: int, height: int) -> int:
    """Return the pixels of the largest crop that is less than the whole picture."""
    boxes = (clamped(detection.bbox, width, height) for detection in detections)
    pixels = [(right - left) * (bottom - top) for left, top, right, bottom in boxes]
    return max((each for each in pixels if each < width * height), default=0)


def _store(detection: Detection, picture: "Image.Image") -> str:
    buffer, box = io.BytesIO(), clamped(detection.bbox, *picture.size)
    # A copy of the whole would take as much memory again.
    crop = picture if box == (0, 0, *picture.size) else picture.crop(box)
    crop.save(buffer, "JPEG", quality=QUALITY)
    return default_storage.save(name_of(detection), ContentFile(buffer.getvalue()))


def name_of(detection: Detection) -> str:
    """Return the storage name of a detection's crop: stable, and not guessable."""
    unguessable = salted_hmac("ami.ml.services.crops", str(detection.pk), algorithm="sha256").hexdigest()[:32]
    return f"{CROPS}/{detection.pk}-{unguessable}.jpg"


def clamped(bbox: list[float], width: int, height: int) -> tuple[int, int, int, int]:
    """Return (left, top, right, bottom) in whole pixels inside the picture, at least one pixel wide and high."""
    x1, x2 = sorted((bbox[0], bbox[2]))
    y1, y2 = sorted((bbox[1], bbox[3]))
    left = min(max(int(x1), 0), width - 1)
    top = min(max(int(y1), 0), height - 1)
    right = max(min(int(-(-x2 // 1)), width), left + 1)
    bottom = max(min(int(-(-y2 // 1)), height), top + 1)
    return left, top, right, bottom
