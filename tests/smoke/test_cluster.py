"""Three RabbitMQ nodes: one may be killed under load, and two missing ones stop publishing but lose nothing."""

import time

import pytest
from kombu import Connection, Producer
from kombu.exceptions import OperationalError

from ami.celery.declaration import declare
from ami.topology import broker
from ami.topology.topology import load
from tests.support.containers.cluster import NODES, START_LOOK_SECONDS, Cluster, new_cluster
from tests.support.containers.engine import until
from tests.support.containers.traffic import OPTIONS, Consumer, Publisher, Received
from tests.support.soak import soak

QUEUE = "antenna-ingest"
OTHER_QUEUE = "antenna-interactive"
#: So many confirmations before the kill, and as many after it.
LEAST = soak(200, 1000)
MESSAGES = 50_000
#: A hundred messages a second, or as many as there can be.
PACE = soak(0.01, 0.0)
#: A leader is found anew within seconds; a publisher's own wait for a confirmation ends after 10 s.
GAP_SECONDS = 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):
    with new_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def test_every_queue_has_a_member_on_each_node_and_declaring_again_changes_nothing(cluster: Cluster):
    with Connection(cluster.urls("rabbitmq_2")) as connection:
        declared = declare(load({}), connection)
    counts = cluster.member_counts()
    assert set(declared) < set(counts)
    assert len([name for name in counts if name.startswith("celery_delayed_")]) == 28
    assert set(counts.values()) == {3}


def test_a_killed_leader_loses_no_message_and_returns_with_its_members(cluster: Cluster, record_property):
    leader = cluster.leader(QUEUE)
    other = next(node for node in NODES if node != leader)
    publisher = Publisher(cluster.urls(leader), QUEUE, MESSAGES, PACE)
    received = Received()
    consumers = [Consumer(cluster.urls(node), QUEUE, received) for node in (leader, other)]
    for each in (*consumers, publisher):
        each.start()
    until(lambda: len(publisher.confirmed) > LEAST, 120, "a steady flow")
    before = len(publisher.confirmed)
    started = cluster.starts(leader)
    cluster.kill(leader)
    until(lambda: len(publisher.confirmed) > before + LEAST, 120, "it goes on after the kill")
    publisher.stopping.set()
    publisher.join(60)
    assert publisher.error is None
    assert not publisher.is_alive()

    until(lambda: publisher.confirmed.keys() <= set(list(received.times)), 120, "every confirmed message")
    until(lambda: time.monotonic() - received.last > 1, 120, "an empty queue")
    for each in consumers:
        each.should_stop = True
        each.join(60)
    figures = {
        "confirmed": len(publisher.confirmed),
        "confirmed_after_the_kill": len(publisher.confirmed) - before,
        "consumed": sum(received.times.values()),
        "published_again": len(publisher.repeated),
        "redelivered": sum(received.redelivered.values()),
        "longest_gap_seconds": round(publisher.longest_gap_seconds(), 2),
    }
    for name, value in figures.items():
        record_property(name, value)
    print(figures)
    assert received.unexplained(publisher.repeated) == {}
    assert figures["longest_gap_seconds"] < GAP_SECONDS

    until(lambda: cluster.starts(leader) > started, 240, "it has started again", START_LOOK_SECONDS)
    until(lambda: set(cluster.member_counts("online", node=other).values()) == {3}, 240, "all members online", 0.5)
    assert cluster.restarts(leader) == 1
    assert set(cluster.member_counts(node=other).values()) == {3}


def test_one_node_alone_takes_no_message_and_keeps_those_it_confirmed(cluster: Cluster):
    with Connection(cluster.urls("rabbitmq"), transport_options=OPTIONS) as connection:
        assert publish(connection, "confirmed before")
    stopped = {node: cluster.starts(node) for node in NODES[1:]}
    cluster.compose("stop", "--timeout", "0", *stopped)
    try:
        with Connection(cluster.urls("rabbitmq"), transport_options=OPTIONS, connect_timeout=2) as connection:
            assert not publish(connection, "refused")
    finally:
        cluster.compose("start", *stopped)
    for node, before in stopped.items():
        until(lambda name=node, least=before: cluster.starts(name) > least, 240, f"{node} runs", START_LOOK_SECONDS)
    until(lambda: cluster.member_counts("online").get(OTHER_QUEUE) == 3, 240, "three nodes again", 0.5)
    with Connection(cluster.urls("rabbitmq_3"), transport_options=OPTIONS) as connection:
        assert publish(connection, "confirmed after")
        bodies = taken(connection)
    assert bodies[0] == "confirmed before"
    assert bodies[-1] == "confirmed after"
    assert set(bodies) <= {"confirmed before", "refused", "confirmed after"}


def publish(connection: Connection, body: str) -> bool:
    """Return whether a message was confirmed within a few seconds."""
    policy = {"max_retries": 2, "interval_start": 0.2, "interval_max": 0.5}
    try:
        Producer(connection, auto_declare=False).publish(
            body,
            exchange=broker.EXCHANGE_NAME,
            routing_key=OTHER_QUEUE,
            delivery_mode=2,
            retry=True,
            retry_policy=policy,
            confirm_timeout=3,
        )
    except (OperationalError, *connection.recoverable_connection_errors):
        return False
    return True


def taken(connection: Connection) -> list[str]:
    """Return the bodies of all messages in the other queue, in their order."""
    bodies: list[str] = []
    with connection.channel() as channel:
        while raw := channel.basic_get(OTHER_QUEUE, no_ack=True):
            bodies.append(channel.message_to_python(raw).payload)
    return bodies
