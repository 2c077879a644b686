"""What a copy of a message keeps of its headers."""

from ami.celery.message_copy import fresh


def test_copy_has_neither_the_past_nor_the_other_addresses_of_its_message():
    kept = {"task": "a.task", "id": "1", "retries": 2}
    past = {"x-death": [{"count": 1}], "x-delivery-count": 3, "antenna_reason": "it was malformed"}
    # RabbitMQ delivers to each queue that these name as well: one message would become three.
    addresses = {"CC": ["antenna-ingest"], "BCC": ["antenna-housekeeping"]}
    assert fresh({**kept, **past, **addresses}) == kept
    assert fresh(None) == {}
