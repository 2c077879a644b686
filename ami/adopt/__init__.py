"""Moves the messages of a running Antenna's old queues into the split; ``manage.py queues adopt``.

Nothing imports this app: one line of the settings installs it, and it adds its sub-command itself.

- ``old_tasks``, ``old_results``: what becomes of each old task, in the words of ``becomes``; results in messages.
- ``old_broker``, ``old_message``: the old queues, read only, and a message of theirs.
- ``plan``: what becomes of a message.
- ``split``: publishes into the split, confirmed.
- ``tally``: the counts, and the message in flight, in the database.
- ``bridge``: the loop that connects them; ``operation``, ``command``: what runs it.
"""
