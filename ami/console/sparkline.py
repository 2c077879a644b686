"""A line of the last hour as SVG, drawn by the server."""

from collections.abc import Sequence

from django.utils.html import format_html
from django.utils.safestring import SafeString

from ami.console.quantities import number

WIDTH, HEIGHT, PAD = 160, 32, 3


def sparkline(values: Sequence[float | None], what: str) -> SafeString:
    """Return an image of ``values``, oldest first, with its last and largest in words; gaps stay gaps."""
    seen = [value for value in values if value is not None]
    if not seen:
        return format_html('<span class="quiet">{}</span>', "no history yet")
    label = f"{what}: now {number(seen[-1])}, most {number(max(seen))}"
    line, area = _paths(values, max(*seen, 1))
    return format_html(
        '<svg class="spark" viewBox="0 0 {} {}" role="img" aria-label="{}" preserveAspectRatio="none">'
        '<path class="spark-area" d="{}"/><path class="spark-line" d="{}"/></svg>',
        WIDTH,
        HEIGHT,
        label,
        area,
        line,
    )


def _paths(values: Sequence[float | None], most: float) -> tuple[str, str]:
    step = WIDTH / max(len(values) - 1, 1)
    lines, areas, run = [], [], list[tuple[float, float]]()
    for index, value in enumerate([*values, None]):
        if value is not None:
            run.append((round(index * step, 1), round(HEIGHT - PAD - value / most * (HEIGHT - 2 * PAD), 1)))
        elif run:
            if len(run) == 1:
                run.append((round(run[0][0] + step / 2, 1), run[0][1]))
            path = "L".join(f"{x} {y}" for x, y in run)
            lines.append(f"M{path}")
            areas.append(f"M{run[0][0]} {HEIGHT}L{path}L{run[-1][0]} {HEIGHT}Z")
            run = []
    return "".join(lines), "".join(areas)
