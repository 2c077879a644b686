"""Crops: one small JPEG per detection, cut out of its capture."""

import io
import logging
from collections.abc import Iterable

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.utils.crypto import salted_hmac
from PIL import Image

from ami.main.models import Detection, SourceImage
from ami.main.services.stored_files import CROPS
from ami.ml.errors import CaptureUnreadable, PictureRefused
from ami.ml.services.capture_files import read
from ami.ml.services.pictures import open_picture

logger = logging.getLogger(__name__)

QUALITY = 90


class CropsFailed(Exception):
    """Some captures could not be cropped; the others were. The message names each with its reason."""


class CropsRefused(CropsFailed):
    """As `CropsFailed`, and another try cannot help for any of them."""


def without_crop(image_ids: Iterable[int]) -> "list[Detection]":
    """Return the real detections of these captures that have no crop; null markers need none (hazard 8)."""
    return list(Detection.objects.real().filter(source_image_id__in=list(image_ids), path="").order_by("pk"))


def captures_without_crops(image_ids: Iterable[int]) -> list[int]:
    """Return which of these captures have a detection without a crop."""
    found = Detection.objects.real().filter(source_image_id__in=list(image_ids), path="").order_by()
    return sorted(set(found.values_list("source_image_id", flat=True)))


def make_crops(image_ids: Iterable[int]) -> int:
    """Crop what has no crop yet, opening each capture once; return how many crops were made.

    A crop's name follows from its detection, and the storage overwrites: making it twice is the same file.

    Raises:
        CropsFailed: after all captures were tried, if any failed.
        CropsRefused: likewise, and each of them fails at every try.
    """
    by_image: dict[int, list[Detection]] = {}
    for detection in without_crop(image_ids):
        by_image.setdefault(detection.source_image_id, []).append(detection)
    failed: list[str] = []
    made, hopeless = 0, True
    for image in SourceImage.objects.filter(pk__in=by_image).order_by("pk"):
        try:
            made += _crop_capture(image, by_image[image.pk])
        except (CaptureUnreadable, PictureRefused, OSError, ValueError) as error:
            logger.warning("No crops of capture %s: %s", image.pk, error)
            failed.append(f"capture {image.pk}: {error}")
            hopeless = hopeless and isinstance(error, PictureRefused)
    if failed:
        raise (CropsRefused if hopeless else CropsFailed)("; ".join(failed)[:2000])
    return made


def _crop_capture(image: SourceImage, detections: list[Detection]) -> int:
    """Crop one capture; what was stored is saved even when a later detection of it fails."""
    done: list[Detection] = []
    try:
        rgb = open_picture(read(image))
        for detection in detections:
            detection.path = _store(detection, rgb)
            done.append(detection)
    finally:
        if done:
            Detection.objects.bulk_update(done, ["path"], batch_size=500)
    return len(done)


def _store(detection: Detection, picture: Image.Image) -> str:
    buffer = io.BytesIO()
    picture.crop(clamped(detection.bbox, picture.width, picture.height)).save(buffer, "JPEG", quality=QUALITY)
    return default_storage.save(name_of(detection), ContentFile(buffer.getvalue()))


def name_of(detection: Detection) -> str:
    """Return where a detection's crop lies: the same at each call, and not a name that can be guessed."""
    unguessable = salted_hmac("ami.ml.services.crops", str(detection.pk), algorithm="sha256").hexdigest()[:32]
    return f"{CROPS}/{detection.pk}-{unguessable}.jpg"


def clamped(bbox: list[float], width: int, height: int) -> tuple[int, int, int, int]:
    """Return the box in whole pixels inside the picture, at least one pixel wide and high, corners in order."""
    x1, x2 = sorted((bbox[0], bbox[2]))
    y1, y2 = sorted((bbox[1], bbox[3]))
    left = min(max(int(x1), 0), width - 1)
    top = min(max(int(y1), 0), height - 1)
    right = max(min(int(-(-x2 // 1)), width), left + 1)
    bottom = max(min(int(-(-y2 // 1)), height), top + 1)
    return left, top, right, bottom
