"""Samples of many requests: spread over all of them, with at least one of each kind of case."""

import random
from collections.abc import Callable, Iterable

from tests.attack.client import Request
from tests.attack.report import Report


class Sample:
    """Chooses up to ``most`` requests at a time, those with new kinds of cases first."""

    def __init__(self, most: int, chooser: random.Random) -> None:
        self.most, self.chooser = most, chooser
        self._met: set[str] = set()
        self._known: set[str] = set()

    def of(self, requests: Iterable[Request]) -> list[Request]:
        """Return up to ``most`` of the requests, in their order."""
        every = list(requests)
        self._known.update(kind for request in every for kind in request.kinds)
        if len(every) <= self.most:
            self._met.update(kind for request in every for kind in request.kinds)
            return every
        shuffled = self.chooser.sample(range(len(every)), len(every))
        chosen: dict[int, Request] = {}
        for is_wanted in (self._is_all_new, self._is_partly_new, bool):
            self._take(shuffled, every, chosen, is_wanted)
        return [chosen[index] for index in sorted(chosen)]

    def _take(
        self,
        shuffled: list[int],
        every: list[Request],
        chosen: dict[int, Request],
        is_wanted: Callable[[Request], bool],
    ) -> None:
        for index in shuffled:
            if len(chosen) >= self.most:
                return
            if index not in chosen and is_wanted(every[index]):
                chosen[index] = every[index]
                self._met.update(every[index].kinds)

    def _is_all_new(self, request: Request) -> bool:
        return bool(request.kinds) and self._met.isdisjoint(request.kinds)

    def _is_partly_new(self, request: Request) -> bool:
        return not self._met.issuperset(request.kinds)

    def report_left_out(self, part: str, report: Report) -> None:
        """Report the number of kinds of cases, and those never chosen."""
        left_out = sorted(self._known - self._met)
        report.left_out += [f"{part}: {kind}" for kind in left_out]
        report.note(f"{part}: {len(self._known)} kinds of cases, {len(left_out)} left out")
