"""Celery over each broker: empty tasks, from publish to start, in a real worker process."""
