"""One frame of every benchmark: its parts, ``--quick``, ``--json``, the table with its targets, and the exit status."""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """A median and its reference's in the same run, in the same unit.

    ``ratio`` is the figure's to the reference, the median of the pairs; without a target it is printed alone.
    ``of_value``: the target is one of the figure itself.
    """

    what: str
    unit: str
    value: float
    reference: str
    reference_value: float
    ratio: float
    at_least: float | None = None
    at_most: float | None = None
    of_value: bool = False

    @property
    def is_met(self) -> bool:
        compared = self.value if self.of_value else self.ratio
        return (self.at_least is None or compared >= self.at_least) and (
            self.at_most is None or compared <= self.at_most
        )

    @property
    def verdict(self) -> str:
        """The target with "met" or "MISSED", empty without one."""
        if self.at_least is None and self.at_most is None:
            return ""
        bound = f"<= {self.at_most:g}" if self.at_least is None else f">= {self.at_least:g}"
        unit = f" {self.unit}" if self.of_value else ""
        return f"{bound}{unit}: {'met' if self.is_met else 'MISSED'}"


#: Takes whether the measurement is a quick one.
Part = Callable[[bool], Iterable[Figure]]


def main(program: str, description: str | None, parts: Mapping[str, Part]) -> int:
    """Measure the parts that were asked for, or all; print the table or JSON; return 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{program}", description=description)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(parts)}; all without")
    parser.add_argument("--quick", action="store_true", help="fewer rounds over less")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(parts):
        parser.error(f"no part {', '.join(sorted(unknown))}: {', '.join(parts)}")
    figures = [figure for name in options.parts or parts for figure in parts[name](options.quick)]
    if options.json:
        print(json.dumps([{**asdict(each), "is_met": each.is_met} for each in figures], indent=2))
    else:
        show(figures)
    return int(not all(each.is_met for each in figures))


def show(figures: Iterable[Figure]) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table("what", "", "measured", "reference", "", "ratio", "target", box=None)
    for each in figures:
        value, reference = (f"{number:,.{0 if number >= 100 else 2}f}" for number in (each.value, each.reference_value))
        table.add_row(each.what, each.unit, value, each.reference, reference, f"{each.ratio:.2f}", each.verdict)
    Console(width=150, highlight=False).print(table)


@contextmanager
def test_database() -> Iterator[None]:
    """Make a migrated test database, and remove it afterwards."""
    from django.db import connection

    connection.creation.create_test_db(verbosity=0)
    try:
        yield
    finally:
        connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)
