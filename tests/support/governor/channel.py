"""A worker's side of one RabbitMQ channel, and a channel that records its calls."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kombu import Exchange, Queue
from kombu.message import Message

from ami.governor.slot_consumer import SlotConsumer

QUEUES = [Queue(name, Exchange(name), routing_key=name) for name in ("quick", "slow")]


class Channel:
    """A channel that records its calls, and delivers a message when a test wants it to."""

    no_ack_consumers = None

    def __init__(self) -> None:
        self.connection = SimpleNamespace(client=SimpleNamespace(transport=SimpleNamespace(driver_type="amqp")))
        self.calls: list[tuple[Any, ...]] = []
        self.callbacks: dict[str, Callable[[Any], Any]] = {}
        self.delivered = 0
        #: Called once, before the broker answers the next cancel that waits for its answer.
        self.crossing: Callable[[str], Any] | None = None

    def basic_qos(self, _: int, count: int, apply_global: bool) -> None:
        self.calls.append(("qos", count, apply_global))

    def basic_consume(self, queue: str, consumer_tag: str, callback: Any, **_: Any) -> None:
        self.calls.append(("consume", queue))
        self.callbacks[consumer_tag] = callback

    def basic_cancel(self, consumer_tag: str, nowait: bool = False) -> None:
        self.calls.append(("cancel behind", consumer_tag) if nowait else ("cancel", consumer_tag))
        if nowait:
            return
        crossing, self.crossing = self.crossing, None
        if crossing:
            crossing(consumer_tag)
        del self.callbacks[consumer_tag]

    def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:
        self.calls.append(("ack", delivery_tag))

    def basic_reject(self, delivery_tag: int, requeue: bool = False) -> None:
        self.calls.append(("reject", delivery_tag, requeue))

    def deliver(self, consumer_tag: str, eta: str | None = None) -> Message:
        """Deliver the next message to one consumer."""
        self.delivered += 1
        info = {"consumer_tag": consumer_tag}
        headers = {"id": str(self.delivered), "eta": eta}
        message = Message(b"", self.delivered, channel=self, delivery_info=info, headers=headers)
        self.callbacks[consumer_tag](message)
        return message


class Worker:
    """A worker's side of one channel: the messages it received, and its calls as each is settled."""

    def __init__(self, slots: int, multiplier: int = 1, queues: list[Queue] | None = None) -> None:
        self.channel = Channel()
        self.consumer = SlotConsumer(self.channel, queues or QUEUES[:1], auto_declare=False, tag_prefix="w-")
        self.soon: list[Callable[[], Any]] = []
        self.refused: set[str] = set()
        self.when_settled: Callable[[], None] = lambda: None
        self.got: list[Message] = []
        self.consumer.manage(multiplier, self.soon.append, self._settled, self._refuses)
        self.consumer.on_message = self.got.append
        self.consumer.slots = slots
        self.consumer.consume()

    def _settled(self, delivery_tag: int) -> None:
        self.channel.calls.append(("settled", delivery_tag))
        self.when_settled()

    def _refuses(self, message: Message) -> bool:
        if message.headers["id"] not in self.refused:
            return False
        message.reject()
        return True

    @property
    def open(self) -> list[str]:
        return list(self.channel.callbacks)

    def lower(self, slots: int) -> None:
        self.consumer.slots = slots
        self.consumer.adjust()

    def later(self) -> None:
        """Run the calls that wait for the loop's thread."""
        soon, self.soon[:] = list(self.soon), []
        for function in soon:
            function()

    def calls(self) -> list[tuple[Any, ...]]:
        """The channel's calls since the last call of this."""
        calls, self.channel.calls[:] = list(self.channel.calls), []
        return calls
