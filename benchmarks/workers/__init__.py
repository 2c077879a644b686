"""Workers under load: the governor, and queues beside each other."""
