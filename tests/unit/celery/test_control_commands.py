"""What a worker refuses by remote control, and that Celery's commands are the replaced ones."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from celery.concurrency.prefork import TaskPool
from celery.concurrency.thread import TaskPool as ThreadPool
from celery.worker.control import Panel

from ami.celery import control_commands
from ami.celery.declaration import declare, depth
from ami.queues.rollout import rollback
from ami.topology.table import FALLBACK, INGEST, INTERACTIVE, SLOW
from ami.topology.topology import Topology
from tests.support.place import celery_at


class Pool(TaskPool):
    """A prefork pool that counts and has no children."""

    def __init__(self, count: int) -> None:
        self.count = count

    num_processes = property(lambda self: self.count)

    def grow(self, n: int = 1) -> None:
        self.count += n


class Worker(SimpleNamespace):
    """The state of a worker's remote control; ``added`` are the arguments of Celery's ``add_task_queue``."""

    def __init__(self, app: Any, own: tuple[str, ...], pool: Any = None, autoscaler: Any = None) -> None:
        self.added: list[tuple[Any, ...]] = []
        consumer = SimpleNamespace(
            controller=SimpleNamespace(own_queues=own, autoscaler=autoscaler),
            pool=pool,
            call_soon=lambda function, *args: function(*args),
            add_task_queue=lambda *args: self.added.append(args),
            _update_prefetch_count=lambda n: None,
        )
        super().__init__(app=app, consumer=consumer)

    def run(self, command: str, **arguments: Any) -> dict[str, str]:
        return dict(Panel.data[command](self, **arguments))


@pytest.fixture
def broker():
    """A broker in the memory of this process, that routes."""
    with celery_at("objectstore+memory://control"):
        yield


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("own", [(INTERACTIVE,), (FALLBACK, INTERACTIVE)])
def test_own_queue_is_added(app: Any, own: tuple[str, ...]):
    worker = Worker(app, own)
    # As celery.app.control.Control.add_consumer sends it, and the command line with one argument.
    given = {"queue": INTERACTIVE, "exchange": None, "exchange_type": "direct", "routing_key": None}
    assert worker.run("add_consumer", **given) == {"ok": f"add consumer {INTERACTIVE}"}
    assert worker.run("add_consumer", queue=INTERACTIVE, exchange="antenna", routing_key=INTERACTIVE).keys() == {"ok"}
    assert [added[0] for added in worker.added] == [INTERACTIVE] * 2


@pytest.mark.parametrize(
    ("queue", "remedy"),
    [
        (INTERACTIVE, "Start celeryworker_interactive for antenna-interactive, or name its worker, such as "
         "'-d interactive@HOST'."),
        ("antena-ingest", "Did you mean 'antenna-ingest'?"),
        (SLOW, "set ANTENNA_SLOW_ENABLED=1"),
    ],
)  # fmt: skip
def test_another_queue_is_refused_with_the_remedy(app: Any, queue: str, remedy: str):
    worker = Worker(app, (INGEST,))
    (sentence,) = worker.run("add_consumer", queue=queue).values()
    assert sentence.startswith("Refused: this worker was started for antenna-ingest only.")
    assert remedy in sentence
    assert worker.added == []


@pytest.mark.parametrize(
    "more",
    [{"exchange": "other"}, {"routing_key": "other"}, {"binding_key": "other"}, {"routing_key": f"#.{FALLBACK}"}],
)
def test_second_key_of_the_own_queue_is_refused(app: Any, more: dict[str, str]):
    worker = Worker(app, (INGEST,))
    said = worker.run("add_consumer", queue=INGEST, **more)
    assert "would deliver tasks twice" in said["error"]
    assert worker.added == []


def test_own_queue_without_a_row_is_added(app: Any):
    worker = Worker(app, (INGEST, "theirs"))
    assert worker.run("add_consumer", queue="theirs", exchange="antenna", routing_key="theirs").keys() == {"ok"}
    assert worker.run("add_consumer", queue=INTERACTIVE).keys() == {"error"}


@pytest.mark.usefixtures("broker")
def test_worker_without_a_row_refuses_no_foreign_queue(app: Any):
    worker = Worker(app, ("theirs",), Pool(1))
    worker.run("add_consumer", queue="anything", exchange="e", exchange_type="direct", routing_key="k")
    assert worker.added == [("anything", "e", "direct", "k")]
    assert worker.run("pool_grow", n=1000) == {"ok": "pool will grow"}


@pytest.mark.parametrize("own", [(), ("theirs",)])
def test_worker_without_a_row_gets_no_queue_of_the_topology(app: Any, own: tuple[str, ...]):
    worker = Worker(app, own)
    assert worker.run("add_consumer", queue=INGEST).keys() == {"error"}
    assert worker.added == []


def test_application_without_a_topology_refuses_nothing():
    worker = Worker(SimpleNamespace(), (INGEST,), Pool(1))
    worker.run("add_consumer", queue=INTERACTIVE)
    assert worker.added == [(INTERACTIVE, None, "direct", None)]
    assert worker.run("pool_grow", n=1000) == {"ok": "pool will grow"}


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("pool_grow", {"n": "5"}),
        ("pool_grow", {"n": None}),
        ("pool_grow", {"n": -1}),
        ("autoscale", {"max": "100"}),
        ("add_consumer", {"queue": None}),
        ("add_consumer", {"queue": {}}),
        ("add_consumer", {"queue": [INGEST]}),
    ],
)
def test_argument_of_a_wrong_type_is_refused(app: Any, command: str, arguments: dict[str, Any]):
    worker = Worker(app, (INGEST,), Pool(1))
    assert "; give " in worker.run(command, **arguments)["error"]
    assert worker.added == []


def test_pool_that_cannot_grow_is_refused_with_a_sentence(app: Any):
    worker = Worker(app, (INGEST,), SimpleNamespace(num_processes=1))
    assert "cannot grow" in worker.run("pool_grow", n=1)["error"]


@pytest.fixture
def held_three(settings: Any, app: Any) -> Worker:
    """A worker of two processes whose container holds three of them."""
    row = settings.ANTENNA_TOPOLOGY.workload(FALLBACK)
    row = replace(row, concurrency=2, container_memory_kib=row.needed_memory_kib + row.child_limit_kib + 200_000)
    others = tuple(each for each in settings.ANTENNA_TOPOLOGY.workloads if each.queue != FALLBACK)
    settings.ANTENNA_TOPOLOGY = Topology((*others, row))
    return Worker(app, (FALLBACK,), Pool(2))


def test_pool_grows_to_what_the_container_holds(held_three: Worker):
    assert held_three.run("pool_grow", n=1) == {"ok": "pool will grow"}
    sentence = held_three.run("pool_grow", n=1)["error"]
    assert sentence.startswith("Refused: the container of antenna holds 3 processes of 576 MiB, and 4 were asked for.")
    assert "ANTENNA_FALLBACK_CONTAINER_MEMORY_KIB" in sentence
    assert held_three.consumer.pool.count == 3


@pytest.mark.parametrize(("limits", "answer"), [((3, 1), "ok"), ((4, 1), "error"), ((2, 4), "error"), ((4,), "error")])
def test_autoscale_is_bounded_by_what_the_container_holds(held_three: Worker, limits: tuple[int, ...], answer: str):
    held_three.consumer.controller.autoscaler = SimpleNamespace(update=lambda *given: given)
    said = held_three.run("autoscale", **dict(zip(("max", "min"), limits, strict=False)))
    assert set(said) == {answer}


def test_threads_are_not_bounded_by_memory_of_children(held_three: Worker):
    held_three.consumer.pool = ThreadPool.__new__(ThreadPool)
    held_three.consumer.pool.limit = 2
    held_three.consumer.pool.grow = lambda n: None
    assert held_three.run("pool_grow", n=1000) == {"ok": "pool will grow"}


@pytest.mark.usefixtures("broker")
def test_consumer_that_starts_during_a_rollback_takes_no_key(app: Any):
    """A worker has declared its topology, and a rollback finds no consumer yet."""
    topology = app.topology
    queue = app.amqp.queues[INTERACTIVE]
    with app.connection_for_write() as connection:
        declare(topology, connection, own=(INTERACTIVE,))
        rollback(topology, connection)
        channel = connection.channel()
        app.amqp.TaskConsumer(channel, queues=[queue]).add_queue(queue)
        app.send_task("tests.unknown", queue=INTERACTIVE)
        assert [depth(channel, name)[0] for name in (INTERACTIVE, FALLBACK)] == [0, 1]

        Worker(app, (INTERACTIVE,)).run("add_consumer", queue=INTERACTIVE)
        app.send_task("tests.unknown", queue=INTERACTIVE)
        assert [depth(channel, name)[0] for name in (INTERACTIVE, FALLBACK)] == [1, 1]


def test_command_line_knows_the_replaced_commands_arguments():
    assert Panel.data["add_consumer"] is control_commands.add_consumer
    names = [name for name, _ in Panel.meta["add_consumer"].args]
    assert names == ["queue", "exchange", "exchange_type", "routing_key"]
    assert [name for name, _ in Panel.meta["autoscale"].args] == ["max", "min"]
