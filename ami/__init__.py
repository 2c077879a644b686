"""Antenna's background work on workload-split Celery queues."""
