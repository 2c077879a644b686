"""What the queues need from outside."""
