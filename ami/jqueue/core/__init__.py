"""The queues themselves, and the wire format of a queue in one blob."""
