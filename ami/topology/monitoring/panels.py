"""The parts of a Grafana dashboard as its JSON model has them: rows, and panels with their queries."""

from collections.abc import Mapping, Sequence
from typing import Any

Panel = dict[str, Any]

#: Grafana's grid.
COLUMNS, HEIGHT, ROW_HEIGHT = 24, 8, 1
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
GREEN, RED = "green", "red"


def row(title: str, repeat: str = "") -> Panel:
    """Return a row; with ``repeat`` there is one for each chosen value of that variable."""
    return {"type": "row", "title": title, "collapsed": False, "panels": [], **({"repeat": repeat} if repeat else {})}


def chart(title: str, queries: Mapping[str, str], unit: str = "short", text: str = "", **custom: Any) -> Panel:
    """Return a chart over time; ``queries`` are expressions by their legend."""
    return _panel("timeseries", title, queries, text, {"unit": unit, "min": 0, "custom": {"fillOpacity": 8, **custom}})


def stat(title: str, queries: Mapping[str, str], steps: Sequence[tuple[str, float | None]], text: str = "") -> Panel:
    """Return figures of now; ``steps`` are (colour, from which value on), the first of them from None."""
    return _panel("stat", title, queries, text, {"unit": "short", **thresholds(steps)}, {"colorMode": "background"})


def bars(title: str, queries: Mapping[str, str], unit: str, text: str = "") -> Panel:
    """Return a bar per series."""
    options = {"displayMode": "lcd", "orientation": "horizontal"}
    return _panel("bargauge", title, queries, text, {"unit": unit, "min": 0}, options)


def thresholds(steps: Sequence[tuple[str, float | None]]) -> dict[str, Any]:
    found = [{"color": color, "value": value} for color, value in steps]
    return {"thresholds": {"mode": "absolute", "steps": found}, "color": {"mode": "thresholds"}}


def override(panel: Panel, series: str, properties: Mapping[str, Any]) -> None:
    """Give one series of a panel, by its legend, properties of its own."""
    found = [{"id": name, "value": value} for name, value in properties.items()]
    panel["fieldConfig"]["overrides"].append(
        {"matcher": {"id": "byName", "options": series}, "properties": found},
    )


def arranged(lines: Sequence[Sequence[Panel]]) -> list[Panel]:
    """Return the panels of all lines with their ids and places; the panels of a line share its width."""
    placed: list[Panel] = []
    top = 0
    for line in lines:
        is_row = line[0]["type"] == "row"
        width, height = COLUMNS // len(line), ROW_HEIGHT if is_row else HEIGHT
        for place, panel in enumerate(line):
            grid = {"h": height, "w": width, "x": place * width, "y": top}
            placed.append({"id": len(placed) + 1, "gridPos": grid, **panel})
        top += height
    return placed


def _panel(
    kind: str,
    title: str,
    queries: Mapping[str, str],
    text: str,
    defaults: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
) -> Panel:
    targets = [
        {"refId": chr(ord("A") + place), "datasource": DATASOURCE, "expr": expr, "legendFormat": legend}
        for place, (legend, expr) in enumerate(queries.items())
    ]
    return {
        "type": kind,
        "title": title,
        "description": text,
        "datasource": DATASOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": dict(defaults), "overrides": []},
        "options": dict(options or {}),
    }
