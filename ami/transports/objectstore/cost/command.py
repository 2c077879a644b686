"""``python -m ami.transports.objectstore cost``: what a month costs where the broker is a bucket."""

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from ami.transports.objectstore.cost import month, sample
from ami.transports.objectstore.cost.month import Load, Row
from ami.transports.objectstore.cost.requests import PRICES, Prices, Requests
from ami.transports.objectstore.cost.upkeep import upkeep

#: A month has at most so many.
MONTH_HOURS = 744.0

ABOUT = """\
Prints the requests of a month and their price. The requests are counted: the real transport, stores and keepers run in
this process, on a memory that takes itself for a bucket, for about fifteen seconds. What takes hours is multiplied: one
poll, one beat of the keeper and one heartbeat are counted, and taken as often as the code's own intervals say."""

NOTES = """\
A message comes alone, when everybody's knowledge of the queue is old: the dearest case. Messages that come together
share requests (--batch). Two that write to one queue at the same moment cost one refused PUT and one GET more.

Each queue has at least one worker and each worker a queue. A further queue of a worker is taken as one GET more per
poll and beat, a further worker as one GET more per beat. Workers run --without-gossip --without-mingle, as this project
starts them: an event of a worker that gossips is published once for each other worker.

Not in it: what is kept (a few MB), traffic out of the region, remote control, starts and ends of workers."""


def add(commands: Any) -> None:
    """Add the command to a parser's subcommands."""
    parser = commands.add_parser(
        "cost",
        help="what a month costs where the broker is a bucket",
        description=ABOUT,
        epilog=NOTES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    count, amount = _number(int), _number(float)
    option = parser.add_argument
    option("--ops", type=count(0), default=1_000_000, metavar="N", help="messages a month (1000000)")
    option("--workers", type=count(1), default=4, metavar="N", help="worker processes, without their children (4)")
    option("--queues", type=count(1), default=4, metavar="N", help="queues that get the messages (4)")
    option("--message-bytes", type=count(1, 8 * 2**20), default=700, metavar="N", help="a message's body (700)")
    option("--batch", type=count(1, 1000), default=1, metavar="N", help="messages that come together (1)")
    option("--task-seconds", type=amount(0), default=1.0, metavar="S", help="how long a message is worked on (1)")
    hours = "hours a month that each worker waits for messages (720)"
    option("--idle-hours", type=amount(0, MONTH_HOURS), default=720.0, metavar="H", help=hours)
    option("--without-heartbeat", action="store_true", help="workers are started with this option of Celery's")
    option(
        "--prices", choices=PRICES, default="s3", help="; ".join(f"{key}: {one.name}" for key, one in PRICES.items())
    )
    for kind in Requests._fields:
        default = "the service's list price"
        option(f"--price-{kind}", type=amount(0), metavar="USD", help=f"for 1,000 {kind.upper()} requests ({default})")
    option("--json", action="store_true")
    parser.set_defaults(run=run)


def _number(kind: Callable[[str], float]) -> Callable[..., Callable[[str], float]]:
    """Return a maker of argument types that refuse what lies outside of their bounds, and say which these are."""

    def bounded(least: float, most: float = math.inf) -> Callable[[str], float]:
        bounds = f"{least:.10g} or more" if most == math.inf else f"{least:.10g} to {most:.10g}"
        name = "whole number" if kind is int else "number"

        def parse(text: str) -> float:
            try:
                value = kind(text)
            except ValueError:
                value = math.nan
            if not least <= value <= most or value == math.inf:
                raise argparse.ArgumentTypeError(f"'{text}' is no {name} of {bounds}")
            return value

        return parse

    return bounded


def run(options: argparse.Namespace) -> int:
    """Count, multiply and print."""
    load = Load(
        options.ops,
        options.workers,
        options.queues,
        options.batch,
        options.idle_hours,
        options.task_seconds,
        not options.without_heartbeat,
    )
    prices = prices_of(options)
    with Console(file=sys.stderr).status("counting requests, about fifteen seconds ..."):
        counted = sample.take(options.message_bytes, options.batch)
        rows = month.rows(load, counted, upkeep(counted.stored_bytes, load.workers_each))
    if options.json:
        print(json.dumps(_as_json(load, prices, rows), indent=2))
    else:
        _print(load, prices, rows)
    return 0


def prices_of(options: argparse.Namespace) -> Prices:
    """Return the prices of the service that was named, with those in their place that were given."""
    given = {kind: price for kind in Requests._fields if (price := getattr(options, f"price_{kind}")) is not None}
    prices = PRICES[options.prices]
    return dataclasses.replace(prices, name=f"{prices.name}, some as given", **given) if given else prices


def _as_json(load: Load, prices: Prices, rows: list[Row]) -> dict[str, Any]:
    return {
        "load": dataclasses.asdict(load),
        "prices_usd_per_1000": dataclasses.asdict(prices),
        "rows": [
            {
                "name": row.name,
                "unit": row.unit,
                "each": row.each._asdict(),
                "times_a_month": row.times,
                "month": row.month._asdict(),
                "usd": prices.of(row.month),
            }
            for row in rows
        ],
        "month": Requests.total(row.month for row in rows)._asdict(),
        "usd": month.price(rows, prices),
    }


def _print(load: Load, prices: Prices, rows: list[Row]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    table = Table("requests for", "per", *(kind.upper() for kind in Requests._fields), "times", "USD a month", box=None)
    for row in rows:
        _add(table, row.name, row.unit, row.each, f"{row.times:,.0f}", prices.of(row.month), decimals=3)
    total = Requests.total(row.month for row in rows)
    table.add_section()
    _add(table, "all of it", "month", total, "", month.price(rows, prices), decimals=0)
    console.print(table)
    by_message = month.price([row for row in rows if row.unit == "message"], prices)
    waiting = month.price(rows, prices) - by_message
    console.print(
        f"{load.messages:,} messages: {by_message:.2f} USD. Waiting, {load.workers} workers: {waiting:.2f} USD."
    )
    console.print(f"Prices: {prices.name}; {prices.source}.")
    console.print("Requests are counted, hours are multiplied; what is assumed: cost --help.")


def _add(table: Table, name: str, unit: str, requests: Requests, times: str, usd: float, decimals: int) -> None:
    numbers = (f"{number:,.{decimals}f}" if number else "" for number in requests)
    table.add_row(name, unit, *numbers, times, f"{usd:.2f}")
