"""What the tests of the transport send and receive with."""

from typing import Any

from kombu import Connection, Consumer, Exchange, Producer, Queue

EXCHANGE = Exchange("site", type="topic", durable=True)
DEAD = Exchange("site.dlx", type="direct", durable=True)
QUEUE = Queue("moths", EXCHANGE, routing_key="moths.#", durable=True)
LETTERS = Queue("moths.dlq", DEAD, routing_key="moths", durable=True)


def dying(**arguments: Any) -> Queue:
    """Return a queue whose dead letters go to LETTERS."""
    given = {"x-dead-letter-exchange": "site.dlx", "x-dead-letter-routing-key": "moths", **arguments}
    return Queue("moths", EXCHANGE, routing_key="moths.#", durable=True, queue_arguments=given)


def declare(connection: Connection, *queues: Queue) -> Any:
    """Declare queues with their exchanges; return the channel."""
    channel = connection.default_channel
    for queue in queues:
        queue(channel).declare()
    return channel


def send(connection: Connection, body: Any, key: str = "moths.new", **options: Any) -> None:
    Producer(connection).publish(body, exchange="site", routing_key=key, serializer="json", **options)


def receive(connection: Connection, queue: Queue, count: int, settle: Any = None, seconds: float = 60, **options: Any):
    """Return ``count`` messages of a queue, each settled by ``settle`` (acknowledged without one)."""
    got: list[Any] = []

    def take(body: Any, message: Any) -> None:
        got.append(message)
        (settle or (lambda one: one.ack()))(message)

    with connection.channel() as channel, Consumer(channel, [queue], callbacks=[take], **options):
        while len(got) < count:
            connection.drain_events(timeout=seconds)
    return got


def depth(connection: Connection, queue: str) -> int:
    return connection.default_channel.queue_declare(queue, passive=True).message_count


def receive_nothing(connection, queue) -> bool:
    with connection.channel() as channel, Consumer(channel, [queue], callbacks=[lambda *_: None], auto_declare=False):
        try:
            connection.drain_events(timeout=0.05)
        except TimeoutError:
            return True
    return False
