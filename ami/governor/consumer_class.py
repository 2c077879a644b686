"""Which class an application's task consumers have, so that the governor can manage them."""

from celery.app.amqp import AMQP
from kombu import Consumer

from ami.governor.slot_consumer import SlotConsumer


def managed_class(consumer: type[Consumer]) -> type[Consumer]:
    """Return a class of task consumers that the governor can manage, from the one that an application uses."""
    if issubclass(consumer, SlotConsumer):
        return consumer
    return SlotConsumer if consumer is Consumer else type("ManagedConsumer", (SlotConsumer, consumer), {})


class SlotAMQP(AMQP):
    """Celery's AMQP with task consumers that the governor can manage."""

    Consumer = SlotConsumer
