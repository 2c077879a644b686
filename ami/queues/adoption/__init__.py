"""Moves the messages of a running application's old queues into the split; ``manage.py queues adopt``.

- ``old_tasks``: the port for the product's table of old task names, and its words.
- ``old_broker``, ``old_message``: the old queues, read only, and a message of theirs.
- ``plan``: what becomes of a message.
- ``split``: publishes into the split, confirmed.
- ``tally``: the counts, and the message in flight, in the database.
- ``bridge``: the loop that connects them; ``preview``: the same without moving anything.
"""
