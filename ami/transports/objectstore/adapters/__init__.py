"""Adapters of the queues to what they stand on."""
