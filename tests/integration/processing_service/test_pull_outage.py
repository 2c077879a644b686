"""Pullers whose picture server is down for a moment, or for long: no image fails for the network's sake."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import ThreadingHTTPServer

import pytest

from processing_service import puller
from processing_service.backoff import Backoff
from processing_service.downloads import DownloadLimits
from processing_service.fleet import Credentials, FleetSettings, run_fleet
from processing_service.puller import PullSettings
from tests.integration.processing_service.conftest import _Pictures, served
from tests.support.product.pull_server import TOKEN, Contract

OUTAGE_SECONDS = 1.2
DOWN_AT = 30


class Site:
    """A server of pictures that goes down at its 30th request, and returns on its port after some seconds."""

    def __init__(self, down_seconds: float) -> None:
        self._down_seconds = down_seconds
        self._requests = 0
        self._falls, self._returned = threading.Event(), threading.Event()
        self._server = self._listen(0)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _listen(self, port: int) -> ThreadingHTTPServer:
        site = self

        class Handler(_Pictures):
            def do_GET(self) -> None:
                if site.answers():
                    super().do_GET()

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    def answers(self) -> bool:
        """Count a request; false if its connection is to be cut."""
        self._requests += 1
        if self._requests >= DOWN_AT:
            self._falls.set()
        return self._returned.is_set() or not self._falls.is_set()

    def fall_and_return(self) -> None:
        """Wait for the 30th request, close the port, and listen on it again when the outage is over."""
        self._falls.wait(60)
        self.close()
        threading.Event().wait(self._down_seconds)
        self._server = self._listen(self._server.server_port)
        self._returned.set()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def outage(seconds: float) -> Iterator[Site]:
    site = Site(seconds)
    controller = threading.Thread(target=site.fall_and_return)
    controller.start()
    yield site
    controller.join(60)
    site.close()


def settings(url: str, **pull: object) -> FleetSettings:
    chosen = PullSettings(["constant"], batch_size=8, poll_seconds=0.02, until_idle_seconds=0.2)
    return FleetSettings(url, Credentials(TOKEN), project=3, name="bench", pull=replace(chosen, **pull))


def test_outage_of_a_second_costs_no_image(pictures: str) -> None:
    with outage(OUTAGE_SECONDS) as site:
        antenna = Contract([f"{site.url}/empty-sheet.jpg"] * 80)
        with served(antenna.app()) as url:
            assert run_fleet(settings(url), threading.Event()) == 80
    assert len(antenna.results) == 80
    assert [result for result in antenna.results.values() if "error" in result] == []


def test_tasks_of_an_outage_are_left_and_their_claims_run_out(pictures: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puller, "OUTAGE", Backoff(first_seconds=0.01, longest_seconds=0.01))
    with outage(0.1) as site:
        nowhere = ["http://127.0.0.1:9/none.jpg"] * 4
        missing = [f"{site.url}/missing.jpg"] * 2
        antenna = Contract([*nowhere, *missing, *[f"{site.url}/empty-sheet.jpg"] * 34])
        with served(antenna.app()) as url:
            chosen = replace(settings(url), limits=DownloadLimits(retry_seconds=0), pullers=1)
            posted = run_fleet(chosen, threading.Event())
    failed = {subject for subject, result in antenna.results.items() if "error" in result}
    assert failed == {"$JS.ACK.5", "$JS.ACK.6"}
    assert posted == len(antenna.results) < 37
    # Antenna takes a new name for another worker, and no longer extends the claims of the old one.
    assert len({info["worker_id"] for info in antenna.takers}) >= 3
