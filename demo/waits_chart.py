"""The chart of the report: how long a task of each queue waited, beside one queue for all of them."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from demo.figures import QueueFigures

#: The 95th percentile of a quick task's wait among 600 others on one queue, in ms; the README says how it was measured.
ONE_QUEUE_P95_MS = 17_300.0
LOW_MS, HIGH_MS = 1.0, 100_000.0
NAMES, WIDTH, ROW, FIGURES = 230, 560, 26, 170

STYLE = """
.chart text { fill: #1c2321; stroke: none; font: 13px system-ui, sans-serif }
.chart rect { stroke: none; fill: #2f7f79 }
.chart .one rect { fill: #b3261e } .chart line { stroke: #d8dedb } .chart .p50 { fill: #8cc5bf }
"""


def chart(figures: Sequence[QueueFigures]) -> str:
    """Return an SVG on a logarithmic scale: per queue a bar to the 95th percentile, and in it one to the median."""
    bars = [_bar(at, row.queue, row.wait_p50_ms, row.wait_p95_ms) for at, row in enumerate(figures) if _ran(row)]
    bars += [_name(at, row.queue, "ran nothing") for at, row in enumerate(figures) if not _ran(row)]
    bars.append(_bar(len(figures), "all on one queue (README)", None, ONE_QUEUE_P95_MS, "one"))
    height = (len(figures) + 1) * ROW + 24
    words = "Wait of a task from due to started: light to the median, dark to the 95th percentile"
    return (
        f"<figure><svg class=chart viewBox='0 0 {NAMES + WIDTH + FIGURES} {height}' role=img aria-label='{words}'>"
        f"{_scale(height)}{''.join(bars)}</svg><figcaption>{words}; logarithmic scale. One queue: measured with "
        "600 tasks of 0.1 s on two cores (<code>make bench</code>).</figcaption></figure>"
    )


def _ran(row: QueueFigures) -> bool:
    return bool(row.done + row.failed + row.retried)


def _scale(height: int) -> str:
    marks = [(ms, f"{ms:g} ms" if ms < 1000 else f"{ms / 1000:g} s") for ms in (1, 10, 100, 1000, 10_000, 100_000)]
    return "".join(
        f"<line x1='{NAMES + _x(ms):.0f}' x2='{NAMES + _x(ms):.0f}' y1=0 y2='{height - 20}'/>"
        f"<text x='{NAMES + _x(ms):.0f}' y='{height - 6}' text-anchor=middle>{text}</text>"
        for ms, text in marks
    )


def _bar(at: int, name: str, p50: float | None, p95: float, style: str = "") -> str:
    y = at * ROW + 4
    median = "" if p50 is None else f"<rect class=p50 x='{NAMES}' y='{y}' width='{_x(p50):.0f}' height=18 />"
    return (
        f"<g class='{style}'><rect x='{NAMES}' y='{y}' width='{_x(p95):.0f}' height=18 />{median}"
        f"{_name(at, name, _text(p50, p95), NAMES + _x(p95) + 6)}</g>"
    )


def _name(at: int, name: str, figures: str, x: float = NAMES + 6.0) -> str:
    y = at * ROW + 18
    return f"<text x='0' y='{y}'>{html.escape(name)}</text><text x='{x:.0f}' y='{y}'>{figures}</text>"


def _text(p50: float | None, p95: float) -> str:
    return _duration(p95) if p50 is None else f"{_duration(p50)}, p95 {_duration(p95)}"


def _duration(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def _x(ms: float) -> float:
    share = math.log(max(LOW_MS, min(ms, HIGH_MS)) / LOW_MS) / math.log(HIGH_MS / LOW_MS)
    return max(2.0, share * WIDTH)
