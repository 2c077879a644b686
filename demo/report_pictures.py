"""The pictures of the report, inside its page: captures with boxes drawn, and crops, each with what was found."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from PIL import Image

from demo.ground_truth import Box

if TYPE_CHECKING:
    from ami.main.models import Classification, Project, SourceImage
    from ami.main.services.boxed_captures import Box as FoundBox

CAPTURES, CROPS = 12, 60
#: The longer side of a picture in pixels, and the quality of its JPEG: the whole page has about a megabyte.
CAPTURE_SIDE, CROP_SIDE, QUALITY = 800, 112, 68
TRUE_COLOUR, FOUND_COLOUR = "#2e9e4f", "#e0562b"


@dataclass(frozen=True)
class Crop:
    """A detection's crop with its best classification; ``classifier`` has name and version."""

    path: str
    text: str
    station: str
    taken_at: str
    classifier: str


def captures(project: Project, truth: dict[str, list[Box]], media: Path) -> Iterable[str]:
    """Yield a figure for each of some captures, spread over all with findings; ``truth`` is by file name."""
    from ami.main.models import SourceImage
    from ami.main.services.boxed_captures import boxes_of

    rows = SourceImage.objects.filter(project=project).select_related("deployment").order_by("deployment", "timestamp")
    with_findings = rows.filter(detections__bbox__isnull=False).distinct()
    keys = list(with_findings.values_list("pk", flat=True)) or list(rows.values_list("pk", flat=True))
    chosen = keys[:: max(1, len(keys) // CAPTURES)][:CAPTURES]
    for capture in rows.filter(pk__in=chosen):
        boxes = boxes_of(capture)
        drawn = _drawn(media / capture.path, truth.get(Path(capture.path).name, []), boxes)
        words = f"{_station(capture)}, {_taken_at(capture)}, {Path(capture.path).name}: {len(boxes)} found"
        yield f"<figure>{drawn}<figcaption>{html.escape(words)}</figcaption></figure>"


def crops(project: Project) -> str:
    """Return figures of the first crops, each with label, score, station, time and the classifier's version."""
    from django.core.files.storage import default_storage

    figures = []
    for crop in _crops(project):
        with default_storage.open(crop.path, "rb") as file, Image.open(file) as opened:
            uri = _embedded(opened, CROP_SIDE)
        lines = (crop.text, crop.station, crop.taken_at, crop.classifier)
        words = "".join(f"<span>{html.escape(line)}</span>" for line in lines if line)
        picture = f"<img src='{uri}' alt='{html.escape(crop.text, quote=True)}' loading=lazy>"
        figures.append(f"<figure>{picture}<figcaption>{words}</figcaption></figure>")
    return f"<div class=crops>{''.join(figures)}</div>"


def _crops(project: Project) -> list[Crop]:
    from ami.main.models import Classification, Detection

    rows = Detection.objects.filter(source_image__project=project, bbox__isnull=False).exclude(path="")
    found = list(rows.select_related("source_image__deployment").defer("similarity_vector").order_by("pk")[:CROPS])
    named = Classification.objects.current().filter(detection__in=found).select_related("taxon", "algorithm")
    # The last one counts: a final one before others, then the highest score.
    best = {row.detection_id: row for row in named.defer(*Classification.LONG_LISTS).order_by("terminal", "score")}
    return [
        Crop(row.path, _text(known), _station(row.source_image), _taken_at(row.source_image), _classifier(known))
        for row in found
        for known in [best.get(row.pk)]
    ]


def _text(found: Classification | None) -> str:
    if found is None or found.taxon is None:
        return "not named"
    return str(found.taxon) if found.score is None else f"{found.taxon} {found.score:.0%}"


def _classifier(found: Classification | None) -> str:
    return version_of(found.algorithm.name, found.algorithm.version_name, found.algorithm.version) if found else ""


def version_of(name: str, version_name: str, version: int) -> str:
    """Return a name with its version; ``version_name`` is empty where there is only a number."""
    return f"{name} {version_name or version}"


def _station(capture: SourceImage) -> str:
    return capture.deployment.name if capture.deployment else "no station"


def _taken_at(capture: SourceImage) -> str:
    """Return the station's local time."""
    if capture.timestamp is None:
        return "no time"
    zone = ZoneInfo(capture.deployment.time_zone) if capture.deployment else None
    return f"{capture.timestamp.astimezone(zone):%Y-%m-%d %H:%M:%S}"


def _drawn(source: Path, true: Sequence[Box], found: Sequence[FoundBox]) -> str:
    """Return the picture with boxes and labels over it, in the picture's own pixels."""
    with Image.open(source) as opened:
        width, height = opened.size
        uri = _embedded(opened, CAPTURE_SIDE)
    size = max(11, round(width / 65))
    parts = [f"<image href='{uri}' width='{width}' height='{height}'/>"]
    parts += [_rectangle(box[0], box[1], box[2] - box[0], box[3] - box[1], TRUE_COLOUR) for box in true]
    for each in found:
        parts.append(_rectangle(each.x, each.y, each.width, each.height, FOUND_COLOUR))
        parts.append(_label(each, size, width))
    name = html.escape(f"{len(found)} boxes on {source.name}", quote=True)
    return f"<svg viewBox='0 0 {width} {height}' role=img aria-label='{name}'>{''.join(parts)}</svg>"


def _label(box: FoundBox, size: int, width: int) -> str:
    """Return label and score above the box, below one at the top; near the right edge it ends where the box does."""
    y = box.y - size * 0.4 if box.y > size * 1.4 else box.y + box.height + size
    is_right = box.x > width * 0.75
    x, anchor = (min(box.x + box.width, width), " text-anchor='end'") if is_right else (box.x, "")
    return f"<text x='{x:.0f}' y='{y:.0f}' font-size='{size}'{anchor}>{html.escape(box.text)}</text>"


def _rectangle(x: float, y: float, width: float, height: float, colour: str) -> str:
    place = f"x='{x:.0f}' y='{y:.0f}' width='{max(0.0, width):.0f}' height='{max(0.0, height):.0f}'"
    return f"<rect {place} stroke='{colour}'/>"


def _embedded(opened: Image.Image, side: int) -> str:
    """Return a thumbnail as a data URI."""
    from ami.main.services.picture_memory import eight_bit

    opened.draft("RGB", (side, side))
    image = eight_bit(opened).convert("RGB")
    image.thumbnail((side, side))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
