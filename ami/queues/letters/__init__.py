"""Dead letters in the database.

``collector`` takes them out of their queues, ``rows`` writes them and publishes them again, and ``both`` is what
operators see: rows, and messages that are not collected yet.
"""
