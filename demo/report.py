"""The HTML report: what ran, waits per queue, pictures with what was found, checks, queues, stages, versions."""

from __future__ import annotations

import html
import os
import platform
from collections.abc import Sequence
from dataclasses import astuple
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ami.environment.reader import read
from ami.topology.image import Image
from demo import report_pictures, waits_chart
from demo.checks import Check
from demo.figures import QueueFigures
from demo.ground_truth import Manifest
from demo.report_pictures import FOUND_COLOUR, TRUE_COLOUR, version_of

if TYPE_CHECKING:
    from ami.main.models import Project

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem; color: #1c2321 }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 } th, td { text-align: left; padding: .3rem .6rem;
border-bottom: 1px solid #d8dedb } td.n { text-align: right; font-variant-numeric: tabular-nums }
figure { margin: 1.5rem 0 } svg { display: block; width: 100% } rect { fill: none; stroke-width: 2 }
svg text { fill: #fff; stroke: #1c2321; stroke-width: 3px; paint-order: stroke }
.bad { color: #b3261e; font-weight: 600 } .good { color: #1d7a3a }
.crops { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 1rem }
.crops figure { margin: 0 } .crops img { height: 96px; border: 1px solid #d8dedb }
.crops span { display: block; font-size: 12px; line-height: 1.35 } .crops span:first-child { font-weight: 600 }
"""


def write(
    folder: Path,
    project: Project,
    job: dict[str, Any],
    checks: Sequence[Check],
    figures: Sequence[QueueFigures],
    manifest: Manifest | None,
    media: Path,
    ran: Sequence[tuple[str, str]] = (),
) -> Path:
    """Write ``report/index.html`` below ``folder``, one file with its pictures in it; return its path.

    ``ran``: what was run and when, as names and texts.
    """
    target = folder / "report"
    target.mkdir(exist_ok=True)
    truth = {path.name: boxes for path, boxes in manifest.boxes()} if manifest else {}
    body = "\n".join(
        [
            "<h1>Antenna: the main job</h1>",
            _rows([*ran, ("checks", _outcome(checks))]),
            "<h2>Waits per queue</h2>",
            waits_chart.chart(figures),
            "<h2>Captures</h2>",
            _legend(bool(truth)),
            *report_pictures.captures(project, truth, media),
            "<h2>Crops</h2>",
            report_pictures.crops(project),
            "<h2>Checks</h2>",
            _checks(checks),
            "<h2>Queues</h2>",
            _figures(figures),
            "<h2>Stages of the job</h2>",
            _stages(job),
            "<h2>Versions</h2>",
            _versions(project),
        ]
    )
    page = target / "index.html"
    page.write_text(
        f"<!doctype html><html lang=en><meta charset=utf-8>"
        f"<meta name=viewport content='width=device-width'><title>Antenna demo</title>"
        f"<style>{STYLE}{waits_chart.STYLE}</style>{body}"
    )
    return page


def _checks(checks: Sequence[Check]) -> str:
    rows = "".join(
        f"<tr><td class={'good' if check.passed else 'bad'}>{'pass' if check.passed else 'fail'}</td>"
        f"<td>{html.escape(check.name)}</td><td>{html.escape(check.found)}</td></tr>"
        for check in checks
    )
    return f"<table>{rows}</table>"


def _outcome(checks: Sequence[Check]) -> str:
    failed = [check.name for check in checks if not check.passed]
    return f"{len(checks) - len(failed)} of {len(checks)} pass" + (f"; fail: {', '.join(failed)}" if failed else "")


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


def _versions(project: Project) -> str:
    """Return what ran: Antenna, the pipelines with their algorithms, and the libraries."""
    from ami.ml.models import Algorithm, Pipeline

    rows = [("Antenna", read(Image, os.environ).antenna_version)]
    ran = Algorithm.objects.filter(classifications__detection__source_image__project=project)
    ran |= Algorithm.objects.filter(detections__source_image__project=project)
    algorithms = list(ran.distinct().order_by("key"))
    pipelines = Pipeline.objects.filter(projects=project, algorithms__in=algorithms).distinct().order_by("slug")
    rows += [("pipeline", version_of(each.name, "", each.version)) for each in pipelines]
    rows += [(each.task_type, version_of(each.name, each.version_name, each.version)) for each in algorithms]
    rows += [(name, version(name)) for name in ("Django", "celery", "kombu")]
    rows.append(("Python", platform.python_version()))
    return _rows(rows)


def _rows(rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><td>{html.escape(name)}</td><td>{html.escape(text)}</td></tr>" for name, text in rows)
    return f"<table>{cells}</table>"
