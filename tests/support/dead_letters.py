"""Dead letters in the database, as the collector writes them."""

import json
from typing import Any

from kombu import Message

from ami.celery.app import PUBLISH_ID_HEADER
from ami.queues.letters import rows
from ami.queues.models import Letter

QUEUE, TASK = "antenna-ingest.dlq", "ami.main.tasks.purge_old_rows"


def letter(number: int, body: Any = None, **headers: Any) -> Letter:
    """Write the letter of a task; its message is JSON without arguments unless ``body`` says otherwise."""
    text = json.dumps([[], {}, {"chain": None}]) if body is None else body
    given = {"task": TASK, "id": f"id-{number}", PUBLISH_ID_HEADER: f"p{number}", "x-death": [{"reason": "rejected"}]}
    kinds = {"content_type": "application/json", "content_encoding": "utf-8"}
    rows.write(QUEUE, [Message(body=text, headers=given | headers, properties={}, **kinds)])
    return Letter.objects.get(task_id=given["id"])
