"""SIGTERM and SIGINT end a process between two pieces of its work."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from ami.celery.orderly_end import OrderlyEnd

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture
def end() -> Iterator[OrderlyEnd]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    end = OrderlyEnd()
    end.install()
    yield end
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_ends_who_does_nothing_at_once(end: OrderlyEnd, number: signal.Signals):
    with end.work():
        pass
    with pytest.raises(SystemExit):
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_work_is_done_to_its_end_first(end: OrderlyEnd, number: signal.Signals):
    done = []

    def work() -> None:
        with end.work():
            with end.work():
                os.kill(os.getpid(), number)
                done.append("inner")
            done.append("outer")

    with pytest.raises(SystemExit):
        work()
    assert done == ["inner", "outer"]


def test_work_that_waits_ends_where_it_says(end: OrderlyEnd):
    with end.work():
        end.here()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(SystemExit):
            end.here()
        end.begin()


def test_work_that_fails_ends_the_process_all_the_same(end: OrderlyEnd):
    def work() -> None:
        with end.work():
            os.kill(os.getpid(), signal.SIGTERM)
            raise ValueError

    with pytest.raises(SystemExit):
        work()


def test_end_itself_is_not_interrupted(end: OrderlyEnd):
    with pytest.raises(SystemExit):
        os.kill(os.getpid(), signal.SIGTERM)
    end.begin()
    with end.work():
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)


def test_thread_installs_nothing():
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=OrderlyEnd().install)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
