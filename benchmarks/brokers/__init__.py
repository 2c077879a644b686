"""What Celery does over each broker: tasks that do nothing, from publish to start, by a real worker process."""
