"""The HTML report: checks, queues, stages, and pictures with their boxes."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageDraw

from demo.checks import Check, boxes_by_file
from demo.figures import QueueFigures
from demo.ground_truth import Box, Manifest

if TYPE_CHECKING:
    from ami.main.models import Project

PICTURES = 12
WIDTH = 960
TRUE_COLOUR, FOUND_COLOUR = "#2e9e4f", "#e0562b"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem; color: #1c2321 }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 } th, td { text-align: left; padding: .3rem .6rem;
border-bottom: 1px solid #d8dedb } td.n { text-align: right; font-variant-numeric: tabular-nums }
img { max-width: 100% } figure { margin: 1.5rem 0 } .bad { color: #b3261e; font-weight: 600 } .good { color: #1d7a3a }
.crops img { height: 72px; margin: 2px; border: 1px solid #d8dedb }
"""


def write(
    folder: Path,
    project: Project,
    job: dict[str, Any],
    checks: Sequence[Check],
    figures: Sequence[QueueFigures],
    manifest: Manifest | None,
    media: Path,
) -> Path:
    """Write ``report/index.html`` with its pictures below ``folder``; return its path."""
    target = folder / "report"
    target.mkdir(exist_ok=True)
    truth = {path.name: boxes for path, boxes in manifest.boxes()} if manifest else {}
    body = "\n".join(
        [
            "<h1>Antenna: the main job</h1>",
            _checks(checks),
            "<h2>Queues</h2>",
            _figures(figures),
            "<h2>Stages of the job</h2>",
            _stages(job),
            "<h2>Captures</h2>",
            _legend(bool(truth)),
            *_captures(target, project, truth, media),
            "<h2>Crops</h2>",
            _crops(target, project),
        ]
    )
    page = target / "index.html"
    page.write_text(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Antenna demo</title><style>{STYLE}</style>{body}"
    )
    return page


def _checks(checks: Sequence[Check]) -> str:
    rows = "".join(
        f"<tr><td class={'good' if check.passed else 'bad'}>{'pass' if check.passed else 'fail'}</td>"
        f"<td>{html.escape(check.name)}</td><td>{html.escape(check.found)}</td></tr>"
        for check in checks
    )
    return f"<table>{rows}</table>"


def _figures(figures: Sequence[QueueFigures]) -> str:
    head = ["queue", "done", "failed", "retried", "wait p50 ms", "p95 ms", "max ms", "worker", "peak child MiB"]
    rows = "".join(f"<tr>{''.join(_cell(value) for value in astuple(row))}</tr>" for row in figures)
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{rows}</table>"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"<td class=n>{value:.1f}</td>"
    return f"<td class=n>{value}</td>" if isinstance(value, int) else f"<td>{html.escape(str(value))}</td>"


def _stages(job: dict[str, Any]) -> str:
    rows = "".join(map(_stage, job["progress"]["stages"]))
    return f"<table><tr><th>stage</th><th>status</th><th>progress</th><th></th></tr>{rows}</table>"


def _stage(stage: dict[str, Any]) -> str:
    params = html.escape(", ".join(f"{one['key']} {one['value']}" for one in stage["params"]))
    progress = f"{stage['progress']:.0%}"
    return (
        f"<tr><td>{html.escape(stage['name'])}</td><td>{stage['status']}</td><td>{progress}</td><td>{params}</td></tr>"
    )


def _legend(has_truth: bool) -> str:
    true = f"<span style='color:{TRUE_COLOUR}'>true boxes</span> and " if has_truth else ""
    return f"<p>{true}<span style='color:{FOUND_COLOUR}'>boxes found</span></p>"


def _captures(target: Path, project: Project, truth: dict[str, list[Box]], media: Path) -> list[str]:
    from ami.main.models import SourceImage

    found = boxes_by_file(project)
    captures = list(SourceImage.objects.filter(project=project).order_by("deployment", "timestamp"))
    step = max(1, len(captures) // PICTURES)
    figures = []
    for number, capture in enumerate(captures[::step][:PICTURES]):
        name = Path(capture.path).name
        picture = f"capture-{number:02d}.jpg"
        _draw(media / capture.path, target / picture, truth.get(name, []), found.get(name, []))
        caption = f"{html.escape(capture.path)}: {len(found.get(name, []))} found"
        figures.append(f"<figure><img src={picture} alt=''><figcaption>{caption}</figcaption></figure>")
    return figures


def _draw(source: Path, target: Path, true: Sequence[Box], found: Sequence[Box]) -> None:
    with Image.open(source) as opened:
        scale = min(1.0, WIDTH / opened.width)
        image = opened.convert("RGB").resize((round(opened.width * scale), round(opened.height * scale)))
    pen = ImageDraw.Draw(image)
    for colour, boxes in ((TRUE_COLOUR, true), (FOUND_COLOUR, found)):
        for box in boxes:
            pen.rectangle([side * scale for side in box], outline=colour, width=2)
    image.save(target, quality=85)


def _crops(target: Path, project: Project) -> str:
    from django.core.files.storage import default_storage

    from ami.main.models import Detection

    paths = Detection.objects.filter(source_image__project=project, bbox__isnull=False).exclude(path="")
    pictures = []
    for number, path in enumerate(paths.order_by("pk").values_list("path", flat=True)[:60]):
        name = f"crop-{number:02d}.jpg"
        with default_storage.open(path, "rb") as file:
            (target / name).write_bytes(file.read())
        pictures.append(f"<img src={name} alt='' loading=lazy>")
    return f"<div class=crops>{''.join(pictures)}</div>"
