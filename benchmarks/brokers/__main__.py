"""``python -m benchmarks.brokers``: empty tasks over each broker, compared with RabbitMQ in the same run.

A real worker process with two children drains a queue that was filled before. The reference is RabbitMQ: a classic
queue with Celery's defaults (four messages per child, acknowledged before the task), and a quorum queue as deployed
(one message per child, acknowledged after the task). Reference and contender alternate, since a shared machine's speed
varies. A folder's queue of 10,000 or more is filled with copies of one published message under new ids.

Only the publishes, in a minute: ``--publishes``. Each of the folder's is on the disk, as RabbitMQ's confirmed ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.brokers.contenders import Contender, contenders, virtual_host
from benchmarks.brokers.measurements import Publishes, Responsiveness, drain, publish_rates, responsiveness

#: A shallow queue is drained quickly, so it is measured more often. Contenders without a target are for comparison.
ROUNDS = {100: 5, 1_000: 3, 10_000: 2}
ROUNDS_BESIDE = {100: 2, 1_000: 2}
IDLE_TARGET_PERCENT = 1.0
#: With ``--publishes``: rounds, and how long each contender publishes in each.
ALONE_ROUNDS, ALONE_SECONDS = 15, 0.5


@dataclass(frozen=True)
class Drained:
    """Medians over the rounds; ``ratio`` is the median of each round's ratio to the reference in the same round."""

    contender: str
    depth: int
    tasks_per_second: float
    rounds: int
    reference: str | None
    ratio: float | None
    lowest: float | None
    highest: float | None
    target: float | None


def drains(entered: list[Contender], options: argparse.Namespace) -> list[Drained]:
    """Drain every contender at every depth; a depth's contenders alternate, round by round."""
    turns = [
        (depth, contender)
        for depth in options.depths
        for number in range(options.rounds or ROUNDS.get(depth, 1))
        for contender in entered
        if depth in contender.depths and number < _rounds(contender, depth, options)
    ]
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for depth, contender in track(turns, "draining", console=Console(stderr=True)):
        found[contender.name, depth].append(drain(contender, depth))
    measured = [(contender, depth) for contender in entered for depth in options.depths]
    return [_drained(*one, found) for one in measured if (one[0].name, one[1]) in found]


def _rounds(contender: Contender, depth: int, options: argparse.Namespace) -> int:
    rounds = ROUNDS_BESIDE if contender.is_beside else ROUNDS
    return int(options.rounds or rounds.get(depth, 1))


def _drained(contender: Contender, depth: int, found: dict[tuple[str, int], list[float]]) -> Drained:
    rates = found[contender.name, depth]
    # No reference is filled with 100,000: its greatest depth is used instead.
    known = max((at for name, at in found if name == contender.reference and at <= depth), default=depth)
    references = found.get((contender.reference or "", known), [])
    ratios = [rate / reference for rate, reference in zip(rates, references, strict=False)]
    middle, lowest, highest = (float(np.median(ratios)), min(ratios), max(ratios)) if ratios else (None, None, None)
    rate, target = float(np.median(rates)), contender.target
    return Drained(contender.name, depth, rate, len(rates), contender.reference, middle, lowest, highest, target)


def main() -> int:
    """Measure and print both tables."""
    options = _options()
    with virtual_host() as url:
        entered = [one for one in contenders(url) if not options.only or any(part in one.name for part in options.only)]
        if options.publishes:
            published = publish_rates(entered, ALONE_ROUNDS * ALONE_SECONDS, ALONE_ROUNDS)
            _print_publishes(entered, published, as_json=options.json)
            return 0
        drained = drains(entered, options)
        rows = responsiveness(entered, options.publish_seconds, options.idle_seconds) if options.idle_seconds else []
    if options.json:
        print(json.dumps({"drained": drained, "manners": rows}, default=asdict))
        return 0
    _print(drained, rows, {one.name: one.publish_target for one in entered})
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.brokers", description=__doc__)
    depths = [100, 1_000, 10_000, 100_000]
    parser.add_argument("--depths", type=int, nargs="+", default=depths, metavar="N", help="100 1000 10000 100000")
    parser.add_argument("--rounds", type=int, help="per row (5 at depth 100, 3 at 1000, 2 at 10000, 1 at 100000)")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="only contenders whose name contains one of these")
    parser.add_argument("--publishes", action="store_true", help="measure the publishes only, in 15 rounds")
    parser.add_argument("--publish-seconds", type=float, default=1, help="duration of each publish measurement (1)")
    parser.add_argument("--idle-seconds", type=float, default=10, help="duration of the idle measurement; 0: skip (10)")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _print_publishes(entered: list[Contender], published: list[Publishes], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(published, default=asdict))
        return
    table = Table("broker", "publishes/s", "disk's floor/s", "x reference", "reference", "target", box=None)
    for contender, one in zip(entered, published, strict=True):
        rates = (f"{value:,.0f}" for value in (one.per_second, one.floor_per_second))
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
        table.add_row(
            one.contender, *rates, ratio, contender.reference or "", _met(contender.publish_target, one.ratio)
        )
    Console(width=130, highlight=False).print(table)


def _print(drained: list[Drained], rows: list[Responsiveness], publish_targets: dict[str, float | None]) -> None:
    console = Console(width=130, highlight=False)
    table = Table("broker", "depth", "tasks/s", "rounds", "x reference", "lowest", "highest", "reference", box=None)
    table.add_column("target")
    for row in drained:
        ratios = ("" if value is None else f"{value:.2f}" for value in (row.ratio, row.lowest, row.highest))
        rate = f"{row.tasks_per_second:,.0f}"
        table.add_row(
            row.contender,
            f"{row.depth:,}",
            rate,
            str(row.rounds),
            *ratios,
            row.reference or "",
            _met(row.target, row.ratio),
        )
    console.print(table)
    if not rows:
        return
    console.print()
    columns = (
        "publishes/s",
        "disk's floor/s",
        "x reference",
        "latency p50 ms",
        "p99 ms",
        "samples",
        "idle, % of a core",
    )
    table = Table("broker", *columns, box=None)
    for one in rows:
        rates = (f"{value:,.0f}" for value in (one.publishes_per_second, one.floor_per_second))
        times = (f"{value:.1f}" for value in (one.p50_ms, one.p99_ms))
        idle = f"{one.idle_percent:.2f}"
        if one.contender.startswith("folder"):
            idle += f" (< {IDLE_TARGET_PERCENT:g}: {'met' if one.idle_percent < IDLE_TARGET_PERCENT else 'MISSED'})"
        ratio = "" if one.publish_ratio is None else f"{one.publish_ratio:.2f}"
        if met := _met(publish_targets.get(one.contender), one.publish_ratio):
            ratio += f" ({met})"
        table.add_row(one.contender, *rates, ratio, *times, str(one.samples), idle)
    console.print(table)


def _met(target: float | None, ratio: float | None) -> str:
    if target is None or ratio is None:
        return ""
    return f">= {target:g}: {'met' if ratio >= target else 'MISSED'}"


if __name__ == "__main__":
    sys.exit(main())
